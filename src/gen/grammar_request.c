/* grammar_request.c - from the request's description of a grammar to an entry of the model's cache.
 *
 * The work of compiling is charged to the request; the grammar itself to the cache. */
#include "gen/grammar_request.h"

#include "gen/gen_request.h"
#include "gen/json_depth.h"
#include "gen/reply_frame.h"
#include "gen/tool_request.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_write.h"
#include "constraint/grammar_cache.h"
#include "constraint/grammar_source.h"
#include "constraint/structural.h"
#include "grammar/grammar_frame.h"
#include "model/model.h"
#include "registry/registry.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>

static bool check_model(struct gen *g)
{
    const struct served_model *m = g->model;
    const char *param = g->request->grammar.param;
    ASSERT(param);
    if (!m->tokenizer)
        return reject_unsupported(&g->reject, param,
                                  "%s: the model \"%.100s\" has no tokenizer, so its output cannot be "
                                  "constrained.",
                                  param, m->id);
    if (!m->grammars)
        return reject_unsupported(&g->reject, param,
                                  "%s: the model \"%.100s\" was loaded without constrained decoding. Set "
                                  "--grammar-cache above 0; if it is, the server's log has the reason.",
                                  param, m->id);
    if (g->request->continues)
        return reject_unsupported(&g->reject, param,
                                  "%s: an output that continues the last message cannot be constrained; let "
                                  "the conversation end with a user's message.",
                                  param);
    if (m->defaults.eos_count == 0)
        return reject_unsupported(&g->reject, param,
                                  "%s: the model \"%.100s\" has no end token, so an output could not end "
                                  "where its grammar ends.",
                                  param, m->id);
    return true;
}

#define RETRY_NS   (200 * NS_PER_MS)
#define TOOL_DEPTH 8   /* nesting around schemas of tools */
#define JSON_DEPTH 200 /* nesting of a schema that is sent as text; a schema in a body has the body's limit */

static enum prepare no_room(struct gen *g, const struct err *e)
{
    const char *param = g->request->grammar.param;
    uint64_t now_ns = clock_now_ns();
    if (g->grammar_since_ns == 0)
        g->grammar_since_ns = now_ns;
    g->grammar_retry_ns = now_ns + RETRY_NS;
    if (now_ns < g->grammar_since_ns + GRAMMAR_WAIT_S * NS_PER_S)
        return PREPARE_WAITS;
    g->reject.retry_after_s = 5;
    reject_set(&g->reject, REJECT_BUSY, param,
               "%s: %s, and has not been for %d s. Try again later, or raise --grammar-cache.", param,
               e->text, GRAMMAR_WAIT_S);
    return PREPARE_REFUSED;
}

static enum prepare refuse(struct gen *g, int r, const struct err *e)
{
    const char *param = g->request->grammar.param;
    ASSERT(r < 0);
    switch (r) {
    case -EINVAL:
    case -E2BIG:
        reject_value(&g->reject, param, "%s: %s.", param, e->text);
        break;
    case -ENOTSUP:
        reject_unsupported(&g->reject, param, "%s: %s.", param, e->text);
        break;
    case -ECANCELED:
    case -ETIME:
        reject_unwanted(&g->reject, r);
        break;
    default:
        return no_room(g, e);
    }
    return PREPARE_REFUSED;
}

/* The source as text: schemas and lists as JSON. A string is the source itself. */
static void write_source(const struct gen_grammar *want, struct buf *ret)
{
    if (json_is_string(want->value))
        buf_put(ret, json_string_value(want->value), json_string_length(want->value));
    else if (want->value)
        json_write_value(ret, want->value);
}

/* Replies of a chat have one; completions are the grammar's text alone. */
static void make_frame(const struct gen *g, struct grammar_frame *ret)
{
    *ret = (struct grammar_frame){.count = 0};
    ASSERT(g->prompt_count > 0);
    if (g->request->parses)
        reply_frame_make(g->model->syntax, &g->prompts[0], ret);
}

static struct grammar_scope scope_of(const struct gen *g)
{
    return (struct grammar_scope){g->tenant, slice_of(g->request->cache_salt)};
}

static int compile_source(struct gen *g, const struct grammar_source *source, struct err *e)
{
    ASSERT(!g->grammar);
    struct charge work = request_memory_charge(&g->memory);
    const struct grammar_source_opts opts = {.wanted = &g->wanted, .work = &work};
    struct request_memory *before = request_memory_enter(&g->memory);
    int r = grammar_cache_get(g->model->grammars, source, &opts, &g->grammar, e);
    request_memory_enter(before);
    return r;
}

static enum prepare refuse_memory(struct gen *g)
{
    gen_refuse_memory(g);
    return PREPARE_REFUSED;
}

#define TOKEN_BYTES_MIN 3 /* a letter or a line end may be an added token as well: it is text */

/* An added token of the model that a structural tag has in a text. An end token is none: it ends the
 * output. */
static size_t find_token(void *model, struct slice text, uint32_t *id)
{
    const struct served_model *m = model;
    size_t len = tokenizer_added_at(m->tokenizer, text, id);
    ASSERT(len <= text.len);
    bool blank = true;
    if (len > 0 && *id >= m->shape->vocab)
        return 0;
    for (size_t i = 0; i < len; i++)
        blank = blank && (text.ptr[i] == ' ' || text.ptr[i] == '\n' || text.ptr[i] == '\t');
    for (uint32_t i = 0; i < m->defaults.eos_count; i++)
        blank = blank || m->defaults.eos_ids[i] == *id;
    return blank || len < TOKEN_BYTES_MIN ? 0 : len;
}

static bool is_json(enum grammar_kind kind)
{
    return kind == GRAMMAR_JSON_SCHEMA || kind == GRAMMAR_STRUCTURAL;
}

static enum prepare compile(struct gen *g, struct slice text)
{
    struct grammar_frame frame;
    struct err e = {0};
    make_frame(g, &frame);
    const struct structural_tokens tokens = {find_token, (void *)g->model};
    const struct grammar_source source = {g->request->grammar.kind, text, &frame, &tokens, scope_of(g)};
    if (frame.full)
        return refuse(g, err_set(&e, -ENOTSUP, "the markers of the model's chat format are too long"), &e);
    if (is_json(source.kind) && !json_depth_within(text, JSON_DEPTH))
        return refuse(g,
                      err_set(&e, -E2BIG, "the %s is nested deeper than %d levels",
                              grammar_kind_name(source.kind), JSON_DEPTH),
                      &e);
    int r = compile_source(g, &source, &e);
    if (r == 0)
        return PREPARE_DONE;
    return g->memory.refused ? refuse_memory(g) : refuse(g, r, &e);
}

static int compile_calls(struct gen *g, struct slice text, struct err *e)
{
    const struct grammar_source source = {GRAMMAR_TOOLS, text, .scope = scope_of(g)};
    if (!json_depth_within(text, JSON_DEPTH + TOOL_DEPTH))
        return err_set(e, -E2BIG, "a schema is nested deeper than %d levels", JSON_DEPTH);
    return compile_source(g, &source, e);
}

/* Text and calls. A reply that may be any text gets no grammar when the cache has no room. */
static enum prepare begin_calls(struct gen *g, enum tool_request want)
{
    struct charge charge = request_memory_charge(&g->memory);
    struct buf text;
    struct err e = {0};
    ASSERT(want == TOOL_REQUEST_MAY || want == TOOL_REQUEST_MUST);
    if (want == TOOL_REQUEST_MUST && !check_model(g))
        return PREPARE_REFUSED;
    buf_init(&text, SIZE_MAX / 4, &charge);
    tool_request_write(g, &text);
    int r = text.error ? -ENOMEM : compile_calls(g, buf_slice(&text), &e);
    buf_done(&text);
    if (r < 0 && g->memory.refused)
        return refuse_memory(g);
    bool may = want == TOOL_REQUEST_MAY && r != -ECANCELED && r != -ETIME;
    return r == 0 || may ? PREPARE_DONE : refuse(g, r, &e);
}

enum prepare grammar_request_begin(struct gen *g)
{
    const struct gen_grammar *want = &g->request->grammar;
    struct charge charge = request_memory_charge(&g->memory);
    enum prepare r = PREPARE_REFUSED;
    struct buf text;
    ASSERT(!g->grammar);
    enum tool_request calls = tool_request_of(g);
    if (calls == TOOL_REQUEST_REFUSED)
        return PREPARE_REFUSED;
    if (calls != TOOL_REQUEST_NONE)
        return begin_calls(g, calls);
    if (!want->param)
        return PREPARE_DONE;
    if (!check_model(g))
        return PREPARE_REFUSED;
    buf_init(&text, SIZE_MAX / 4, &charge);
    struct wide_integers *before = wide_integers_enter(&g->memory.wide);
    write_source(want, &text);
    wide_integers_enter(before);
    if (text.error)
        refuse_memory(g);
    else
        r = compile(g, buf_slice(&text));
    buf_done(&text);
    return r;
}

void grammar_request_done(struct gen *g)
{
    if (g->grammar)
        grammar_cache_put(g->model->grammars, g->grammar);
    g->grammar = NULL;
}
