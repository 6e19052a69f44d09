/* compaction.c - only the tokenized conversation shows whether it is long enough to be compacted. */
#include "gen/compaction.h"

#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/media_request.h"
#include "gen/prompt.h"
#include "gen/prompt_turns.h"
#include "gen/request_memory.h"
#include "gen/resolve.h"
#include "gen/thinking_budget.h"

#include "base/arena.h"
#include "base/check.h"
#include "registry/registry.h"

/* A summary has at least this part of the context, and no more than a default reserve gives it, or the oldest
 * turns leave. */
#define ROOM_PART 32
#define ROOM_MOST 1024

/* Half of the reply is left for the text. */
static bool limit_reasoning(struct gen *g, struct arena *scratch)
{
    struct gen_request *r = g->request;
    int64_t most = resolve_summary(r, g->model) / 2;
    if (r->thinking_budget >= 0 && r->thinking_budget <= most)
        return true;
    r->thinking_budget = most;
    bool ok = thinking_budget_make(g, scratch);
    r->budget_unused = false; /* the client named none */
    return ok;
}

/* The reply is the summary from here on, without the formats and stops of another reply. */
static bool turn_on(struct gen *g, struct arena *scratch)
{
    struct gen_request *r = g->request;
    ASSERT(r->compaction.ask);
    struct request_memory *before = request_memory_enter(&g->memory);
    json_t *message = json_pack("{sssO}", "role", "user", "content", r->compaction.ask);
    bool ok = json_array_append_new(r->messages, message) == 0;
    json_decref(r->grammar.value);
    r->grammar = (struct gen_grammar){0};
    request_memory_enter(before);
    r->continues = false;
    r->appends = true;
    r->stop_count = r->stop_id_count = 0;
    r->compaction.on = true;
    return ok ? limit_reasoning(g, scratch) : gen_refuse_memory(g);
}

static bool make(struct gen *g, struct arena *scratch)
{
    size_t mark = arena_mark(scratch);
    bool ok = prompt_make(g, scratch);
    arena_rewind(scratch, mark);
    return ok;
}

/* Frees the prompt, or the error that it was too long. False: another error. */
static bool make_way(struct gen *g)
{
    ASSERT(!g->choices);
    if (g->reject.kind && g->reject.kind != REJECT_CONTEXT_LENGTH)
        return false;
    g->reject = (struct reject){0};
    for (uint32_t i = 0; i < g->prompt_count; i++)
        request_memory_free(&g->memory, g->prompts[i].ids, g->prompts[i].count * sizeof(uint32_t));
    media_request_drop(g);
    request_memory_free(&g->memory, g->prompts, g->prompt_count * sizeof(*g->prompts));
    g->prompts = NULL;
    g->prompt_count = 0;
    return true;
}

static bool has_room(const struct gen *g)
{
    ASSERT(g->prompt_count > 0);
    uint32_t context = resolve_context(g->request, g->model);
    return g->prompts[0].count + MIN_OF(context / ROOM_PART, (uint32_t)ROOM_MOST) < context;
}

bool compaction_make(struct gen *g, struct arena *scratch)
{
    const struct gen_request *r = g->request;
    ASSERT(r->compaction.ask);
    if (r->compaction.at > 0) {
        bool ok = make(g, scratch);
        if (ok && g->prompts[0].count < r->compaction.at && has_room(g))
            return true;
        if (!make_way(g))
            return false;
    }
    if (!turn_on(g, scratch))
        return false;
    bool ok = make(g, scratch), drops = gen_media_count(r) == 0;
    if ((ok && has_room(g)) || !drops)
        return ok;
    return make_way(g) && prompt_turns_make(g, scratch);
}
