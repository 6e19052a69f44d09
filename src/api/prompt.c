/* prompt.c - frees the rendered text as soon as its token ids exist. */
#include "api/prompt.h"

#include "api/media_request.h"
#include "api/memory_refusal.h"

#include "base/check.h"
#include "base/clock.h"
#include "text/chat_template.h"

#include <errno.h>

static bool no_memory(struct exchange *x)
{
    return memory_refusal_of(x->api, &x->memory, &x->reject);
}

/* The scratch arena may grow to the whole limit of the request: a full arena means that the request is too
 * large. */
static bool no_scratch(struct exchange *x, const struct arena *scratch)
{
    x->memory.too_large |= arena_overran(scratch);
    return no_memory(x);
}

static bool too_long(struct exchange *x, uint32_t ids_max)
{
    return reject_too_long(&x->reject, x->request.gen.messages ? "messages" : "prompt",
                           x->model->max_model_len, ids_max);
}

/* ---- templates ---- */

/* Template arguments of the model's configuration, for names that the request does not set. Copied: the
 * configuration is shared. */
static bool add_model_kwargs(struct exchange *x)
{
    json_t *given = x->request.gen.template_kwargs;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)x->model->template_kwargs, key, value) {
        if (!json_object_get(given, key) && json_object_set_new(given, key, json_deep_copy(value)) < 0)
            return no_memory(x);
    }
    return true;
}

/* Template arguments from fields of the route. They override chat_template_kwargs, because they are more
 * specific. */
static bool add_kwargs(struct exchange *x)
{
    struct request *r = &x->request;
    const char *effort = r->gen.reasoning_effort;
    int thinking = r->gen.enable_thinking;
    if (effort && !chat_template_mentions(x->model->template, SLICE("reasoning_effort"))) {
        if (strcmp(effort, "none") != 0 ||
            !chat_template_mentions(x->model->template, SLICE("enable_thinking")))
            return reject_unsupported(
                &x->reject, "reasoning_effort",
                "This model's chat template does not support reasoning_effort \"%s\"; leave it out%s.",
                effort,
                chat_template_mentions(x->model->template, SLICE("enable_thinking"))
                    ? ", or set chat_template_kwargs {\"enable_thinking\": true or false}"
                    : "");
        thinking = thinking < 0 ? 0 : thinking;
        effort = NULL;
    }
    if (!effort && thinking < 0 && !x->model->template_kwargs)
        return true;
    if (!r->gen.template_kwargs) {
        r->gen.template_kwargs = json_object();
        if (!r->gen.template_kwargs)
            return no_memory(x);
    }
    if (effort && !json_object_get(r->gen.template_kwargs, "reasoning_effort") &&
        json_object_set_new(r->gen.template_kwargs, "reasoning_effort", json_string(effort)) < 0)
        return no_memory(x);
    if (thinking >= 0 && !json_object_get(r->gen.template_kwargs, "enable_thinking") &&
        json_object_set_new(r->gen.template_kwargs, "enable_thinking", json_boolean(thinking)) < 0)
        return no_memory(x);
    return add_model_kwargs(x);
}

/* Refuses names that the template's environment defines. */
static bool check_kwargs(struct exchange *x)
{
    static const char *const ours[] = {"messages",  "tools",    "documents", "add_generation_prompt",
                                       "bos_token", "eos_token"};
    for (size_t i = 0; i < COUNT_OF(ours); i++)
        if (json_object_get(x->request.gen.template_kwargs, ours[i]))
            return reject_value(&x->reject, "chat_template_kwargs",
                                "chat_template_kwargs must not set \"%s\": the server sets it.", ours[i]);
    return true;
}

static bool refuse_rendering(struct exchange *x, const struct arena *scratch, int r, uint32_t ids_max,
                             const struct err *e)
{
    switch (r) {
    case -EINVAL:
        return reject_set(&x->reject, REJECT_TEMPLATE_ERROR, "messages",
                          "The model's chat template rejected the request: %s", e->text);
    case -E2BIG:
        return reject_set(&x->reject, REJECT_TEMPLATE_LIMIT, "messages",
                          "The chat template exceeded a limit: %s", e->text);
    case -EMSGSIZE:
        return too_long(x, ids_max);
    case -ECANCELED:
    case -ETIME:
        return reject_unwanted(&x->reject, r);
    default:
        return no_scratch(x, scratch);
    }
}

bool prompt_render(struct exchange *x, struct arena *scratch, uint32_t ids_max, struct buf *ret,
                   struct chat_cuts *cuts)
{
    const struct served_model *m = x->model;
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    struct err e = {0};
    if (!m->template)
        return reject_unsupported(&x->reject, "messages",
                                  "The model \"%.100s\" has no chat template. Use /v1/completions.", m->id);
    request_memory_enter(&x->memory);
    bool ok = check_kwargs(x) && add_kwargs(x);
    request_memory_enter(NULL);
    if (!ok)
        return false;
    struct chat_template_input in = {
        .messages = x->request.gen.messages,
        .tools = x->request.gen.tools,
        .kwargs = x->request.gen.template_kwargs,
        .add_generation_prompt = x->request.gen.add_generation_prompt,
        .now_s = x->created_s,
    };
    if (m->tokenizer) {
        in.bos_token = tokenizer_bos(m->tokenizer);
        in.eos_token = tokenizer_eos(m->tokenizer);
        limits.prompt_bytes_max = tokenizer_bytes_max(m->tokenizer, ids_max);
    }
    limits.wanted = &x->wanted;
    int r = chat_template_render_cuts(m->template, scratch, &in, &limits, ret, cuts, &e);
    return r == 0 || refuse_rendering(x, scratch, r, ids_max, &e);
}

/* ---- ids ---- */

static bool keep_ids(struct exchange *x, const uint32_t *ids, size_t count, struct prompt_ids *ret)
{
    if (count == 0)
        return reject_value(&x->reject, "prompt", "The prompt has no tokens; at least one is needed.");
    uint32_t *copy = request_memory_alloc(&x->memory, count * sizeof(*copy));
    if (!copy)
        return no_memory(x);
    memcpy(copy, ids, count * sizeof(*copy));
    *ret = (struct prompt_ids){.ids = copy, .count = (uint32_t)count};
    return true;
}

static bool refuse_encoding(struct exchange *x, const struct arena *scratch, int r, uint32_t ids_max,
                            const struct err *e)
{
    switch (r) {
    case -E2BIG:
        return too_long(x, ids_max);
    case -EINVAL:
        return reject_value(&x->reject, "prompt", "The prompt is not valid text: %s", e->text);
    case -ECANCELED:
    case -ETIME:
        return reject_unwanted(&x->reject, r);
    default:
        return no_scratch(x, scratch);
    }
}

bool prompt_encode(struct exchange *x, struct arena *scratch, struct slice text, const struct chat_cuts *cuts,
                   bool special, uint32_t ids_max, struct prompt_ids *ret)
{
    const struct tokenizer *t = x->model->tokenizer;
    uint32_t cut_tokens[CHAT_CUTS_MAX];
    struct tokenizer_marks marks = {
        .bytes = cuts ? cuts->bytes : NULL, .tokens = cut_tokens, .count = cuts ? cuts->count : 0};
    const struct tokenizer_opts opts = {
        .added_tokens = true, .add_special = special, .marks = &marks, .wanted = &x->wanted};
    struct err e = {0};
    size_t count = 0;
    if (!t)
        return reject_unsupported(&x->reject, "prompt",
                                  "The model \"%.100s\" has no tokenizer. Send token ids to /v1/completions.",
                                  x->model->id);
    size_t mark = arena_mark(scratch), room = 0;
    uint32_t *ids = NULL;
    int r = tokenizer_exceeds(t, text, ids_max, &x->wanted) == 1 ? -E2BIG : -EAGAIN;
    /* A text has at most one token per byte, and the special tokens around it; but NFC can make three bytes
     * of one. Where ids_max was the bound, a larger buffer does not help. */
    for (size_t times = 1; r == -EAGAIN || (r == -E2BIG && times == 3 && room < ids_max); times += 2) {
        room = MIN_OF((size_t)ids_max, text.len * times + 64);
        arena_rewind(scratch, mark);
        ids = ARENA_ARRAY(scratch, uint32_t, room);
        r = ids ? tokenizer_encode(t, scratch, text, &opts, ids, room, &count, &e) : -ENOMEM;
    }
    bool ok = r == 0 ? keep_ids(x, ids, count, ret) : refuse_encoding(x, scratch, r, ids_max, &e);
    if (ok) {
        ret->cut_count = marks.count;
        memcpy(ret->cuts, cut_tokens, marks.count * sizeof(cut_tokens[0]));
    }
    arena_rewind(scratch, mark);
    return ok;
}

static bool take_ids(struct exchange *x, const json_t *list, struct prompt_ids *ret)
{
    uint32_t vocab = x->model->shape->vocab;
    size_t count = json_array_size(list), i;
    const json_t *each;
    if (count > x->model->max_model_len)
        return too_long(x, x->model->max_model_len);
    uint32_t *ids = request_memory_alloc(&x->memory, count * sizeof(*ids));
    if (!ids)
        return no_memory(x);
    json_array_foreach(list, i, each) {
        if (json_integer_value(each) >= vocab) {
            request_memory_free(&x->memory, ids, count * sizeof(*ids));
            return reject_value(&x->reject, "prompt",
                                "prompt[%zu] is %lld; the model's largest token id is %u.", i,
                                (long long)json_integer_value(each), vocab - 1);
        }
        ids[i] = (uint32_t)json_integer_value(each);
    }
    *ret = (struct prompt_ids){.ids = ids, .count = (uint32_t)count};
    return true;
}

bool prompt_of_messages(struct exchange *x, struct arena *scratch, uint32_t ids_max, bool cut,
                        struct prompt_ids *ret)
{
    struct charge charge = request_memory_charge(&x->memory);
    struct chat_cuts cuts = {.count = 0};
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    bool ok = prompt_render(x, scratch, ids_max, &text, cut ? &cuts : NULL) &&
              media_request_text(x, &text, &cuts) &&
              prompt_encode(x, scratch, buf_slice(&text), &cuts, x->request.gen.add_special_tokens > 0,
                            ids_max, ret);
    if (ok)
        ret->in_reasoning = chat_prompt_in_reasoning(buf_slice(&text));
    buf_done(&text);
    return ok && media_request_ids(x, ids_max, ret);
}

static bool make_one(struct exchange *x, struct arena *scratch, const json_t *prompt, struct prompt_ids *ret)
{
    if (json_is_array(prompt))
        return take_ids(x, prompt, ret);
    struct slice text = {json_string_value(prompt), json_string_length(prompt)};
    return prompt_encode(x, scratch, text, NULL, x->request.gen.add_special_tokens != 0,
                         x->model->max_model_len, ret);
}

bool prompt_make(struct exchange *x, struct arena *scratch)
{
    const struct request *r = &x->request;
    uint32_t count = r->gen.messages ? 1 : r->gen.prompt_count;
    x->prompts = request_memory_alloc(&x->memory, count * sizeof(*x->prompts));
    if (!x->prompts)
        return no_memory(x);
    x->prompt_count = count;
    if (r->gen.messages)
        return prompt_of_messages(x, scratch, x->model->max_model_len, true, &x->prompts[0]);
    bool several = json_is_array(r->gen.prompt) && !json_is_integer(json_array_get(r->gen.prompt, 0));
    for (uint32_t i = 0; i < count; i++) {
        const json_t *prompt = several ? json_array_get(r->gen.prompt, i) : r->gen.prompt;
        if (!make_one(x, scratch, prompt, &x->prompts[i]))
            return false;
    }
    return true;
}
