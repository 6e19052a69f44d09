/* options.h - the settings (host/settings.h) from the command line, the environment and files.
 *
 * An option is set in one of four places, in this order of precedence: its flag (--max-queue 8), its
 * environment name (PLATEAU_MAX_QUEUE=8), that name in the file of --env-file, or its key in the file of
 * --config (max-queue = 8). Options that may be given several times add up over all places. The environment
 * may hold options of every command. A file holds only options of the command that it was named for, or is
 * refused. */
#ifndef PLATEAU_CLI_OPTIONS_H
#define PLATEAU_CLI_OPTIONS_H

#include "base/log.h"
#include "host/settings.h"

#include <stdio.h>

/* Fills `ret` from defaults, files, environment and argv (argv[0] is the command's name). Texts are borrowed
 * from argv and the environment, or live until settings_done. 0 or -EINVAL (e names option, value and
 * bounds); settings_done either way. */
int options_parse(enum setting_command command, int argc, char **argv, struct settings *ret, struct err *e);
/* Overwrites the values of secret options, because process lists show argv. Their parsed values are gone
 * then. */
void options_hide(enum setting_command command, int argc, char **argv);

/* Logs a warning for each variable of the environment that begins with PLATEAU_ and is neither an option nor
 * known otherwise, with the closest name. */
void options_check_environment(void);

/* Sets the log's level: --log-level, else `otherwise`. 0 or -EINVAL. */
int options_log_level(const struct settings *o, enum log_level otherwise, struct err *e);

/* The command's options as help text, in groups. */
void options_help(enum setting_command command, FILE *f);

#endif
