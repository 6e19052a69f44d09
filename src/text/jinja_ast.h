/* jinja_ast.h - a template as a tree. Made by jinja_parse.c, walked by jinja_exec.c and jinja_eval.c; constant once made.
 *
 * Chains (a + b + c, x or y or z, elif, filters of a block) are lists rather than deep trees: what is long in real
 * templates then costs no depth. */
#ifndef PLATEAU_TEXT_JINJA_AST_H
#define PLATEAU_TEXT_JINJA_AST_H

#include "text/jinja.h"
#include "text/jinja_value.h"

enum jinja_node_kind {
    /* Expressions. */
    NODE_CONST,  /* value */
    NODE_NAME,   /* symbol */
    NODE_LIST,   /* first: items */
    NODE_TUPLE,  /* first: items */
    NODE_DICT,   /* first: key, value, key, value ... */
    NODE_ATTR,   /* first: the object itself; value: the name */
    NODE_ITEM,   /* first: operand with the object, then the index itself */
    NODE_SLICE,  /* first: operand with the object; slice */
    NODE_CALL,   /* first: what is called, itself; args */
    NODE_FILTER, /* first: the input itself (none in a block); builtin, value: the name; args */
    NODE_TEST,   /* the same */
    NODE_NOT,    /* first: itself; so too the next two */
    NODE_NEGATE,
    NODE_PLUS,
    NODE_MATH,    /* first: operands, each but the first with `join` */
    NODE_CONCAT,  /* first: operands */
    NODE_COMPARE, /* first: operands, each but the first with `join` */
    NODE_AND,     /* first: operands */
    NODE_OR,      /* first: operands */
    NODE_CHOICE,  /* first: condition, then, else (may be missing) */
    NODE_OPERAND, /* stands in a list of any of the above; first: the expression */
    /* What `set` and `for` assign to, beside NODE_NAME and NODE_TUPLE. */
    NODE_MEMBER, /* symbol; value: the attribute's name */
    /* Statements. */
    NODE_TEXT,         /* value */
    NODE_PRINT,        /* first */
    NODE_IF,           /* first: branches */
    NODE_BRANCH,       /* first: condition (none: else); body */
    NODE_FOR,          /* first: target, iterable; test; body, otherwise */
    NODE_SET,          /* first: target, value */
    NODE_SET_BLOCK,    /* first: target; filters; body */
    NODE_FILTER_BLOCK, /* filters; body */
    NODE_WITH,         /* first: target, value, target, value ...; body */
    NODE_SCOPE,        /* body */
    NODE_MACRO,        /* macro */
    NODE_CALL_BLOCK,   /* first: the call; macro: the body as a macro called `caller` */
    NODE_BREAK,
    NODE_CONTINUE
};

enum jinja_op {
    OP_NONE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOOR_DIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

struct jinja_node;

/* Arguments of a call, filter or test. */
struct jinja_args_node {
    struct jinja_node *positional; /* list by `next` */
    struct jinja_node *named; /* list by `next`; `value` of each holder is the name, `first` the expression */
    uint32_t positional_count, named_count;
    struct jinja_node *star, *double_star; /* NULL: none */
};

struct jinja_parameter {
    uint32_t symbol;
    struct jinja_node *absent; /* the default; NULL: none */
};

struct jinja_macro_node {
    struct slice name;
    uint32_t symbol;
    struct jinja_parameter *parameters;
    uint32_t count;
    bool takes_varargs, takes_kwargs, takes_caller; /* the body names them */
    struct jinja_node *body;
};

struct jinja_slice_node {
    struct jinja_node *start, *stop, *step; /* NULL: left out */
};

struct jinja_node {
    uint8_t kind, join; /* enum jinja_node_kind, enum jinja_op */
    bool recursive;     /* NODE_FOR */
    uint32_t line;
    uint32_t symbol; /* of a name; of a list or chain: how many more operands than none or one */
    struct jinja_node *next, *first;
    struct jinja_node *body, *otherwise, *test, *filters; /* bodies are lists by `next`; filters likewise */
    struct jinja_value value;
    union {
        struct jinja_args_node *args;
        struct jinja_macro_node *macro;
        struct jinja_slice_node *slice;
    };
    const struct jinja_builtin *builtin; /* NODE_FILTER, NODE_TEST; NULL: there is none of that name */
};

/* Names that the engine itself looks up have fixed symbols. */
enum jinja_symbol { SYMBOL_LOOP, SYMBOL_CALLER, SYMBOL_VARARGS, SYMBOL_KWARGS, SYMBOL_FIXED_COUNT };

struct jinja_template {
    struct slice source;
    struct jinja_node *body;
    struct slice *symbols; /* names by number */
    uint32_t symbol_count;
};

#endif
