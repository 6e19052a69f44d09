/* options_help.c - prints help, and hides secrets. */
#include "cli/help_lines.h"
#include "cli/options.h"

#include "base/check.h"
#include "host/settings_table.h"

#include <string.h>

/* --- secrets --- */

static void hide(char *text)
{
    while (*text)
        *text++ = '*';
}

char *options_next_secret(enum setting_command command, int argc, char **argv, int *at)
{
    while (*at < argc && strcmp(argv[*at], "--") != 0) {
        char *text = argv[(*at)++], *equals = strchr(text, '=');
        if (strncmp(text, "--", 2) != 0)
            continue;
        size_t len = equals ? (size_t)(equals - text) : strlen(text);
        const struct setting_row *row = settings_row_of((unsigned)command, text + 2, len - 2);
        if (!row || row->kind == SETTING_FLAG)
            continue;
        char *value = equals ? equals + 1 : *at < argc ? argv[(*at)++] : NULL;
        if (!value || !(row->commands & SECRET))
            continue;
        /* The value will be overwritten; only keys are copied before. */
        ASSERT(row->kind == SETTING_LIST);
        return value;
    }
    return NULL;
}

void options_hide(enum setting_command command, int argc, char **argv)
{
    int at = 1;
    char *value;
    while ((value = options_next_secret(command, argc, argv, &at)))
        hide(value);
}

/* --- help --- */

#define HELP_COLUMN 30 /* where the text of an option begins, in lines of HELP_NARROW and more */

static void help_row(const struct setting_row *row, struct help_lines *l)
{
    char otherwise[64];
    const unsigned at = l->width < HELP_NARROW ? HELP_INDENT : HELP_COLUMN;
    int n = fprintf(l->f, "  --%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : "");
    if (l->width < HELP_NARROW)
        help_line(l, at);
    else
        fprintf(l->f, "%*s", MAX_OF(HELP_COLUMN - n, 0), "");
    l->column = l->width < HELP_NARROW ? at : MAX_OF((unsigned)n, at);
    help_words(l, at, row->help);
    snprintf(otherwise, sizeof(otherwise), "[default: %s]", row->otherwise ? row->otherwise : "");
    if (row->otherwise && strcmp(row->otherwise, SETTINGS_NOT_GIVEN) != 0)
        help_words(l, at, otherwise);
    fputc('\n', l->f);
}

static void help_section(struct help_lines *l)
{
    const unsigned at = l->width < HELP_NARROW ? HELP_INDENT : HELP_COLUMN;
    fputc('\n', l->f);
    l->column = 0;
    help_words(l, 0, "Of one model, in a section [model NAME] of the file of --config:");
    help_line(l, at);
    for (size_t i = 0; i < settings_table_count; i++)
        if (settings_table[i].commands & SECTION)
            help_words(l, at, settings_table[i].name);
    fputc('\n', l->f);
}

static bool is_shown(const struct setting_row *row, enum setting_command command, bool all)
{
    return (row->commands & (unsigned)command) && (all || (row->commands & FIRST));
}

/* Short lists are shown whole. */
static uint32_t count_of(enum setting_command command, bool all)
{
    uint32_t count = 0;
    for (size_t i = 0; i < settings_table_count; i++)
        count += is_shown(&settings_table[i], command, all);
    return count;
}

void options_help(enum setting_command command, const char *name, bool all, struct help_lines *l)
{
    char rest[96];
    const uint32_t count = count_of(command, true);
    all = all || count <= OPTIONS_HELP_SHORT;
    for (unsigned group = 0; group < settings_group_count; group++) {
        bool named = false;
        for (size_t i = 0; i < settings_table_count; i++) {
            if (settings_table[i].group != group || !is_shown(&settings_table[i], command, all))
                continue;
            if (!named)
                fprintf(l->f, "\n%s:\n", settings_group_names[group]);
            named = true;
            help_row(&settings_table[i], l);
        }
    }
    if (command == COMMAND_SERVE && all)
        help_section(l);
    if (all)
        return;
    snprintf(rest, sizeof(rest), "plateau %s --help-all lists all %u options.", name, count);
    fputc('\n', l->f);
    l->column = 0;
    help_words(l, 0, rest);
    fputc('\n', l->f);
}
