/* A vocabulary of 150,000 tokens and the grammars of many schemas stay within what is planned for them:
 * 1,000 schemas, or 10,000 with PLATEAU_LONG=1. */
#include "test.h"
#include "test_ledger.h"
#include "test_rng.h"

#include "base/slice.h"
#include "constraint/grammar_cache.h"
#include "constraint/grammar_source.h"
#include "grammar/grammar_vocab.h"
#include "grammar/matcher.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 151643, TEXT = 20, SCHEMAS = 1000, SCHEMAS_LONG = 10000, IN_USE = 4 };

static char texts[TOKENS][TEXT];

static struct slice token_bytes(void *arg, uint32_t id)
{
    (void)arg;
    return id == 0 ? (struct slice){texts[0], 1} : slice_of(texts[id]);
}

/* All bytes, then words with and without a space, digits and quotes. */
static void make_texts(void)
{
    static const char *const parts[] = {"ba", "con", "de",   "er", "fi", "gra", "ho", "ing",      "ju", "1",
                                        "\"", "la",  "ment", "no", "or", "pre", "qu", "\xC3\xA9", "st", "_"};
    struct rng r = {7, 0};
    for (uint32_t id = 0; id < TOKENS; id++) {
        char *text = texts[id];
        if (id < 256) {
            text[0] = (char)id;
            continue;
        }
        snprintf(text, TEXT, "%s", rng_below(&r, 2) ? " " : "");
        for (uint64_t k = 2 + rng_below(&r, 4); k > 0 && strlen(text) < TEXT - 6; k--)
            strcat(text, parts[rng_below(&r, COUNT_OF(parts))]);
    }
}

static struct grammar_vocab *make_vocab(const struct charge *charge)
{
    static const uint32_t end = TOKENS;
    struct grammar_vocab *v = NULL;
    struct grammar_vocab_opts opts = {
        .size = TOKENS, .bytes = token_bytes, .ends = &end, .end_count = 1, .charge = charge};
    make_texts();
    assert_int_equal(grammar_vocab_create(&opts, &v), 0);
    return v;
}

static struct grammar_entry *compile(struct grammar_cache *c, uint32_t i)
{
    char schema[300];
    struct grammar_entry *g = NULL;
    struct err e = {""};
    snprintf(schema, sizeof(schema),
             "{\"type\":\"object\",\"properties\":{\"id_%u\":{\"type\":\"string\",\"maxLength\":%u},"
             "\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"],\"additionalProperties\":false}",
             i, i % 50);
    struct grammar_source source = {GRAMMAR_JSON_SCHEMA, slice_of(schema)};
    if (grammar_cache_get(c, &source, &(struct grammar_source_opts){0}, &g, &e) < 0)
        fail_msg("%s", e.text);
    return g;
}

/* A mask in the middle of it, as a request has it. */
static void use(struct grammar_entry *g, const struct charge *charge, uint32_t *bits)
{
    struct matcher *m = NULL;
    struct matcher_mask mask;
    assert_int_equal(grammar_entry_matcher(g, 0, charge, &m), 0);
    assert_int_equal(matcher_take_bytes(m, slice_of("{\"")), 1);
    assert_int_equal(matcher_mask(m, 0, bits, &mask), 0);
    assert_true(mask.count > 0);
    matcher_free(m);
}

TEST(many_schemas_stay_within_the_plan)
{
    const uint64_t limit = (uint64_t)32 << 20;
    struct account *tables = test_account(grammar_vocab_planned_bytes(TOKENS)),
                   *grammars = test_account(limit), *requests = test_account(ACCOUNT_NO_LIMIT);
    struct charge vocab_charge = account_charge(tables), charge = account_charge(grammars),
                  request = account_charge(requests);
    struct grammar_vocab *v = make_vocab(&vocab_charge);
    struct grammar_cache *c = NULL;
    struct grammar_cache_opts opts = {v, limit, &charge};
    struct grammar_entry *held[IN_USE] = {0};
    struct grammar_cache_numbers n;
    const uint32_t schemas = getenv("PLATEAU_LONG") ? SCHEMAS_LONG : SCHEMAS;
    uint32_t *bits = calloc(DIV_UP(TOKENS, 32u), sizeof(*bits));
    assert_non_null(bits);
    assert_int_equal(grammar_cache_create(&opts, &c), 0);
    for (uint32_t i = 0; i < schemas; i++) {
        if (held[i % IN_USE])
            grammar_cache_put(c, held[i % IN_USE]);
        held[i % IN_USE] = compile(c, i);
        if (i % 16 == 0)
            use(held[i % IN_USE], &request, bits);
        assert_true(account_numbers(grammars).used <= limit);
    }
    for (uint32_t i = 0; i < IN_USE; i++)
        grammar_cache_put(c, held[i]);
    grammar_cache_numbers(c, &n);
    assert_int_equal(n.compiled, schemas);
    assert_int_equal(n.used, 0);
    assert_int_equal(n.entries + n.evicted, schemas);
    grammar_cache_free(c);
    grammar_vocab_free(v);
    free(bits);
    assert_int_equal(account_numbers(grammars).reserved, 0);
    assert_int_equal(account_numbers(requests).reserved, 0);
    assert_int_equal(account_numbers(tables).reserved, 0);
}

TEST_MAIN()
