/* output.h - standard output of a command: all of it arrived, or the command fails. Main thread. */
#ifndef PLATEAU_CLI_OUTPUT_H
#define PLATEAU_CLI_OUTPUT_H

#include <stdbool.h>

/* Call first: opens closed standard descriptors, so that no file of ours gets their numbers. Writes to a
 * closed standard output then fail; a closed standard error discards. */
void output_begin(void);
/* Flushes the buffer. 0, or EOF: a write failed, now or before. */
int output_flush(void);
/* The errno value of the first failure; 0: there was none. */
int output_error(void);
/* Whether a write has failed. Further output is not worth computing. */
bool output_failed(void);
/* Writes out and closes standard output. Returns `status`, or 1 instead of 0, with a message, when not
 * everything was written. */
int output_end(int status);

#endif
