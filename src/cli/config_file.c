/* config_file.c - libinih with a reader of our own. */
#include "cli/config_file.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <string.h>

struct reader {
    FILE *f;
    int lines, room;
    bool too_long, zero;
};

/* As fgets(), without comments and leading blanks. NULL ends the reading. */
static char *read_line(char *line, int bytes_max, void *arg)
{
    struct reader *r = arg;
    int c, n = 0;
    bool comment = false;
    r->lines++;
    r->room = bytes_max - 2; /* a line feed and the terminating zero */
    while ((c = getc(r->f)) != EOF && c != '\n') {
        comment |= n == 0 && (c == '#' || c == ';');
        if (comment || (n == 0 && (c == ' ' || c == '\t')))
            continue;
        r->zero = c == 0;
        r->too_long = n == r->room;
        if (r->zero || r->too_long)
            return NULL;
        line[n++] = (char)c;
    }
    if (c == EOF && n == 0)
        return NULL;
    memcpy(line + n, "\n", 2);
    return line;
}

static int parse(FILE *f, config_file_entry_fn *entry, void *arg, struct err *e)
{
    struct reader r = {.f = f};
    int line = ini_parse_stream(read_line, &r, entry, arg);
    if (line < 0)
        return err_set(e, -ENOMEM, "no memory for a line");
    if (line > 0)
        return err_set(e, -EINVAL, "line %d is not name = value", line);
    if (r.too_long)
        return err_set(e, -EINVAL, "line %d has more than %d bytes", r.lines, r.room);
    return r.zero ? err_set(e, -EINVAL, "line %d has a zero byte", r.lines) : 0;
}

int config_file_read(const char *path, config_file_entry_fn *entry, void *arg, struct err *e)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return err_set(e, -ENOENT, "cannot be read: %s", strerror(errno));
    int r = parse(f, entry, arg, e);
    if (r == 0 && ferror(f))
        r = err_set(e, -ENOENT, "cannot be read");
    fclose(f);
    return r;
}
