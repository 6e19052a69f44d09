/* tool_work.h - the grammar of tool calls from inside: for the files tool_*.c. */
#ifndef PLATEAU_CONSTRAINT_TOOL_WORK_H
#define PLATEAU_CONSTRAINT_TOOL_WORK_H

#include "grammar/grammar_expr.h"
#include "schema/json_text.h"

#include <jansson.h>

struct tool_work {
    struct grammar_builder *b;
    struct rx_store *s;
    struct json_text json;
    const struct schema_opts *opts;
    struct err *e;
    int error;            /* the first one */
    const json_t *source; /* the whole, and its members */
    const json_t *markers, *specials, *tools;
    bool required, parallel, by_schema; /* by_schema: of tools that are not strict */
    sym_id any_python, any_braced;      /* rules; UINT32_MAX: not made yet */
    struct expr any_text;               /* any text as a tagged value */
    bool has_any_text;
};

/* Keeps the first failure and returns its code. */
int tool_fail(struct tool_work *w, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- tool_text.c: markers and text ---- */

bool tool_flag(const struct tool_work *w, const char *name);
const char *tool_member(const struct tool_work *w, const char *name); /* NULL: none */
bool tool_has(const struct tool_work *w, const char *marker);
bool tool_has_token(const struct tool_work *w, const char *marker); /* it is not text alone */
struct expr tool_marker(struct tool_work *w, const char *marker);   /* nothing without a marker */
/* The marker's text; of one that has tokens: nothing. */
rx_id tool_marker_text(struct tool_work *w, const char *marker);
struct expr tool_literal(struct tool_work *w, const char *text);
struct expr tool_blanks(struct tool_work *w); /* white space or nothing */
rx_id tool_any_blanks(struct tool_work *w);
struct expr tool_cat(struct tool_work *w, const struct expr *parts, uint32_t count);
#define TOOL_CAT(w, ...)                                                                                     \
    tool_cat(w, (const struct expr[]){__VA_ARGS__},                                                          \
             sizeof((const struct expr[]){__VA_ARGS__}) / sizeof(struct expr))
struct expr tool_maybe(struct tool_work *w, struct expr p);

/* Any text and special tokens without these markers (NULL after the last). */
struct tool_text {
    const char *const *without;
    rx_id also;   /* and without any of these texts; RX_NONE: no more */
    rx_id start;  /* nor does it begin with one of these */
    bool reasons; /* a token that opens reasoning is followed by reasoning up to its end */
};
struct expr tool_text(struct tool_work *w, const struct tool_text *t);
struct expr tool_reasoning_text(struct tool_work *w);

/* ---- tool_values.c: values by schemas, and any value, in each notation ---- */

struct tool_param {
    const char *key;
    const json_t *schema; /* NULL: any */
    bool required, text;
};
struct tool_params {
    struct tool_param *all;
    uint32_t count;
    bool by_schema; /* each at most once, in this order, the required ones always there */
};

/* Arguments as a JSON object. */
struct expr tool_json_arguments(struct tool_work *w, const json_t *tool);
bool tool_is_strict(const struct tool_work *w, const json_t *tool); /* by schema, or refused */
/* The JSON value of a schema that lies within the tool's; false: not supported, and strict or not decides
 * whether the work has failed. */
bool tool_json_value(struct tool_work *w, const json_t *tool, const json_t *schema, struct expr *ret);
/* Its strings as raw text that `within` has. */
bool tool_raw_value(struct tool_work *w, const json_t *tool, const json_t *schema, rx_id within,
                    struct expr *ret);
bool tool_is_free_text(const json_t *schema); /* any string */
bool tool_has_lark(const json_t *tool);       /* its only parameter is a text of this grammar */

/* ---- tool_params.c: tagged, Python and braced arguments ---- */

struct expr tool_tagged_arguments(struct tool_work *w, const json_t *tool);
struct expr tool_python_arguments(struct tool_work *w, const json_t *tool);
struct expr tool_braced_arguments(struct tool_work *w, const json_t *tool);

/* ---- tool_calls.c: calls and sections ---- */

/* One call or, with `more`, several, with their section. */
struct expr tool_calls(struct tool_work *w, bool more);
/* A call that begins the reply without a marker; false: the format has none. */
bool tool_bare_calls(struct tool_work *w, bool more, struct expr *ret);
/* Begins of calls without a marker, which text must not contain. RX_NONE: nothing. */
rx_id tool_bare_begin(struct tool_work *w);
/* Begins of a call in running text, where the marker alone does not show it. RX_NONE: the markers do. */
rx_id tool_call_begin(struct tool_work *w);
/* Name, arguments and end of a call: the text after CALL_BEGIN. */
struct expr tool_call_bodies(struct tool_work *w);
struct expr tool_channels(struct tool_work *w);

#endif
