/* tmpl_eval.h - the run of a template over its variables, bounded in steps, depth, output and memory. */
#ifndef PLATEAU_TEMPLATE_TMPL_EVAL_H
#define PLATEAU_TEMPLATE_TMPL_EVAL_H

#include "template/tmpl_ast.h"

#include "base/err.h"
#include "base/wanted.h"

struct tmpl_scope;
struct tmpl_trace;

struct tmpl_run {
    struct arena *a;
    struct err *e;
    int error;     /* 0, or the reason of the run's end; then values are meaningless */
    uint32_t line; /* line of the statement that runs */
    uint32_t steps_left, depth_left;
    uint32_t look_below;         /* steps_left at which `wanted` is polled next */
    size_t units;                /* units of work, less than a step; see tmpl_work() */
    const struct wanted *wanted; /* NULL: never cancelled */
    size_t text_bytes_max;       /* limit of any text that is built */
    int64_t now_s;
    struct tmpl_text *out;
    struct tmpl_trace *trace; /* NULL: no record of which message wrote which bytes */
    struct tmpl_scope *globals, *scope;
    enum { TMPL_FLOW_ON, TMPL_FLOW_BREAK, TMPL_FLOW_CONTINUE } flow;
};

struct tmpl_loop {
    struct tmpl_seq *items;
    uint32_t index0;
    bool called;            /* changed() has been called */
    struct tmpl_value last; /* its arguments then, as a list */
};

struct tmpl_macro {
    const struct tmpl_node *node; /* TMPL_MACRO or TMPL_CALL_BLOCK */
    struct tmpl_scope *scope;     /* visible to its body */
};

/* Ends the run with -EINVAL and "line N: ..."; the first error stays. Returns an undefined value. */
struct tmpl_value tmpl_fail(struct tmpl_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As `tmpl_fail()`, but for -ENOMEM and -E2BIG. Returns none. */
struct tmpl_value tmpl_fail_memory(struct tmpl_run *run);
/* Counts work that is not a node: false when the run has ended. tmpl_work() is the same in smaller units. */
bool tmpl_step(struct tmpl_run *run, uint32_t steps);
/* A text of this run: charged to it, in its arena, within text_bytes_max. */
void tmpl_text_begin(struct tmpl_run *run, struct tmpl_text *t);
/* The text as a value; the run ends if it failed. */
struct tmpl_value tmpl_text_end(struct tmpl_run *run, const struct tmpl_text *t);
/* An empty list of this run. NULL: no memory, and the run has ended. */
struct tmpl_seq *tmpl_seq_begin(struct tmpl_run *run, uint32_t capacity);

/* Sets a global variable before the run. False: no memory. */
bool tmpl_define(struct tmpl_run *run, struct slice name, struct tmpl_value v);
/* `scope` empty, `globals` made: for chat_template.c. */
bool tmpl_run_init(struct tmpl_run *run);
/* Runs a sequence; output goes to run->out. */
void tmpl_exec(struct tmpl_run *run, const struct tmpl_node *n);

/* v.name in Jinja's order: attribute or method, then item. Undefined when absent; an error on Undefined. */
struct tmpl_value tmpl_get_attribute(struct tmpl_run *run, struct tmpl_value v, struct slice name);
/* v[key]. */
struct tmpl_value tmpl_get_item(struct tmpl_run *run, struct tmpl_value v, struct tmpl_value key);
/* A list of tuples (key, value). */
struct tmpl_value tmpl_pairs(struct tmpl_run *run, const struct tmpl_dict *d);
/* The items that `for` would visit, as a list; NULL with the error set when v cannot be iterated. */
struct tmpl_seq *tmpl_iterate(struct tmpl_run *run, const struct tmpl_value *v);
/* -1, 0, 1 and true, or false for operands that Python does not compare. */
bool tmpl_compare(struct tmpl_run *run, const struct tmpl_value *x, const struct tmpl_value *y, int *ret);
/* x in y. */
bool tmpl_contains(struct tmpl_run *run, const struct tmpl_value *y, const struct tmpl_value *x);
/* & < > and quotes as HTML entities. */
struct tmpl_value tmpl_escape(struct tmpl_run *run, struct slice s);
/* str(v) as a value. */
struct tmpl_value tmpl_to_string(struct tmpl_run *run, const struct tmpl_value *v);

/* Sets the error for a use of an undefined value. */
struct tmpl_value tmpl_undefined_access(struct tmpl_run *run, struct tmpl_value v);
/* x op y, for the arithmetic operators and `~`; tmpl_integers: both are integers. */
struct tmpl_value tmpl_binary(struct tmpl_run *run, enum tmpl_op op, struct tmpl_value x,
                              struct tmpl_value y);
struct tmpl_value tmpl_integers(struct tmpl_run *run, enum tmpl_op op, int64_t i, int64_t j);
/* x op y, for comparisons and `in`. */
bool tmpl_relate(struct tmpl_run *run, enum tmpl_op op, const struct tmpl_value *x,
                 const struct tmpl_value *y);

#endif
