/* tool_request.c - tools whose calls are neither required nor strict get a grammar where nothing speaks
 * against it; it costs a mask for each token, and keeps calls parseable. */
#include "gen/tool_request.h"

#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/reject.h"

#include "base/wide_integer.h"
#include "chat/chat_syntax.h"
#include "chat/tool_source.h"
#include "constraint/grammar_source.h"
#include "registry/registry.h"

static bool has_strict(const struct gen_request *r)
{
    const char *name;
    json_t *must;
    json_object_foreach(r->calls.strict, name, must)
        if (json_is_true(must) && (!r->calls.names || json_object_get(r->calls.names, name)))
            return true;
    return false;
}

static bool has_format(const struct gen_request *r)
{
    return r->grammar.param && r->grammar.kind != GRAMMAR_TOOLS;
}

/* The format of the reply's text that a grammar with calls can have, too. */
static bool takes_format(const struct gen *g)
{
    const struct gen_grammar *want = &g->request->grammar;
    return (want->kind == GRAMMAR_JSON_OBJECT || want->kind == GRAMMAR_JSON_SCHEMA) &&
           tool_source_takes_schema(g->model->syntax);
}

static bool can_constrain(const struct gen *g)
{
    const struct served_model *m = g->model;
    return m->tokenizer && m->grammars && m->defaults.eos_count > 0 && tool_source_supports(m->syntax) &&
           !g->request->continues && !g->request->allowed_ids;
}

static enum tool_request required(struct gen *g)
{
    struct gen_request *r = g->request;
    if (has_format(r) && r->grammar.kind == GRAMMAR_STRUCTURAL) {
        reject_unsupported(&g->reject, r->grammar.param,
                           "%s: a structural tag says where calls stand, so tool_choice must be \"auto\" or "
                           "\"none\" beside it.",
                           r->grammar.param);
        return TOOL_REQUEST_REFUSED;
    }
    r->grammar.param = "tool_choice"; /* calls have no format of another text */
    r->grammar.kind = GRAMMAR_TOOLS;
    if (r->allowed_ids)
        reject_unsupported(&g->reject, "tool_choice",
                           "allowed_token_ids and a tool_choice that requires a call exclude each other.");
    else if (!tool_source_supports(g->model->syntax))
        reject_unsupported(&g->reject, "tool_choice",
                           "tool_choice requires a call, but the chat format of the model \"%.100s\" has "
                           "none (tool_format \"%.40s\"). --tool-format names another one.",
                           g->model->id, g->model->syntax->tool_format);
    else
        return TOOL_REQUEST_MUST;
    return TOOL_REQUEST_REFUSED;
}

enum tool_request tool_request_of(struct gen *g)
{
    struct gen_request *r = g->request;
    if (!r->tools || r->compaction.on || !r->parses || r->output != GEN_TOKENS || r->prompt_only)
        return TOOL_REQUEST_NONE;
    if (r->calls.required)
        return required(g);
    bool strict = has_strict(r), format = has_format(r);
    if (!can_constrain(g) || (format && !takes_format(g)) || (r->ignore_eos && !strict && !format)) {
        r->calls.strict_unused = strict;
        return TOOL_REQUEST_NONE;
    }
    if (!strict && !format)
        return TOOL_REQUEST_MAY;
    if (!format)
        r->grammar = (struct gen_grammar){.param = "tools", .kind = GRAMMAR_TOOLS};
    return TOOL_REQUEST_MUST;
}

void tool_request_write(struct gen *g, struct buf *ret)
{
    const struct gen_request *r = g->request;
    bool schema = has_format(r) && r->grammar.kind == GRAMMAR_JSON_SCHEMA;
    const struct tool_source_opts opts = {.syntax = g->model->syntax,
                                          .tools = r->tools,
                                          .names = r->calls.names,
                                          .strict = r->calls.strict,
                                          .larks = r->calls.larks,
                                          .schema = schema ? r->grammar.value : NULL,
                                          .object = has_format(r),
                                          .required = r->calls.required,
                                          .parallel = gen_repeats_calls(r),
                                          .in_reasoning = g->prompts[0].in_reasoning,
                                          .by_token = true};
    struct wide_integers *before = wide_integers_enter(&g->memory.wide);
    tool_source_write(&opts, ret);
    wide_integers_enter(before);
}
