/* tmpl_parse.h - what the two halves of the parser share. Private to tmpl_parser.c and tmpl_expr.c.
 *
 * Every function returns NULL or false once the parser has an error; the first one stays. */
#ifndef PLATEAU_TEMPLATE_TMPL_PARSE_H
#define PLATEAU_TEMPLATE_TMPL_PARSE_H

#include "template/tmpl_ast.h"

struct tmpl_parser {
    struct arena *a;
    const struct tmpl_token *tokens; /* the last one is TMPL_TOKEN_END */
    uint32_t count;                  /* tokens */
    uint32_t at, depth, loops, macros;
    int error;
    struct err *e;
};

/* A list under construction. */
struct tmpl_node_list {
    struct tmpl_node **items;
    uint32_t count, capacity;
};

const struct tmpl_token *tmpl_p_now(const struct tmpl_parser *p);
void *tmpl_p_fail(struct tmpl_parser *p, const char *what);
void *tmpl_p_fail_memory(struct tmpl_parser *p);
bool tmpl_p_is_op(const struct tmpl_parser *p, const char *op);
bool tmpl_p_take_op(struct tmpl_parser *p, const char *op);
bool tmpl_p_take_word(struct tmpl_parser *p, const char *word);
bool tmpl_p_take(struct tmpl_parser *p, enum tmpl_token_kind kind, const char *what);
bool tmpl_p_need_op(struct tmpl_parser *p, const char *op, const char *what);
struct tmpl_node *tmpl_p_node(struct tmpl_parser *p, enum tmpl_kind kind);
bool tmpl_p_list_push(struct tmpl_parser *p, struct tmpl_node_list *l, struct tmpl_node *n);
struct tmpl_node *tmpl_p_with_list(struct tmpl_node *n, const struct tmpl_node_list *l);
bool tmpl_p_enter(struct tmpl_parser *p);
struct tmpl_node *tmpl_p_parse_filter(struct tmpl_parser *p, struct tmpl_node *of);
struct tmpl_node *tmpl_p_parse_unary(struct tmpl_parser *p, bool with_filters);
struct tmpl_node *tmpl_p_parse_logic(struct tmpl_parser *p, const char *word, enum tmpl_kind kind);
struct tmpl_node *tmpl_p_parse_expression(struct tmpl_parser *p);
struct tmpl_node *tmpl_p_parse_tuple(struct tmpl_parser *p);

#endif
