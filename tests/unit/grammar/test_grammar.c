/* The builder of grammars, and what grammar_finish() makes of them. */
#include "test.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/err.h"
#include "base/wanted.h"
#include "grammar/grammar_state.h"

#include <errno.h>

static struct grammar_builder *builder(const struct grammar_limits *limits)
{
    struct grammar_builder *b;
    assert_int_equal(grammar_builder_create(limits, NULL, &b), 0);
    return b;
}

static sym_id literal(struct grammar_builder *b, const char *text)
{
    return grammar_terminal(b, rx_literal(grammar_rx(b), slice_of(text)));
}

TEST(equal_terminals_are_one_symbol)
{
    struct grammar_builder *b = builder(NULL);
    assert_int_equal(literal(b, "abc"), literal(b, "abc"));
    assert_int_not_equal(literal(b, "abc"), literal(b, "abd"));
    assert_int_equal(grammar_token(b, 7), grammar_token(b, 7));
    assert_int_not_equal(grammar_token(b, 7), grammar_terminal(b, 7));
    assert_int_not_equal(grammar_rule(b), grammar_rule(b));
    grammar_builder_free(b);
}

TEST(a_language_without_texts_is_refused)
{
    struct grammar_builder *b = builder(NULL);
    struct grammar *g;
    struct err e = {0};
    sym_id endless = grammar_rule(b), other = grammar_rule(b);
    grammar_alternative(b, endless, (sym_id[]){literal(b, "a"), endless}, 2);
    grammar_alternative(b, endless, (sym_id[]){grammar_terminal(b, RX_NONE)}, 1);
    grammar_alternative(b, endless, (sym_id[]){other}, 1);
    assert_int_equal(grammar_finish(b, endless, &g, &e), -EINVAL);
    assert_string_not_equal(e.text, "");
    grammar_builder_free(b);
}

/* x & !x under constructors that do not see it. */
TEST(a_terminal_that_matches_nothing_is_found)
{
    struct grammar_builder *b = builder(NULL);
    struct grammar *g;
    struct err e = {0};
    struct rx_store *s = grammar_rx(b);
    struct rx_bytes a = {{0, 2ull << 32}};
    rx_id some = rx_repeat(s, rx_bytes(s, &a), 2, 5), more = rx_repeat(s, rx_bytes(s, &a), 7, RX_UNBOUNDED);
    sym_id rule = grammar_rule(b);
    grammar_alternative(b, rule, (sym_id[]){grammar_terminal(b, rx_and(s, some, more))}, 1);
    assert_int_equal(grammar_finish(b, rule, &g, &e), -EINVAL);
    grammar_builder_free(b);
}

TEST(rules_of_terminals_become_a_terminal)
{
    struct grammar_builder *b = builder(NULL);
    struct grammar *g;
    sym_id top = grammar_rule(b), word = grammar_rule(b), item = grammar_rule(b);
    grammar_alternative(b, word, (sym_id[]){literal(b, "yes")}, 1);
    grammar_alternative(b, word, (sym_id[]){literal(b, "no"), literal(b, "t")}, 2);
    grammar_alternative(b, item, (sym_id[]){literal(b, "-"), word}, 2);
    grammar_alternative(b, top, (sym_id[]){item}, 1);
    assert_int_equal(grammar_finish(b, top, &g, NULL), 0);
    assert_int_equal(g->rule_count, 1);
    assert_int_equal(g->terminal_count, 1);
    grammar_free(g);
    grammar_builder_free(b);
}

TEST(neighbouring_terminals_become_one)
{
    struct grammar_builder *b = builder(NULL);
    struct grammar *g;
    sym_id top = grammar_rule(b);
    grammar_alternative(b, top, (sym_id[]){literal(b, "a"), literal(b, "b"), top, literal(b, "c")}, 4);
    grammar_alternative(b, top, (sym_id[]){literal(b, "d")}, 1);
    assert_int_equal(grammar_finish(b, top, &g, NULL), 0);
    assert_int_equal(g->terminal_count, 3);
    grammar_free(g);
    grammar_builder_free(b);
}

TEST(what_the_start_does_not_need_goes)
{
    struct grammar_builder *b = builder(NULL);
    struct grammar *g;
    sym_id top = grammar_rule(b), unused = grammar_rule(b), broken = grammar_rule(b);
    grammar_alternative(b, top, (sym_id[]){literal(b, "("), top, literal(b, ")")}, 3);
    grammar_alternative(b, top, (sym_id[]){literal(b, "x"), broken}, 2);
    grammar_alternative(b, top, NULL, 0);
    grammar_alternative(b, unused, (sym_id[]){literal(b, "u"), unused}, 2);
    grammar_alternative(b, unused, (sym_id[]){literal(b, "u")}, 1);
    assert_int_equal(grammar_finish(b, top, &g, NULL), 0);
    assert_int_equal(g->rule_count, 2);
    assert_int_equal(g->terminal_count, 2);
    assert_true(g->nullable[0] && g->nullable[1]);
    grammar_free(g);
    grammar_builder_free(b);
}

TEST(work_that_is_no_longer_wanted_ends)
{
    _Atomic bool cancelled = true;
    struct wanted late = {.deadline_ns = 1}, left = {.cancelled = &cancelled}, fine = {0};
    const struct wanted *all[] = {&late, &left, &fine};
    const int codes[] = {-ETIME, -ECANCELED, 0};
    for (int i = 0; i < 3; i++) {
        struct grammar *g = NULL;
        struct err e = {0};
        struct grammar_builder *b = builder(NULL);
        sym_id rule = grammar_rule(b);
        grammar_alternative(b, rule, (sym_id[]){literal(b, "a")}, 1);
        grammar_builder_bound(b, all[i], NULL);
        assert_int_equal(grammar_finish(b, rule, &g, &e), codes[i]);
        assert_true(codes[i] == 0 || strstr(e.text, i ? "cancelled" : "too long"));
        grammar_free(g);
        grammar_builder_free(b);
    }
}

TEST(limits_hold)
{
    struct grammar *g;
    struct err e = {0};
    struct grammar_limits small = {.bytes_max = (size_t)1 << 20, .nodes_max = 100, .symbols_max = 50};
    struct grammar_builder *b = builder(&small);
    sym_id rule = grammar_rule(b);
    for (int i = 0; i < 100; i++)
        grammar_alternative(b, rule, (sym_id[]){rule}, 1);
    assert_true(grammar_builder_failed(b));
    assert_int_equal(grammar_finish(b, rule, &g, &e), -E2BIG);
    grammar_builder_free(b);
    b = builder(&small);
    rule = grammar_rule(b);
    char text[200];
    memset(text, 'x', sizeof(text));
    grammar_alternative(
        b, rule, (sym_id[]){grammar_terminal(b, rx_literal(grammar_rx(b), (struct slice){text, 200}))}, 1);
    assert_int_equal(grammar_finish(b, rule, &g, &e), -E2BIG);
    assert_non_null(strstr(e.text, "too large"));
    grammar_builder_free(b);
}

TEST(every_byte_is_charged_and_given_back)
{
    struct account *account = test_account(8 << 20);
    struct charge charge = account_charge(account);
    struct grammar_builder *b;
    struct grammar *g;
    assert_int_equal(grammar_builder_create(NULL, &charge, &b), 0);
    sym_id rule = grammar_rule(b);
    grammar_alternative(b, rule, (sym_id[]){literal(b, "a")}, 1);
    assert_int_equal(grammar_finish(b, rule, &g, NULL), 0);
    grammar_builder_free(b);
    assert_true(grammar_bytes(g) > 0);
    grammar_free(g);
    account = test_account(1);
    charge = account_charge(account);
    assert_int_equal(grammar_builder_create(NULL, &charge, &b), -ENOMEM);
}

TEST_MAIN()
