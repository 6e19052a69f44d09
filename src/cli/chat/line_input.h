/* line_input.h - what a person types, or what a pipe brings: one message at a time.
 *
 * On a terminal with libedit: editing, the arrow keys through earlier messages, which a file keeps, and a
 * pasted text of several lines as one message. Elsewhere plain lines. A line that ends in \ goes on in the
 * next one. One thread. */
#ifndef PLATEAU_CLI_LINE_INPUT_H
#define PLATEAU_CLI_LINE_INPUT_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

struct line_input;

enum line_result {
    LINE_TEXT,
    LINE_END,         /* end of the file, or Ctrl-D */
    LINE_INTERRUPTED, /* Ctrl-C: the typed text is gone; the interrupt has been taken */
    LINE_TOO_LONG     /* over bytes_max: it has been skipped */
};

struct line_input_opts {
    bool terminal;       /* standard input and output are one */
    bool colours;        /* the prompt is coloured */
    const char *history; /* the file that keeps messages; NULL: the usual place, "": none */
    size_t bytes_max;    /* limit of a message */
};

/* A history that cannot be read or written is an empty one. 0 or -ENOMEM. */
int line_input_create(const struct line_input_opts *opts, struct line_input **ret);
/* Restores the terminal. NULL is fine. */
void line_input_free(struct line_input *in);
/* Shows in the prompt how many images go with the next message. */
void line_input_attached(struct line_input *in, uint32_t count);
/* The next message, valid until the next call, without its line feed. */
enum line_result line_input_read(struct line_input *in, struct slice *ret);

#endif
