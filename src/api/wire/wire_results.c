/* wire_results.c - replies that are never streamed. Each result is written when its choice is over. */
#include "api/wire/wire_results.h"

#include "api/exchange.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "gen/pair_prompt.h"
#include "gen/reject.h"

static const struct field fields[] = {
    FIELD_MODEL,
    {"truncate_prompt_tokens", field_truncation},
    {"priority", field_priority},
    {"user", field_accept_string},
    {"metadata", field_accept_object},
};

const struct field_group fields_results = {fields, COUNT_OF(fields)};

void results_part(void *arg, const struct reply_part *p)
{
    (void)arg, (void)p;
    ASSERT(!"a job without tokens has no parts");
}

struct json_out results_begin(const struct exchange *x, const char *object, struct buf *ret)
{
    struct json_out j = json_out_object(ret);
    json_put_format(&j, "id", "%s-%s", x->wire->id_prefix, x->id_text);
    if (object)
        json_put_string(&j, "object", object);
    json_put_i64(&j, "created", x->gen.created_s);
    json_put_string(&j, "model", exchange_model_name(x));
    return j;
}

void results_end(const struct exchange *x, struct json_out *j)
{
    uint64_t tokens = gen_usage(&x->gen).prompt_tokens;
    json_open(j, "usage");
    JSON_PUT_U64S(j, {"prompt_tokens", tokens}, {"total_tokens", tokens}, {"completion_tokens", 0});
    json_close(j);
    json_end(j);
}

bool results_check_texts(const json_t *texts, const char *name, uint32_t *count, struct reject *why)
{
    if (!texts)
        return reject_value(why, name, "%s is missing.", name);
    if (!json_is_array(texts)) {
        *count = 1;
        return pair_text(texts).ptr ||
               reject_value(why, name, "%s must be a string or a list of strings.", name);
    }
    size_t i;
    json_t *each;
    if (json_array_size(texts) == 0)
        return reject_value(why, name, "%s is empty; it must have at least one text.", name);
    json_array_foreach(texts, i, each)
        if (!pair_text(each).ptr)
            return reject_value(why, name, "%s[%zu] must be a string, or an object with the string \"text\".",
                                name, i);
    *count = (uint32_t)MIN_OF(json_array_size(texts), (size_t)UINT32_MAX);
    return true;
}

void results_write_list(struct exchange *x, struct buf *ret)
{
    struct json_out j = results_begin(x, x->wire->object, ret);
    json_open_array(&j, "data");
    for (uint32_t i = 0; i < x->gen.choice_count; i++)
        json_put_items(&j, buf_slice(&x->replies[i].items));
    json_close(&j);
    results_end(x, &j);
}
