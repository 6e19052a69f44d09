/* prompt_turns.c - the oldest turns of a conversation leave until its prompt fits.
 *
 * A turn is a user message and all that follows up to the next one, so a call stays with its result. Messages
 * of the system before the first turn stay, and so does the last turn. The fewest turns leave: a bisection
 * renders the conversation once for each bit of their number. */
#include "gen/prompt_turns.h"

#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/prompt.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "gen/resolve.h"

#include "base/arena.h"
#include "base/check.h"
#include "registry/registry.h"

#include <jansson.h>
#include <string.h>

#define REPLY_PART 8 /* the context divided by this is kept for a reply without max_tokens */

static bool is_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* Messages that come before the first turn. */
static size_t count_head(const json_t *all)
{
    size_t head = 0;
    while (head < json_array_size(all) && is_role(json_array_get(all, head), "system"))
        head++;
    return head;
}

static bool begins_turn(const json_t *all, size_t at)
{
    return is_role(json_array_get(all, at), "user");
}

/* Where a turn begins after which `keeps` further turns begin. */
static size_t start_of(const json_t *all, size_t keeps)
{
    size_t at = json_array_size(all);
    for (size_t seen = 0; at > 0; at--)
        if (begins_turn(all, at - 1) && seen++ == keeps)
            return at - 1;
    return at;
}

static size_t count_turns(const json_t *all)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(all); i++)
        count += begins_turn(all, i);
    return count;
}

/* The request's messages become the head and the last `turns` turns of `all`; with all turns, all of it. */
static bool keep_turns(struct gen *g, json_t *all, size_t turns, size_t turns_all)
{
    json_t *kept = g->request->messages;
    size_t head = count_head(all), from = turns == turns_all ? head : start_of(all, turns - 1);
    ASSERT(from >= head);
    struct request_memory *before = request_memory_enter(&g->memory);
    bool ok = json_array_clear(kept) == 0;
    for (size_t i = 0; ok && i < json_array_size(all); i++)
        if (i < head || i >= from)
            ok = json_array_append(kept, json_array_get(all, i)) == 0;
    request_memory_enter(before);
    g->request->dropped = (uint32_t)(from - head);
    return ok || gen_refuse_memory(g);
}

/* Tokens of the prompt that leave room for the reply. */
static uint32_t prompt_max(const struct gen *g, uint32_t ids_max)
{
    uint32_t context = resolve_context(g->request, g->model);
    int64_t reply = g->request->sampling.max_tokens;
    uint32_t room = reply > 0 ? (uint32_t)MIN_OF(reply, (int64_t)context / 2) : context / REPLY_PART;
    return MIN_OF(context - MAX_OF(room, 1u), ids_max);
}

static void drop_ids(struct gen *g, struct prompt_ids *ids)
{
    request_memory_free(&g->memory, ids->ids, ids->count * sizeof(*ids->ids));
    *ids = (struct prompt_ids){0};
}

/* False with `*ret` empty and without a reject: the prompt is too long. */
static bool fits(struct gen *g, struct arena *scratch, uint32_t ids_max, struct prompt_ids *ret)
{
    size_t mark = arena_mark(scratch);
    *ret = (struct prompt_ids){0};
    bool ok = prompt_of_messages(g, scratch, ids_max, true, ret) && ret->count <= ids_max;
    arena_rewind(scratch, mark);
    if (ok)
        return true;
    if (g->reject.kind == REJECT_CONTEXT_LENGTH)
        g->reject = (struct reject){0};
    drop_ids(g, ret);
    return false;
}

/* The most turns that fit, fewer than all, with their prompt; 0: not even one does. */
static size_t bisect(struct gen *g, struct arena *scratch, json_t *all, uint32_t ids_max,
                     struct prompt_ids *ret)
{
    size_t turns = count_turns(all), good = 0, bad = turns;
    while (bad - good > 1) {
        size_t middle = good + (bad - good) / 2;
        struct prompt_ids ids;
        if (!keep_turns(g, all, middle, turns))
            return 0;
        if (fits(g, scratch, ids_max, &ids)) {
            drop_ids(g, ret);
            *ret = ids;
            good = middle;
        } else if (g->reject.kind) {
            return 0;
        } else {
            bad = middle;
        }
    }
    return good;
}

static bool shorten(struct gen *g, struct arena *scratch, json_t *all, uint32_t ids_max, uint32_t most,
                    struct prompt_ids *ret)
{
    size_t turns = count_turns(all), good = bisect(g, scratch, all, most, ret);
    if (g->reject.kind)
        return false;
    /* One turn that fits the context but not with the room for a reply is still tried. */
    if (good == 0)
        return keep_turns(g, all, MIN_OF(turns, (size_t)1), turns) &&
               prompt_of_messages(g, scratch, ids_max, true, ret);
    return keep_turns(g, all, good, turns);
}

static bool make(struct gen *g, struct arena *scratch, struct prompt_ids *ret)
{
    uint32_t context = resolve_context(g->request, g->model), most = prompt_max(g, context);
    if (fits(g, scratch, most, ret))
        return true;
    if (g->reject.kind)
        return false;
    struct request_memory *before = request_memory_enter(&g->memory);
    json_t *all = json_copy(g->request->messages);
    request_memory_enter(before);
    if (!all)
        return gen_refuse_memory(g);
    bool ok = shorten(g, scratch, all, context, most, ret);
    json_decref(all);
    if (!ok)
        drop_ids(g, ret);
    return ok;
}

bool prompt_turns_make(struct gen *g, struct arena *scratch)
{
    ASSERT(!g->prompts);
    g->prompts = request_memory_alloc(&g->memory, sizeof(*g->prompts));
    if (!g->prompts)
        return gen_refuse_memory(g);
    g->prompt_count = 1;
    return make(g, scratch, &g->prompts[0]);
}
