/* engine_leases.c - sessions and wishes of jobs, and the sessions that other threads see and change.
 *
 * A session opens before its job computes anything, so a prefix that does not fit costs nothing. It holds
 * the computed prefix while the job's sequence still references it, and once more after the sequence has
 * left a snapshot at its end. A session on SSD is written from then on, beside requests too, a few entries
 * at a time. A disk that does not take them is asked less and less often. Orders of other threads are marks
 * in the published list: the engine obeys them beside requests. */
#include "engine/engine_numbers.h"
#include "engine/engine_state.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/none.h"
#include "base/page_tokens.h"
#include "cache/agents.h"
#include "cache/leases.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"
#include "cache/prefix_lease.h"
#include "cache/share_list.h"
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

size_t engine_leases_bytes(uint32_t agents_max)
{
    return POOLS_LEASES_MAX * sizeof(struct engine_session) + agents_max * sizeof(struct agent_id) +
           2 * (size_t)64;
}

int engine_leases_init(struct engine *en)
{
    ASSERT(!en->leases.list);
    en->leases.list = ARENA_ARRAY(en->arena, struct engine_session, POOLS_LEASES_MAX);
    if (en->opts.agents)
        en->leases.agent_ids = ARENA_ARRAY(en->arena, struct agent_id, en->opts.agents);
    if (!en->leases.list || (en->opts.agents && !en->leases.agent_ids))
        return -ENOMEM;
    pthread_mutex_init(&en->leases.lock, NULL);
    return 0;
}

void engine_leases_done(struct engine *en)
{
    if (en->leases.list)
        pthread_mutex_destroy(&en->leases.lock);
}

/* ---- jobs ---- */

static const struct lease_id *session_of(const struct job *j)
{
    _Static_assert(sizeof(struct lease_id) == sizeof(j->leases.id), "a job has the id's bytes");
    return (const struct lease_id *)j->leases.id;
}

uint64_t engine_prefix_bytes(const struct engine *en, uint32_t tokens)
{
    const struct pools *p = &en->pools;
    uint32_t pages = tokens / PAGE_TOKENS;
    uint64_t bytes = pages > 0 ? p->state_bytes : 0;
    for (uint32_t g = 0; g < p->group_count; g++)
        bytes += page_group_needs(&p->groups[g], pages) * (uint64_t)p->groups[g].page_bytes;
    return bytes;
}

/* Counts the entries of each kind that the tier keeps for a prefix. */
static void count_entries(const struct engine *en, uint32_t tokens, uint32_t ret[TIER_KINDS])
{
    uint32_t pages = tokens / PAGE_TOKENS;
    memset(ret, 0, TIER_KINDS * sizeof(*ret));
    if (pages == 0)
        return;
    prefix_index_firsts(en->pools.index, pages, ret);
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        ret[kind] = pages - ret[kind];
}

static struct lease_open open_of(const struct engine *en, const struct job *j, bool below)
{
    struct lease_open open = {.id = *session_of(j),
                              .tenant = j->seq.tenant_id,
                              .deadline_ns = clock_now_ns() + j->leases.ttl_s * NS_PER_S,
                              .bytes = below ? 0 : engine_prefix_bytes(en, j->prompt_count),
                              .follows = j->leases.follows,
                              .below = below};
    if (below)
        count_entries(en, j->prompt_count, open.counts);
    return open;
}

/* Returns whether a session that was refused would fit in the other tier. It opens and ends it. */
static bool would_fit(const struct engine *en, const struct job *j, bool below)
{
    struct lease_refusal why;
    struct lease_open open = open_of(en, j, below);
    const struct tier_io *t = &en->tiers.ssd;
    uint32_t lease = NONE;
    if (!below)
        return leases_fit(en->pools.leases, open.tenant, open.bytes);
    if (!t->arg || t->lease_open(t->arg, share_list_of(open.tenant), open.counts, &lease, &why) < 0)
        return false;
    t->lease_end(t->arg, lease);
    return true;
}

static void say_no_room(const struct engine *en, struct job *j, bool below, const struct lease_refusal *why)
{
    const char *fits = "No other tier has room for it either.";
    if (j->leases.session == JOB_CONTINUES_SESSION)
        fits = below ? "" : "End other sessions, or raise --host-cache.";
    else if (would_fit(en, j, !below))
        fits = below ? "It fits in memory: \"tier\": \"memory\"." : "It fits on SSD: \"tier\": \"ssd\".";
    snprintf(j->finish.error, sizeof(j->finish.error),
             "The session needs %s. Sessions %s%s hold %s of %s, half of %s; this client's hold %s of %s. %s",
             bytes_text(why->wanted_bytes).text, below ? "on SSD" : "on ", below ? "" : en->name,
             bytes_text(why->held_bytes).text, bytes_text(why->limit_bytes).text,
             below ? "--ssd-limit" : "the prefix cache", bytes_text(why->tenant_bytes).text,
             bytes_text(why->tenant_limit_bytes).text, fits);
}

/* The SSD tier takes no session now. */
static void say_no_ssd(const struct engine *en, struct job *j, int r)
{
    char *text = j->finish.error;
    size_t room = sizeof(j->finish.error);
    struct store_numbers n = {0};
    if (en->opts.store)
        store_numbers(en->opts.store, &n);
    if (!en->tiers.ssd.arg)
        snprintf(text, room, "The server has no SSD tier for sessions of %s: see --ssd-dir.", en->name);
    else if (r == -EFBIG)
        snprintf(text, room, "A page or state of %s is larger than --ssd-staging: it is never written.",
                 en->name);
    else if (r == -EIO)
        snprintf(text, room,
                 "The SSD tier's last write failed (%s). The session is not opened; try again later.",
                 n.write_error < 0 && strerrordesc_np(-n.write_error) ? strerrordesc_np(-n.write_error)
                                                                      : "unknown");
    else
        snprintf(text, room, "The SSD tier is off%s%s: it keeps no sessions now.", n.reason[0] ? ": " : "",
                 n.reason);
}

static void say_refusal(const struct engine *en, struct job *j, int r, bool below,
                        const struct lease_refusal *why)
{
    char *text = j->finish.error;
    size_t room = sizeof(j->finish.error);
    if (r == -ENOSPC)
        say_no_room(en, j, below, why);
    else if (r == -ENFILE)
        snprintf(text, room, "%s has no room for another session: the limit is %u.", en->name,
                 POOLS_LEASES_MAX);
    else if (r == -ENOENT)
        snprintf(text, room, "The session has ended, or it is another client's.");
    else if (en->pools.leases && below)
        say_no_ssd(en, j, r);
    else
        snprintf(text, room, "%s has no prefix cache: it keeps no sessions. Raise --host-cache.", en->name);
}

/* The job adds to the session at most all its tokens beyond those that are held. */
static int grow_session(struct engine *en, const struct job *j, const struct lease_info *is,
                        struct lease_refusal *why)
{
    uint32_t counts[TIER_KINDS], held[TIER_KINDS];
    uint64_t all = engine_prefix_bytes(en, j->seq.tokens_limit), has = engine_prefix_bytes(en, is->tokens);
    count_entries(en, j->seq.tokens_limit, counts);
    count_entries(en, is->tokens, held);
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        counts[kind] -= MIN_OF(counts[kind], kind == TIER_PAGE ? held[kind] : 0);
    return leases_grow(en->pools.leases, session_of(j), j->seq.tenant_id, all > has ? all - has : 0, counts,
                       why);
}

bool engine_leases_enter(struct engine *en, struct job *j)
{
    struct lease_refusal why = {0};
    struct lease_info is = {.below = j->leases.below};
    struct lease_open open;
    int r = -ENOTSUP;
    if (j->leases.session == JOB_NO_SESSION)
        return true;
    if (en->pools.leases && j->keys && j->leases.session == JOB_OPENS_SESSION) {
        open = open_of(en, j, is.below);
        r = leases_open(en->pools.leases, &open, &why);
    } else if (en->pools.leases && j->keys) {
        r = leases_info(en->pools.leases, session_of(j), &is) ? grow_session(en, j, &is, &why) : -ENOENT;
    }
    if (r == 0)
        return true;
    say_refusal(en, j, r, is.below, &why);
    return false;
}

static uint32_t end_of(const struct engine *en, const struct job *j, uint32_t tokens)
{
    ASSERT(j->keys);
    return pools_prefix_end(&en->pools, j->keys, MIN_OF(j->seq.key_count, tokens / PAGE_TOKENS));
}

static void hold(struct engine *en, struct job *j)
{
    ASSERT(en->pools.leases && j->keys);
    struct leases *l = en->pools.leases;
    struct lease_info is = {0};
    (void)leases_hold(l, session_of(j), end_of(en, j, UINT32_MAX), j->keys);
    (void)leases_info(l, session_of(j), &is);
    j->finish.leased_tokens = is.tokens;
    j->finish.leased_bytes = is.bytes;
}

static bool is_leased(const struct engine *en, const struct job *j)
{
    return en->pools.leases && j->keys && !j->prompt_logprobs;
}

void engine_leases_hold(struct engine *en, struct job *j, enum finish_reason why)
{
    bool whole = why == FINISH_STOP || why == FINISH_LENGTH || why == FINISH_REPETITION;
    if (!is_leased(en, j) || j->leases.session == JOB_NO_SESSION || why == FINISH_LEASE_REFUSED ||
        why == FINISH_AGENTS_FULL)
        return;
    if (j->leases.session == JOB_OPENS_SESSION && !whole) {
        (void)leases_end(en->pools.leases, session_of(j), j->seq.tenant_id);
        return;
    }
    if (j->leases.session == JOB_OPENS_SESSION)
        (void)leases_extend(en->pools.leases, session_of(j), j->seq.tenant_id,
                            clock_now_ns() + j->leases.ttl_s * NS_PER_S);
    hold(en, j);
}

static void make_wishes(struct engine *en, struct job *j)
{
    ASSERT(j->leases.wish_count <= JOB_WISHES_MAX);
    struct lease_wish wishes[JOB_WISHES_MAX];
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < j->leases.wish_count; i++)
        wishes[i] = (struct lease_wish){end_of(en, j, j->leases.wishes[i].tokens),
                                        now_ns + j->leases.wishes[i].ttl_s * NS_PER_S};
    j->finish.wished_tokens = leases_wish(en->pools.leases, j->seq.tenant_id, wishes, j->leases.wish_count);
}

void engine_leases_end(struct engine *en, struct job *j)
{
    struct lease_numbers n;
    if (!is_leased(en, j))
        return;
    if (j->finish.leased_tokens > 0)
        hold(en, j);
    leases_numbers(en->pools.leases, &n);
    if (n.sessions > 0) /* finding the end looks up each page of the job */
        leases_follow(en->pools.leases, j->seq.tenant_id, end_of(en, j, UINT32_MAX), j->keys);
    if (j->leases.wish_count > 0)
        make_wishes(en, j);
}

/* ---- orders, and time ---- */

/* Takes an order out of the list. False: there is none. */
static bool take_order(struct engine_leases *l, struct engine_session *ret)
{
    bool found = false;
    pthread_mutex_lock(&l->lock);
    ASSERT(l->count <= POOLS_LEASES_MAX);
    for (uint32_t i = 0; l->edited && !found && i < l->count; i++) {
        struct engine_session *s = &l->list[i];
        found = s->extended || s->ended;
        if (found)
            *ret = *s;
        s->extended = s->ended = false;
    }
    l->edited = l->edited && found;
    pthread_mutex_unlock(&l->lock);
    return found;
}

static void obey(struct engine *en)
{
    struct engine_session s;
    while (take_order(&en->leases, &s)) {
        if (s.ended)
            (void)leases_end(en->pools.leases, &s.is.id, s.is.tenant);
        else
            (void)leases_extend(en->pools.leases, &s.is.id, s.is.tenant, s.is.deadline_ns);
        engine_agents_obey(en, &s);
    }
}

static void list_session(void *arg, uint32_t i, const struct lease_info *is)
{
    struct engine_leases *l = arg;
    ASSERT(i < POOLS_LEASES_MAX);
    l->list[i] = (struct engine_session){.is = *is};
    l->bytes += is->below ? is->bytes : 0;
}

void engine_leases_publish(struct engine *en)
{
    struct lease_numbers n;
    if (!en->pools.leases)
        return;
    obey(en);
    leases_numbers(en->pools.leases, &n);
    if (n.sessions == 0 && en->leases.count == 0)
        return;
    pthread_mutex_lock(&en->leases.lock);
    /* An order that came just now is obeyed next time. */
    if (!en->leases.edited) {
        en->leases.bytes = prefix_index_leased_bytes(en->pools.index) + n.promised_bytes;
        en->leases.count = leases_each(en->pools.leases, list_session, &en->leases);
        ASSERT(en->leases.count <= POOLS_LEASES_MAX);
    }
    pthread_mutex_unlock(&en->leases.lock);
}

/* ---- sessions on SSD ---- */

#define WRITE_BYTES    ((size_t)1 << 20) /* copied beside a step */
#define LOOK_AGAIN_NS  (5 * NS_PER_MS)
#define LOOK_RARELY_NS NS_PER_S

/* Hands in what the tier lacks. 0, -ENOENT (the pools have evicted it), -EAGAIN (no room). */
static int write_entry(struct engine *en, const struct lease_lack *lack, size_t *bytes)
{
    const struct prefix_index *ix = en->pools.index;
    const struct prefix_key key = *lack->key;
    uint32_t node = prefix_index_node(ix, &key);
    uint32_t block = node == NONE ? NONE : prefix_index_block(ix, node, lack->kind);
    if (block == NONE)
        return -ENOENT;
    *bytes += pools_block_bytes(&en->pools, lack->kind);
    return write_behind_lease(
        &en->write_behind, &(struct tier_offer){&key, lack->kind, share_list_of(lack->tenant), TIER_LEASED},
        block);
}

/* A few entries; then when to go on. */
static void write_sessions(struct engine *en, uint64_t now_ns)
{
    ASSERT(en->pools.leases);
    struct engine_leases *l = &en->leases;
    struct lease_lack lack;
    size_t bytes = 0;
    int r = 0;
    enum tier_lease_state state = TIER_LEASE_LACKS;
    while (r == 0 && state == TIER_LEASE_LACKS && bytes < WRITE_BYTES) {
        state = leases_next_lack(en->pools.leases, &lack);
        if (state == TIER_LEASE_LACKS)
            r = write_entry(en, &lack, &bytes);
    }
    bool moves = bytes > 0 && r == 0;
    l->pause_ns = moves ? 0 : MIN_OF(MAX_OF(2 * l->pause_ns, LOOK_AGAIN_NS), LOOK_RARELY_NS);
    l->write_at_ns = now_ns + l->pause_ns;
}

static uint64_t write_due_ns(const struct engine *en)
{
    struct lease_numbers n = {.writing = 0};
    if (en->pools.leases)
        leases_numbers(en->pools.leases, &n);
    return n.writing > 0 ? en->leases.write_at_ns : UINT64_MAX;
}

/* ---- time ---- */

void engine_leases_tend(struct engine *en)
{
    uint64_t now_ns = clock_now_ns();
    if (en->pools.leases)
        (void)leases_expire(en->pools.leases, now_ns);
    if (write_due_ns(en) <= now_ns)
        write_sessions(en, now_ns);
    if (en->pools.agents)
        (void)agents_expire(en->pools.agents, now_ns);
}

uint64_t engine_leases_wait_ns(const struct engine *en, uint64_t now_ns)
{
    uint64_t due_ns = en->pools.leases ? leases_due_ns(en->pools.leases) : UINT64_MAX;
    due_ns = MIN_OF(due_ns, write_due_ns(en));
    if (en->pools.agents)
        due_ns = MIN_OF(due_ns, agents_due_ns(en->pools.agents));
    if (due_ns == UINT64_MAX)
        return UINT64_MAX;
    return due_ns > now_ns ? due_ns - now_ns : 0;
}
