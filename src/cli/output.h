/* output.h - standard output of a command: what was printed arrived, or the command fails. Main thread. */
#ifndef PLATEAU_CLI_OUTPUT_H
#define PLATEAU_CLI_OUTPUT_H

#include <stdbool.h>

/* First of all: a standard descriptor that is closed is opened, so that no file of ours gets its number. What
 * is written to a closed standard output then fails; a closed standard error discards. */
void output_begin(void);
/* Writes out what is buffered. 0, or EOF: some of it could not be written, now or before. */
int output_flush(void);
/* The errno value of the first failure; 0: there was none. */
int output_error(void);
/* Whether something that was printed could not be written. What follows is not worth computing. */
bool output_failed(void);
/* Writes out and closes standard output. Returns `status`, or 1 instead of 0, with a message, when not
 * everything was written. */
int output_end(int status);

#endif
