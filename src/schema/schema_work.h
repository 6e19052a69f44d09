/* schema_work.h - what the files of the schema compiler share. Included by schema_*.c only.
 *
 * A schema of the document is a node. A literal is a node or its negation. What a value must satisfy is a set
 * of literals, all of which hold: allOf and $ref add to it. schema_expand() makes a set into ways: each way
 * is a conjunction without choices left, and the set is their union. A way keeps for each type what a value
 * of that type must satisfy; values of properties and items are sets again. A rule belongs to a set, so that
 * recursion ends.
 *
 * Ways are exact: they have the values of the set and no others. So a negation is exact, too. */
#ifndef PLATEAU_SCHEMA_SCHEMA_WORK_H
#define PLATEAU_SCHEMA_SCHEMA_WORK_H

#include "schema/decimal.h"
#include "schema/json_number.h"
#include "schema/json_text.h"

#include "base/arena.h"
#include "grammar/grammar.h"

#include <errno.h>

struct rx_store;

#define SCHEMA_PATTERNS_MAX 5 /* patternProperties in one object */

enum {
    SCHEMA_NULL = 1,
    SCHEMA_FALSE = 2,
    SCHEMA_TRUE = 4,
    SCHEMA_NUMBER = 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
    SCHEMA_ANY = 127
};

enum { SCHEMA_NODE_TRUE, SCHEMA_NODE_FALSE }; /* the two nodes of boolean schemas */

typedef uint32_t lit_id; /* node * 2, + 1: negated */
#define LIT(node)    ((lit_id)(node)*2)
#define LIT_NOT(lit) ((lit) ^ 1u)

struct schema_node {
    const json_t *json;
    uint32_t parent, resource; /* nodes; resource: the nearest one above with an $id, or the root */
    const char *key, *name;    /* path from the parent: /key or /key/name; NULL */
    bool any;                  /* asserts nothing */
};

/* Sorted, without doubles. none: no value satisfies it. */
struct schema_set {
    uint32_t count;
    bool none;
    const lit_id *lits;
    sym_id rule; /* rule of a set that has been interned */
    const struct schema_set *next;
};

struct schema_name {
    struct slice text;
    const struct schema_name *next;
};

/* A member's value satisfies `lit`, if the member is there. */
struct schema_member {
    struct slice name;
    lit_id lit;
    const struct schema_member *next;
};

/* A node whose keywords about members, or about items, apply. */
struct schema_part {
    uint32_t node;
    const struct schema_part *next;
};

struct schema_lits {
    lit_id lit;
    const struct schema_lits *next;
};

struct schema_values {
    uint32_t count;
    const json_t **all;
};

struct schema_except {
    const json_t *value;
    const struct schema_except *next;
};

struct schema_multiple {
    struct decimal of;
    const struct schema_multiple *next;
};

/* An unsupported keyword. It counts if a value of one of these types is possible. */
struct schema_refusal {
    uint32_t types, node;
    const char *keyword, *why;
    const struct schema_refusal *next;
};

struct schema_alternative {
    uint32_t types;
    bool finite; /* one of `values`, which satisfy the rest as well */
    struct schema_values values;
    const struct schema_except *except; /* numbers, arrays and objects that it does not have */
    struct json_number number;
    const struct schema_multiple *multiples;
    rx_id text;                                 /* contents of strings, between the quotes */
    const struct schema_part *arrays, *objects; /* the latest first */
    uint32_t items_min, items_max;
    uint32_t members_min, members_max;
    bool unique;
    const struct schema_name *required, *absent;
    const struct schema_member *members;
    const struct schema_lits *names; /* names that propertyNames allows */
    const struct schema_refusal *refusals;
};

struct schema_alternatives {
    uint32_t count, capacity;
    struct schema_alternative *all;
};

#define SCHEMA_BUCKETS 4096

struct schema_work {
    struct grammar_builder *b;
    struct rx_store *s;
    struct json_text text;
    const struct schema_opts *opts;
    const struct wanted *wanted_before; /* the store's own, put back afterwards */
    struct err *e;
    int error; /* the first one */
    struct arena *keep, *scratch;
    /* schema_doc.c */
    uint32_t draft; /* 4, 6, 7, 2019, 2020; 0: not said */
    uint32_t node_count, node_capacity;
    struct schema_node *nodes;
    uint32_t *node_slots; /* by the address of the JSON; node + 1 */
    uint32_t node_slot_count;
    uint32_t looks;
    uint32_t nested; /* proofs within proofs, see schema_expand.c */
    /* schema_compile.c */
    struct schema_set *sets[SCHEMA_BUCKETS];
    struct schema_set **queue;
    uint32_t queued, defined;
    /* patterns that have been parsed */
    struct schema_pattern *patterns;
};

/* ---- schema_work.c ---- */

/* Zeroes and prepares the work; schema_doc_open() comes next. 0 or -ENOMEM; schema_work_close() either
 * way. */
int schema_work_open(struct schema_work *w, struct grammar_builder *b, const struct schema_opts *opts,
                     struct err *e);
void schema_work_close(struct schema_work *w);

/* Keeps the first failure and returns its code. `node`: whose JSON pointer is in the message. */
int schema_fail(struct schema_work *w, int code, uint32_t node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool schema_failed(struct schema_work *w); /* looks at the time now and then, too */
/* Zeroed, or NULL and the work has failed. */
void *schema_keep(struct schema_work *w, size_t bytes);
void *schema_take(struct schema_work *w, size_t bytes); /* until the set that is defined now is done */
struct slice schema_text(const json_t *string);
/* True if no text matches; false if one does or none was found within the bounds. */
bool schema_rx_none(struct schema_work *w, rx_id x);

/* ---- schema_doc.c ---- */

int schema_doc_open(struct schema_work *w, const json_t *schema);
/* A schema inside the document as a node; it is added if it is new. */
uint32_t schema_node_of(struct schema_work *w, const json_t *json, uint32_t parent, const char *key,
                        const char *name);
/* Node of a $ref. The work fails if the reference has no target. */
uint32_t schema_doc_resolve(struct schema_work *w, uint32_t node, const char *ref);

/* ---- schema_words.c ---- */

enum schema_word_kind { SCHEMA_ASSERTS, SCHEMA_NOTES, SCHEMA_UNKNOWN };
/* Whether a keyword asserts something in this draft. */
enum schema_word_kind schema_word(uint32_t draft, const char *key);
bool schema_ref_alone(const struct schema_work *w, const json_t *json); /* keywords beside $ref are ignored */
/* The work fails if the value of a keyword has a form that the drafts do not allow. */
void schema_check_words(struct schema_work *w, uint32_t node);

/* ---- schema_set.c ---- */

struct schema_set_of {
    uint32_t count, capacity;
    lit_id *lits;
    bool none;
};
void schema_set_add(struct schema_work *w, struct schema_set_of *s, lit_id lit);
struct schema_set schema_set_done(struct schema_work *w, struct schema_set_of *s);
/* Rule of a set; it is defined later. */
sym_id schema_rule_of(struct schema_work *w, const struct schema_set *set);

/* ---- schema_value.c ---- */

uint32_t schema_type_of(const json_t *value);
/* The types that a name stands for, *whole: integers alone. */
uint32_t schema_types_named(const json_t *name, bool *whole);
/* JSON Schema's equality: 1 and 1.0 are equal. */
bool schema_equal(const json_t *a, const json_t *b);

/* ---- schema_expand.c ---- */

/* The ways of a set whose values are of `types`. In scratch memory. */
struct schema_alternatives schema_expand(struct schema_work *w, const struct schema_set *set, uint32_t types);
bool schema_alternative_accepts(struct schema_work *w, const struct schema_alternative *way,
                                const json_t *value);

/* ---- schema_state.c ---- */

struct schema_state; /* a way on its way, with literals and choices that are left */
void schema_state_add(struct schema_work *w, struct schema_state *st, lit_id lit);

/* One thing that an option of a choice demands. */
enum schema_atom_kind { ATOM_LIT, ATOM_TYPES, ATOM_PRESENT, ATOM_ABSENT, ATOM_MEMBER, ATOM_NOT_WORD };
struct schema_atom {
    enum schema_atom_kind kind;
    uint32_t types, node;
    lit_id lit;
    struct slice name;
    const char *key;
    const json_t *value;
};
#define SCHEMA_ATOMS_MAX 3
struct schema_option {
    uint32_t count;
    struct schema_atom atoms[SCHEMA_ATOMS_MAX];
    const struct schema_atom *more; /* a further row of atoms */
    uint32_t more_count;
};
struct schema_choice {
    uint32_t count, capacity;
    struct schema_option *options;
    const char *key; /* "oneOf": options exclude each other */
    uint32_t node;
    const struct schema_choice *next;
};
struct schema_choice *schema_choose(struct schema_work *w, struct schema_state *st, uint32_t node,
                                    const char *key, uint32_t count);
struct schema_option *schema_option_add(struct schema_choice *c);
void schema_refuse(struct schema_work *w, struct schema_state *st, uint32_t types, uint32_t node,
                   const char *key, const char *why);

/* ---- keywords ---- */

/* A keyword that a state reads: asserted, or negated. */
struct schema_keyword {
    struct schema_work *w;
    struct schema_state *st;
    struct schema_alternative *way; /* way of the state */
    uint32_t node;
    const char *key;
    const json_t *value;
    bool negated;
};
struct schema_keyword_row {
    const char *key;
    void (*read)(const struct schema_keyword *o);
};
/* Reads the keyword by its row of the table. False: it has none. */
bool schema_keyword_read(const struct schema_keyword *o, const struct schema_keyword_row *table,
                         size_t count);
/* The schema at `json`, in the keyword's value: an item, or the member `name`. */
lit_id schema_lit(const struct schema_keyword *o, const json_t *json, const char *name);
/* schema_combine.c, schema_bounds.c: keywords of combinations; of numbers, strings and lengths. False: not
 * one. */
bool schema_combine(const struct schema_keyword *o);
bool schema_bound(const struct schema_keyword *o);
/* schema_assert.c, schema_negate.c: any keyword. */
void schema_assert(const struct schema_keyword *o);
void schema_negate(const struct schema_keyword *o);

/* ---- schema_format.c ---- */

rx_id schema_pattern_rx(struct schema_work *w, uint32_t node, const char *key, struct slice pattern);
enum schema_format_kind { SCHEMA_FORMAT_KNOWN, SCHEMA_FORMAT_REFUSED, SCHEMA_FORMAT_NOTE };
enum schema_format_kind schema_format(struct schema_work *w, uint32_t node, struct slice name, rx_id *ret);

/* ---- schema_apart.c ---- */

/* True: the keywords of both, read as they stand, show that no value satisfies the two schemas. The work may
 * fail for a reference without a target. */
bool schema_apart(struct schema_work *w, uint32_t node_a, uint32_t node_b);

/* ---- schema_members.c, schema_items.c ---- */

/* The members that a way names, in order. */
struct schema_named {
    struct slice name;
    struct schema_set value;
    bool required;
};
/* Members of other names: keys of this expression, values of this set. */
struct schema_others {
    rx_id key;
    struct schema_set value;
};
struct schema_members {
    uint32_t count, other_count;
    struct schema_named *named;
    struct schema_others others[1u << SCHEMA_PATTERNS_MAX];
};
/* `names`: keys that propertyNames allows. NULL: the work has failed. */
struct schema_members *schema_members_make(struct schema_work *w, const struct schema_alternative *way,
                                           rx_id names);
struct schema_members *schema_members_of(struct schema_work *w,
                                         const struct schema_alternative *way); /* in schema_expand.c */
/* Returns the schemas that the value at `index` must satisfy; from `schema_items_fixed` on all are equal. */
struct schema_set schema_item(struct schema_work *w, const struct schema_alternative *way, uint32_t index);
uint32_t schema_items_fixed(struct schema_work *w, const struct schema_alternative *way);

/* ---- schema_emit*.c ---- */

void schema_emit_alternative(struct schema_work *w, const struct schema_alternative *way, sym_id rule);
void schema_emit_object(struct schema_work *w, const struct schema_alternative *way, sym_id rule);
void schema_emit_array(struct schema_work *w, const struct schema_alternative *way, sym_id rule);
void schema_emit_number(struct schema_work *w, const struct schema_alternative *way, sym_id rule);
void schema_emit_values(struct schema_work *w, const struct schema_alternative *way, sym_id rule);
/* null, true and false, as far as `types` has them; and a terminal as an alternative of the rule. */
rx_id schema_words_rx(struct rx_store *s, uint32_t types);
void schema_emit_terminal(struct schema_work *w, sym_id rule, rx_id rx);

#endif
