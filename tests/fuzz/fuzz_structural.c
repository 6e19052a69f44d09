/* Structural tags as JSON. Invariants: no crash; every refusal has a message. */
#include "base/check.h"
#include "base/err.h"
#include "constraint/structural.h"
#include "grammar/grammar_state.h"
#include "schema/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t find_token(void *arg, struct slice text, uint32_t *id)
{
    (void)arg;
    *id = 3;
    return slice_starts(text, SLICE("<t>")) ? 3 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct structural_tokens tokens = {find_token, NULL};
    static const struct schema_opts opts = {.plain = true};
    struct grammar_builder *b = NULL;
    struct grammar *g = NULL;
    struct err e = {{0}};
    sym_id start;
    json_t *source = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
    if (!source)
        return 0;
    ASSERT(grammar_builder_create(NULL, NULL, &b) == 0);
    int r = structural_compile(b, source, &opts, &tokens, &start, &e);
    if (r == 0)
        r = grammar_finish(b, start, &g, &e);
    ASSERT(r == 0 || e.text[0]);
    grammar_free(g);
    grammar_builder_free(b);
    json_decref(source);
    return 0;
}
