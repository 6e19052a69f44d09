/* help.h - what the program says about itself; options are described by their own table. */
#ifndef PLATEAU_CLI_HELP_H
#define PLATEAU_CLI_HELP_H

#include "cli/options.h"

/* plateau --help. */
void help_program(FILE *f);
/* plateau COMMAND --help. */
void help_command(enum setting_command command, FILE *f);

#endif
