/* test_tool_grammar.h - the grammar of a chat format with tools, over bytes. */
#ifndef PLATEAU_TESTS_UNIT_TEST_TOOL_GRAMMAR_H
#define PLATEAU_TESTS_UNIT_TEST_TOOL_GRAMMAR_H

#include "base/buf.h"
#include "chat/tool_source.h"
#include "constraint/grammar_source.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"

struct tool_test {
    struct grammar *grammar;
    struct matcher_tables *tables;
    struct matcher *matcher;
};

/* As `grammar_source_compile()`, but over a vocabulary: of the tokens; NULL: bytes alone. */
static inline int tool_test_open_over(const struct tool_source_opts *opts, struct grammar_vocab *vocab,
                                      struct tool_test *ret, struct err *e)
{
    struct buf text;
    *ret = (struct tool_test){0};
    buf_init(&text, 1 << 20, NULL);
    tool_source_write(opts, &text);
    assert_int_equal(text.error, 0);
    struct grammar_source source = {GRAMMAR_TOOLS, buf_slice(&text)};
    int r = grammar_source_compile(&source, &(struct grammar_source_opts){.cpu_ns = 20000000000ull},
                                   &ret->grammar, e);
    buf_done(&text);
    if (r < 0)
        return r;
    struct matcher_tables_opts tables = {.grammar = ret->grammar, .vocab = vocab};
    assert_int_equal(matcher_tables_create(&tables, &ret->tables), 0);
    assert_int_equal(matcher_create(&(struct matcher_opts){.tables = ret->tables}, &ret->matcher), 0);
    return 0;
}

static inline int tool_test_open(const struct tool_source_opts *opts, struct tool_test *ret, struct err *e)
{
    return tool_test_open_over(opts, NULL, ret, e);
}

static inline void tool_test_close(struct tool_test *t)
{
    matcher_free(t->matcher);
    matcher_tables_free(t->tables);
    grammar_free(t->grammar);
}

/* How many bytes of the text the grammar takes; one more than it has: all, and the text may end there. */
static inline size_t tool_test_takes(struct tool_test *t, struct slice text)
{
    matcher_reset(t->matcher);
    for (size_t i = 0; i < text.len; i++)
        if (matcher_take_bytes(t->matcher, slice_sub(text, i, 1)) != 1)
            return i;
    return text.len + matcher_may_end(t->matcher);
}

#endif
