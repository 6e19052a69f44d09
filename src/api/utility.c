/* utility.c - tokenize, detokenize, templates and admin's orders: requests without a forward pass. */
#include "api/utility.h"

#include "api/api_state.h"
#include "api/exchange.h"
#include "api/memory_refusal.h"
#include "api/request/request.h"
#include "api/token_text.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json/json_write.h"
#include "base/slice.h"
#include "base/wanted.h"
#include "gen/gen.h"
#include "gen/prompt.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "model/model.h"
#include "reclaim/holders.h"
#include "store/store.h"
#include "tokenizer/detok.h"

#include <errno.h>
#include <jansson.h>

static bool reply_is_whole(struct exchange *x)
{
    if (x->reply.error == 0)
        return true;
    return memory_refusal_of(x->api, &x->gen.memory, &x->gen.reject);
}

/* False: the exchange was cancelled. */
static bool write_list(struct exchange *x, const struct prompt_ids *p)
{
    size_t look = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        int r = wanted_pass(&x->gen.wanted, i, &look);
        if (r < 0)
            return reject_unwanted(&x->gen.reject, r);
        buf_printf(&x->reply, i ? ",%u" : "%u", p->ids[i]);
    }
    return true;
}

/* Writes the text of each token. */
static bool write_texts(struct exchange *x, const struct prompt_ids *p)
{
    size_t look = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        int r = wanted_pass(&x->gen.wanted, i, &look);
        if (r < 0)
            return reject_unwanted(&x->gen.reject, r);
        buf_putc(&x->reply, i ? ',' : '[');
        token_text_write(x->gen.model->tokenizer, p->ids[i], &x->reply);
    }
    return true;
}

static bool write_tokens(struct exchange *x, const struct prompt_ids *p)
{
    struct buf *b = &x->reply;
    buf_printf(b, "{\"count\":%u,\"max_model_len\":%u,\"tokens\":[", p->count, x->gen.model->max_model_len);
    if (!write_list(x, p))
        return false;
    buf_puts(b, "],\"token_strs\":");
    if (x->request.return_token_strs && !write_texts(x, p))
        return false;
    if (!x->request.return_token_strs)
        buf_puts(b, "null}");
    else
        buf_puts(b, p->count ? "]}" : "[]}");
    return reply_is_whole(x);
}

bool utility_tokenize(struct exchange *x, struct arena *scratch)
{
    const json_t *prompt = x->request.gen.prompt;
    /* Counting is the purpose: a text longer than the context is counted too, and an empty one has no
     * tokens. */
    if (prompt && json_string_length(prompt) == 0) {
        struct prompt_ids none = {0};
        return write_tokens(x, &none);
    }
    struct prompt_ids ids = {0};
    bool ok = prompt ? prompt_encode(&x->gen, scratch,
                                     (struct slice){json_string_value(prompt), json_string_length(prompt)},
                                     NULL, x->request.gen.add_special_tokens != 0, UINT32_MAX, &ids)
                     : prompt_of_messages(&x->gen, scratch, UINT32_MAX, false, &ids);
    if (!ok) {
        request_memory_free(&x->gen.memory, ids.ids, ids.count * sizeof(uint32_t));
        request_memory_free(&x->gen.memory, ids.images, ids.image_count * sizeof(*ids.images));
        return false;
    }
    ok = write_tokens(x, &ids);
    request_memory_free(&x->gen.memory, ids.ids, ids.count * sizeof(uint32_t));
    request_memory_free(&x->gen.memory, ids.images, ids.image_count * sizeof(*ids.images));
    return ok;
}

bool utility_count_tokens(struct exchange *x, struct arena *scratch)
{
    struct prompt_ids ids = {0};
    bool ok = prompt_of_messages(&x->gen, scratch, UINT32_MAX, false, &ids);
    if (ok)
        buf_printf(&x->reply, "{%s\"input_tokens\":%u}",
                   x->kind == REQUEST_INPUT_TOKENS ? "\"object\":\"response.input_tokens\"," : "", ids.count);
    request_memory_free(&x->gen.memory, ids.ids, ids.count * sizeof(uint32_t));
    request_memory_free(&x->gen.memory, ids.images, ids.image_count * sizeof(*ids.images));
    return ok && reply_is_whole(x);
}

bool utility_detokenize(struct exchange *x)
{
    const struct tokenizer *t = x->gen.model->tokenizer;
    struct charge charge = request_memory_charge(&x->gen.memory);
    size_t i;
    json_t *each;
    struct detok d;
    struct buf text;
    if (!t)
        return reject_unsupported(&x->gen.reject, "tokens", "The model \"%.100s\" has no tokenizer.",
                                  x->gen.model->id);
    json_array_foreach(x->request.tokens, i, each)
        if (json_integer_value(each) >= x->gen.model->shape->vocab)
            return reject_value(&x->gen.reject, "tokens",
                                "tokens[%zu] is %lld; the model's largest token id is %u.", i,
                                (long long)json_integer_value(each), x->gen.model->shape->vocab - 1);
    buf_init(&text, SIZE_MAX / 4, &charge);
    detok_init(&d, t, false);
    json_array_foreach(x->request.tokens, i, each)
        detok_push(&d, (uint32_t)json_integer_value(each), &text);
    detok_flush(&d, &text);
    /* vLLM's name, then llama.cpp's. */
    buf_puts(&x->reply, "{\"prompt\":");
    json_write_string(&x->reply, buf_slice(&text));
    buf_puts(&x->reply, ",\"content\":");
    json_write_string(&x->reply, buf_slice(&text));
    buf_putc(&x->reply, '}');
    if (text.error && x->reply.error == 0)
        x->reply.error = text.error;
    buf_done(&text);
    return reply_is_whole(x);
}

bool utility_template(struct exchange *x, struct arena *scratch)
{
    struct charge charge = request_memory_charge(&x->gen.memory);
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    bool ok = prompt_render(&x->gen, scratch, UINT32_MAX, &text, NULL);
    if (ok) {
        buf_puts(&x->reply, "{\"prompt\":");
        json_write_string(&x->reply, buf_slice(&text));
        buf_putc(&x->reply, '}');
    }
    buf_done(&text);
    return ok && reply_is_whole(x);
}

/* A step lasts a second at most, unless its engine is stuck. A stuck engine reclaims later, and this thread
 * does not wait for it, because other requests need the thread. */
#define RECLAIM_TIMEOUT_NS (3 * NS_PER_S)

static const char *failure_text(int error)
{
    switch (error) {
    case -ETIMEDOUT:
        return "has not answered yet";
    case -EPIPE:
        return "is closing";
    case -EAGAIN:
        return "has too many such orders, or has not begun";
    case -ENOMEM:
        return "there was no memory to ask it";
    default:
        return strerrordesc_np(-error) ? strerrordesc_np(-error) : "failed";
    }
}

static void write_failures(const struct holders_reclaimed *r, struct buf *ret)
{
    for (uint32_t i = 0; i < r->failed; i++) {
        buf_puts(ret, i ? ",{" : "{");
        json_write_member(ret, "id", r->failures[i].name);
        json_write_member(ret, "error", failure_text(r->failures[i].error));
        buf_putc(ret, '}');
    }
}

static bool clear_ssd(struct exchange *x)
{
    struct store_cleared c = {0};
    int r = x->api->opts.store ? store_clear(x->api->opts.store, &c) : 0;
    x->reclaimed_bytes = c.bytes_reclaimed;
    buf_printf(&x->reply, "{\"status\":\"%s\",\"entries\":%llu,\"bytes_reclaimed\":%llu,\"failed\":[",
               r < 0 || c.failed ? "partial" : "ok", (ull)c.entries, (ull)c.bytes_reclaimed);
    if (r < 0)
        buf_printf(&x->reply, "{\"id\":\"ssd\",\"error\":\"%s\"}",
                   r == -ENODEV  ? "the tier is off"
                   : r == -EBUSY ? "it is being cleared already"
                                 : "it is not done yet, and goes on");
    else if (c.failed)
        buf_printf(&x->reply, "{\"id\":\"ssd\",\"error\":\"%llu files could not be removed\"}",
                   (ull)c.failed);
    buf_puts(&x->reply, "]}");
    return reply_is_whole(x);
}

bool utility_reclaim(struct exchange *x)
{
    if (x->kind == REQUEST_CLEAR_SSD)
        return clear_ssd(x);
    struct holders_reclaimed r = {0};
    enum holder_ask_kind kind = x->kind == REQUEST_CLEAR ? HOLDER_CLEAR : HOLDER_TRIM;
    if (x->api->opts.holders)
        holders_reclaim(x->api->opts.holders, NULL, kind, RECLAIM_TIMEOUT_NS, &r);
    if (kind == HOLDER_CLEAR) {
        uint64_t bytes;
        r.entries += api_clear_grammars(x->api, &bytes);
        r.bytes += bytes;
    }
    x->reclaimed_bytes = r.bytes;
    buf_printf(&x->reply, "{\"status\":\"%s\",\"entries\":%u,\"bytes_reclaimed\":%llu,\"failed\":[",
               r.failed ? "partial" : "ok", r.entries, (ull)r.bytes);
    write_failures(&r, &x->reply);
    buf_puts(&x->reply, "]}");
    return reply_is_whole(x);
}
