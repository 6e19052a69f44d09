/* options_names.c - spellings are compared with every row of the table, which is short. */
#include "cli/options.h"

#include "base/check.h"
#include "base/err.h"
#include "host/settings_table.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* --- variables --- */

bool options_variable_of(const struct setting_row *row, struct options_variable *ret)
{
    size_t n = (size_t)snprintf(ret->text, sizeof(ret->text), OPTIONS_VARIABLE_HEAD);
    for (const char *c = row->name; *c && n + 1 < sizeof(ret->text); c++)
        ret->text[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    ret->text[n] = 0;
    return strcmp(row->name, "help") != 0 && strcmp(row->name, "help-all") != 0;
}

const struct setting_row *options_row_of_variable(unsigned of_commands, struct slice name)
{
    for (size_t i = 0; i < settings_table_count; i++) {
        struct options_variable own;
        if ((settings_table[i].commands & of_commands) && options_variable_of(&settings_table[i], &own) &&
            slice_eq(name, slice_of(own.text)))
            return &settings_table[i];
    }
    return NULL;
}

/* The closest option, compared without the head that all have. */
static struct nearest_text near_variable(struct slice name)
{
    struct nearest n = nearest_begin(slice_sub(name, sizeof(OPTIONS_VARIABLE_HEAD) - 1, name.len));
    struct options_variable closest;
    const struct setting_row *row = NULL;
    for (size_t i = 0; i < settings_table_count; i++) {
        if (!(settings_table[i].commands & COMMAND_EVERY) ||
            !options_variable_of(&settings_table[i], &closest))
            continue;
        nearest_try(&n, settings_table[i].name);
        row = n.name == settings_table[i].name ? &settings_table[i] : row;
    }
    if (row) {
        options_variable_of(row, &closest);
        n.name = closest.text;
    }
    return nearest_question(&n, "");
}

/* Variables with our head that are not options: the sockets' directory, tests, benchmarks. */
static bool is_known_otherwise(struct slice name)
{
    static const char *const names[] = {"PLATEAU_RUNTIME_DIR", "PLATEAU_PROGRAM", "PLATEAU_BIN",
                                        "PLATEAU_LONG", "PLATEAU_TEMPLATES"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (slice_eq(name, slice_of(names[i])))
            return true;
    return slice_starts(name, SLICE("PLATEAU_TEST_"));
}

void options_check_environment(void)
{
    for (char **v = environ; v && *v; v++) {
        struct slice name = {*v, strcspn(*v, "=")};
        if (!slice_starts(name, SLICE(OPTIONS_VARIABLE_HEAD)) || is_known_otherwise(name) ||
            options_row_of_variable(COMMAND_EVERY, name))
            continue;
        LOG_WARN("unknown_variable", "name=%.*s problem=\"no option has this name, so it changes nothing%s\"",
                 (int)MIN_OF(name.len, (size_t)NEAREST_WORD_BYTES), name.ptr, near_variable(name).text);
    }
}

/* --- refusals --- */

static const char *command_name(unsigned command)
{
    static const char *const names[] = {"serve",  "generate", "chat",   "plan", "cache", "status",
                                        "load",   "unload",   "clear",  "trim", "parse", "schema",
                                        "models", "eval",     "pull",   "open", "bench", "completion",
                                        "manual", "pack",     "launch", "why"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (command == 1U << i)
            return names[i];
    return "";
}

unsigned options_file_commands(enum setting_command command)
{
    if (command & (COMMAND_SERVE | COMMAND_TALK))
        return (unsigned)command;
    /* A plan is that of a server, so it reads the server's file. */
    return command & (COMMAND_PLAN | COMMAND_MODELS) ? (unsigned)command | COMMAND_SERVE : COMMAND_EVERY;
}

struct nearest_text options_near(unsigned of_commands, struct slice name, const char *dashes)
{
    struct nearest n = nearest_begin(name);
    for (size_t i = 0; i < settings_table_count; i++)
        if (settings_table[i].commands & of_commands)
            nearest_try(&n, settings_table[i].name);
    return nearest_question(&n, dashes);
}

/* How it is written on the command line, in a file, or in the environment. */
static int refuse_row(enum setting_command command, const struct setting_row *row, struct slice shown,
                      const char *dashes, struct err *e)
{
    const char *own = command_name((unsigned)command), *section = "";
    if ((row->commands & SECTION) && (options_file_commands(command) & COMMAND_SERVE))
        section = "; for one model it belongs into a section [model NAME] of the file of --config";
    for (unsigned c = COMMAND_SERVE; c < COMMAND_EVERY; c *= 2)
        if (row->commands & c)
            return err_set(e, -EINVAL, "%s%.*s is an option of %s, not of %s%s; see plateau %s --help-all",
                           dashes, SLICE_ARGS(shown), command_name(c), own, section, own);
    return err_set(e, -EINVAL, "%s%.*s belongs into a section [model NAME] of the file of --config", dashes,
                   SLICE_ARGS(shown));
}

int options_refuse(enum setting_command command, struct slice name, const char *dashes, struct err *e)
{
    const struct setting_row *row = settings_row_of(COMMAND_EVERY | SECTION, name.ptr, name.len);
    struct slice shown = slice_sub(name, 0, NEAREST_WORD_BYTES);
    if (row)
        return refuse_row(command, row, shown, dashes, e);
    return err_set(e, -EINVAL, "there is no option %s%.*s%s; see plateau %s --help-all", dashes,
                   SLICE_ARGS(shown), options_near(options_file_commands(command), name, dashes).text,
                   command_name((unsigned)command));
}

int options_refuse_variable(enum setting_command command, struct slice name, struct err *e)
{
    const struct setting_row *row = options_row_of_variable(COMMAND_EVERY | SECTION, name);
    if (row)
        return refuse_row(command, row, name, "", e);
    return err_set(e, -EINVAL, "there is no option %.*s%s",
                   SLICE_ARGS(slice_sub(name, 0, NEAREST_WORD_BYTES)), near_variable(name).text);
}
