/* options.h - the settings (host/settings.h) from the command line, the environment and files.
 *
 * An option is set in one of four places, in this order of precedence: its flag (--max-queue 8), its
 * environment name (PLATEAU_MAX_QUEUE=8), that name in the file of --env-file, or its key in the file of
 * --config (max-queue = 8). Options that may be given several times add up over all places. Two values of
 * another option on the command line, or in the file of --config, are an error. The environment
 * may hold options of every command. A file holds only options of the command that it was named for, or is
 * refused. */
#ifndef PLATEAU_CLI_OPTIONS_H
#define PLATEAU_CLI_OPTIONS_H

#include "base/log.h"
#include "cli/nearest.h"
#include "host/setting_command.h"

#include <stdio.h>

struct err;
struct help_lines;
struct setting_row;
struct settings;

/* Fills `ret` from defaults, files, environment and argv (argv[0] is the command's name). Texts are borrowed
 * from argv and the environment, or live until settings_done. 0 or -EINVAL (e names option, value and
 * bounds); settings_done either way. */
int options_parse(enum setting_command command, int argc, char **argv, struct settings *ret, struct err *e);
/* The next value of a secret option in argv, from argv[*at] on (1 at first): it lies in argv[*at - 1] then.
 * NULL: no more of them. */
char *options_next_secret(enum setting_command command, int argc, char **argv, int *at);
/* Overwrites the values of secret options, because process lists show argv. Their parsed values are gone
 * then. */
void options_hide(enum setting_command command, int argc, char **argv);

/* Logs a warning for each variable of the environment that begins with PLATEAU_ and is neither an option nor
 * known otherwise, with the closest name. */
void options_check_environment(void);

/* Sets the log's format: --log-format, else auto. 0 or -EINVAL. */
int options_log_format(const struct settings *o, struct err *e);
/* Sets the log's level: --log-level, else `otherwise`. 0 or -EINVAL. */
int options_log_level(const struct settings *o, enum log_level otherwise, struct err *e);

/* The command's options as help text, in groups: all of them, or the usual ones and how to see the others. Up
 * to OPTIONS_HELP_SHORT options are always all. */
#define OPTIONS_HELP_SHORT 14
void options_help(enum setting_command command, const char *name, bool all, struct help_lines *l);

/* --- spellings of names, and messages about wrong ones: options_names.c --- */

/* Names of options in the environment: PLATEAU_MAX_QUEUE. */
#define OPTIONS_VARIABLE_HEAD "PLATEAU_"
struct options_variable {
    char text[64];
};
/* False: the option stands on the command line only. */
bool options_variable_of(const struct setting_row *row, struct options_variable *ret);
const struct setting_row *options_row_of_variable(unsigned of_commands, struct slice name);

/* The commands whose options may stand in a file that was named for `command`. */
unsigned options_file_commands(enum setting_command command);
/* -EINVAL: why `command` takes no option called `name`, or none of that name is there; the closest name.
 * dashes: "--" on the command line, "" in the file of --config. */
int options_refuse(enum setting_command command, struct slice name, const char *dashes, struct err *e);
/* As `options_refuse()`, but of a variable in the file of --env-file. */
int options_refuse_variable(enum setting_command command, struct slice name, struct err *e);
/* The closest name of an option that some of these commands take, as a question. */
struct nearest_text options_near(unsigned of_commands, struct slice name, const char *dashes);

#endif
