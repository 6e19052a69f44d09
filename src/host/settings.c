/* settings.c - a text becomes a number, a flag or a list within the bounds of its row. */
#include "host/settings.h"
#include "host/settings_table.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A number, with K, M, G or T for a row of bytes. */
static bool parse_number(const struct setting_row *row, const char *text, double *ret)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !isfinite(v) || isspace((unsigned char)text[0]))
        return false;
    static const char units[] = "KMGT";
    const char *unit =
        row->kind == SETTING_BYTES && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        v *= 1024;
    end += unit != NULL;
    if (*end != 0 || (row->kind != SETTING_REAL && v != floor(v)))
        return false;
    *ret = v;
    return v >= row->min && v <= row->max;
}

static int set_list(const struct setting_row *row, const char *text, const char **list, struct err *e)
{
    for (int i = 0; i < SETTINGS_KEYS_MAX; i++) {
        if (!list[i]) {
            list[i] = text;
            return 0;
        }
    }
    return err_set(e, -EINVAL, "--%s: at most %d may be given", row->name, SETTINGS_KEYS_MAX);
}

static uint64_t unit_of(const struct setting_row *row)
{
    return row->kind == SETTING_SECONDS ? NS_PER_S : row->kind == SETTING_MS ? NS_PER_MS : 1;
}

/* Fields are as wide as their readers have them; the row's bound keeps values within. */
static void set_number(const struct setting_row *row, void *field, uint64_t v)
{
    switch (row->size) {
    case sizeof(uint16_t):
        *(uint16_t *)field = (uint16_t)v;
        break;
    case sizeof(uint32_t):
        *(uint32_t *)field = (uint32_t)v;
        break;
    default:
        ASSERT(row->size == sizeof(uint64_t));
        *(uint64_t *)field = v;
    }
}

uint64_t settings_number(const struct setting_row *row, const struct settings *s)
{
    const void *field = (const char *)s + row->offset;
    uint64_t v = row->size == sizeof(uint16_t)   ? *(const uint16_t *)field
                 : row->size == sizeof(uint32_t) ? *(const uint32_t *)field
                                                 : *(const uint64_t *)field;
    return v / unit_of(row);
}

int settings_set(const struct setting_row *row, const char *text, struct settings *o, struct err *e)
{
    void *field = (char *)o + row->offset;
    double v;
    switch (row->kind) {
    case SETTING_TEXT:
        *(const char **)field = text;
        return 0;
    case SETTING_LIST:
        return text[0] ? set_list(row, text, field, e)
                       : err_set(e, -EINVAL, "--%s: the value is empty", row->name);
    case SETTING_FLAG:
        *(bool *)field = strcmp(text, "0") != 0 && strcmp(text, "false") != 0 && strcmp(text, "no") != 0;
        return 0;
    default:
        break;
    }
    if (!parse_number(row, text, &v))
        return err_set(e, -EINVAL, "--%s %s: a number from %.15g to %.15g is expected%s", row->name, text,
                       row->min, row->max,
                       row->kind == SETTING_BYTES ? ", optionally with the suffix K, M, G or T" : "");
    if (row->kind == SETTING_REAL)
        *(double *)field = v;
    else
        set_number(row, field, (uint64_t)v * unit_of(row));
    return 0;
}

static int set_default(const struct setting_row *row, struct settings *s, struct err *e)
{
    if (!row->otherwise)
        return 0;
    if (strcmp(row->otherwise, SETTINGS_NOT_GIVEN) != 0)
        return settings_set(row, row->otherwise, s, e);
    memset((char *)s + row->offset, 0xff, row->size);
    return 0;
}

int settings_defaults(struct settings *ret, struct err *e)
{
    *ret = (struct settings){0};
    for (size_t i = 0; i < settings_table_count; i++) {
        int r = set_default(&settings_table[i], ret, e);
        if (r < 0)
            return r;
    }
    return 0;
}

void settings_take(unsigned of_commands, const struct settings *from, struct settings *to)
{
    for (size_t i = 0; i < settings_table_count; i++) {
        const struct setting_row *row = &settings_table[i];
        if (row->commands & of_commands)
            memcpy((char *)to + row->offset, (const char *)from + row->offset, row->size);
    }
}

/* --- texts --- */

struct settings_text {
    struct settings_text *next;
    char text[];
};

const char *settings_keep(struct settings *o, const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct settings_text *t = malloc(sizeof(*t) + bytes);
    if (!t)
        return NULL;
    memcpy(t->text, text, bytes);
    t->next = o->texts;
    o->texts = t;
    return t->text;
}

void settings_done(struct settings *o)
{
    while (o->sections) {
        struct settings_section *s = o->sections;
        o->sections = s->next;
        free(s);
    }
    while (o->texts) {
        struct settings_text *t = o->texts;
        o->texts = t->next;
        explicit_bzero(t->text, strlen(t->text));
        free(t);
    }
}

/* --- sections --- */

/* The section of that name, created on first use; in the file's order. NULL: no memory. */
static struct settings_section *section_of(struct settings *o, const char *name)
{
    struct settings_section **at = &o->sections;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    if (*at)
        return *at;
    struct settings_section *s = calloc(1, sizeof(*s));
    if (s && !(s->name = settings_keep(o, name))) {
        free(s);
        return NULL;
    }
    *at = s;
    return s;
}

static bool has_another(const struct settings_section *s, const struct setting_row *row, const char *text)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->settings[i].row == row && row->kind != SETTING_LIST && strcmp(s->settings[i].text, text) != 0)
            return true;
    return false;
}

int settings_set_section(struct settings *s, const char *section, const struct setting_row *row,
                         const char *text, struct err *e)
{
    struct settings tried = {0};
    struct settings_section *own = section_of(s, section);
    const char *copy = own ? settings_keep(s, text) : NULL;
    if (!copy)
        return -ENOMEM;
    if (own->count == SECTION_SETTINGS_MAX)
        return err_set(e, -EINVAL, "[model %s] has more than %d settings", section, SECTION_SETTINGS_MAX);
    if (has_another(own, row, copy))
        return err_set(e, -EINVAL, "[model %s] has %s twice, with different values", section, row->name);
    own->settings[own->count].row = row;
    own->settings[own->count++].text = copy;
    return settings_set(row, copy, &tried, e) < 0 ? err_prefix(e, -EINVAL, "[model %s]", section) : 0;
}

bool settings_warm(const struct settings *s)
{
    for (const struct settings_section *of = s->sections; of; of = of->next)
        for (uint32_t i = 0; i < of->count; i++)
            if (strcmp(of->settings[i].row->name, "warm") == 0)
                return true;
    return s->models.warm[0] || s->api.warms;
}

const char *settings_section(const struct settings *o, uint32_t index)
{
    const struct settings_section *s = o->sections;
    while (s && index-- > 0)
        s = s->next;
    return s ? s->name : NULL;
}

int settings_of_model(const struct settings *o, const char *section, struct settings *ret, struct err *e)
{
    struct settings own = *o, neutral;
    int r = settings_defaults(&neutral, e);
    own.api.warms = settings_warm(o);
    own.texts = NULL;
    own.sections = NULL;
    memset(own.models.aliases, 0, sizeof(own.models.aliases));
    memset(own.models.warm, 0, sizeof(own.models.warm));
    own.api.live.max_tokens_default = 0;
    own.model.bytes_max = 0;
    own.model.sampling = neutral.model.sampling;
    const struct settings_section *s = section ? o->sections : NULL;
    while (s && strcmp(s->name, section) != 0)
        s = s->next;
    for (uint32_t i = 0; r == 0 && s && i < s->count; i++)
        r = settings_set(s->settings[i].row, s->settings[i].text, &own, e);
    *ret = own;
    return r;
}
