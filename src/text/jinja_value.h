/* jinja_value.h - the values of a rendering: Python's, as far as templates can tell.
 *
 * A value is 16 bytes and is copied freely; what it points to lies in the rendering's arena and never changes once
 * made, except the members of a namespace and how much of a generator is used up. JSON from outside is wrapped as it
 * is and unfolded one level at a time, when somebody looks. Text is valid UTF-8; lengths and indices count
 * code points.
 *
 * All functions that can fail return 0 or a negative code and have set r->e; the code is also kept in r->error. */
#ifndef PLATEAU_TEXT_JINJA_VALUE_H
#define PLATEAU_TEXT_JINJA_VALUE_H

#include "text/jinja.h"

enum jinja_kind {
    VALUE_MISSING, /* no value at all: an argument left out, a name never set */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STR,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,
    VALUE_VIEW,      /* dict.keys(), .values(), .items() */
    VALUE_GENERATOR, /* what lazy filters give: good for one walk */
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_METHOD,
    VALUE_FUNCTION
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct jinja_str *s;
        struct jinja_list *l; /* list, tuple, range, view, generator */
        struct jinja_dict *d; /* dict, namespace */
        struct jinja_undefined *u;
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
        const struct jinja_builtin *function;
    };
};

/* Room behind the newest text or list that grew by `+`. Whoever ends exactly there may grow in place: the
 * elders see only their own part. So a template that builds its output by appending costs linear memory. */
struct jinja_tail {
    char *base;
    size_t used, capacity; /* bytes or items */
};

struct jinja_str {
    const char *ptr;
    size_t len, chars; /* chars: SIZE_MAX until counted */
    struct jinja_tail *tail;
    bool markup; /* result of `safe` or `escape`: `+` escapes what it is added to */
};

struct jinja_list {
    struct jinja_value *items; /* NULL until unfolded from src */
    size_t len;
    const json_t *src;
    struct jinja_tail *tail;
    const char *name; /* of a view or range, as Python prints it */
};

struct jinja_pair {
    struct jinja_value key, value;
};

struct jinja_dict {
    struct jinja_pair *pairs; /* in order of insertion */
    size_t count, capacity;
    const json_t *src; /* not yet unfolded */
};

/* Why there is nothing: what an attempt to use it says. */
struct jinja_undefined {
    struct slice name;
    enum { UNDEFINED_NAME, UNDEFINED_ATTRIBUTE, UNDEFINED_ELEMENT, UNDEFINED_HINT, UNDEFINED_UNSAFE } why;
    const char *owner; /* type name, for attributes */
};

struct jinja_method {
    struct jinja_value self;
    const struct jinja_builtin *builtin;
};

struct jinja_frame;
struct jinja_loop {
    struct jinja_value *items;
    size_t len, index0;
    uint32_t depth0;
    const struct jinja_node *node; /* the statement, if it is recursive; else NULL */
    struct jinja_frame *frame;     /* where the statement stands */
    struct jinja_value changed;
};

struct jinja_macro {
    const struct jinja_macro_node *node;
    struct jinja_frame *frame; /* where it was defined: what it sees */
};

/* Where printed text goes: the caller's buffer, or a capture. */
struct jinja_out;

struct jinja_run {
    /* Set at the start, then constant. */
    struct arena *a;
    const struct jinja_template *t;
    struct jinja_limits limits;
    int64_t now_s;
    size_t arena_start;
    struct err *e;
    /* Changing. */
    uint64_t steps;
    uint32_t depth, line;
    int error;
    struct jinja_value
        *root; /* by symbol: what the template sets outside of loops and macros, over what it was given */
    struct jinja_out *out;
};

/* ---- failing and bounds ---- */

/* "line 3: ...": -EINVAL. */
int jinja_fail(struct jinja_run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The one about using what is undefined. */
int jinja_fail_undefined(struct jinja_run *r, const struct jinja_value *v);
int jinja_spend(struct jinja_run *r, size_t steps);
static inline int jinja_spend_bytes(struct jinja_run *r, size_t bytes)
{
    return jinja_spend(r, bytes / 64);
}
/* A level of recursion; jinja_leave() follows also when jinja_enter() failed. */
int jinja_enter(struct jinja_run *r);
static inline void jinja_leave(struct jinja_run *r)
{
    r->depth--;
}
/* NULL, and r->error is set, when memory or the limit is reached. Zeroed, aligned to 8. */
void *jinja_alloc(struct jinja_run *r, size_t bytes);
void *jinja_alloc_array(struct jinja_run *r, size_t count, size_t size);

/* ---- making ---- */

static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){VALUE_NONE, {0}};
}
static inline struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){VALUE_BOOL, {.b = b}};
}
static inline struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){VALUE_INT, {.i = i}};
}
static inline struct jinja_value jinja_float(double f)
{
    return (struct jinja_value){VALUE_FLOAT, {.f = f}};
}
int jinja_undefined(struct jinja_run *r, int why, struct slice name, const char *owner,
                    struct jinja_value *ret);
/* A view: the bytes stay where they are. */
int jinja_str(struct jinja_run *r, struct slice text, struct jinja_value *ret);
int jinja_str_copy(struct jinja_run *r, struct slice text, struct jinja_value *ret);
int jinja_str_join(struct jinja_run *r, const struct jinja_str *a, const struct jinja_str *b,
                   struct jinja_value *ret);
/* Wraps; strings stay where they are. */
int jinja_json(struct jinja_run *r, const json_t *json, struct jinja_value *ret);
/* `len` missing items, for the caller to fill. */
int jinja_list(struct jinja_run *r, enum jinja_kind kind, size_t len, struct jinja_value *ret);
int jinja_list_join(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                    struct jinja_value *ret);
int jinja_pair(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
               struct jinja_value *ret);
int jinja_dict(struct jinja_run *r, enum jinja_kind kind, size_t capacity, struct jinja_value *ret);

/* ---- looking ---- */

/* "str", "NoneType": as Python calls it. */
const char *jinja_type(const struct jinja_value *v);
static inline struct slice jinja_slice(const struct jinja_value *v)
{
    return (struct slice){v->s->ptr, v->s->len};
}
bool jinja_truth(const struct jinja_value *v);
/* int or bool as a number; false for everything else. */
bool jinja_as_int(const struct jinja_value *v, int64_t *ret);
/* int, bool or float. */
bool jinja_as_float(const struct jinja_value *v, double *ret);
size_t jinja_chars(struct jinja_str *s);
/* Bytes before code point `index` <= chars. */
size_t jinja_char_offset(struct jinja_str *s, size_t index);
/* Items of list, tuple, range, view or generator, without using up the latter. */
int jinja_items(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **ret);
/* Pairs of a dict or namespace. */
int jinja_pairs(struct jinja_run *r, const struct jinja_value *v, struct jinja_pair **ret);
/* Everything that `for` walks over, as an array; a generator is empty afterwards. Others fail. */
int jinja_iterate(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **ret, size_t *len);
/* NULL in *ret when there is no such key. */
int jinja_dict_get(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
                   struct jinja_value **ret);
int jinja_dict_get_name(struct jinja_run *r, const struct jinja_value *v, struct slice name,
                        struct jinja_value **ret);
int jinja_dict_put(struct jinja_run *r, struct jinja_value *v, const struct jinja_value *key,
                   const struct jinja_value *value);

/* ---- comparing ---- */

int jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, bool *ret);
/* a < b, for `<` and for sorting; `op` is for the message. */
int jinja_less(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, const char *op,
               bool *ret);
/* needle in haystack */
int jinja_contains(struct jinja_run *r, const struct jinja_value *haystack, const struct jinja_value *needle,
                   bool *ret);

/* ---- text that grows in the arena ---- */

struct jinja_text {
    struct jinja_run *r;
    char *ptr;
    size_t len, capacity;
};
/* A failure is in r->error; appending after it does nothing. */
void jinja_text_put(struct jinja_text *t, struct slice s);
void jinja_text_putc(struct jinja_text *t, char c);
void jinja_text_puts(struct jinja_text *t, const char *s);
/* The end of it: the text as a value. */
int jinja_text_value(struct jinja_text *t, struct jinja_value *ret);

/* ---- calling ---- */

#define JINJA_PARAMETERS_MAX 5
struct jinja_named {
    struct slice name;
    struct jinja_value value;
};
struct jinja_args {
    struct jinja_value *positional;
    struct jinja_named *named;
    size_t positional_count, named_count;
};
struct jinja_call {
    struct jinja_value self;
    struct jinja_value arg[JINJA_PARAMETERS_MAX]; /* by parameter; VALUE_MISSING: left out */
    const struct jinja_args *args;                /* as written, for builtins that sort them out themselves */
};
typedef int jinja_builtin_fn(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret);
struct jinja_builtin {
    const char *name;
    jinja_builtin_fn *fn;
    const char *parameters[JINJA_PARAMETERS_MAX];
    uint8_t required;
    bool free_form; /* looks at call.args itself */
};
/* Distributes arguments over parameters, as Python does, and calls. */
int jinja_call_builtin(struct jinja_run *r, const struct jinja_builtin *f, const struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret);

/* NULL: there is none. */
const struct jinja_builtin *jinja_filter_find(struct slice name);
const struct jinja_builtin *jinja_test_find(struct slice name);
const struct jinja_builtin *jinja_function_find(struct slice name);
/* The method `name` of values of kind `kind`; *unsafe: Python has one that would change the value. */
const struct jinja_builtin *jinja_method_find(enum jinja_kind kind, struct slice name, bool *unsafe);

#endif
