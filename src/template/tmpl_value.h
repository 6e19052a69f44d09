/* tmpl_value.h - the values of a template.
 *
 * Values are small and copied. Their data lies in the arena of the rendering (or of the compiled template). A
 * template never changes it, except through namespaces: HF renders in an immutable sandbox. So no list and no
 * dict contains itself. Their depth is bounded where they are made, which bounds the recursion of every walk
 * over a value; a namespace is not part of a walk. */
#ifndef PLATEAU_TEMPLATE_TMPL_VALUE_H
#define PLATEAU_TEMPLATE_TMPL_VALUE_H

#include "base/arena.h"
#include "base/slice.h"

#include <jansson.h>

/* Nesting of lists, tuples and dicts in a value; [[]] has 2. */
#define TMPL_VALUE_DEPTH_MAX 256

enum tmpl_type {
    TMPL_UNDEFINED, /* s: the name, for messages */
    TMPL_NONE,
    TMPL_BOOL,
    TMPL_INT,
    TMPL_FLOAT,
    TMPL_STRING,
    TMPL_SEQ, /* list, tuple, or result of a lazy filter */
    TMPL_DICT_VALUE,
    TMPL_NAMESPACE,
    TMPL_MACRO_VALUE,
    TMPL_FUNCTION, /* a global function: i */
    TMPL_METHOD,   /* a bound method: i, of *self */
    TMPL_LOOP,
};

enum tmpl_seq_kind { TMPL_SEQ_LIST, TMPL_SEQ_TUPLE, TMPL_SEQ_GENERATOR };

struct tmpl_value {
    enum tmpl_type type;
    enum tmpl_seq_kind seq;
    bool markup; /* a string from `safe`: text added to it is HTML-escaped, as in markupsafe */
    union {
        bool b;
        int64_t i;
        double f;
        struct tmpl_seq *list;
        struct tmpl_dict *dict; /* also of a namespace */
        struct tmpl_macro *macro;
        struct tmpl_loop *loop;
    };
    struct slice s;                /* string, or the name of an undefined value or of a function */
    const struct tmpl_value *self; /* method */
};

struct tmpl_seq {
    struct tmpl_value *items;
    uint32_t count, capacity;
    uint32_t depth; /* nesting of the list, once it is a value; 0 while it grows */
};

struct tmpl_dict {
    struct tmpl_value *keys, *values;
    uint32_t count, capacity;
    uint32_t depth;   /* 1 + that of its deepest member, past or present */
    uint32_t message; /* 1 + the index of the conversation's message that it is; 0: none (tmpl_trace.h) */
};

static inline struct tmpl_value tmpl_none(void)
{
    return (struct tmpl_value){.type = TMPL_NONE};
}
static inline struct tmpl_value tmpl_bool(bool b)
{
    return (struct tmpl_value){.type = TMPL_BOOL, .b = b};
}
static inline struct tmpl_value tmpl_int(int64_t i)
{
    return (struct tmpl_value){.type = TMPL_INT, .i = i};
}
static inline struct tmpl_value tmpl_float(double f)
{
    return (struct tmpl_value){.type = TMPL_FLOAT, .f = f};
}
static inline struct tmpl_value tmpl_string(struct slice s)
{
    return (struct tmpl_value){.type = TMPL_STRING, .s = s};
}
static inline struct tmpl_value tmpl_undefined(struct slice name)
{
    return (struct tmpl_value){.type = TMPL_UNDEFINED, .s = name};
}

/* The run that pays for work: see tmpl_eval.h. Where a function takes NULL, the work is free. */
struct tmpl_run;
/* Charges work: a unit is about a nanosecond, such as one byte compared or copied, and 64 units are a step.
 * Work that grows with its values is charged before it starts. False: the run has ended. */
bool tmpl_work(struct tmpl_run *run, size_t units);
/* Costs of reading `bytes` of text: to copy or compare it; to search it; to loop over its characters. */
static inline size_t tmpl_cost_copy(size_t bytes)
{
    return bytes;
}
static inline size_t tmpl_cost_find(size_t bytes)
{
    return 4 * bytes;
}
static inline size_t tmpl_cost_chars(size_t bytes)
{
    return 2 * bytes;
}
static inline size_t tmpl_cost_unicode(size_t bytes)
{
    return 16 * bytes;
}

/* Text that grows in an arena. A failed append sets `failed` and is ignored, like those after it. */
struct tmpl_text {
    struct arena *a;
    char *ptr;
    size_t len, capacity, bytes_max;
    struct tmpl_run *run; /* pays for the text; NULL: free */
    bool failed;
    bool full; /* it failed because of bytes_max */
};
void tmpl_text_init(struct tmpl_text *t, struct arena *a, size_t bytes_max);
void tmpl_text_put(struct tmpl_text *t, struct slice s);
void tmpl_text_putc(struct tmpl_text *t, char c);
static inline struct slice tmpl_text_slice(const struct tmpl_text *t)
{
    return (struct slice){t->ptr, t->len};
}

/* NULL or false: no memory. */
struct tmpl_seq *tmpl_seq_new(struct arena *a, uint32_t capacity);
bool tmpl_seq_push(struct arena *a, struct tmpl_seq *l, struct tmpl_value v);
/* The list as a value; then it does not change any more. None where `l` is NULL, and where it is nested too
 * deeply, which ends the run. */
struct tmpl_value tmpl_list_of(struct tmpl_run *run, struct tmpl_seq *l, enum tmpl_seq_kind kind);
struct tmpl_dict *tmpl_dict_new(struct arena *a, uint32_t capacity);
/* The dict as a value; as tmpl_list_of(), but for TMPL_DICT_VALUE. */
struct tmpl_value tmpl_dict_of(struct tmpl_run *run, struct tmpl_dict *d);
bool tmpl_dict_set(struct tmpl_run *run, struct arena *a, struct tmpl_dict *d, struct tmpl_value key,
                   struct tmpl_value v);
/* NULL: absent, or the run has ended. */
const struct tmpl_value *tmpl_dict_get(struct tmpl_run *run, const struct tmpl_dict *d,
                                       const struct tmpl_value *key);
const struct tmpl_value *tmpl_dict_find(struct tmpl_run *run, const struct tmpl_dict *d, struct slice key);

/* The nesting of a value: 0 for one that is neither list nor dict. */
static inline uint32_t tmpl_depth(const struct tmpl_value *v)
{
    return v->type == TMPL_SEQ ? v->list->depth : v->type == TMPL_DICT_VALUE ? v->dict->depth : 0;
}

/* A JSON value as a value; its strings are borrowed. `depth` counts the containers around it. False: no
 * memory or too deep. */
bool tmpl_from_json(struct arena *a, const json_t *json, uint32_t depth, struct tmpl_value *ret);

bool tmpl_truthy(const struct tmpl_value *v);
/* Python's ==; also false when the run has ended. */
bool tmpl_equal(struct tmpl_run *run, const struct tmpl_value *x, const struct tmpl_value *y);
/* True for an int, a bool (which counts as one) or a float; then `ret` has its value. */
bool tmpl_number(const struct tmpl_value *v, double *ret);
bool tmpl_integer(const struct tmpl_value *v, int64_t *ret);
/* Python's name of the type: "str", "dict". */
const char *tmpl_type_name(const struct tmpl_value *v);

/* Python's str(v), and repr(v). */
void tmpl_print(struct tmpl_text *t, const struct tmpl_value *v);
void tmpl_print_repr(struct tmpl_text *t, const struct tmpl_value *v);

struct tmpl_json_opts {
    int indent; /* -1: one line */
    bool sort_keys, ensure_ascii;
    struct slice item_separator, key_separator; /* ptr NULL: Python's defaults */
};
/* json.dumps(v). NULL, or the Python type name of a value that cannot be written. */
const char *tmpl_tojson(struct tmpl_text *t, const struct tmpl_value *v, const struct tmpl_json_opts *opts,
                        uint32_t depth);

/* Code points of UTF-8 text: their count, and the byte at which number `index` begins (the length when past
 * it). */
size_t tmpl_chars(struct slice s);
size_t tmpl_char_at(struct slice s, size_t index);

#endif
