/* jinja_parse.h - what the two halves of the parser share: statements (jinja_parse.c) and expressions
 * (jinja_parse_expr.c). Used by them alone; the way in is jinja_compile().
 *
 * A failure sticks in p->error: functions then return NULL and the callers go home. */
#ifndef PLATEAU_TEXT_JINJA_PARSE_H
#define PLATEAU_TEXT_JINJA_PARSE_H

#include "text/jinja_ast.h"
#include "text/jinja_lex.h"

#define JINJA_SYMBOL_BUCKETS 256

struct jinja_symbol_entry {
    struct slice name;
    uint32_t symbol;
    struct jinja_symbol_entry *next;
};

struct jinja_parser {
    struct arena *a;
    struct jinja_lex lex; /* stands behind `token` */
    struct jinja_token token;
    uint32_t depth;
    uint32_t loops;      /* around us, up to the macro we are in: break and continue want one */
    uint32_t conditions; /* around us: unknown filters wait until they are reached */
    struct jinja_macro_node *macro;
    struct jinja_symbol_entry *buckets[JINJA_SYMBOL_BUCKETS];
    uint32_t symbol_count;
    struct err *e;
    int error;
};

/* "line 3: ...". Returns NULL. */
void *jinja_parse_fail(struct jinja_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *jinja_parse_alloc(struct jinja_parser *p, size_t bytes);
struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind);
uint32_t jinja_parse_symbol(struct jinja_parser *p, struct slice name);
/* A constant string: `text` is not copied. */
struct jinja_node *jinja_parse_constant(struct jinja_parser *p, struct slice text);
bool jinja_parse_enter(struct jinja_parser *p);

void jinja_parse_advance(struct jinja_parser *p);
bool jinja_parse_is_op(const struct jinja_parser *p, const char *op);
bool jinja_parse_is_name(const struct jinja_parser *p, const char *name);
/* Takes the token if it is there. */
bool jinja_parse_skip_op(struct jinja_parser *p, const char *op);
bool jinja_parse_skip_name(struct jinja_parser *p, const char *name);
/* Fails unless it is there. */
bool jinja_parse_expect_op(struct jinja_parser *p, const char *op);
/* A name, or empty and a failure. */
struct slice jinja_parse_expect_name(struct jinja_parser *p);

struct jinja_node *jinja_parse_expression(struct jinja_parser *p);
/* One expression or several with commas, which make a tuple. `end`: a name that may follow a last comma; NULL: none. */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool choice, const char *end);
/* Names, ns.attribute and tuples of them. */
struct jinja_node *jinja_parse_target(struct jinja_parser *p, bool members, const char *end);
/* `name(args) | name ...` as a list by `next`, the current token being the first name. */
struct jinja_node *jinja_parse_filters(struct jinja_parser *p);

#endif
