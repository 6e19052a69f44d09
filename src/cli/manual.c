/* manual.c - the command manual: pages for man from the tables of commands and options. */
#include "cli/cli.h"
#include "cli/nearest.h"
#include "cli/options.h"

#include "base/err.h"
#include "host/settings.h"
#include "host/settings_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- roff ---- */

/* A text of one or more lines; a dash of an option is not a hyphen. */
static void put(const char *text)
{
    bool begins = true;
    for (; *text; text++) {
        if (begins && (*text == '.' || *text == '\''))
            printf("\\&");
        if (*text == '\\')
            printf("\\e");
        else if (*text == '-')
            printf("\\-");
        else
            putchar(*text);
        begins = *text == '\n';
    }
}

static void put_line(const char *text)
{
    put(text);
    putchar('\n');
}

static void head(const char *name, unsigned section, const char *summary)
{
    printf(".\\\" Written by plateau manual from its table of options.\n.TH ");
    for (const char *c = name; *c; c++)
        putchar(toupper((unsigned char)*c));
    printf(" %u \"\" \"plateau " PLATEAU_VERSION "\" \"Plateau\"\n.SH NAME\n", section);
    put(name);
    printf(" \\- ");
    put_line(summary);
}

/* Line by line, without filling. */
static void example(const char *text)
{
    printf(".nf\n");
    put(text);
    printf(".fi\n");
}

/* ---- options ---- */

static void option(const struct setting_row *row, const char *dashes)
{
    printf(".TP\n\\fB");
    put(dashes);
    put(row->name);
    printf("\\fR");
    if (row->value && dashes[0]) {
        printf(" \\fI");
        put(row->value);
        printf("\\fR");
    } else if (!dashes[0]) {
        printf(" = \\fI");
        put(row->value ? row->value : "yes|no");
        printf("\\fR");
    }
    putchar('\n');
    put_line(row->help);
    if (row->otherwise && row->otherwise[0] && strcmp(row->otherwise, SETTINGS_NOT_GIVEN) != 0) {
        printf("[default: ");
        put(row->otherwise);
        printf("]\n");
    }
}

/* The options of these commands, in groups; without dashes, only options that a file may have. */
static void options(unsigned of_commands, const char *dashes)
{
    for (unsigned group = 0; group < settings_group_count; group++) {
        bool named = false;
        for (size_t i = 0; i < settings_table_count; i++) {
            const struct setting_row *row = &settings_table[i];
            struct options_variable own;
            if (row->group != group || !(row->commands & of_commands) ||
                (!dashes[0] && !options_variable_of(row, &own)))
                continue;
            if (!named) {
                printf(".SS ");
                put_line(settings_group_names[group]);
            }
            named = true;
            option(row, dashes);
        }
    }
}

/* ---- pages ---- */

static void see_also(void)
{
    printf(".SH SEE ALSO\n.BR plateau (1)");
    for (size_t i = 0; i < help_row_count; i++)
        printf(",\n.BR plateau\\-%s (1)", help_rows[i].name);
    printf(",\n.BR plateau.ini (5)\n");
}

static void page_of_program(void)
{
    head("plateau", 1, "an LLM inference server whose memory is planned, bounded and returned");
    printf(".SH SYNOPSIS\n.B plateau\n.I COMMAND\n.RI [ ARGUMENT ...]\n.SH DESCRIPTION\n");
    put_line(
        "Plateau serves large language models over HTTP with OpenAI's and Anthropic's API. It computes a\n"
        "memory plan before it loads a model, keeps to it, and returns memory that is not used.");
    printf(".SH COMMANDS\n");
    for (size_t i = 0; i < help_row_count; i++) {
        printf(".TP\n.BR plateau\\-%s (1)\n", help_rows[i].name);
        put_line(help_rows[i].summary);
    }
    printf(".SH ENVIRONMENT\n");
    put_line(
        "Each option of a command may also stand in the environment: PLATEAU_MAX_QUEUE=8 is --max-queue 8.\n"
        "HF_HUB_CACHE and HF_HOME say where the Hugging Face hub's cache is, HF_TOKEN has the token for\n"
        "private models, HF_ENDPOINT names a mirror, and HF_HUB_OFFLINE=1 forbids to fetch.\n"
        "PLATEAU_RUNTIME_DIR is the only directory where servers and commands meet.");
    printf(".SH EXIT STATUS\n");
    put_line("0: success. 1: it failed, and standard error says why. 2: wrong arguments. 130: Ctrl-C.");
    see_also();
}

static void page_of_command(const struct help_row *row)
{
    char name[64];
    snprintf(name, sizeof(name), "plateau-%s", row->name);
    head(name, 1, row->summary);
    printf(".SH SYNOPSIS\n.B plateau %s\n", row->name);
    put_line(row->arguments);
    printf(".SH DESCRIPTION\n");
    put(row->about);
    printf(".SH EXAMPLES\n");
    example(row->examples);
    printf(".SH OPTIONS\n");
    put_line("An option may also stand in the environment (PLATEAU_NAME=value) or, of commands with\n"
             "--config, in the file of");
    printf(".BR plateau.ini (5).\n");
    options((unsigned)row->command, "--");
    see_also();
}

static void page_of_file(void)
{
    head("plateau.ini", 5, "configuration of the Plateau server");
    printf(".SH SYNOPSIS\n.I /etc/plateau/plateau.ini\n.SH DESCRIPTION\n");
    put_line(
        "The file of --config. Each line is name = value; lines that begin with # or ; are comments. A\n"
        "section [model NAME] has settings of one model. The command line wins over the environment, the\n"
        "environment over this file. After a change, systemctl reload plateau reads it again; a line of the\n"
        "log says which changes need a restart.");
    printf(".SH EXAMPLE\n");
    example("memory-limit = 48G\nmodel-dir = /srv/models\n\n[model Qwen3-4B]\nmax-model-len = 32768\npin = "
            "yes\n");
    printf(".SH SETTINGS\n");
    options(COMMAND_SERVE, "");
    printf(".SH SETTINGS OF ONE MODEL\n");
    put_line("In a section [model NAME]:");
    options(SECTION, "");
    see_also();
}

/* ---- the command ---- */

static int run(struct settings *o, struct err *e)
{
    if (o->names) {
        for (size_t i = 0; i < help_row_count; i++)
            printf("%s\n", help_rows[i].name);
        return 0;
    }
    if (!o->argument) {
        page_of_program();
        return 0;
    }
    if (strcmp(o->argument, "ini") == 0) {
        page_of_file();
        return 0;
    }
    struct nearest n = nearest_begin(slice_of(o->argument));
    for (size_t i = 0; i < help_row_count; i++) {
        nearest_try(&n, help_rows[i].name);
        if (strcmp(o->argument, help_rows[i].name) == 0) {
            page_of_command(&help_rows[i]);
            return 0;
        }
    }
    return err_set(e, -EINVAL, "there is no command %s%s; plateau --help lists them", o->argument,
                   nearest_question(&n, "").text);
}

int command_manual(int argc, char **argv)
{
    return cli_run(COMMAND_MANUAL, argc, argv, run);
}
