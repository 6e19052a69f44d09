/* line_history.c - libedit writes the file; it is read here, because libedit reads past a line that it cannot
 * decode. */
#include "cli/chat/line_history.h"

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
        mkdir(ret, 0700); /* existing directories stay unchanged */
        *slash = '/';
    }
}

/* ---- reading: vis(3) back to bytes ---- */

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* A letter after a backslash: *ret is its byte. */
static bool letter_of(char c, char *ret)
{
    static const char letters[] = "\\nrbavtfsE", bytes[] = "\\\n\r\b\a\v\t\f \033";
    const char *at = c ? strchr(letters, c) : NULL;
    if (at)
        *ret = bytes[at - letters];
    return at != NULL;
}

/* Decodes the characters after a backslash. Returns their length, 0: not an escape. */
static size_t decode_one(const char *s, char *ret)
{
    if (is_octal(s[0]) && is_octal(s[1]) && is_octal(s[2])) {
        *ret = (char)((s[0] - '0') * 64 + (s[1] - '0') * 8 + (s[2] - '0'));
        return 3;
    }
    if (letter_of(s[0], ret))
        return 1;
    size_t meta = s[0] == 'M' ? 1 : 0;
    if (meta && s[1] == '-' && s[2]) {
        *ret = (char)(s[2] | 0x80);
        return 3;
    }
    if (s[meta] != '^' || !s[meta + 1])
        return 0;
    *ret = (char)((s[meta + 1] == '?' ? 0x7f : s[meta + 1] & 0x1f) | (meta ? 0x80 : 0));
    return meta + 2;
}

/* In place. False: it is not a line of libedit's, or has a zero byte. */
static bool decode(char *line)
{
    char *to = line;
    for (const char *at = line; *at;) {
        char c = *at++;
        if (c == '\\') {
            size_t length = decode_one(at, &c);
            if (length == 0 || c == 0)
                return false;
            at += length;
        }
        *to++ = c;
    }
    *to = 0;
    return true;
}

static void read_lines(History *h, FILE *f)
{
    static const char head[] = "_HiStOrY_V2_\n";
    HistEvent event;
    char *line = NULL;
    size_t room = 0;
    ssize_t n = getline(&line, &room, f);
    if (n == (ssize_t)sizeof(head) - 1 && memcmp(line, head, sizeof(head) - 1) == 0)
        while ((n = getline(&line, &room, f)) >= 0) {
            if (line[n - 1] == '\n')
                line[--n] = 0;
            if (strlen(line) == (size_t)n && decode(line))
                history(h, &event, H_ENTER, line);
        }
    free(line);
}

void line_history_load(History *h, const char *path)
{
    HistEvent event;
    struct stat st;
    history(h, &event, H_SETSIZE, LINE_HISTORY_ENTRIES);
    history(h, &event, H_SETUNIQUE, 1);
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > LINE_HISTORY_READ_MAX)
        return;
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    read_lines(h, f);
    fclose(f);
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
