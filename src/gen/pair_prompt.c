/* pair_prompt.c - two forms. A cross-encoder reads the tokenizer's template of two texts. A decoder reads the
 * form that Qwen3-Reranker was trained on; head and tail have special tokens. The client's texts are plain in
 * both, so that a document cannot end its turn. */
#include "gen/pair_prompt.h"

#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/prompt.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "gen/resolve.h"

#include "base/charge.h"
#include "base/check.h"
#include "model/model.h"
#include "registry/registry.h"
#include "tokenizer/tokenizer.h"

static const char head[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    "Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
static const char tail[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
static const char instruction[] =
    "Given a web search query, retrieve relevant passages that answer the query";

struct slice pair_text(const json_t *v)
{
    const json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;
    if (!json_is_string(text))
        return (struct slice){0};
    return (struct slice){json_string_value(text), json_string_length(text)};
}

/* A single text stands for all pairs. */
static struct slice text_of(const json_t *v, uint32_t index)
{
    if (!json_is_array(v))
        return pair_text(v);
    return pair_text(json_array_get(v, json_array_size(v) == 1 ? 0 : index));
}

static void free_ids(struct gen *g, struct prompt_ids *p)
{
    request_memory_free(&g->memory, p->ids, p->count * sizeof(uint32_t));
    *p = (struct prompt_ids){0};
}

/* Tokens that the pair may have besides `fixed`; UINT32_MAX: any number, to be truncated. */
static uint32_t room_of(const struct gen *g, uint32_t fixed)
{
    int64_t context = g->model->max_model_len, kept = g->request->truncate;
    int64_t most = kept > 0 ? MIN_OF(kept, context) : context;
    return most > fixed ? (uint32_t)(most - fixed) : 0;
}

/* head, the pair's tokens without those beyond `room`, tail. */
static bool join(struct gen *g, const struct prompt_ids *h, const struct prompt_ids *pair,
                 const struct prompt_ids *t, uint32_t room, struct prompt_ids *ret)
{
    uint32_t kept = MIN_OF(pair->count, room), count = h->count + kept + t->count;
    uint32_t *ids = request_memory_alloc(&g->memory, count * sizeof(*ids));
    if (!ids)
        return gen_refuse_memory(g);
    memcpy(ids, h->ids, h->count * sizeof(*ids));
    memcpy(ids + h->count, pair->ids, kept * sizeof(*ids));
    memcpy(ids + h->count + kept, t->ids, t->count * sizeof(*ids));
    *ret = (struct prompt_ids){.ids = ids, .count = count};
    return true;
}

static bool make_pair(struct gen *g, struct arena *scratch, uint32_t index, const struct prompt_ids *h,
                      const struct prompt_ids *t)
{
    const struct gen_request *r = g->request;
    struct charge charge = request_memory_charge(&g->memory);
    ASSERT(index < g->prompt_count);
    uint32_t room = room_of(g, h->count + t->count);
    struct prompt_ids pair = {0};
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    buf_puts(&text, "<Instruct>: ");
    buf_puts(&text, r->instruction ? r->instruction : instruction);
    buf_puts(&text, "\n<Query>: ");
    buf_put_slice(&text, text_of(r->queries, index));
    buf_puts(&text, "\n<Document>: ");
    buf_put_slice(&text, text_of(r->documents, index));
    bool ok = !text.error || gen_refuse_memory(g);
    ok = ok && prompt_encode_plain(g, scratch, buf_slice(&text), r->truncate ? UINT32_MAX : room, &pair);
    buf_done(&text);
    ok = ok && join(g, h, &pair, t, r->truncate ? room : pair.count, &g->prompts[index]);
    free_ids(g, &pair);
    return ok;
}

/* ---- the tokenizer's template ---- */

/* Ids of a text that may be empty. */
static bool encode_text(struct gen *g, struct arena *scratch, struct slice text, uint32_t ids_max,
                        struct prompt_ids *ret)
{
    *ret = (struct prompt_ids){0};
    return text.len == 0 || prompt_encode_plain(g, scratch, text, ids_max, ret);
}

/* Joins both texts, cut to at most `room` tokens: the document keeps its first ones. */
static bool join_pair(struct gen *g, const struct tokenizer_pair *p, const struct prompt_ids *a,
                      const struct prompt_ids *b, uint32_t room, struct prompt_ids *ret)
{
    uint32_t first = MIN_OF(a->count, room), second = MIN_OF(b->count, room - first), type_one;
    uint32_t count = tokenizer_pair_fixed(p) + first + second;
    uint32_t *ids = count > 0 ? request_memory_alloc(&g->memory, count * sizeof(*ids)) : NULL;
    if (count == 0)
        return reject_value(&g->reject, "documents", "Query and document have no tokens.");
    if (!ids)
        return gen_refuse_memory(g);
    tokenizer_pair_join(p, a->ids, first, b->ids, second, ids, &type_one);
    ASSERT(type_one <= count);
    *ret = (struct prompt_ids){.ids = ids, .count = count, .second = type_one};
    return true;
}

static bool make_template_pair(struct gen *g, struct arena *scratch, uint32_t index)
{
    const struct gen_request *r = g->request;
    ASSERT(index < g->prompt_count);
    const struct tokenizer_pair *p = tokenizer_pair(g->model->tokenizer);
    struct prompt_ids a = {0}, b = {0};
    uint32_t room = room_of(g, tokenizer_pair_fixed(p)), most = r->truncate ? UINT32_MAX : room;
    bool ok = encode_text(g, scratch, text_of(r->queries, index), most, &a) &&
              encode_text(g, scratch, text_of(r->documents, index), most, &b);
    if (ok && !r->truncate && a.count + b.count > room) {
        const struct reject_context context = resolve_limit(r, g->model);
        ok = reject_too_long(&g->reject, r->prompt_name, &context, context.tokens);
    }
    ok = ok && join_pair(g, p, &a, &b, room, &g->prompts[index]);
    free_ids(g, &a);
    free_ids(g, &b);
    return ok;
}

/* A decoder without the markers of the other form was trained on the template, too. */
static bool reads_template(const struct gen *g)
{
    uint32_t id;
    return g->model->shape->labels > 0 && (g->model->shape->encoder || !g->model->tokenizer ||
                                           !tokenizer_find(g->model->tokenizer, SLICE("<|im_start|>"), &id));
}

static bool make_template_pairs(struct gen *g, struct arena *scratch)
{
    bool ok = tokenizer_pair(g->model->tokenizer)->known ||
              reject_unsupported(&g->reject, "model",
                                 "The tokenizer of the model \"%.100s\" puts two texts together in a way "
                                 "that is not supported.",
                                 g->model->id);
    for (uint32_t i = 0; ok && i < g->prompt_count; i++)
        ok = make_template_pair(g, scratch, i);
    return ok;
}

bool pair_prompts_make(struct gen *g, struct arena *scratch)
{
    uint32_t count = g->request->prompt_count;
    struct prompt_ids h = {0}, t = {0};
    ASSERT(!g->prompts);
    g->prompts = request_memory_alloc(&g->memory, count * sizeof(*g->prompts));
    if (!g->prompts)
        return gen_refuse_memory(g);
    g->prompt_count = count;
    if (reads_template(g))
        return make_template_pairs(g, scratch);
    bool ok = prompt_encode(g, scratch, SLICE(head), NULL, false, UINT32_MAX, &h) &&
              prompt_encode(g, scratch, SLICE(tail), NULL, false, UINT32_MAX, &t);
    for (uint32_t i = 0; ok && i < count; i++)
        ok = make_pair(g, scratch, i, &h, &t);
    free_ids(g, &h);
    free_ids(g, &t);
    return ok;
}
