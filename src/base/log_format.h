/* log_format.h - the forms of a log line. Pure: the parts of a line to its bytes.
 *
 * A line is "TIME level=L event=E names with values"; it is valid UTF-8 without control characters. */
#ifndef PLATEAU_BASE_LOG_FORMAT_H
#define PLATEAU_BASE_LOG_FORMAT_H

#include "base/log.h"

#include <stddef.h>
#include <stdint.h>

#define LOG_LINE_BYTES 1024
#define LOG_FORM_BYTES 4096 /* bytes of any form of a line; a pipe takes that many in one piece */

struct log_parts {
    enum log_level level;
    int64_t unix_s;
    const char *line;     /* LOG_LINE_BYTES at most, without its end */
    size_t len, time_len; /* time_len: of "TIME ", of at least three bytes */
};

/* Writes the line of a format that is not LOG_FORMAT_AUTO, with a line feed. `colours`: of
 * LOG_FORMAT_PEOPLE. Returns its length. */
size_t log_format_write(enum log_format f, bool colours, const struct log_parts *p, char ret[LOG_FORM_BYTES]);

#endif
