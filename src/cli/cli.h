/* cli.h - the commands: each returns the program's exit status. */
#ifndef PLATEAU_CLI_CLI_H
#define PLATEAU_CLI_CLI_H

#include "host/setting_command.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct err;
struct settings;

#define EXIT_INTERRUPTED 130 /* status that shells report of a program that SIGINT ended */

int command_serve(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_models(int argc, char **argv);
int command_pull(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_open(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_manual(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_parse(int argc, char **argv);
int command_schema(int argc, char **argv);
int command_pack(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_launch(int argc, char **argv);
int command_why(int argc, char **argv);
/* status, load, unload, clear, trim: argv[0] says which. */
int command_admin(int argc, char **argv);

/* Runs a command with its settings. Returns an exit status, or -EINVAL with the invalid setting in `e`. */
typedef int command_fn(struct settings *o, struct err *e);
/* Reads the settings; prints help, or runs the command. Wrong settings are printed, and the status is 2. */
int cli_run(enum setting_command command, int argc, char **argv, command_fn *run);
/* Overwrites the secrets on the command line of cli_run(). Their parsed values are gone then. */
void cli_hide_secrets(void);
/* Prints help if it was asked for. */
bool cli_help(enum setting_command command, const struct settings *o);
/* The exit status of work that ended with `r`; a failure prints its reason, if it has one. */
int cli_status(int r, const struct err *e);

/* One row per command. Texts end in a line feed; examples are indented. */
struct help_row {
    enum setting_command command;
    const char *name, *arguments, *summary, *about, *examples;
};
extern const struct help_row help_rows[];
extern const size_t help_row_count;

/* plateau --help, and plateau COMMAND --help; options are described by their own table. all: --help-all. */
void help_program(FILE *f);
void help_command(enum setting_command command, bool all, FILE *f);

#endif
