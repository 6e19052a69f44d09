/* wire_score.c - /v1/score and /score, as vLLM has them: a score for each pair of texts. Pairs are one with
 * one, one with many, or of two lists. */
#include "api/reply.h"
#include "api/request/request.h"
#include "api/wire/wire.h"
#include "api/wire/wire_results.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "gen/choice.h"
#include "gen/gen_request.h"
#include "gen/reject.h"

static bool read_texts(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)why;
    *(json_t **)((char *)r + f->at) = v; /* their form is checked when both are known */
    return true;
}

static bool check(struct request *r, struct reject *why)
{
    uint32_t queries = 0, documents = 0;
    r->gen.prompt_name = "text_2";
    if (!results_check_texts(r->gen.queries, "text_1", &queries, why) ||
        !results_check_texts(r->gen.documents, "text_2", &documents, why))
        return false;
    if (queries != 1 && queries != documents)
        return reject_value(why, "text_2",
                            "text_1 has %u texts and text_2 %u; text_1 must have one, or as many as text_2.",
                            queries, documents);
    r->gen.prompt_count = documents;
    return true;
}

static const struct field fields[] = {
    {"text_1", read_texts, FIELD_AT(gen.queries), .prompt = true},
    {"text_2", read_texts, FIELD_AT(gen.documents), .prompt = true},
    {"instruction", field_string, FIELD_AT(gen.instruction)},
};

static const struct field_group own_fields = {fields, COUNT_OF(fields)};
static const struct field_group *const groups[] = {&fields_results, &own_fields, NULL};

static void result(struct reply *r)
{
    struct json_out j = json_out_object(&r->items);
    json_put_u64(&j, "index", r->choice->index);
    json_put_string(&j, "object", "score");
    json_put_general(&j, "score", 9, choice_score(r->choice));
    json_end(&j);
}

const struct wire wire_score = {
    .route = "/v1/score",
    .frame = &openai_frame,
    .form = {.groups = groups, .output = GEN_SCORE, .check = check},
    .id_prefix = "score",
    .object = "list",
    .part = results_part,
    .result = result,
    .whole = results_write_list,
};
