/* output.h - standard output of a command: all of it arrived, or the command fails; and a model's text on a
 * terminal. Main thread. */
#ifndef PLATEAU_CLI_OUTPUT_H
#define PLATEAU_CLI_OUTPUT_H

#include "base/slice.h"

#include <stdio.h>

struct json_out;

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

/* Writes a text of a file, of the hub or of a server: control characters other than line feed and tab become
 * \x1b and the like, so that no such text moves a cursor or renames a window. UTF-8 stays. */
void plain_write(FILE *f, const char *text);
/* As `fprintf()` from the start of a line, but of the result's control characters only line feed and tab
 * stay, see plain_write(), and on a terminal lines end between words. */
void plain_printf(FILE *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes one line's text from `column` on, in lines of at most `width` columns that end between words.
 * Further ones begin at `column`, too. */
void plain_words(FILE *f, const char *text, size_t column, size_t width);
/* "plateau: TEXT" on standard error, in that way. */
void plain_error(const char *text);

/* Ends the object, and writes it and a line feed to standard output. */
void output_json(struct json_out *j);

bool terminal_is(FILE *f);
/* A terminal that wants colours: not TERM=dumb, no NO_COLOR. */
bool terminal_has_colours(FILE *f);
/* Writes UTF-8 text. On a terminal control characters other than line feed and tab become U+FFFD: a model,
 * or the author of a text that it repeats, must not move the cursor or rename the window. Flushed. */
void terminal_write(FILE *f, struct slice text);

#endif
