/* prompt.c - frees the rendered text as soon as its token ids exist. */
#include "gen/prompt.h"

#include "gen/gen_request.h"
#include "gen/media_request.h"
#include "gen/resolve.h"
#include "gen/tool_insert.h"

#include "base/check.h"
#include "chat/chat_generic.h"
#include "chat/chat_history.h"
#include "chat/chat_syntax.h"
#include "chat/chat_user_turn.h"
#include "model/model.h"
#include "registry/registry.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>

/* The scratch arena may grow to the whole limit of the request: a full arena means that the request is too
 * large. */
static bool no_scratch(struct gen *g, const struct arena *scratch)
{
    g->memory.too_large |= arena_overran(scratch);
    return gen_refuse_memory(g);
}

/* The field of the prompt. */
static const char *name_of(const struct gen *g)
{
    return g->request->prompt_name ? g->request->prompt_name : "prompt";
}

static bool too_long(struct gen *g, uint32_t ids_max)
{
    const struct reject_context context = resolve_limit(g->request, g->model);
    return reject_too_long(&g->reject, g->request->messages ? gen_messages_name(g->request) : name_of(g),
                           &context, ids_max);
}

/* A prompt beyond this is refused without all of its tokens. One that is truncated needs all of them first;
 * one whose length the client is to know, those of a few contexts. */
static uint32_t ids_max_of(const struct gen *g)
{
    uint64_t context = resolve_context(g->request, g->model);
    if (g->request->truncate)
        return UINT32_MAX;
    return (uint32_t)MIN_OF(g->request->tells_length ? 4 * context : context, (uint64_t)UINT32_MAX);
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

/* A template without reasoning_effort may have a switch for thinking: "none" and "minimal" turn it off, the
 * other efforts turn it on. */
static const char *effort_of(struct gen *g, int *thinking)
{
    struct gen_request *r = g->request;
    const char *effort = r->reasoning_effort;
    if (!effort || chat_template_mentions(g->model->template, SLICE("reasoning_effort")))
        return effort;
    r->effort_unused = !chat_template_mentions(g->model->template, SLICE("enable_thinking"));
    if (!r->effort_unused && *thinking < 0)
        *thinking = strcmp(effort, "none") != 0 && strcmp(effort, "minimal") != 0;
    return NULL;
}

/* Template arguments from fields of the route. They override chat_template_kwargs, because they are more
 * specific. */
static bool add_kwargs(struct gen *g)
{
    struct gen_request *r = g->request;
    int thinking = r->enable_thinking;
    const char *effort = effort_of(g, &thinking);
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

/* True: some messages changed. */
static bool join_system(struct gen *g)
{
    struct gen_request *r = g->request;
    bool some = false;
    if (r->system_stays && chat_history_join_system(r->messages, r->marks, r->mark_count, &some) < 0)
        gen_refuse_memory(g);
    return some;
}

/* Earlier messages in the form that the template takes. */
static bool adapt_history(struct gen *g)
{
    if (!g->model->syntax->system_in_place)
        join_system(g);
    return chat_history_adapt(g->model->syntax, g->request->messages) == 0 || gen_refuse_memory(g);
}

/* The template refused: it may take the system's messages at other places only, or objects only while some
 * earlier arguments are no JSON. True: something changed. */
static bool give_way(struct gen *g)
{
    struct request_memory *before = request_memory_enter(&g->memory);
    bool some = join_system(g) || chat_history_wrap(g->request->messages);
    request_memory_enter(before);
    return some && !g->reject.kind;
}

static bool refuse_rendering(struct gen *g, const struct arena *scratch, int r, uint32_t ids_max,
                             const struct err *e)
{
    ASSERT(r < 0);
    switch (r) {
    case -EINVAL:
        return reject_set(&g->reject, REJECT_TEMPLATE_ERROR, gen_messages_name(g->request),
                          "The model's chat template rejected the request: %s", e->text);
    case -E2BIG:
        /* A template sees no difference between its own limit and memory that other requests hold. */
        if (g->memory.refused && !g->memory.too_large)
            return gen_refuse_memory(g);
        return reject_set(&g->reject, REJECT_TEMPLATE_LIMIT, gen_messages_name(g->request),
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

/* Stands behind the text of a last message that the reply continues: a template writes more after it. */
#define CONTINUED_HERE "\x02the reply continues here\x03"

static json_t *last_message(const struct gen *g)
{
    return json_array_get(g->request->messages, json_array_size(g->request->messages) - 1);
}

static bool mark_end(struct gen *g)
{
    const json_t *content = json_object_get(last_message(g), "content");
    json_t *marked =
        json_sprintf("%.*s%s", (int)json_string_length(content), json_string_value(content), CONTINUED_HERE);
    return json_object_set_new(last_message(g), "content", marked) == 0 || gen_refuse_memory(g);
}

/* Cuts the prompt at the mark. */
static bool end_at_mark(struct gen *g, struct buf *text, struct chat_cuts *cuts)
{
    size_t found = SIZE_MAX;
    for (size_t at = 0; (at = slice_find(buf_slice(text), SLICE(CONTINUED_HERE), at)) != SIZE_MAX; at++)
        found = at;
    if (found == SIZE_MAX)
        return reject_set(
            &g->reject, REJECT_TEMPLATE_ERROR, gen_messages_name(g->request),
            "The model's chat template does not write the text of the last message, so the reply "
            "cannot continue it.");
    text->len = found;
    while (cuts && cuts->count > 0 && cuts->bytes[cuts->count - 1] > found)
        cuts->count--;
    return true;
}

/* Renders the messages as `in` has the rest; for a template that knows no tools, with these as text. */
static int render(struct gen *g, struct arena *scratch, const struct chat_template_input *given,
                  const struct chat_template_limits *limits, bool without_system, struct buf *ret,
                  struct chat_cuts *cuts, struct err *e)
{
    struct chat_template_input in = *given;
    struct chat_mark marks[GEN_MARKS_MAX];
    json_t *list = NULL;
    int r = 0;
    if (!g->model->syntax->generic)
        return chat_template_render_cuts(g->model->template, scratch, &in, limits, ret, cuts, e);
    memcpy(marks, g->request->marks, sizeof(marks));
    in.marks.list = marks;
    in.tools = NULL;
    struct request_memory *before = request_memory_enter(&g->memory);
    r = chat_generic_messages(g->request->messages,
                              &(struct chat_generic_opts){.tools = gen_head_tools(g->request),
                                                          .without_system = without_system,
                                                          .marks = marks,
                                                          .mark_count = g->request->mark_count},
                              &list);
    request_memory_enter(before);
    in.messages = list;
    if (r == 0)
        r = chat_template_render_cuts(g->model->template, scratch, &in, limits, ret, cuts, e);
    request_memory_enter(&g->memory);
    json_decref(list);
    request_memory_enter(before);
    return r;
}

/* Template arguments, messages and tools in the form that the template takes. */
static bool prepare(struct gen *g, struct arena *scratch, const struct chat_template_limits *limits,
                    struct chat_template_input *ret)
{
    struct gen_request *r = g->request;
    const struct served_model *m = g->model;
    struct request_memory *before = request_memory_enter(&g->memory);
    bool ok = check_kwargs(g) && add_kwargs(g);
    *ret = (struct chat_template_input){.kwargs = r->template_kwargs, .now_s = g->created_s};
    if (m->tokenizer) {
        ret->bos_token = tokenizer_bos(m->tokenizer);
        ret->eos_token = tokenizer_eos(m->tokenizer);
    }
    ok = ok && (!r->inserts_tools || tool_insert(g, scratch, ret, limits)) && adapt_history(g) &&
         (!r->continues || mark_end(g));
    request_memory_enter(before);
    ret->messages = r->messages;
    ret->tools = gen_head_tools(r);
    ret->marks = (struct chat_marks){r->marks, r->mark_count};
    ret->add_generation_prompt = r->add_generation_prompt && !r->continues;
    r->tools_unused =
        ret->tools && !m->syntax->generic && !chat_template_mentions(m->template, SLICE("tools"));
    return ok;
}

static struct chat_template_limits limits_of(const struct gen *g, uint32_t ids_max)
{
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    if (g->model->tokenizer)
        limits.prompt_bytes_max = tokenizer_bytes_max(g->model->tokenizer, ids_max);
    limits.wanted = &g->wanted;
    return limits;
}

static bool render_all(struct gen *g, struct arena *scratch, uint32_t ids_max, struct buf *ret,
                       struct chat_cuts *cuts)
{
    const struct served_model *m = g->model;
    struct chat_template_limits limits = limits_of(g, ids_max);
    struct err e = {0};
    struct chat_template_input in = {0};
    if (!prepare(g, scratch, &limits, &in))
        return false;
    struct wide_integers *table = wide_integers_enter(&g->memory.wide);
    bool without_system = false;
    int r = render(g, scratch, &in, &limits, without_system, ret, cuts, &e);
    if (r == -EINVAL && m->syntax->generic && in.tools)
        r = render(g, scratch, &in, &limits, without_system = true, ret, cuts, &e);
    while (r == -EINVAL && give_way(g))
        r = render(g, scratch, &in, &limits, without_system, ret, cuts, &e);
    wide_integers_enter(table);
    if (r < 0)
        return refuse_rendering(g, scratch, r, ids_max, &e);
    return !g->request->continues || end_at_mark(g, ret, cuts);
}

/* ---- a last message behind the others ---- */

/* Appends the text of the message, a turn of its own. False: g->reject has the error, or it has none and the
 * template has no such text. */
static bool render_turn(struct gen *g, struct arena *scratch, uint32_t ids_max, const json_t *message,
                        struct buf *ret)
{
    const struct served_model *m = g->model;
    struct charge charge = request_memory_charge(&g->memory);
    struct chat_user_turn t = {.template = m->template, .limits = limits_of(g, ids_max), .charge = &charge};
    struct request_memory *before = request_memory_enter(&g->memory);
    struct wide_integers *table = wide_integers_enter(&g->memory.wide);
    t.input = (struct chat_template_input){.kwargs = g->request->template_kwargs, .now_s = g->created_s};
    if (m->tokenizer) {
        t.input.bos_token = tokenizer_bos(m->tokenizer);
        t.input.eos_token = tokenizer_eos(m->tokenizer);
    }
    int r = chat_user_turn_write(&t, scratch, json_object_get(message, "content"), ret);
    wide_integers_enter(table);
    request_memory_enter(before);
    if (r == -ECANCELED || r == -ETIME)
        return reject_unwanted(&g->reject, r);
    return r == 0 || (r != -ENOENT && gen_refuse_memory(g));
}

/* Renders the messages before the last one as they were for the reply to them. False as above. */
static bool render_behind(struct gen *g, struct arena *scratch, uint32_t ids_max, struct buf *ret,
                          struct chat_cuts *cuts)
{
    struct gen_request *r = g->request;
    struct chat_template_limits limits = limits_of(g, ids_max);
    struct chat_template_input in = {0};
    if (!prepare(g, scratch, &limits, &in)) /* while none of these messages is the last one */
        return false;
    ASSERT(json_array_size(r->messages) > 1);
    json_t *last = json_incref(last_message(g));
    bool generates = r->add_generation_prompt;
    json_array_remove(r->messages, json_array_size(r->messages) - 1);
    r->add_generation_prompt = false;
    bool ok = render_all(g, scratch, ids_max, ret, cuts);
    r->add_generation_prompt = generates;
    if (!ok && g->reject.kind == REJECT_TEMPLATE_ERROR)
        g->reject = (struct reject){0};
    ok = ok && render_turn(g, scratch, ids_max, last, ret);
    struct request_memory *before = request_memory_enter(&g->memory);
    bool put = json_array_append_new(r->messages, last) == 0;
    request_memory_enter(before);
    return put ? ok : gen_refuse_memory(g);
}

/* The last message joins one of the user before it: some templates take no two in a row. */
static bool join_last(struct gen *g)
{
    struct gen_request *r = g->request;
    size_t count = json_array_size(r->messages);
    json_t *before = json_array_get(r->messages, count - 2), *content;
    r->appends = false;
    if (count < 2 || !chat_history_has_role(before, "user"))
        return true;
    struct request_memory *memory = request_memory_enter(&g->memory);
    content =
        chat_history_joined(json_object_get(before, "content"), json_object_get(last_message(g), "content"));
    bool ok = json_object_set_new(before, "content", content) == 0 &&
              json_array_remove(r->messages, count - 1) == 0;
    request_memory_enter(memory);
    return ok || gen_refuse_memory(g);
}

bool prompt_render(struct gen *g, struct arena *scratch, uint32_t ids_max, struct buf *ret,
                   struct chat_cuts *cuts)
{
    size_t from = ret->len;
    if (!g->model->template)
        return reject_unsupported(&g->reject, gen_messages_name(g->request),
                                  "The model \"%.100s\" has no chat template. Use /v1/completions.",
                                  g->model->id);
    if (g->request->appends) {
        bool ok = json_array_size(g->request->messages) > 1 && render_behind(g, scratch, ids_max, ret, cuts);
        if (ok || g->reject.kind || !join_last(g))
            return ok;
        ret->len = from;
        if (cuts)
            cuts->count = 0;
    }
    return render_all(g, scratch, ids_max, ret, cuts);
}

/* ---- ids ---- */

static bool keep_ids(struct gen *g, const uint32_t *ids, size_t count, struct prompt_ids *ret)
{
    if (count == 0)
        return reject_value(&g->reject, name_of(g), "The prompt has no tokens; at least one is needed.");
    ASSERT(count <= UINT32_MAX);
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
    ASSERT(r < 0);
    switch (r) {
    case -E2BIG:
        return too_long(g, ids_max);
    case -EINVAL:
        return reject_value(&g->reject, name_of(g), "The prompt is not valid text: %s", e->text);
    case -ELOOP:
        return reject_set(&g->reject, REJECT_TOKENIZER_LIMIT, name_of(g),
                          "The tokenizer of the model \"%.100s\" cannot take this prompt: %s. Send a shorter "
                          "one, or use another model.",
                          g->model->id, e->text);
    case -ECANCELED:
    case -ETIME:
        return reject_unwanted(&g->reject, r);
    default:
        return no_scratch(g, scratch);
    }
}

static bool encode(struct gen *g, struct arena *scratch, struct slice text, const struct chat_cuts *cuts,
                   bool special, bool added, uint32_t ids_max, struct prompt_ids *ret)
{
    const struct tokenizer *t = g->model->tokenizer;
    uint32_t cut_tokens[CHAT_CUTS_MAX];
    struct tokenizer_marks marks = {
        .bytes = cuts ? cuts->bytes : NULL, .tokens = cut_tokens, .count = cuts ? cuts->count : 0};
    const struct tokenizer_opts opts = {
        .added_tokens = added, .add_special = special, .marks = &marks, .wanted = &g->wanted};
    struct err e = {0};
    size_t count = 0;
    if (!t)
        return reject_unsupported(
            &g->reject, name_of(g),
            "The model \"%.100s\" has no tokenizer. Send token ids to /v1/completions or "
            "/v1/embeddings.",
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
        ASSERT(marks.count <= CHAT_CUTS_MAX);
        ret->cut_count = marks.count;
        memcpy(ret->cuts, cut_tokens, marks.count * sizeof(cut_tokens[0]));
        ret->head = cuts && cuts->head > 0 && cuts->head <= marks.count ? cut_tokens[cuts->head - 1] : 0;
    }
    arena_rewind(scratch, mark);
    return ok;
}

bool prompt_encode(struct gen *g, struct arena *scratch, struct slice text, const struct chat_cuts *cuts,
                   bool special, uint32_t ids_max, struct prompt_ids *ret)
{
    return encode(g, scratch, text, cuts, special, true, ids_max, ret);
}

bool prompt_encode_plain(struct gen *g, struct arena *scratch, struct slice text, uint32_t ids_max,
                         struct prompt_ids *ret)
{
    return encode(g, scratch, text, NULL, false, false, ids_max, ret);
}

static bool take_ids(struct gen *g, const json_t *list, struct prompt_ids *ret)
{
    uint32_t vocab = g->model->shape->vocab;
    size_t count = json_array_size(list), i;
    const json_t *each;
    if (count > ids_max_of(g))
        return too_long(g, resolve_context(g->request, g->model));
    uint32_t *ids = request_memory_alloc(&g->memory, count * sizeof(*ids));
    if (!ids)
        return gen_refuse_memory(g);
    json_array_foreach(list, i, each) {
        if (json_integer_value(each) >= vocab) {
            request_memory_free(&g->memory, ids, count * sizeof(*ids));
            return reject_value(&g->reject, name_of(g),
                                "%s[%zu] is %lld; the model's largest token id is %u.", name_of(g), i,
                                (long long)json_integer_value(each), vocab - 1);
        }
        ids[i] = (uint32_t)json_integer_value(each);
    }
    *ret = (struct prompt_ids){.ids = ids, .count = (uint32_t)count};
    return true;
}

/* ---- truncation ---- */

/* Tokens to keep; UINT32_MAX: all. */
static uint32_t tokens_kept(const struct gen *g)
{
    const struct gen_request *r = g->request;
    uint32_t context = resolve_context(g->request, g->model);
    if (r->truncate > 0)
        return (uint32_t)MIN_OF(r->truncate, (int64_t)UINT32_MAX);
    if (r->truncate == 0)
        return UINT32_MAX;
    int64_t reply = r->output == GEN_TOKENS ? MAX_OF(r->sampling.max_tokens, (int64_t)1) : 0;
    return reply < context ? context - (uint32_t)reply : 1;
}

/* Cuts within the kept tokens. */
static void move_cuts(struct prompt_ids *p, uint32_t from, uint32_t count)
{
    ASSERT(p->cut_count <= COUNT_OF(p->cuts));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->cut_count; i++)
        if (p->cuts[i] > from && p->cuts[i] - from <= count)
            p->cuts[kept++] = p->cuts[i] - from;
    p->cut_count = kept;
    p->head = p->head > from && p->head - from <= count ? p->head - from : 0;
}

/* An encoder's text keeps the tokens around it, where there is room for them. */
static void tokens_around(const struct gen *g, bool special, uint32_t keep, uint32_t *before,
                          uint32_t *behind)
{
    *before = *behind = 0;
    if (special && g->model->shape->both_ways)
        tokenizer_around(g->model->tokenizer, before, behind);
    if (*before + *behind >= keep)
        *before = *behind = 0;
}

/* `special`: the tokenizer put tokens around the text. */
static bool truncate_ids(struct gen *g, bool special, struct prompt_ids *p)
{
    uint32_t keep = tokens_kept(g), before, behind;
    if (p->count <= keep)
        return true;
    bool right = g->request->truncates_right || (g->model->shape->both_ways && !g->request->truncates_left);
    uint32_t from = right ? 0 : p->count - keep;
    uint32_t *ids = request_memory_alloc(&g->memory, keep * sizeof(*ids));
    if (!ids)
        return gen_refuse_memory(g);
    tokens_around(g, special, keep, &before, &behind);
    ASSERT(before + behind <= keep);
    memcpy(ids, p->ids, before * sizeof(*ids));
    memcpy(ids + before, p->ids + from + before, (keep - before - behind) * sizeof(*ids));
    memcpy(ids + keep - behind, p->ids + p->count - behind, behind * sizeof(*ids));
    request_memory_free(&g->memory, p->ids, p->count * sizeof(*ids));
    p->ids = ids;
    p->count = keep;
    move_cuts(p, from, keep);
    return true;
}

/* Whether the request or the template switched reasoning off. The switch has two names. */
static bool is_off(const struct gen *g, struct slice rendered)
{
    const json_t *kwargs = g->request->template_kwargs;
    return json_is_false(json_object_get(kwargs, "enable_thinking")) ||
           json_is_false(json_object_get(kwargs, "thinking")) ||
           chat_syntax_prompt_reasoned(g->model->syntax, rendered);
}

static void note_reasoning(const struct gen *g, struct slice rendered, struct prompt_ids *ret)
{
    ret->in_reasoning = chat_syntax_prompt_reasons(g->model->syntax, rendered);
    ret->may_reason = !ret->in_reasoning && !is_off(g, rendered);
}

bool prompt_of_messages(struct gen *g, struct arena *scratch, uint32_t ids_max, bool cut,
                        struct prompt_ids *ret)
{
    ASSERT(g->request->messages);
    struct charge charge = request_memory_charge(&g->memory);
    struct chat_cuts cuts = {.count = 0};
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    bool ok =
        prompt_render(g, scratch, ids_max, &text, cut ? &cuts : NULL) &&
        media_request_text(g, &text, &cuts) &&
        prompt_encode(g, scratch, buf_slice(&text), &cuts, g->request->add_special_tokens > 0, ids_max, ret);
    if (ok)
        note_reasoning(g, buf_slice(&text), ret);
    buf_done(&text);
    return ok && media_request_ids(g, ids_max, ret);
}

static bool make_one(struct gen *g, struct arena *scratch, const json_t *prompt, struct prompt_ids *ret)
{
    if (json_is_array(prompt))
        return take_ids(g, prompt, ret);
    struct slice text = {json_string_value(prompt), json_string_length(prompt)};
    return prompt_encode(g, scratch, text, NULL, g->request->add_special_tokens != 0, ids_max_of(g), ret);
}

bool prompt_make(struct gen *g, struct arena *scratch)
{
    ASSERT(!g->prompts);
    const struct gen_request *r = g->request;
    uint32_t count = r->messages ? 1 : r->prompt_count;
    g->prompts = request_memory_alloc(&g->memory, count * sizeof(*g->prompts));
    if (!g->prompts)
        return gen_refuse_memory(g);
    g->prompt_count = count;
    if (r->messages && r->truncate && gen_media_count(r) > 0)
        return reject_unsupported(&g->reject, "truncate_prompt_tokens",
                                  "truncate_prompt_tokens is not supported for messages with images.");
    if (r->messages)
        return prompt_of_messages(g, scratch, ids_max_of(g), true, &g->prompts[0]) &&
               truncate_ids(g, false, &g->prompts[0]);
    bool several = json_is_array(r->prompt) && !json_is_integer(json_array_get(r->prompt, 0));
    for (uint32_t i = 0; i < count; i++) {
        const json_t *prompt = several ? json_array_get(r->prompt, i) : r->prompt;
        bool special = !json_is_array(prompt) && r->add_special_tokens != 0;
        if (!make_one(g, scratch, prompt, &g->prompts[i]) || !truncate_ids(g, special, &g->prompts[i]))
            return false;
    }
    return true;
}

static bool refuse_id(struct gen *g, uint32_t id)
{
    ASSERT(id >= g->model->shape->vocab);
    struct slice text = tokenizer_token_text(g->model->tokenizer, id);
    return reject_value(
        &g->reject, g->request->messages ? gen_messages_name(g->request) : name_of(g),
        "The text has the token \"%.*s\" of the tokenizer with the id %u, but the largest token "
        "id of the model \"%.100s\" is %u. Send the text without it.",
        SLICE_ARGS(slice_sub(text, 0, 80)), id, g->model->id, g->model->shape->vocab - 1);
}

bool prompt_check_ids(struct gen *g)
{
    const uint32_t vocab = g->model->shape->vocab;
    if (!g->model->tokenizer || tokenizer_vocab_size(g->model->tokenizer) <= vocab)
        return true;
    for (uint32_t i = 0; i < g->prompt_count; i++)
        for (uint32_t k = 0; k < g->prompts[i].count; k++)
            if (g->prompts[i].ids[k] >= vocab)
                return refuse_id(g, g->prompts[i].ids[k]);
    return true;
}
