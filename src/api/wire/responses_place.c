/* responses_place.c - what the files of Responses share: the converters and the writers of replies. */
#include "api/exchange.h"
#include "api/reasoning_seal.h"
#include "api/timings.h"
#include "api/turns/cache_miss.h"
#include "api/wire/responses.h"

#include "gen/gen.h"
#include "gen/request_memory.h"

bool responses_no_memory(const struct responses_place *p)
{
    return request_memory_reject(p->memory, p->why);
}

void responses_write_usage(const struct exchange *x, struct buf *ret)
{
    struct gen_usage u = gen_usage(&x->gen);
    buf_printf(ret,
               ",\"usage\":{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu,"
               "\"cache_write_tokens\":%llu},\"output_tokens\":%llu,\"output_tokens_details\":{"
               "\"reasoning_tokens\":%llu},\"total_tokens\":%llu",
               (ull)u.prompt_tokens, (ull)u.cached_tokens, (ull)u.written_tokens, (ull)u.completion_tokens,
               (ull)u.reasoning_tokens, (ull)(u.prompt_tokens + u.completion_tokens));
    timings_write(x, ret);
    cache_miss_write_usage(x, ret);
    buf_putc(ret, '}');
}

void responses_write_summary(const struct exchange *x, uint32_t index, struct slice text, struct buf *ret)
{
    buf_printf(ret, "{\"type\":\"compaction\",\"id\":\"cmp_%s_%u\",\"encrypted_content\":\"", x->id_text,
               index);
    if (text.len > 0)
        summary_seal(text, ret);
    buf_puts(ret, "\"}");
}
