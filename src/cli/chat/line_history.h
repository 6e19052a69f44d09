/* line_history.h - the file of typed lines, in libedit's form. One thread. */
#ifndef PLATEAU_CLI_LINE_HISTORY_H
#define PLATEAU_CLI_LINE_HISTORY_H

#include <histedit.h>
#include <stddef.h>

#define LINE_HISTORY_ENTRIES  1000
#define LINE_HISTORY_FILE_MAX (256 << 10) /* a longer file is cut to the entries above when it is read */
#define LINE_HISTORY_READ_MAX (16 << 20)  /* one that is longer than this, or no regular file, is not read */

/* ~/.local/state/plateau/chat_history, its folder made; "" when there is no place for it. */
void line_history_usual(char *ret, size_t bytes_max);
/* Sets up `h`, and fills it from the file as far as it can be read. path "": none. */
void line_history_load(History *h, const char *path);
/* A message at the end of the file, at once: two conversations may share it, and a program may be killed. */
void line_history_append(const char *path, const char *message);

#endif
