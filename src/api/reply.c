/* reply.c - the buffers of a reply, and when a stream writes them. */
#include "api/reply.h"

#include "api/exchange.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "engine/stream.h"
#include "gen/choice.h"
#include "gen/request_memory.h"

#include <stdio.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20) /* limit of one text; a request's memory bounds all together */

#define REPLY_BUFS(r)                                                                                        \
    {                                                                                                        \
        &(r)->content, &(r)->reasoning, &(r)->arguments, &(r)->ids, &(r)->logprobs, &(r)->logprob_tokens,    \
            &(r)->logprob_tops, &(r)->logprob_offsets, &(r)->items, &(r)->call_name, &(r)->prompt_logprobs,  \
            &(r)->echo, &(r)->block, &(r)->block_logprobs, &(r)->next_logprobs                               \
    }
#define PIECE_BUFS 8 /* the first ones are those of a piece */

void reply_init(struct reply *r, struct exchange *x, struct choice *c, void *own)
{
    struct charge charge = request_memory_charge(&x->gen.memory);
    *r = (struct reply){.exchange = x, .choice = c, .own = own};
    struct buf *bufs[] = REPLY_BUFS(r);
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        buf_init(bufs[i], TEXT_BYTES_MAX, &charge);
    c->sink = x->wire->part;
    c->sink_arg = r;
}

void reply_done(struct reply *r)
{
    struct buf *bufs[] = REPLY_BUFS(r);
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        buf_done(bufs[i]);
}

int reply_error(const struct reply *r)
{
    const struct buf *bufs[] = REPLY_BUFS(r);
    int error = 0;
    for (size_t i = 0; i < COUNT_OF(bufs) && error == 0; i++)
        error = bufs[i]->error;
    return error;
}

void reply_turn_to(struct exchange *x, enum reply_stage to)
{
    static const unsigned legal[] = {[REPLY_PENDING] = 1 << REPLY_OPEN | 1 << REPLY_GIVEN,
                                     [REPLY_OPEN] = 1 << REPLY_ENDING | 1 << REPLY_GIVEN,
                                     [REPLY_ENDING] = 1 << REPLY_GIVEN,
                                     [REPLY_GIVEN] = 0};
    ASSERT(legal[x->reply_stage] & 1u << to);
    x->reply_stage = to;
}

void reply_begin(struct exchange *x)
{
    if (x->reply_stage == REPLY_OPEN)
        return;
    reply_turn_to(x, REPLY_OPEN);
    if (x->wire->begin)
        x->wire->begin(x);
}

void reply_clear(struct reply *r)
{
    struct buf *bufs[] = REPLY_BUFS(r);
    for (size_t i = 0; i < PIECE_BUFS; i++)
        if (bufs[i]->error == 0)
            buf_clear(bufs[i]);
    r->pending = DELTA_NONE;
    r->call_begun = false;
}

void reply_flush(struct reply *r)
{
    ASSERT(r->exchange->request.stream);
    if (r->pending == DELTA_NONE && r->ids.len == 0 && r->logprobs.len == 0)
        return;
    reply_begin(r->exchange);
    r->exchange->wire->flush(r);
    reply_clear(r);
}

void reply_turn(struct reply *r, enum reply_delta kind, bool always)
{
    if (r->exchange->request.stream && r->pending != DELTA_NONE && (always || r->pending != kind))
        reply_flush(r);
    r->pending = kind;
}

static bool own_id(struct reply *r, struct slice id)
{
    bool ok = id.len > 0 && id.len < sizeof(r->call_id);
    for (size_t i = 0; ok && i < id.len; i++)
        ok = id.ptr[i] &&
             strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:", id.ptr[i]);
    if (ok)
        snprintf(r->call_id, sizeof(r->call_id), "%.*s", SLICE_ARGS(id));
    return ok;
}

void reply_begin_call(struct reply *r, const struct reply_part *p, const char *prefix, bool keeps_id)
{
    struct request_id random = request_id_new();
    char text[33];
    request_id_text(random, text);
    if (!keeps_id || !own_id(r, p->id))
        snprintf(r->call_id, sizeof(r->call_id), "%s_%.24s", prefix, text);
    r->call_index = p->call_index;
    r->call_begun = true;
    buf_clear(&r->arguments);
    buf_clear(&r->call_name);
    buf_put_slice(&r->call_name, p->text);
}
