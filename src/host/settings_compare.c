/* settings_compare.c - two sets of settings, row by row. */
#include "host/settings.h"
#include "host/settings_table.h"

#include "base/check.h"
#include "base/slice.h"

#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 256

static void show_list(const char *const *list, char ret[VALUE_BYTES])
{
    size_t n = 0;
    ret[0] = 0;
    for (uint32_t i = 0; list[i] && n < VALUE_BYTES; i++)
        n += (size_t)snprintf(ret + n, VALUE_BYTES - n, i ? ",%s" : "%s", list[i]);
}

static bool is_given(const struct setting_row *row, const void *field)
{
    static const unsigned char none[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    ASSERT(row->size <= sizeof(none) || row->kind == SETTING_LIST);
    return !row->otherwise || strcmp(row->otherwise, SETTINGS_NOT_GIVEN) != 0 ||
           memcmp(field, none, row->size) != 0;
}

static void show_value(const struct setting_row *row, const struct settings *o, char ret[VALUE_BYTES])
{
    const void *field = (const char *)o + row->offset;
    ret[0] = 0;
    if (!is_given(row, field))
        return;
    switch (row->kind) {
    case SETTING_TEXT:
        snprintf(ret, VALUE_BYTES, "%s", *(const char *const *)field ? *(const char *const *)field : "");
        break;
    case SETTING_LIST:
        show_list(field, ret);
        break;
    case SETTING_FLAG:
        snprintf(ret, VALUE_BYTES, "%s", *(const bool *)field ? "yes" : "no");
        break;
    case SETTING_REAL:
        snprintf(ret, VALUE_BYTES, "%g", *(const double *)field);
        break;
    case SETTING_COUNT:
    case SETTING_SECONDS:
    case SETTING_MS:
    case SETTING_BYTES:
        snprintf(ret, VALUE_BYTES, "%llu", (ull)settings_number(row, o));
        break;
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_list(const char *const *a, const char *const *b)
{
    uint32_t i = 0;
    while (a[i] && b[i] && strcmp(a[i], b[i]) == 0)
        i++;
    return !a[i] && !b[i];
}

static bool is_same(const struct setting_row *row, const struct settings *a, const struct settings *b)
{
    const void *x = (const char *)a + row->offset, *y = (const char *)b + row->offset;
    switch (row->kind) {
    case SETTING_TEXT:
        return same_text(*(const char *const *)x, *(const char *const *)y);
    case SETTING_LIST:
        return same_list(x, y);
    case SETTING_FLAG:
        return *(const bool *)x == *(const bool *)y;
    case SETTING_REAL:
        return *(const double *)x == *(const double *)y;
    case SETTING_COUNT:
    case SETTING_SECONDS:
    case SETTING_MS:
    case SETTING_BYTES:
        break;
    }
    return settings_number(row, a) == settings_number(row, b);
}

bool settings_exceed(const char *name, const struct settings *now, const struct settings *started)
{
    const struct setting_row *row = settings_row_of(PLANNED, name, strlen(name));
    return row && settings_number(row, now) > settings_number(row, started);
}

static const struct settings_section *section_of(const struct settings *o, const char *name)
{
    const struct settings_section *s = o->sections;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

static bool same_section(const struct settings_section *a, const struct settings_section *b)
{
    bool same = a->count == b->count;
    for (uint32_t i = 0; same && i < a->count; i++)
        same =
            a->settings[i].row == b->settings[i].row && strcmp(a->settings[i].text, b->settings[i].text) == 0;
    return same;
}

/* Sections of `of` that `other` has with other settings or not at all; gone: only those that it lacks. */
static void compare_sections(const struct settings *of, const struct settings *other, bool gone,
                             void (*tell)(void *arg, const struct settings_change *change), void *arg)
{
    char name[256];
    for (const struct settings_section *s = of->sections; s; s = s->next) {
        const struct settings_section *same = section_of(other, s->name);
        if (gone ? same != NULL : same && same_section(s, same))
            continue;
        snprintf(name, sizeof(name), "model:%s", s->name);
        tell(arg, &(struct settings_change){name, gone || same ? "as it was" : "none",
                                            gone ? "none" : "as it is", false});
    }
}

void settings_compare(enum setting_command command, const struct settings *from, const struct settings *to,
                      void (*tell)(void *arg, const struct settings_change *change), void *arg)
{
    char was[VALUE_BYTES] = "*", is[VALUE_BYTES] = "*";
    for (size_t i = 0; i < settings_table_count; i++) {
        const struct setting_row *row = &settings_table[i];
        if (!(row->commands & (unsigned)command) || is_same(row, from, to))
            continue;
        bool secret = row->commands & (SECRET | UNSHOWN);
        if (!secret) {
            show_value(row, from, was);
            show_value(row, to, is);
        }
        tell(arg, &(struct settings_change){row->name, secret ? "*" : was, secret ? "*" : is,
                                            row->commands & LIVE});
    }
    compare_sections(to, from, false, tell, arg);
    compare_sections(from, to, true, tell, arg);
}
