/* warm_file.h - a file of requests whose prefixes are computed when their model is loaded (--warm).
 *
 * Its text is JSON objects, one after the other; each takes a line or several. An object is the body of a
 * chat, Messages, Responses, completions or sessions request: its fields say which. */
#ifndef PLATEAU_API_WARM_FILE_H
#define PLATEAU_API_WARM_FILE_H

#include "base/err.h"
#include "base/slice.h"

#include <jansson.h>
#include <stdint.h>

struct buf;

#define WARM_FILE_BYTES_MAX ((size_t)64 << 20)

/* Reads the file into `ret`, which is initialised. 0, -EFBIG, -ENOMEM, or an error of the system; `e` names
 * the file. */
int warm_file_read(const char *path, struct buf *ret, struct err *e);

struct warm_request {
    struct slice body; /* from its first brace to its last */
    uint32_t line;     /* line on which it begins; the first is 1 */
};

/* Place in the text; zeroed: its begin. */
struct warm_file_at {
    size_t byte;
    uint32_t line_breaks;
};

/* The next request of the text. 1; 0: there are no more; -EINVAL: something else stands there, or the object
 * has no end; `e` names the line. Pure. */
int warm_file_next(struct slice text, struct warm_file_at *at, struct warm_request *ret, struct err *e);

/* The dialect of a body: Responses with `input`, completions with `prompt`, sessions with `ttl` or `follow`,
 * Messages with `system`, a tool's `input_schema` or any `cache_control`, else chats. `parsed`: the body as
 * a value. */
enum warm_dialect { WARM_CHAT, WARM_COMPLETION, WARM_MESSAGES, WARM_RESPONSES, WARM_SESSION };
enum warm_dialect warm_file_dialect(struct slice body, const json_t *parsed);

#endif
