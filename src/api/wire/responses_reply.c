/* responses_reply.c - what replies, streams and compactions of Responses write alike. */
#include "api/exchange.h"
#include "api/reasoning_seal.h"
#include "api/timings.h"
#include "api/turns/cache_miss.h"
#include "api/wire/responses.h"

#include "base/json/json_out.h"
#include "gen/gen.h"

void responses_write_usage(const struct exchange *x, struct json_out *j)
{
    struct gen_usage u = gen_usage(&x->gen);
    json_open(j, "usage");
    json_put_u64(j, "input_tokens", u.prompt_tokens);
    json_open(j, "input_tokens_details");
    JSON_PUT_U64S(j, {"cached_tokens", u.cached_tokens}, {"cache_write_tokens", u.written_tokens});
    json_close(j);
    json_put_u64(j, "output_tokens", u.completion_tokens);
    json_open(j, "output_tokens_details");
    json_put_u64(j, "reasoning_tokens", u.reasoning_tokens);
    json_close(j);
    json_put_u64(j, "total_tokens", u.prompt_tokens + u.completion_tokens);
    timings_write(x, j);
    cache_miss_write_usage(x, j);
    json_close(j);
}

void responses_write_summary(const struct exchange *x, uint32_t index, struct slice text, const char *key,
                             struct json_out *j)
{
    json_open(j, key);
    json_put_string(j, "type", "compaction");
    json_put_format(j, "id", "cmp_%s_%u", x->id_text, index);
    struct buf *sealed = json_begin_text(j, "encrypted_content");
    if (text.len > 0)
        summary_seal(text, sealed);
    json_end_text(j);
    json_close(j);
}
