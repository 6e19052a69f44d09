/* prompt.c - frees the rendered text as soon as its token ids exist. */
#include "gen/prompt.h"

#include "gen/media_request.h"

#include "base/check.h"
#include "base/clock.h"
#include "text/chat_history.h"
#include "text/chat_template.h"

#include <errno.h>

/* The scratch arena may grow to the whole limit of the request: a full arena means that the request is too
 * large. */
static bool no_scratch(struct gen *g, const struct arena *scratch)
{
    g->memory.too_large |= arena_overran(scratch);
    return gen_refuse_memory(g);
}

static bool too_long(struct gen *g, uint32_t ids_max)
{
    return reject_too_long(&g->reject, g->request->messages ? "messages" : "prompt", g->model->max_model_len,
                           ids_max);
}

/* ---- templates ---- */

/* Template arguments of the model's configuration, for names that the request does not set. Copied: the
 * configuration is shared. */
static bool add_model_kwargs(struct gen *g)
{
    json_t *given = g->request->template_kwargs;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)g->model->template_kwargs, key, value) {
        if (!json_object_get(given, key) && json_object_set_new(given, key, json_deep_copy(value)) < 0)
            return gen_refuse_memory(g);
    }
    return true;
}

/* Template arguments from fields of the route. They override chat_template_kwargs, because they are more
 * specific. */
static bool add_kwargs(struct gen *g)
{
    struct gen_request *r = g->request;
    const char *effort = r->reasoning_effort;
    int thinking = r->enable_thinking;
    if (effort && !chat_template_mentions(g->model->template, SLICE("reasoning_effort"))) {
        if (strcmp(effort, "none") != 0 ||
            !chat_template_mentions(g->model->template, SLICE("enable_thinking")))
            return reject_unsupported(
                &g->reject, "reasoning_effort",
                "This model's chat template does not support reasoning_effort \"%s\"; leave it out%s.",
                effort,
                chat_template_mentions(g->model->template, SLICE("enable_thinking"))
                    ? ", or set chat_template_kwargs {\"enable_thinking\": true or false}"
                    : "");
        thinking = thinking < 0 ? 0 : thinking;
        effort = NULL;
    }
    if (!effort && thinking < 0 && !g->model->template_kwargs)
        return true;
    if (!r->template_kwargs) {
        r->template_kwargs = json_object();
        if (!r->template_kwargs)
            return gen_refuse_memory(g);
    }
    if (effort && !json_object_get(r->template_kwargs, "reasoning_effort") &&
        json_object_set_new(r->template_kwargs, "reasoning_effort", json_string(effort)) < 0)
        return gen_refuse_memory(g);
    if (thinking >= 0 && !json_object_get(r->template_kwargs, "enable_thinking") &&
        json_object_set_new(r->template_kwargs, "enable_thinking", json_boolean(thinking)) < 0)
        return gen_refuse_memory(g);
    return add_model_kwargs(g);
}

/* Refuses names that the template's environment defines. */
static bool check_kwargs(struct gen *g)
{
    static const char *const ours[] = {"messages",  "tools",    "documents", "add_generation_prompt",
                                       "bos_token", "eos_token"};
    for (size_t i = 0; i < COUNT_OF(ours); i++)
        if (json_object_get(g->request->template_kwargs, ours[i]))
            return reject_value(&g->reject, "chat_template_kwargs",
                                "chat_template_kwargs must not set \"%s\": the server sets it.", ours[i]);
    return true;
}

/* Earlier calls in the form that the template takes. */
static bool adapt_history(struct gen *g)
{
    return chat_history_adapt(g->model->syntax, g->request->messages) == 0 || gen_refuse_memory(g);
}

/* The template refused: it may take objects only, and some earlier arguments are no JSON. */
static bool wrap_arguments(struct gen *g)
{
    struct request_memory *before = request_memory_enter(&g->memory);
    bool some = chat_history_wrap(g->request->messages);
    request_memory_enter(before);
    return some;
}

static bool refuse_rendering(struct gen *g, const struct arena *scratch, int r, uint32_t ids_max,
                             const struct err *e)
{
    switch (r) {
    case -EINVAL:
        return reject_set(&g->reject, REJECT_TEMPLATE_ERROR, "messages",
                          "The model's chat template rejected the request: %s", e->text);
    case -E2BIG:
        /* A template sees no difference between its own limit and memory that other requests hold. */
        if (g->memory.refused && !g->memory.too_large)
            return gen_refuse_memory(g);
        return reject_set(&g->reject, REJECT_TEMPLATE_LIMIT, "messages",
                          "The chat template exceeded a limit: %s", e->text);
    case -EMSGSIZE:
        return too_long(g, ids_max);
    case -ECANCELED:
    case -ETIME:
        return reject_unwanted(&g->reject, r);
    default:
        return no_scratch(g, scratch);
    }
}

bool prompt_render(struct gen *g, struct arena *scratch, uint32_t ids_max, struct buf *ret,
                   struct chat_cuts *cuts)
{
    const struct served_model *m = g->model;
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    struct err e = {0};
    if (!m->template)
        return reject_unsupported(&g->reject, "messages",
                                  "The model \"%.100s\" has no chat template. Use /v1/completions.", m->id);
    struct request_memory *before = request_memory_enter(&g->memory);
    bool ok = check_kwargs(g) && add_kwargs(g) && adapt_history(g);
    request_memory_enter(before);
    if (!ok)
        return false;
    struct chat_template_input in = {
        .messages = g->request->messages,
        .tools = g->request->tools,
        .kwargs = g->request->template_kwargs,
        .add_generation_prompt = g->request->add_generation_prompt,
        .now_s = g->created_s,
    };
    if (m->tokenizer) {
        in.bos_token = tokenizer_bos(m->tokenizer);
        in.eos_token = tokenizer_eos(m->tokenizer);
        limits.prompt_bytes_max = tokenizer_bytes_max(m->tokenizer, ids_max);
    }
    limits.wanted = &g->wanted;
    int r = chat_template_render_cuts(m->template, scratch, &in, &limits, ret, cuts, &e);
    if (r == -EINVAL && wrap_arguments(g))
        r = chat_template_render_cuts(m->template, scratch, &in, &limits, ret, cuts, &e);
    return r == 0 || refuse_rendering(g, scratch, r, ids_max, &e);
}

/* ---- ids ---- */

static bool keep_ids(struct gen *g, const uint32_t *ids, size_t count, struct prompt_ids *ret)
{
    if (count == 0)
        return reject_value(&g->reject, "prompt", "The prompt has no tokens; at least one is needed.");
    uint32_t *copy = request_memory_alloc(&g->memory, count * sizeof(*copy));
    if (!copy)
        return gen_refuse_memory(g);
    memcpy(copy, ids, count * sizeof(*copy));
    *ret = (struct prompt_ids){.ids = copy, .count = (uint32_t)count};
    return true;
}

static bool refuse_encoding(struct gen *g, const struct arena *scratch, int r, uint32_t ids_max,
                            const struct err *e)
{
    switch (r) {
    case -E2BIG:
        return too_long(g, ids_max);
    case -EINVAL:
        return reject_value(&g->reject, "prompt", "The prompt is not valid text: %s", e->text);
    case -ECANCELED:
    case -ETIME:
        return reject_unwanted(&g->reject, r);
    default:
        return no_scratch(g, scratch);
    }
}

bool prompt_encode(struct gen *g, struct arena *scratch, struct slice text, const struct chat_cuts *cuts,
                   bool special, uint32_t ids_max, struct prompt_ids *ret)
{
    const struct tokenizer *t = g->model->tokenizer;
    uint32_t cut_tokens[CHAT_CUTS_MAX];
    struct tokenizer_marks marks = {
        .bytes = cuts ? cuts->bytes : NULL, .tokens = cut_tokens, .count = cuts ? cuts->count : 0};
    const struct tokenizer_opts opts = {
        .added_tokens = true, .add_special = special, .marks = &marks, .wanted = &g->wanted};
    struct err e = {0};
    size_t count = 0;
    if (!t)
        return reject_unsupported(&g->reject, "prompt",
                                  "The model \"%.100s\" has no tokenizer. Send token ids to /v1/completions.",
                                  g->model->id);
    size_t mark = arena_mark(scratch), room = 0;
    uint32_t *ids = NULL;
    int r = tokenizer_exceeds(t, text, ids_max, &g->wanted) == 1 ? -E2BIG : -EAGAIN;
    /* A text has at most one token per byte, and the special tokens around it; but NFC can make three bytes
     * of one. Where ids_max was the bound, a larger buffer does not help. */
    for (size_t times = 1; r == -EAGAIN || (r == -E2BIG && times == 3 && room < ids_max); times += 2) {
        room = MIN_OF((size_t)ids_max, text.len * times + 64);
        arena_rewind(scratch, mark);
        ids = ARENA_ARRAY(scratch, uint32_t, room);
        r = ids ? tokenizer_encode(t, scratch, text, &opts, ids, room, &count, &e) : -ENOMEM;
    }
    bool ok = r == 0 ? keep_ids(g, ids, count, ret) : refuse_encoding(g, scratch, r, ids_max, &e);
    if (ok) {
        ret->cut_count = marks.count;
        memcpy(ret->cuts, cut_tokens, marks.count * sizeof(cut_tokens[0]));
    }
    arena_rewind(scratch, mark);
    return ok;
}

static bool take_ids(struct gen *g, const json_t *list, struct prompt_ids *ret)
{
    uint32_t vocab = g->model->shape->vocab;
    size_t count = json_array_size(list), i;
    const json_t *each;
    if (count > g->model->max_model_len)
        return too_long(g, g->model->max_model_len);
    uint32_t *ids = request_memory_alloc(&g->memory, count * sizeof(*ids));
    if (!ids)
        return gen_refuse_memory(g);
    json_array_foreach(list, i, each) {
        if (json_integer_value(each) >= vocab) {
            request_memory_free(&g->memory, ids, count * sizeof(*ids));
            return reject_value(&g->reject, "prompt",
                                "prompt[%zu] is %lld; the model's largest token id is %u.", i,
                                (long long)json_integer_value(each), vocab - 1);
        }
        ids[i] = (uint32_t)json_integer_value(each);
    }
    *ret = (struct prompt_ids){.ids = ids, .count = (uint32_t)count};
    return true;
}

bool prompt_of_messages(struct gen *g, struct arena *scratch, uint32_t ids_max, bool cut,
                        struct prompt_ids *ret)
{
    struct charge charge = request_memory_charge(&g->memory);
    struct chat_cuts cuts = {.count = 0};
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    bool ok =
        prompt_render(g, scratch, ids_max, &text, cut ? &cuts : NULL) &&
        media_request_text(g, &text, &cuts) &&
        prompt_encode(g, scratch, buf_slice(&text), &cuts, g->request->add_special_tokens > 0, ids_max, ret);
    if (ok)
        ret->in_reasoning = chat_syntax_prompt_reasons(g->model->syntax, buf_slice(&text));
    buf_done(&text);
    return ok && media_request_ids(g, ids_max, ret);
}

static bool make_one(struct gen *g, struct arena *scratch, const json_t *prompt, struct prompt_ids *ret)
{
    if (json_is_array(prompt))
        return take_ids(g, prompt, ret);
    struct slice text = {json_string_value(prompt), json_string_length(prompt)};
    return prompt_encode(g, scratch, text, NULL, g->request->add_special_tokens != 0, g->model->max_model_len,
                         ret);
}

bool prompt_make(struct gen *g, struct arena *scratch)
{
    const struct gen_request *r = g->request;
    uint32_t count = r->messages ? 1 : r->prompt_count;
    g->prompts = request_memory_alloc(&g->memory, count * sizeof(*g->prompts));
    if (!g->prompts)
        return gen_refuse_memory(g);
    g->prompt_count = count;
    if (r->messages)
        return prompt_of_messages(g, scratch, g->model->max_model_len, true, &g->prompts[0]);
    bool several = json_is_array(r->prompt) && !json_is_integer(json_array_get(r->prompt, 0));
    for (uint32_t i = 0; i < count; i++) {
        const json_t *prompt = several ? json_array_get(r->prompt, i) : r->prompt;
        if (!make_one(g, scratch, prompt, &g->prompts[i]))
            return false;
    }
    return true;
}
