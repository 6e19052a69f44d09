/* chat_screen.h - prints a conversation: answers, reasoning, notes.
 *
 * On a terminal reasoning is dim and notes stand in brackets; elsewhere only answers go to standard
 * output, and notes to standard error. One thread. */
#ifndef PLATEAU_CLI_CHAT_SCREEN_H
#define PLATEAU_CLI_CHAT_SCREEN_H

#include "base/slice.h"

#include <stdbool.h>

struct chat_screen {
    bool terminal; /* standard input and output are one */
    bool colours;
    bool reasoning;                      /* is shown */
    bool in_reasoning, began, line_open; /* state of the answer that is being printed */
};

void chat_screen_init(struct chat_screen *s, bool hide_reasoning);
void chat_screen_reasoning(struct chat_screen *s, struct slice text);
void chat_screen_content(struct chat_screen *s, struct slice text);
/* The answer is over, complete or not: the cursor is at the start of a line. */
void chat_screen_end(struct chat_screen *s);
/* A line of the program, not of the model. */
void chat_screen_note(struct chat_screen *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As `chat_screen_note()`, but of a failure. */
void chat_screen_error(struct chat_screen *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
