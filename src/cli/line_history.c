/* line_history.c - libedit reads and writes the file; what it is not to be asked for is decided here. */
#include "cli/line_history.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void line_history_usual(char *ret, size_t bytes_max)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool xdg = state && state[0] == '/';
    ret[0] = 0;
    if (!xdg && !(home && home[0] == '/'))
        return;
    int n =
        snprintf(ret, bytes_max, "%s%s/plateau/chat_history", xdg ? state : home, xdg ? "" : "/.local/state");
    if (n < 0 || (size_t)n >= bytes_max) {
        ret[0] = 0;
        return;
    }
    for (char *slash = strchr(ret + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(ret, 0700); /* what exists already stays as it is */
        *slash = '/';
    }
}

void line_history_load(History *h, const char *path)
{
    HistEvent event;
    struct stat st;
    history(h, &event, H_SETSIZE, LINE_HISTORY_ENTRIES);
    history(h, &event, H_SETUNIQUE, 1);
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > LINE_HISTORY_READ_MAX)
        return;
    history(h, &event, H_LOAD, path);
    if (st.st_size > LINE_HISTORY_FILE_MAX)
        history(h, &event, H_SAVE, path);
}

void line_history_append(const char *path, const char *message)
{
    HistEvent event;
    mode_t before = umask(077);
    FILE *f = fopen(path, "ae");
    umask(before);
    /* A history of its own: how many H_NSAVE_FP writes of a longer one is not what its argument says. */
    History *one = f ? history_init() : NULL;
    if (one) {
        fseek(f, 0, SEEK_END); /* libedit writes its first line where the file is empty */
        history(one, &event, H_SETSIZE, 1);
        history(one, &event, H_ENTER, message);
        history(one, &event, H_NSAVE_FP, (size_t)1, f);
        history_end(one);
    }
    if (f)
        fclose(f);
}
