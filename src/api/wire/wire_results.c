/* wire_results.c - replies that are never streamed. Each result is written when its choice is over. */
#include "api/wire/wire_results.h"

#include "api/exchange.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "base/json/json_write.h"
#include "gen/pair_prompt.h"
#include "gen/reject.h"

#include <math.h>

static const struct field fields[] = {
    FIELD_MODEL,
    {"truncate_prompt_tokens", field_truncation},
    {"priority", field_priority},
    {"user", field_accept_string},
    {"metadata", field_accept_object},
};

const struct field_group fields_results = {fields, COUNT_OF(fields)};

void results_part(void *arg, const struct part *p)
{
    (void)arg, (void)p;
    ASSERT(!"a job without tokens has no parts");
}

void results_write_head(const struct exchange *x, const char *object, struct buf *ret)
{
    buf_printf(ret, "\"id\":\"%s-%s\"", x->wire->id_prefix, x->id_text);
    if (object)
        json_write_member(ret, "object", object);
    buf_printf(ret, ",\"created\":%lld", (long long)x->gen.created_s);
    json_write_member(ret, "model", x->request.model ? x->request.model : x->gen.model->id);
}

void results_write_usage(const struct exchange *x, struct buf *ret)
{
    unsigned long long tokens = gen_usage(&x->gen).prompt_tokens;
    buf_printf(ret, "\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu,\"completion_tokens\":0}",
               tokens, tokens);
}

void results_write_items(const struct exchange *x, struct buf *ret)
{
    for (uint32_t i = 0; i < x->gen.choice_count; i++) {
        if (i > 0)
            buf_putc(ret, ',');
        buf_put_slice(ret, buf_slice(&x->replies[i].items));
    }
}

void results_write_float(struct buf *ret, float value)
{
    if (isfinite(value))
        buf_printf(ret, "%.9g", (double)value);
    else
        buf_puts(ret, "null");
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
    buf_putc(ret, '{');
    results_write_head(x, x->wire->object, ret);
    buf_puts(ret, ",\"data\":[");
    results_write_items(x, ret);
    buf_puts(ret, "],");
    results_write_usage(x, ret);
    buf_putc(ret, '}');
}
