/* options_show.c - prints help and changed options, and hides secrets. */
#include "cli/options_table.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

/* --- changed options, secrets --- */

static void hide(char *text)
{
    while (*text)
        *text++ = '*';
}

void options_hide(enum option_command command, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char *equals = strchr(argv[i], '=');
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        size_t len = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const struct option_row *row = options_row_of((unsigned)command, argv[i] + 2, len - 2);
        if (!row || row->kind == OPTION_FLAG)
            continue;
        char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (value && (row->commands & SECRET))
            hide(value);
    }
}

#define VALUE_BYTES 256

static void show_list(const char *const *list, char ret[VALUE_BYTES])
{
    size_t n = 0;
    ret[0] = 0;
    for (uint32_t i = 0; list[i] && n < VALUE_BYTES; i++)
        n += (size_t)snprintf(ret + n, VALUE_BYTES - n, i ? ",%s" : "%s", list[i]);
}

static void show_value(const struct option_row *row, const struct options *o, char ret[VALUE_BYTES])
{
    const void *field = (const char *)o + row->offset;
    switch (row->kind) {
    case OPTION_TEXT:
        snprintf(ret, VALUE_BYTES, "%s", *(const char *const *)field ? *(const char *const *)field : "");
        break;
    case OPTION_LIST:
        show_list(field, ret);
        break;
    case OPTION_FLAG:
        snprintf(ret, VALUE_BYTES, "%s", *(const bool *)field ? "yes" : "no");
        break;
    case OPTION_REAL:
        snprintf(ret, VALUE_BYTES, "%g", *(const double *)field);
        break;
    case OPTION_COUNT:
    case OPTION_BYTES:
        snprintf(ret, VALUE_BYTES, "%llu", (unsigned long long)*(const uint64_t *)field);
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

static bool is_same(const struct option_row *row, const struct options *a, const struct options *b)
{
    const void *x = (const char *)a + row->offset, *y = (const char *)b + row->offset;
    switch (row->kind) {
    case OPTION_TEXT:
        return same_text(*(const char *const *)x, *(const char *const *)y);
    case OPTION_LIST:
        return same_list(x, y);
    case OPTION_FLAG:
        return *(const bool *)x == *(const bool *)y;
    case OPTION_REAL:
        return *(const double *)x == *(const double *)y;
    case OPTION_COUNT:
    case OPTION_BYTES:
        break;
    }
    return *(const uint64_t *)x == *(const uint64_t *)y;
}

static const struct options_section *section_of(const struct options *o, const char *name)
{
    const struct options_section *s = o->sections;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

static bool same_section(const struct options_section *a, const struct options_section *b)
{
    bool same = a->count == b->count;
    for (uint32_t i = 0; same && i < a->count; i++)
        same =
            a->settings[i].row == b->settings[i].row && strcmp(a->settings[i].text, b->settings[i].text) == 0;
    return same;
}

/* Sections of `of` that `other` has with other settings or not at all; gone: only those that it lacks. */
static void compare_sections(const struct options *of, const struct options *other, bool gone,
                             void (*tell)(void *arg, const struct options_change *change), void *arg)
{
    char name[256];
    for (const struct options_section *s = of->sections; s; s = s->next) {
        const struct options_section *same = section_of(other, s->name);
        if (gone ? same != NULL : same && same_section(s, same))
            continue;
        snprintf(name, sizeof(name), "model:%s", s->name);
        tell(arg, &(struct options_change){name, gone || same ? "as it was" : "none",
                                           gone ? "none" : "as it is", false});
    }
}

void options_compare(enum option_command command, const struct options *from, const struct options *to,
                     void (*tell)(void *arg, const struct options_change *change), void *arg)
{
    char was[VALUE_BYTES] = "*", is[VALUE_BYTES] = "*";
    for (size_t i = 0; i < options_table_count; i++) {
        const struct option_row *row = &options_table[i];
        if (!(row->commands & (unsigned)command) || is_same(row, from, to))
            continue;
        bool secret = row->commands & SECRET;
        if (!secret) {
            show_value(row, from, was);
            show_value(row, to, is);
        }
        tell(arg, &(struct options_change){row->name, secret ? "*" : was, secret ? "*" : is,
                                           row->commands & LIVE});
    }
    compare_sections(to, from, false, tell, arg);
    compare_sections(from, to, true, tell, arg);
}

/* --- help --- */

#define HELP_COLUMN 30 /* where the text of an option begins */
#define HELP_WIDTH  100

/* Words from HELP_COLUMN on, in as many lines as they take. Text in brackets counts as one word. */
static void help_words(const char *text, unsigned *column, FILE *f)
{
    while (*text) {
        unsigned len = (unsigned)(text[0] == '[' ? strcspn(text, "]") + 1 : strcspn(text, " "));
        bool first = *column == HELP_COLUMN;
        if (!first && *column + 1 + len > HELP_WIDTH) {
            fprintf(f, "\n%*s", HELP_COLUMN, "");
            *column = HELP_COLUMN;
            first = true;
        }
        fprintf(f, "%s%.*s", first ? "" : " ", (int)len, text);
        *column += len + !first;
        text += len + (text[len] == ' ');
    }
}

static void help_row(const struct option_row *row, FILE *f)
{
    char flag[64], otherwise[64];
    unsigned column = HELP_COLUMN;
    int n = snprintf(flag, sizeof(flag), "  --%s%s%s", row->name, row->value ? " " : "",
                     row->value ? row->value : "");
    fprintf(f, "%s%*s", flag, n < HELP_COLUMN ? HELP_COLUMN - n : 1, "");
    help_words(row->help, &column, f);
    snprintf(otherwise, sizeof(otherwise), "[default: %s]", row->otherwise ? row->otherwise : "");
    if (row->otherwise)
        help_words(otherwise, &column, f);
    fputc('\n', f);
}

static void help_section(FILE *f)
{
    unsigned column = HELP_COLUMN;
    fprintf(f, "\nOf one model, in a section [model NAME] of the file of --config:\n%*s", HELP_COLUMN, "");
    for (size_t i = 0; i < options_table_count; i++)
        if (options_table[i].commands & SECTION)
            help_words(options_table[i].name, &column, f);
    fputc('\n', f);
}

void options_help(enum option_command command, FILE *f)
{
    for (unsigned group = 0; group < options_group_count; group++) {
        bool named = false;
        for (size_t i = 0; i < options_table_count; i++) {
            if (options_table[i].group != group || !(options_table[i].commands & (unsigned)command))
                continue;
            if (!named)
                fprintf(f, "\n%s:\n", options_group_names[group]);
            named = true;
            help_row(&options_table[i], f);
        }
    }
    if (command == COMMAND_SERVE)
        help_section(f);
}
