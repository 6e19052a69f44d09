/* settings.c - a text becomes a number, a flag or a list within the bounds of its row. */
#include "host/settings_table.h"

#include "base/check.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
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
        *(uint64_t *)field = (uint64_t)v;
    return 0;
}

int settings_defaults(struct settings *o, struct err *e)
{
    *o = (struct settings){.prefix_cache = SETTINGS_ALL,
                           .image_cache = SETTINGS_ALL,
                           .mtp = SETTINGS_ALL,
                           .draft_vocab = SETTINGS_ALL};
    for (size_t i = 0; i < settings_table_count; i++) {
        int r = settings_table[i].otherwise
                    ? settings_set(&settings_table[i], settings_table[i].otherwise, o, e)
                    : 0;
        if (r < 0)
            return r;
    }
    return 0;
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
    own->settings[own->count].row = row;
    own->settings[own->count++].text = copy;
    return settings_set(row, copy, &tried, e) < 0 ? err_prefix(e, -EINVAL, "[model %s]", section) : 0;
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
    own.texts = NULL;
    own.sections = NULL;
    memset(own.aliases, 0, sizeof(own.aliases));
    own.max_tokens_default = own.model_limit = 0;
    own.temperature = neutral.temperature;
    own.top_p = neutral.top_p;
    own.top_k = neutral.top_k;
    const struct settings_section *s = section ? o->sections : NULL;
    while (s && strcmp(s->name, section) != 0)
        s = s->next;
    for (uint32_t i = 0; r == 0 && s && i < s->count; i++)
        r = settings_set(s->settings[i].row, s->settings[i].text, &own, e);
    *ret = own;
    return r;
}
