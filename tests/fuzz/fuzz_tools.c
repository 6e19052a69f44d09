/* Descriptions of tools and chat formats. Invariants: no crash; a refusal has a message; the work ends. */
#include "base/check.h"
#include "constraint/grammar_source.h"
#include "grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar_source source = {.kind = GRAMMAR_TOOLS, .text = {(const char *)data, size}};
    struct grammar *g = NULL;
    struct err e = {{0}};
    int r = size ? grammar_source_compile(&source, &(struct grammar_source_opts){.work = NULL}, &g, &e) : -1;
    ASSERT(r == 0 || size == 0 || e.text[0]);
    grammar_free(g);
    return 0;
}
