/* terminal.h - prints a model's text on a terminal. */
#ifndef PLATEAU_CLI_TERMINAL_H
#define PLATEAU_CLI_TERMINAL_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdio.h>

bool terminal_is(FILE *f);
/* A terminal that wants colours: not TERM=dumb, no NO_COLOR. */
bool terminal_has_colours(FILE *f);
/* Writes UTF-8 text. On a terminal control characters other than line feed and tab become U+FFFD: a model,
 * or the author of a text that it repeats, must not move the cursor or rename the window. Flushed. */
void terminal_write(FILE *f, struct slice text);

#endif
