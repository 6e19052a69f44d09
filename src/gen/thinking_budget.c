/* thinking_budget.c - markers as token ids. A marker with blanks around it is matched without them: templates
 * write them, models need not. */
#include "gen/thinking_budget.h"

#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/prompt.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "gen/resolve.h"

#include "base/check.h"
#include "chat/chat_syntax.h"
#include "model/model.h"
#include "registry/registry.h"

static struct slice marker_of(const struct gen *g, enum chat_marker m)
{
    const struct chat_syntax *s = g->model->syntax;
    return s && s->marker[m] ? slice_trim(slice_of(s->marker[m]), SLICE_BLANKS) : (struct slice){0};
}

/* The model can write the marker. */
static bool is_written(const struct gen *g, const struct prompt_ids *marker)
{
    for (uint32_t i = 0; i < marker->count; i++)
        if (marker->ids[i] >= g->model->shape->vocab)
            return false;
    return true;
}

/* `*count` stays 0 where the format has no such marker, a long one, or one with tokens that the model
 * lacks. */
static bool read_marker(struct gen *g, struct arena *scratch, enum chat_marker m, uint32_t *ids,
                        uint32_t *count)
{
    struct prompt_ids marker = {0};
    struct slice text = marker_of(g, m);
    if (text.len == 0)
        return true;
    if (!prompt_encode(g, scratch, text, NULL, false, JOB_MARKER_MAX, &marker)) {
        bool is_long = g->reject.kind == REJECT_CONTEXT_LENGTH;
        if (is_long)
            g->reject = (struct reject){0};
        return is_long;
    }
    ASSERT(marker.count <= JOB_MARKER_MAX);
    memcpy(ids, marker.ids, marker.count * sizeof(*ids));
    *count = is_written(g, &marker) ? marker.count : 0;
    request_memory_free(&g->memory, marker.ids, marker.count * sizeof(*marker.ids));
    return true;
}

bool thinking_budget_make(struct gen *g, struct arena *scratch)
{
    struct gen_request *r = g->request;
    struct job_thinking *t = &g->thinking;
    bool has_budget = r->thinking_budget >= 0;
    if (!has_budget && !resolve_repetition(r, g->model).ends_reasoning)
        return true;
    if (r->parses && r->output == GEN_TOKENS && g->model->tokenizer &&
        !(read_marker(g, scratch, CHAT_REASONING_OPEN, t->open, &t->open_count) &&
          read_marker(g, scratch, CHAT_REASONING_CLOSE, t->close, &t->close_count)))
        return false;
    t->budget = has_budget ? (uint32_t)MIN_OF(r->thinking_budget, (int64_t)UINT32_MAX) : UINT32_MAX;
    r->budget_unused = has_budget && t->close_count == 0;
    return true;
}
