/* jinja_lex.h - a template's source as tokens, one at a time.
 *
 * White space around tags is dealt with here: `-` signs, trim_blocks and lstrip_blocks. Comments and raw
 * blocks never show. A lexer is a small value: copying it is how a parser looks ahead. */
#ifndef PLATEAU_TEXT_JINJA_LEX_H
#define PLATEAU_TEXT_JINJA_LEX_H

#include "base/err.h"
#include "base/slice.h"

enum jinja_token_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* text: between the quotes, escapes as written */
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR /* text: ( ) [ ] { } . , : ; | ~ = == != < <= > >= + - * ** / // % */
};

struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t line;
    struct slice text;
};

#define JINJA_LEX_BRACKETS_MAX 128

struct jinja_lex {
    struct slice source; /* line breaks are \n */
    size_t at;
    uint32_t line;
    enum { LEX_TEXT, LEX_PRINT, LEX_BLOCK } mode;
    bool opened; /* the text before a tag is out, the tag itself is next */
    uint32_t brackets;
    char open[JINJA_LEX_BRACKETS_MAX]; /* which bracket closes each one open */
};

void jinja_lex_init(struct jinja_lex *l, struct slice source);
/* 0 or -EINVAL. After TOKEN_END comes TOKEN_END. */
int jinja_lex_next(struct jinja_lex *l, struct jinja_token *ret, struct err *e);

/* Bytes of the white space character (as Python's str.isspace says) at `at` < s.len; 0: it is none. */
size_t jinja_space_at(struct slice s, size_t at);
/* The same for the one that ends before `end` > 0. */
size_t jinja_space_before(struct slice s, size_t end);

#endif
