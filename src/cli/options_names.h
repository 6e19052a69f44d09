/* options_names.h - the spellings of option names, and messages about wrong ones. */
#ifndef PLATEAU_CLI_OPTIONS_NAMES_H
#define PLATEAU_CLI_OPTIONS_NAMES_H

#include "base/slice.h"
#include "cli/nearest.h"
#include "host/settings_table.h"

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
/* Likewise of a variable in the file of --env-file. */
int options_refuse_variable(enum setting_command command, struct slice name, struct err *e);
/* The closest name of an option that some of these commands take, as a question. */
struct nearest_text options_near(unsigned of_commands, struct slice name, const char *dashes);

#endif
