/* Grammars as LARK text. Invariants: no crash; every refusal has a message. */
#include "base/check.h"
#include "base/err.h"
#include "constraint/lark.h"
#include "schema/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar_builder *b = NULL;
    struct grammar *g = NULL;
    struct err e = {{0}};
    sym_id start;
    ASSERT(grammar_builder_create(NULL, NULL, &b) == 0);
    const struct schema_opts schemas = {.plain = true};
    const struct lark_opts opts = {.schemas = &schemas};
    int r = lark_compile_as(b, (struct slice){(const char *)data, size}, &opts, &start, &e);
    if (r == 0)
        r = grammar_finish(b, start, &g, &e);
    ASSERT(r == 0 || e.text[0]);
    grammar_free(g);
    grammar_builder_free(b);
    return 0;
}
