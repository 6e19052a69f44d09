/* prefix_events.c - a mark for each node that was announced.
 *
 * `epoch` counts the losses. The mark is the epoch of the announcement, so that a loss unmarks all nodes. */
#include "cache/prefix_events.h"

#include "cache/prefix_key.h"
#include "cache/prefix_state.h"

#include "base/check.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* Nodes that one call of prefix_events_tend() looks at, and chains that it announces. */
#define LOOKS  4096
#define CHAINS 16

struct event_node {
    uint32_t tokens[PAGE_TOKENS];
    uint32_t told;     /* == epoch: announced */
    uint32_t children; /* its children that are announced */
    uint32_t below;    /* while a chain is announced: the node after it */
    bool open;         /* events may name it, and all nodes before it */
};

struct prefix_events {
    struct prefix_events_opts opts;
    struct event_node *nodes; /* [nodes_max] */
    uint32_t epoch;           /* >= 1 */
    uint32_t at;              /* the next node to look at; nodes_max: none is due */
    bool lost;                /* PREFIX_CLEARED is due before anything else */
};

uint64_t prefix_event_hash(const struct prefix_key *key)
{
    uint64_t last;
    memcpy(&last, key->bytes + sizeof(key->bytes) - sizeof(last), sizeof(last));
    return last ? be64toh(last) : 1;
}

size_t prefix_events_arena_bytes(uint32_t pages_max)
{
    return sizeof(struct prefix_events) + (size_t)pages_max * sizeof(struct event_node) + 2 * (size_t)64;
}

int prefix_events_open(struct arena *a, struct prefix_index *ix, const struct prefix_events_opts *opts)
{
    ASSERT(opts->put && !ix->events && ix->numbers.nodes == 0);
    struct prefix_events *ev = ARENA_NEW(a, struct prefix_events);
    if (!ev)
        return -ENOMEM;
    *ev = (struct prefix_events){.opts = *opts, .epoch = 1, .at = ix->nodes_max};
    ev->nodes = ARENA_ARRAY(a, struct event_node, ix->nodes_max);
    if (!ev->nodes)
        return -ENOMEM;
    ix->events = ev;
    return 0;
}

static bool is_told(const struct prefix_events *ev, uint32_t node)
{
    return node != NONE && ev->nodes[node].told == ev->epoch;
}

/* Unmarks all nodes. */
static void begin_again(struct prefix_index *ix, bool lost)
{
    struct prefix_events *ev = ix->events;
    ASSERT(ev->epoch < UINT32_MAX);
    ev->epoch++;
    ev->at = 0;
    ev->lost |= lost;
}

static uint64_t hash_of(const struct prefix_index *ix, uint32_t node)
{
    ASSERT(node == NONE || ix->nodes[node].depth > 0);
    return node == NONE ? 0 : prefix_event_hash(&ix->nodes[node].key);
}

static bool tell(struct prefix_index *ix, uint32_t node)
{
    struct event_node *n = &ix->events->nodes[node];
    uint32_t parent = ix->nodes[node].parent;
    struct prefix_event e = {PREFIX_STORED, hash_of(ix, node), hash_of(ix, parent), {0}};
    ASSERT(n->open && (parent == NONE || is_told(ix->events, parent)));
    memcpy(e.tokens, n->tokens, sizeof(e.tokens));
    if (!ix->events->opts.put(ix->events->opts.arg, &e))
        return false;
    n->told = ix->events->epoch;
    n->children = 0;
    if (parent != NONE)
        ix->events->nodes[parent].children++;
    return true;
}

/* Announces the chain up to the node, the first one first, as far as there is room; the others are due. */
static void tell_chain(struct prefix_index *ix, uint32_t node)
{
    struct prefix_events *ev = ix->events;
    uint32_t below = NONE;
    ASSERT(ev->nodes[node].open && !ev->lost);
    for (uint32_t at = node; at != NONE && !is_told(ev, at); at = ix->nodes[at].parent) {
        ev->nodes[at].below = below;
        below = at;
    }
    while (below != NONE && tell(ix, below))
        below = ev->nodes[below].below;
    if (below != NONE)
        ev->at = 0;
}

void prefix_events_added(struct prefix_index *ix, uint32_t node, const uint32_t *tokens)
{
    struct prefix_events *ev = ix->events;
    if (!ev)
        return;
    struct event_node *n = &ev->nodes[node];
    uint32_t parent = ix->nodes[node].parent;
    ASSERT(ix->nodes[node].child == NONE && !is_told(ev, node));
    *n = (struct event_node){.open = tokens && (parent == NONE || ev->nodes[parent].open)};
    if (!n->open)
        return;
    memcpy(n->tokens, tokens, sizeof(n->tokens));
    prefix_events_usable(ix, node);
}

void prefix_events_usable(struct prefix_index *ix, uint32_t node)
{
    struct prefix_events *ev = ix->events;
    if (ev && !ev->lost && ev->nodes[node].open && prefix_state_has_state(ix, node))
        tell_chain(ix, node);
}

static bool take_back(struct prefix_index *ix, uint32_t node)
{
    struct prefix_events *ev = ix->events;
    uint32_t parent = ix->nodes[node].parent;
    ASSERT(ev->nodes[node].children == 0);
    if (!ev->opts.put(ev->opts.arg, &(struct prefix_event){PREFIX_REMOVED, hash_of(ix, node), 0, {0}})) {
        begin_again(ix, true);
        return false;
    }
    ev->nodes[node].told = 0;
    if (parent != NONE) {
        ASSERT(ev->nodes[parent].children > 0);
        ev->nodes[parent].children--;
    }
    return true;
}

void prefix_events_shortened(struct prefix_index *ix, uint32_t node, bool leaves)
{
    struct prefix_events *ev = ix->events;
    if (!ev)
        return;
    if (leaves && is_told(ev, node)) {
        if (!take_back(ix, node))
            return;
        node = ix->nodes[node].parent;
    }
    /* A chain may be announced in pieces, and its last node not yet. */
    while (ev->at < ix->nodes_max && node != NONE && !is_told(ev, node) && !prefix_state_has_state(ix, node))
        node = ix->nodes[node].parent;
    while (is_told(ev, node) && ev->nodes[node].children == 0 && !prefix_state_has_state(ix, node)) {
        if (!take_back(ix, node))
            return;
        node = ix->nodes[node].parent;
    }
}

bool prefix_events_tend(struct prefix_index *ix)
{
    struct prefix_events *ev = ix->events;
    if (!ev)
        return false;
    if (ev->opts.wants_all && ev->opts.wants_all(ev->opts.arg))
        begin_again(ix, false);
    if (ev->lost) {
        if (!ev->opts.put(ev->opts.arg, &(struct prefix_event){.kind = PREFIX_CLEARED}))
            return true;
        ev->lost = false;
    }
    uint32_t chains = CHAINS;
    ASSERT(ev->at <= ix->nodes_max);
    for (uint32_t looks = LOOKS; looks > 0 && chains > 0 && ev->at < ix->nodes_max; looks--) {
        uint32_t node = ev->at++;
        bool due = ix->nodes[node].depth > 0 && ev->nodes[node].open && prefix_state_has_state(ix, node);
        if (!due || is_told(ev, node))
            continue;
        tell_chain(ix, node);
        if (!is_told(ev, node))
            return true;
        chains--;
    }
    return ev->at < ix->nodes_max;
}

void prefix_events_check(const struct prefix_index *ix, uint32_t node)
{
    const struct prefix_events *ev = ix->events;
    if (!ev || !is_told(ev, node))
        return;
    uint32_t parent = ix->nodes[node].parent, children = 0;
    ASSERT_OF(ev->nodes[node].open, "prefix node %u: told, and not open", node);
    ASSERT_OF(parent == NONE || is_told(ev, parent), "prefix node %u: told before node %u", node, parent);
    for (uint32_t c = ix->nodes[node].child; c != NONE; c = ix->nodes[c].next)
        children += is_told(ev, c);
    ASSERT_OF(children == ev->nodes[node].children, "prefix node %u: %u children are told, %u counted", node,
              children, ev->nodes[node].children);
    ASSERT_OF(children > 0 || prefix_state_has_state(ix, node) || ev->at < ix->nodes_max,
              "prefix node %u: told behind the last end of a hit", node);
}
