/* options_help.c - prints help, and hides secrets. */
#include "cli/options.h"

#include "host/settings_table.h"

#include <string.h>

/* --- secrets --- */

static void hide(char *text)
{
    while (*text)
        *text++ = '*';
}

void options_hide(enum setting_command command, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char *equals = strchr(argv[i], '=');
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        size_t len = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const struct setting_row *row = settings_row_of((unsigned)command, argv[i] + 2, len - 2);
        if (!row || row->kind == SETTING_FLAG)
            continue;
        char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (value && (row->commands & SECRET))
            hide(value);
    }
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

static void help_row(const struct setting_row *row, FILE *f)
{
    char flag[64], otherwise[64];
    unsigned column = HELP_COLUMN;
    int n = snprintf(flag, sizeof(flag), "  --%s%s%s", row->name, row->value ? " " : "",
                     row->value ? row->value : "");
    fprintf(f, "%s%*s", flag, n < HELP_COLUMN ? HELP_COLUMN - n : 1, "");
    help_words(row->help, &column, f);
    snprintf(otherwise, sizeof(otherwise), "[default: %s]", row->otherwise ? row->otherwise : "");
    if (row->otherwise && strcmp(row->otherwise, SETTINGS_NOT_GIVEN) != 0)
        help_words(otherwise, &column, f);
    fputc('\n', f);
}

static void help_section(FILE *f)
{
    unsigned column = HELP_COLUMN;
    fprintf(f, "\nOf one model, in a section [model NAME] of the file of --config:\n%*s", HELP_COLUMN, "");
    for (size_t i = 0; i < settings_table_count; i++)
        if (settings_table[i].commands & SECTION)
            help_words(settings_table[i].name, &column, f);
    fputc('\n', f);
}

void options_help(enum setting_command command, FILE *f)
{
    for (unsigned group = 0; group < settings_group_count; group++) {
        bool named = false;
        for (size_t i = 0; i < settings_table_count; i++) {
            if (settings_table[i].group != group || !(settings_table[i].commands & (unsigned)command))
                continue;
            if (!named)
                fprintf(f, "\n%s:\n", settings_group_names[group]);
            named = true;
            help_row(&settings_table[i], f);
        }
    }
    if (command == COMMAND_SERVE)
        help_section(f);
}
