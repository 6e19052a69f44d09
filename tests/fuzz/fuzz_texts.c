/* Bodies of embeddings, rerank and score. The first byte selects the route and the memory limit of the
 * request; the rest is the body. Invariants: no crash; each accepted pair has two texts; each accepted input
 * is a text or token ids; their number is within its limit; every byte is returned. */
#include "api/request/request.h"
#include "api/wire/wire.h"
#include "base/check.h"
#include "gen/pair_prompt.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXTS_MAX 8

static void check_ids(const json_t *ids)
{
    size_t i;
    const json_t *id;
    ASSERT(json_array_size(ids) > 0);
    json_array_foreach(ids, i, id)
        ASSERT(json_is_integer(id) && json_integer_value(id) >= 0);
}

static void check_input(const json_t *v)
{
    if (json_is_string(v))
        ASSERT(json_string_length(v) > 0);
    else
        check_ids(v);
}

static void check_inputs(const struct request *r)
{
    const json_t *v = r->gen.prompt;
    size_t i;
    const json_t *each;
    ASSERT(r->gen.dimensions >= 0 && r->gen.prompt_count <= TEXTS_MAX);
    if (!json_is_array(v) || json_is_integer(json_array_get(v, 0))) {
        check_input(v);
        return;
    }
    ASSERT(json_array_size(v) == r->gen.prompt_count);
    json_array_foreach(v, i, each)
        check_input(each);
}

/* A text, a list of one, or as many as there are pairs. */
static void check_texts(const json_t *v, uint32_t count)
{
    size_t i;
    const json_t *each;
    ASSERT(!json_is_array(v) || json_array_size(v) == 1 || json_array_size(v) == count);
    if (!json_is_array(v))
        ASSERT(pair_text(v).ptr);
    json_array_foreach(v, i, each)
        ASSERT(pair_text(each).ptr);
}

static void check(const struct request *r)
{
    if (r->gen.output == GEN_VECTOR) {
        check_inputs(r);
        return;
    }
    ASSERT(r->gen.prompt_count > 0 && r->gen.prompt_count <= TEXTS_MAX);
    check_texts(r->gen.queries, r->gen.prompt_count);
    check_texts(r->gen.documents, r->gen.prompt_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct wire *const wires[] = {&wire_embeddings, &wire_rerank, &wire_score, &wire_rerank_v2};
    static const struct request_limits limits = {.json_depth_max = 32, .texts_max = TEXTS_MAX};
    struct request_memory memory;
    struct request request;
    struct reject why = {0};
    if (size == 0)
        return 0;
    size_t bytes_max = data[0] & 0x80 ? (size_t)(data[0] & 0x7c) << 6 : (size_t)64 << 20;
    request_memory_init(&memory, NULL, bytes_max);
    bool ok = request_parse(&wires[data[0] & 3]->form, (struct slice){(const char *)data + 1, size - 1},
                            &limits, &memory, &request, &why);
    ASSERT(ok == (why.kind == REJECT_NONE));
    if (ok) {
        check(&request);
        request_drop_prompt(&request);
    }
    request_done(&request);
    request_memory_done(&memory);
    return 0;
}
