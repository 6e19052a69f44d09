/* tmpl_ast.h - a compiled template: nodes in the arena it was compiled into, constant afterwards. */
#ifndef PLATEAU_TEMPLATE_TMPL_AST_H
#define PLATEAU_TEMPLATE_TMPL_AST_H

#include "template/tmpl_value.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

/* Nesting of statements and expressions that the parser accepts; the evaluator's own depth has its own
 * limit. */
#define TMPL_NESTING_MAX      200
#define TMPL_SOURCE_BYTES_MAX ((size_t)1 << 20)

enum tmpl_kind {
    /* Statements. */
    TMPL_TEXT,       /* value: the text */
    TMPL_OUTPUT,     /* a: expression */
    TMPL_SEQUENCE,   /* list: statements */
    TMPL_IF,         /* a: condition, b: then, c: else or NULL */
    TMPL_FOR,        /* names: targets, a: iterable, d: condition or NULL, b: body, c: else or NULL */
    TMPL_SET,        /* names: targets (one, or a tuple), a: expression */
    TMPL_SET_BLOCK,  /* names[0], b: body; list: filters applied to it, innermost first */
    TMPL_SET_ATTR,   /* names[0].names[1] = a */
    TMPL_MACRO,      /* name, names: parameters, list: defaults of the last parameters, b: body */
    TMPL_FILTERED,   /* {% filter f %}: a: filter node whose a is NULL, b: body */
    TMPL_CALL_BLOCK, /* {% call f(x) %}: a: call, names: parameters of caller, b: body */
    TMPL_BREAK,
    TMPL_CONTINUE,
    /* Expressions. */
    TMPL_CONST,        /* value */
    TMPL_NAME,         /* name */
    TMPL_LIST,         /* list */
    TMPL_TUPLE,        /* list */
    TMPL_DICT,         /* list: key, value, key, value */
    TMPL_ATTR,         /* a.name */
    TMPL_INDEX,        /* a[b] */
    TMPL_SLICE,        /* a[b:c:d], each may be NULL */
    TMPL_CALL,         /* a(list), names[i].ptr != NULL: keyword */
    TMPL_SPREAD,       /* *a, an argument of a call: each item is one */
    TMPL_SPREAD_NAMED, /* **a: each member is a keyword */
    TMPL_FILTER,       /* a | name(list) */
    TMPL_TEST,         /* a is name(list) */
    TMPL_NOT,          /* a */
    TMPL_NEGATE,       /* a */
    TMPL_PLUS,         /* a */
    TMPL_AND,          /* a, b */
    TMPL_OR,           /* a, b */
    TMPL_TERNARY,      /* b if a else c (c may be NULL) */
    TMPL_COMPARE,      /* a, then ops[i] list[i] */
    TMPL_BINARY,       /* a op b */
};

enum tmpl_op {
    TMPL_OP_ADD,
    TMPL_OP_SUB,
    TMPL_OP_MUL,
    TMPL_OP_DIV,
    TMPL_OP_FLOORDIV,
    TMPL_OP_MOD,
    TMPL_OP_POW,
    TMPL_OP_CONCAT,
    TMPL_OP_EQ,
    TMPL_OP_NE,
    TMPL_OP_LT,
    TMPL_OP_LE,
    TMPL_OP_GT,
    TMPL_OP_GE,
    TMPL_OP_IN,
    TMPL_OP_NOT_IN,
};

struct tmpl_node {
    enum tmpl_kind kind;
    enum tmpl_op op;
    uint32_t line;
    int builtin; /* index of the filter or test, resolved when parsed */
    struct slice name;
    struct tmpl_value value;
    struct tmpl_node *a, *b, *c, *d;
    struct tmpl_node **list;
    enum tmpl_op *ops;
    struct slice *names;
    uint32_t list_count, name_count;
};

enum tmpl_token_kind {
    TMPL_TOKEN_END,
    TMPL_TOKEN_TEXT,        /* outside of tags */
    TMPL_TOKEN_OUTPUT_OPEN, /* {{ */
    TMPL_TOKEN_OUTPUT_CLOSE,
    TMPL_TOKEN_TAG_OPEN, /* {% */
    TMPL_TOKEN_TAG_CLOSE,
    TMPL_TOKEN_NAME,
    TMPL_TOKEN_STRING, /* decoded */
    TMPL_TOKEN_INT,
    TMPL_TOKEN_FLOAT,
    TMPL_TOKEN_OP /* text: the operator */
};

struct tmpl_token {
    enum tmpl_token_kind kind;
    uint32_t line;
    struct slice text;
    int64_t i;
    double f;
};

/* Splits a template with trim_blocks and lstrip_blocks into tokens in `a`, the last one TMPL_TOKEN_END. Text
 * tokens point into `source`, which must outlive them. 0, -EINVAL (e names the line), -E2BIG, -ENOMEM. */
int tmpl_lex(struct arena *a, struct slice source, struct tmpl_token **ret, uint32_t *count, struct err *e);

/* Parses a template into a TMPL_SEQUENCE. The same errors. */
int tmpl_parse(struct arena *a, struct slice source, struct tmpl_node **ret, struct err *e);

#endif
