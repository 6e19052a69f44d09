/* completion.c - the command completion: scripts for bash, zsh and fish from the tables of commands and
 * options. */
#include "cli/cli.h"

#include "base/err.h"
#include "host/settings.h"
#include "host/settings_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SUMMARY_BYTES 80

/* ---- options ---- */

static const struct setting_row *option_of(enum setting_command command, size_t i)
{
    return (settings_table[i].commands & (unsigned)command) ? &settings_table[i] : NULL;
}

/* True if the value is words to choose from, as in "on|off". */
static bool has_choices(const struct setting_row *row)
{
    return row->value && strchr(row->value, '|');
}

static bool is_path(const struct setting_row *row)
{
    return row->value && (strcmp(row->value, "FILE") == 0 || strcmp(row->value, "DIR") == 0 ||
                          strcmp(row->value, "PATH") == 0);
}

/* Whether the command's arguments are files: models, or a schema. */
static bool takes_files(const struct help_row *c)
{
    return strstr(c->arguments, "MODEL") || strstr(c->arguments, "FILE") || strstr(c->arguments, "DIR");
}

/* The help up to its first semicolon, colon or bracket. */
static const char *summary_of(const struct setting_row *row, char ret[SUMMARY_BYTES])
{
    size_t len = strcspn(row->help, ";[");
    while (len > 0 && row->help[len - 1] == ' ')
        len--;
    if (len < SUMMARY_BYTES) {
        snprintf(ret, SUMMARY_BYTES, "%.*s", (int)len, row->help);
        return ret;
    }
    for (len = SUMMARY_BYTES - 4; len > 0 && row->help[len] != ' ';)
        len--;
    snprintf(ret, SUMMARY_BYTES, "%.*s...", (int)len, row->help);
    return ret;
}

/* With a backslash before each character of `special`. */
static void put_escaped(const char *text, const char *special)
{
    for (; *text; text++) {
        if (strchr(special, *text))
            putchar('\\');
        putchar(*text);
    }
}

static void put_choices(const char *value)
{
    for (; *value; value++)
        putchar(*value == '|' ? ' ' : *value);
}

static void put_names(void)
{
    for (size_t i = 0; i < help_row_count; i++)
        printf("%s%s", i ? " " : "", help_rows[i].name);
}

/* ---- bash ---- */

static void bash_values(const struct help_row *c)
{
    const struct setting_row *row;
    for (size_t i = 0; i < settings_table_count; i++)
        if ((row = option_of(c->command, i)) && row->kind != SETTING_FLAG) {
            printf("        %s:--%s) ", c->name, row->name);
            if (has_choices(row)) {
                printf("words='");
                put_choices(row->value);
                puts("' ;;");
            } else {
                puts(is_path(row) ? "files=1 ;;" : "return ;;");
            }
        }
}

static void bash_options(const struct help_row *c)
{
    const struct setting_row *row;
    printf("        %s) %swords='", c->name, takes_files(c) ? "files=1 " : "");
    for (size_t i = 0; i < settings_table_count; i++)
        if ((row = option_of(c->command, i)))
            printf("--%s ", row->name);
    puts("' ;;");
}

static void bash(void)
{
    puts("# bash completion for plateau; written by plateau completion bash\n"
         "_plateau() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words='' files=''\n"
         "    COMPREPLY=()\n"
         "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "        words='");
    put_names();
    puts(" --help --version'\n"
         "    else\n"
         "        case \"${COMP_WORDS[1]}:$before\" in");
    for (size_t i = 0; i < help_row_count; i++)
        bash_values(&help_rows[i]);
    puts("        *) case \"${COMP_WORDS[1]}\" in\n"
         "        help) words='");
    put_names();
    puts("' ;;\n"
         "        completion) words='bash zsh fish --help' ;;");
    for (size_t i = 0; i < help_row_count; i++)
        if (help_rows[i].command != COMMAND_COMPLETION)
            bash_options(&help_rows[i]);
    puts("        esac ;;\n"
         "        esac\n"
         "    fi\n"
         "    local IFS=$' \\t\\n'\n"
         "    if [ -n \"$words\" ]; then\n"
         "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "    fi\n"
         "    if [ -n \"$files\" ] && [ \"${cur#-}\" = \"$cur\" ]; then\n"
         "        compopt -o filenames 2>/dev/null\n"
         "        IFS=$'\\n'\n"
         "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "    fi\n"
         "}\n"
         "complete -F _plateau plateau");
}

/* ---- zsh ---- */

static void zsh_option(const struct setting_row *row)
{
    char summary[SUMMARY_BYTES];
    printf("            '%s--%s%s[", row->kind == SETTING_LIST ? "*" : "", row->name,
           row->kind == SETTING_FLAG ? "" : "=");
    for (const char *s = summary_of(row, summary); *s; s++) {
        if (*s == '\'')
            printf("'\\''");
        else
            printf(strchr("[]:\\", *s) ? "\\%c" : "%c", *s);
    }
    putchar(']');
    if (row->kind != SETTING_FLAG) {
        putchar(':');
        put_escaped(row->value, ":[]\\");
        putchar(':');
        if (has_choices(row)) {
            putchar('(');
            put_choices(row->value);
            putchar(')');
        } else if (is_path(row)) {
            printf("_files");
        }
    }
    puts("' \\");
}

static void zsh(void)
{
    puts("#compdef plateau\n"
         "# zsh completion for plateau; written by plateau completion zsh\n"
         "_plateau() {\n"
         "    local -a commands\n"
         "    commands=(");
    for (size_t i = 0; i < help_row_count; i++) {
        printf("        '%s:", help_rows[i].name);
        for (const char *s = help_rows[i].summary; *s; s++)
            printf(*s == '\'' ? "'\\''" : "%c", *s);
        puts("'");
    }
    puts("    )\n"
         "    if (( CURRENT == 2 )); then\n"
         "        _describe command commands\n"
         "        return\n"
         "    fi\n"
         "    case $words[2] in");
    for (size_t i = 0; i < help_row_count; i++) {
        const struct setting_row *row;
        printf("        %s) shift words; (( CURRENT-- )); _arguments \\\n", help_rows[i].name);
        for (size_t k = 0; k < settings_table_count; k++)
            if ((row = option_of(help_rows[i].command, k)))
                zsh_option(row);
        if (help_rows[i].command == COMMAND_COMPLETION)
            puts("            '1:shell:(bash zsh fish)' ;;");
        else
            puts(takes_files(&help_rows[i]) ? "            '*:file:_files' ;;" : "            '*: :' ;;");
    }
    puts("    esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _plateau ]; then\n"
         "    _plateau \"$@\"\n"
         "else\n"
         "    compdef _plateau plateau\n"
         "fi");
}

/* ---- fish ---- */

static void fish_option(const struct help_row *c, const struct setting_row *row)
{
    char summary[SUMMARY_BYTES];
    printf("complete -c plateau -n '__fish_seen_subcommand_from %s' -l %s", c->name, row->name);
    if (has_choices(row)) {
        printf(" -x -a '");
        put_choices(row->value);
        putchar('\'');
    } else if (row->kind != SETTING_FLAG) {
        printf(is_path(row) ? " -r -F" : " -x");
    }
    printf(" -d '");
    put_escaped(summary_of(row, summary), "'\\");
    puts("'");
}

static void fish(void)
{
    puts("# fish completion for plateau; written by plateau completion fish\n"
         "complete -c plateau -f");
    for (size_t i = 0; i < help_row_count; i++) {
        const struct help_row *c = &help_rows[i];
        const struct setting_row *row;
        printf("complete -c plateau -n __fish_use_subcommand -a %s -d '", c->name);
        put_escaped(c->summary, "'\\");
        puts("'");
        for (size_t k = 0; k < settings_table_count; k++)
            if ((row = option_of(c->command, k)))
                fish_option(c, row);
        if (c->command == COMMAND_COMPLETION)
            puts("complete -c plateau -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'");
        else if (takes_files(c))
            printf("complete -c plateau -n '__fish_seen_subcommand_from %s' -F\n", c->name);
    }
}

/* ---- the command ---- */

static int run(struct settings *o, struct err *e)
{
    const char *shell = o->argument ? o->argument : "";
    if (strcmp(shell, "bash") == 0)
        bash();
    else if (strcmp(shell, "zsh") == 0)
        zsh();
    else if (strcmp(shell, "fish") == 0)
        fish();
    else
        return err_set(e, -EINVAL, "which shell? plateau completion bash, zsh or fish");
    return 0;
}

int command_completion(int argc, char **argv)
{
    return cli_run(COMMAND_COMPLETION, argc, argv, run);
}
