/* cli.h - the commands: each takes its own argv and returns the program's exit status. */
#ifndef PLATEAU_CLI_CLI_H
#define PLATEAU_CLI_CLI_H

#define EXIT_INTERRUPTED 130 /* as shells report a program that SIGINT ended */

int command_serve(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_status(int argc, char **argv);
int command_load(int argc, char **argv);
int command_unload(int argc, char **argv);
int command_clear(int argc, char **argv);
int command_trim(int argc, char **argv);
int command_schema(int argc, char **argv);

#endif
