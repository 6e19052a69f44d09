/* grammar_request.c - from the request's description of a grammar to an entry of the model's cache.
 *
 * The work of compiling is charged to the request; the grammar itself to the cache. */
#include "gen/grammar_request.h"

#include "gen/reply_frame.h"
#include "gen/tool_request.h"
#include "grammar/grammar_cache.h"
#include "text/chat_format.h"

#include <errno.h>

static bool check_model(struct gen *g)
{
    const struct served_model *m = g->model;
    const char *param = g->request->grammar.param;
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

static bool refuse(struct gen *g, int r, const struct err *e)
{
    const char *param = g->request->grammar.param;
    switch (r) {
    case -EINVAL:
    case -E2BIG:
        return reject_value(&g->reject, param, "%s: %s.", param, e->text);
    case -ENOTSUP:
        return reject_unsupported(&g->reject, param, "%s: %s.", param, e->text);
    case -ECANCELED:
    case -ETIME:
        return reject_unwanted(&g->reject, r);
    default:
        g->reject.retry_after_s = 1;
        return reject_set(&g->reject, REJECT_BUSY, param, "%s: %s. Try again later.", param, e->text);
    }
}

/* The source as text: schemas and lists as JSON. */
static void write_source(const struct gen_grammar *want, struct buf *ret)
{
    if (json_is_string(want->value) && want->kind != GRAMMAR_JSON_SCHEMA)
        buf_put(ret, json_string_value(want->value), json_string_length(want->value));
    else if (want->value)
        json_write_value(ret, want->value);
}

/* Replies of a chat have one; completions are the grammar's text alone. */
static bool make_frame(struct gen *g, struct grammar_frame *ret)
{
    *ret = (struct grammar_frame){.count = 0};
    if (g->request->parses)
        reply_frame_make(g->model->syntax, &g->prompts[0], ret);
    return !ret->full || reject_unsupported(&g->reject, g->request->grammar.param,
                                            "%s: the markers of the model's chat format are too long for "
                                            "constrained decoding.",
                                            g->request->grammar.param);
}

static int compile_source(struct gen *g, const struct grammar_source *source, struct err *e)
{
    struct charge work = request_memory_charge(&g->memory);
    const struct grammar_source_opts opts = {.wanted = &g->wanted, .work = &work};
    struct request_memory *before = request_memory_enter(&g->memory);
    int r = grammar_cache_get(g->model->grammars, source, &opts, &g->grammar, e);
    request_memory_enter(before);
    return r;
}

static bool compile(struct gen *g, struct slice text)
{
    struct grammar_frame frame;
    struct err e = {0};
    if (!make_frame(g, &frame))
        return false;
    const struct grammar_source source = {.kind = g->request->grammar.kind, .text = text, .frame = &frame};
    int r = compile_source(g, &source, &e);
    if (r < 0 && g->memory.refused)
        return gen_refuse_memory(g);
    return r == 0 || refuse(g, r, &e);
}

/* Text and calls. A reply that may be any text gets no grammar when the cache has no room. */
static bool begin_calls(struct gen *g, enum tool_request want)
{
    struct charge charge = request_memory_charge(&g->memory);
    struct buf text;
    struct err e = {0};
    if (want == TOOL_REQUEST_MUST && !check_model(g))
        return false;
    buf_init(&text, SIZE_MAX / 4, &charge);
    tool_request_write(g, &text);
    const struct grammar_source source = {.kind = GRAMMAR_TOOLS, .text = buf_slice(&text)};
    int r = text.error ? -ENOMEM : compile_source(g, &source, &e);
    buf_done(&text);
    if (r < 0 && g->memory.refused)
        return gen_refuse_memory(g);
    bool may = want == TOOL_REQUEST_MAY && r != -ECANCELED && r != -ETIME;
    return r == 0 || may || refuse(g, r, &e);
}

bool grammar_request_begin(struct gen *g)
{
    const struct gen_grammar *want = &g->request->grammar;
    struct charge charge = request_memory_charge(&g->memory);
    struct buf text;
    enum tool_request calls = tool_request_of(g);
    if (calls == TOOL_REQUEST_REFUSED)
        return false;
    if (calls != TOOL_REQUEST_NONE)
        return begin_calls(g, calls);
    if (!want->param)
        return true;
    if (!check_model(g))
        return false;
    buf_init(&text, SIZE_MAX / 4, &charge);
    write_source(want, &text);
    bool ok = text.error ? gen_refuse_memory(g) : compile(g, buf_slice(&text));
    buf_done(&text);
    return ok;
}

void grammar_request_done(struct gen *g)
{
    if (g->grammar)
        grammar_cache_put(g->model->grammars, g->grammar);
    g->grammar = NULL;
}
