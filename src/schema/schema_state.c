/* schema_state.c - what a keyword adds to a state: literals, choices, refusals. */
#include "schema/schema_state.h"

#include "base/check.h"

void schema_state_add(struct schema_work *w, struct schema_state *st, lit_id lit)
{
    ASSERT(st->first <= st->count && st->count <= st->capacity);
    if (st->count == st->capacity) {
        uint32_t capacity = st->capacity ? st->capacity * 2 : 8;
        struct schema_chain *more = schema_take(w, capacity * sizeof(*more));
        if (!more)
            return;
        if (st->count)
            memcpy(more, st->todo, st->count * sizeof(*more));
        st->todo = more;
        st->capacity = capacity;
    }
    st->todo[st->count++] = (struct schema_chain){lit, st->now};
}

/* ---- choices ---- */

struct schema_choice *schema_choose(struct schema_work *w, struct schema_state *st, uint32_t node,
                                    const char *key, uint32_t count)
{
    struct schema_open_choice *c = schema_take(w, sizeof(*c));
    struct schema_option *options = schema_take(w, (count + 1u) * sizeof(*options));
    if (!c || !options)
        return NULL;
    *c = (struct schema_open_choice){
        {.capacity = count, .options = options, .key = key, .node = node}, st->now, st->choices};
    st->choices = c;
    return &c->choice;
}

struct schema_option *schema_option_add(struct schema_choice *c)
{
    ASSERT(c->count < c->capacity);
    return &c->options[c->count++];
}

void schema_refuse(struct schema_work *w, struct schema_state *st, uint32_t types, uint32_t node,
                   const char *key, const char *why)
{
    ASSERT(node < w->node_count);
    struct schema_refusal *r = schema_take(w, sizeof(*r));
    if (!r)
        return;
    *r = (struct schema_refusal){types, node, key, why, st->way.refusals};
    st->way.refusals = r;
}
