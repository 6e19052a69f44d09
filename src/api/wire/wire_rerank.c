/* wire_rerank.c - /v1/rerank, /rerank and /v2/rerank, as Cohere and Jina have them: one query, many
 * documents, the best ones first. */
#include "api/exchange.h"
#include "api/reply.h"
#include "api/wire/wire.h"
#include "api/wire/wire_results.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "gen/choice.h"
#include "gen/pair_prompt.h"
#include "gen/reject.h"

/* ---- fields ---- */

static bool read_query(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!pair_text(v).ptr)
        return reject_value(why, f->name, "query must be a string.");
    r->gen.queries = v;
    return true;
}

static bool read_documents(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_array(v))
        return reject_value(why, f->name, "documents must be a list of strings or of objects with \"text\".");
    r->gen.documents = v;
    return true;
}

static bool read_return_documents(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_boolean(v))
        return reject_value(why, f->name, "return_documents must be true or false.");
    r->without_documents = json_is_false(v);
    return true;
}

static bool check(struct request *r, struct reject *why)
{
    r->gen.prompt_name = "documents";
    if (!r->gen.queries)
        return reject_value(why, "query", "query is missing.");
    return results_check_texts(r->gen.documents, "documents", &r->gen.prompt_count, why);
}

static const struct field fields[] = {
    {"query", read_query},
    {"documents", read_documents},
    {"top_n", field_integer, FIELD_AT(top_n), 1, 1e6},
    {"return_documents", read_return_documents},
    {"instruction", field_string, FIELD_AT(gen.instruction)},
};

static const struct field_group own_fields = {fields, COUNT_OF(fields)};
static const struct field_group *const groups[] = {&fields_results, &own_fields, NULL};

/* ---- the reply ---- */

struct own {
    double score;
    bool written;
};

static struct own *own_of(const struct exchange *x, uint32_t index)
{
    return x->replies[index].own;
}

static void result(struct reply *r)
{
    ((struct own *)r->own)->score = choice_score(r->choice);
}

/* The best that is not written yet; the first of equals. Choices are few (request_limits.choices_max). */
static uint32_t best_left(const struct exchange *x)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < x->gen.choice_count; i++)
        if (!own_of(x, i)->written && (best == UINT32_MAX || own_of(x, i)->score > own_of(x, best)->score))
            best = i;
    ASSERT(best != UINT32_MAX);
    own_of(x, best)->written = true;
    return best;
}

static void write_result(const struct exchange *x, uint32_t index, struct json_out *j)
{
    json_open(j, NULL);
    json_put_u64(j, "index", index);
    json_put_general(j, "relevance_score", 9, own_of(x, index)->score);
    if (!x->request.without_documents) {
        json_open(j, "document");
        json_put_text(j, "text", pair_text(json_array_get(x->request.gen.documents, index)));
        json_close(j);
    }
    json_close(j);
}

static void whole(struct exchange *x, struct buf *ret)
{
    int64_t count = x->gen.choice_count, top = x->request.top_n;
    struct json_out j = results_begin(x, NULL, ret);
    json_open_array(&j, "results");
    for (int64_t i = 0; i < (top > 0 ? MIN_OF(top, count) : count); i++)
        write_result(x, best_left(x), &j);
    json_close(&j);
    results_end(x, &j);
}

#define RERANK(path)                                                                                         \
    {                                                                                                        \
        .route = (path), .frame = &openai_frame,                                                             \
        .form = {.groups = groups, .output = GEN_SCORE, .check = check}, .id_prefix = "rerank",              \
        .own_bytes = sizeof(struct own), .part = results_part, .result = result, .whole = whole              \
    }

const struct wire wire_rerank = RERANK("/v1/rerank");
const struct wire wire_rerank_v2 = RERANK("/v2/rerank");
