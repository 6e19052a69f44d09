/* jinja.h - the template language of chat models: the part of Jinja2 that their templates use.
 *
 * Behaves as the environment in which such templates are written and tested: a sandboxed, immutable Jinja2 with
 * trim_blocks, lstrip_blocks, loop controls, no escaping, lenient undefined values, and `tojson` that writes
 * what Python's json.dumps writes. A template sees the variables it is given, the listed filters, tests and methods,
 * and nothing else: there is no way from it to files, time or other requests.
 *
 * A compiled template is read-only; any number of threads may render it at once, each with an arena of its own.
 * Rendering is bounded in steps, nesting, output and memory, so that neither a template nor what a client
 * puts into it can hold a thread. */
#ifndef PLATEAU_TEXT_JINJA_H
#define PLATEAU_TEXT_JINJA_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

/* A source larger than this is refused. */
#define JINJA_SOURCE_BYTES_MAX ((size_t)1 << 20)
/* Parentheses, brackets, statements and the like inside each other. */
#define JINJA_PARSE_DEPTH_MAX 64

struct jinja_template;

struct jinja_limits {
    uint64_t steps_max; /* expressions and statements evaluated, and every 64 bytes or 16 items looked at */
    uint32_t depth_max; /* evaluations inside each other: a level costs less than 1 KiB of stack */
    size_t output_bytes_max; /* of the text */
    size_t memory_bytes_max; /* of the scratch arena */
};

enum jinja_variable_kind { JINJA_VARIABLE_JSON, JINJA_VARIABLE_TEXT, JINJA_VARIABLE_BOOL };
struct jinja_variable {
    struct slice name;
    enum jinja_variable_kind kind;
    const json_t *json; /* these outlive the rendering */
    struct slice text;
    bool flag;
};

struct jinja_input {
    const struct jinja_variable *variables; /* of two with one name the later one holds */
    size_t count;
    int64_t now_s; /* what strftime_now() calls now: seconds since 1970, shown as UTC */
};

/* Compiles into `a`; the source is copied. Names that are no filter or test are refused here, except inside
 * conditions: there, when they are reached. 0, -EINVAL (no template; e names line and reason), -E2BIG, -ENOMEM. */
int jinja_compile(struct arena *a, struct slice source, struct jinja_template **ret, struct err *e);

/* Line breaks are \n, as everywhere in it. */
struct slice jinja_source(const struct jinja_template *t);

/* Appends the text to ret, which is as it was on failure. Memory comes from `scratch` and is given back at the end.
 * 0; -EINVAL: the template refused, by raise_exception (e is its message) or because an operation makes no sense
 * (e names line and reason); -E2BIG: a limit; -ENOMEM: scratch or ret. */
int jinja_render(const struct jinja_template *t, struct arena *scratch, const struct jinja_input *in,
                 const struct jinja_limits *limits, struct buf *ret, struct err *e);

#endif
