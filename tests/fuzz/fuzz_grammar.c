/* Grammars built from bytes: the seed of a random grammar, then tokens to try. Invariants: no crash; a
 * matcher takes what the plain recogniser takes; a mask has the tokens that can be taken; tables that are
 * emptied all the time give the same. */
#include "base/check.h"
#include "grammar/grammar_vocab.h"
#include "grammar/matcher_state.h"
#include "unit/grammar/test_grammar_reference.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_MAX = 16 };

static const char *const texts[] = {"", "", "a", "b", "c", "\"", "ab", "bc\"", "a\"b", "cc", "abc", "\"\""};

static struct slice token_bytes(void *arg, uint32_t id)
{
    (void)arg;
    return slice_of(texts[id]);
}

static bool reference_takes(struct ref_grammar *ref, struct ref_text *text, uint32_t token)
{
    struct ref_text with = *text;
    bool prefix;
    if (token < 2)
        with.units[with.count++] = (uint16_t)(REF_TOKEN + token);
    for (const char *at = texts[token]; *at; at++)
        with.units[with.count++] = (uint8_t)*at;
    ref_recognise(ref, &with, &prefix);
    if (prefix)
        *text = with;
    return prefix;
}

static void follow(struct ref_grammar *ref, struct matcher *m, struct matcher *other, const uint8_t *data,
                   size_t size)
{
    struct ref_text text = {.count = 0};
    for (size_t i = 0; i < size && text.count < TEXT_MAX; i++) {
        uint32_t token = data[i] % COUNT_OF(texts), bits = 0, other_bits = 0;
        struct matcher_mask mask;
        ASSERT(matcher_mask(m, 0, &bits, &mask) == 0);
        ASSERT(lexer_flush(other->tables) == 0);
        ASSERT(matcher_mask(other, 0, &other_bits, &mask) == 0);
        ASSERT(bits == other_bits);
        bool takes = reference_takes(ref, &text, token);
        ASSERT(takes == (bits >> token & 1));
        ASSERT(matcher_take(m, token) == takes && matcher_take(other, token) == takes);
        if (takes && data[i] & 128) {
            matcher_rewind(m, matcher_marks(m) - 1);
            ASSERT(matcher_take(m, token) == 1);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar_builder *b;
    struct ref_grammar ref;
    struct grammar *g = NULL;
    struct grammar_vocab *v = NULL;
    struct matcher_tables *t = NULL, *small = NULL;
    struct matcher *m = NULL, *other = NULL;
    struct rng r = {0};
    if (size < 5)
        return 0;
    memcpy(&r.seed, data, 4);
    ASSERT(grammar_builder_create(NULL, NULL, &b) == 0);
    ref_random(&ref, b, &r, data[4] & 1);
    if (grammar_finish(b, ref.start, &g, NULL) == 0) {
        struct grammar_vocab_opts vocab = {.size = COUNT_OF(texts), .bytes = token_bytes};
        ASSERT(grammar_vocab_create(&vocab, &v) == 0);
        struct matcher_tables_opts opts = {.grammar = g, .vocab = v};
        ASSERT(matcher_tables_create(&opts, &t) == 0 && matcher_tables_create(&opts, &small) == 0);
        ASSERT(matcher_create(&(struct matcher_opts){.tables = t}, &m) == 0);
        ASSERT(matcher_create(&(struct matcher_opts){.tables = small}, &other) == 0);
        follow(&ref, m, other, data + 5, size - 5);
    } else
        ASSERT(!ref.productive[0]);
    matcher_free(m);
    matcher_free(other);
    matcher_tables_free(t);
    matcher_tables_free(small);
    grammar_vocab_free(v);
    grammar_free(g);
    grammar_builder_free(b);
    return 0;
}
