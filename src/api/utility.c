/* utility.c - tokenize, detokenize, templates and admin's orders: requests without a forward pass. */
#include "api/utility.h"

#include "api/api_state.h"
#include "api/exchange.h"
#include "api/memory_refusal.h"
#include "api/request/request.h"
#include "api/token_text.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/slice.h"
#include "base/wanted.h"
#include "engine/job_spec.h"
#include "gen/gen.h"
#include "gen/prompt.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "model/model.h"
#include "reclaim/holders.h"
#include "store/store.h"
#include "tokenizer/detok.h"
#include "vision/image.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

static bool reply_is_whole(struct exchange *x)
{
    if (x->reply.error == 0)
        return true;
    return memory_refusal_of(x->api, &x->gen.memory, &x->gen.reject);
}

/* Writes the text of each token. */
static bool write_texts(struct exchange *x, const struct prompt_ids *p, struct json_out *j)
{
    char room[TOKEN_TEXT_BYTES];
    size_t look = 0;
    json_open_array(j, "token_strs");
    for (uint32_t i = 0; i < p->count; i++) {
        int r = wanted_pass(&x->gen.wanted, i, &look);
        if (r < 0)
            return reject_unwanted(&x->gen.reject, r);
        json_put_text(j, NULL, token_text(x->gen.model->tokenizer, p->ids[i], room));
    }
    json_close(j);
    return true;
}

/* Tokens that stand for the images and frames. */
static uint32_t image_tokens(const struct exchange *x, const struct prompt_ids *p)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < p->image_count; i++) {
        const struct image *image = p->images[i].image;
        struct model_grid g = model_grid_of(&x->gen.model->shape->vision, 0, image->width, image->height);
        tokens += model_grid_tokens(&g);
    }
    return tokens;
}

static bool write_tokens(struct exchange *x, const struct prompt_ids *p)
{
    struct json_out j = json_out_object(&x->reply);
    JSON_PUT_U64S(&j, {"count", p->count}, {"max_model_len", x->gen.model->max_model_len});
    if (p->image_count > 0)
        json_put_u64(&j, "image_tokens", image_tokens(x, p));
    if (!token_text_put_ids(x, p, "tokens", &j))
        return false;
    if (!x->request.return_token_strs)
        json_put_null(&j, "token_strs");
    else if (!write_texts(x, p, &j))
        return false;
    json_end(&j);
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
    if (ok) {
        struct json_out j = json_out_object(&x->reply);
        if (x->kind == REQUEST_INPUT_TOKENS)
            json_put_string(&j, "object", "response.input_tokens");
        json_put_u64(&j, "input_tokens", ids.count);
        json_end(&j);
    }
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
    struct json_out j = json_out_object(&x->reply);
    json_put_text(&j, "prompt", buf_slice(&text));
    json_put_text(&j, "content", buf_slice(&text));
    json_end(&j);
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
        struct json_out j = json_out_object(&x->reply);
        json_put_text(&j, "prompt", buf_slice(&text));
        json_end(&j);
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

/* Begins the reply up to its list of failures, which end_reclaimed() closes. */
static struct json_out begin_reclaimed(struct exchange *x, bool failed, uint64_t entries, uint64_t bytes)
{
    struct json_out j = json_out_object(&x->reply);
    x->reclaimed_bytes = bytes;
    json_put_string(&j, "status", failed ? "partial" : "ok");
    JSON_PUT_U64S(&j, {"entries", entries}, {"bytes_reclaimed", bytes});
    json_open_array(&j, "failed");
    return j;
}

static void put_failure(struct json_out *j, const char *id, const char *error)
{
    json_open(j, NULL);
    JSON_PUT_STRINGS(j, {"id", id}, {"error", error});
    json_close(j);
}

/* kept: what sessions have of the SSD tier; NULL: not asked. */
static bool end_reclaimed(struct exchange *x, struct json_out *j, const struct store_cleared *kept)
{
    json_close(j);
    if (kept && kept->kept > 0)
        JSON_PUT_U64S(j, {"entries_kept", kept->kept}, {"bytes_kept", kept->bytes_kept});
    json_end(j);
    return reply_is_whole(x);
}

static bool clear_ssd(struct exchange *x)
{
    struct store_cleared c = {0};
    char words[64];
    int r = x->api->opts.store ? store_clear(x->api->opts.store, &c) : 0;
    struct json_out j = begin_reclaimed(x, r < 0 || c.failed, c.entries, c.bytes_reclaimed);
    snprintf(words, sizeof(words), "%llu files could not be removed", (ull)c.failed);
    if (r < 0 || c.failed)
        put_failure(&j, "ssd",
                    r == -ENODEV  ? "the tier is off"
                    : r == -EBUSY ? "it is being cleared already"
                    : r < 0       ? "it is not done yet, and goes on"
                                  : words);
    return end_reclaimed(x, &j, &c);
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
    struct json_out j = begin_reclaimed(x, r.failed, r.entries, r.bytes);
    for (uint32_t i = 0; i < r.failed; i++)
        put_failure(&j, r.failures[i].name, failure_text(r.failures[i].error));
    return end_reclaimed(x, &j, NULL);
}
