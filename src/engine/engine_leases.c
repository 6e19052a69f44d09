/* engine_leases.c - sessions and wishes of jobs, and the sessions that other threads see and change.
 *
 * A session opens before its job computes anything, so a prefix that does not fit costs nothing. It holds the
 * computed prefix while the job's sequence still references it, and once more after the sequence has left a
 * snapshot at its end. Orders of other threads are marks in the published list: the engine obeys them beside
 * requests. */
#include "engine/engine_numbers.h"
#include "engine/engine_state.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "cache/agents.h"
#include "cache/leases.h"
#include "cache/prefix_index.h"
#include "cache/prefix_lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

size_t engine_leases_bytes(void)
{
    return POOLS_LEASES_MAX * sizeof(struct engine_session) + 64;
}

int engine_leases_init(struct engine *en)
{
    en->leases.list = ARENA_ARRAY(en->arena, struct engine_session, POOLS_LEASES_MAX);
    if (!en->leases.list)
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

static void say_refusal(const struct engine *en, struct job *j, int r, const struct lease_refusal *why)
{
    char *text = j->finish.error;
    size_t room = sizeof(j->finish.error);
    if (r == -ENOSPC)
        snprintf(
            text, room,
            "The session needs %s. Sessions on %s hold %s of %s, half of the prefix cache; this client's "
            "hold %s of %s. %s",
            bytes_text(why->wanted_bytes).text, en->name, bytes_text(why->held_bytes).text,
            bytes_text(why->limit_bytes).text, bytes_text(why->tenant_bytes).text,
            bytes_text(why->tenant_limit_bytes).text,
            en->tiers.ssd.arg ? "Without a session the SSD tier keeps the prefix while it has room."
                              : "End other sessions, or raise --host-cache.");
    else if (r == -ENFILE)
        snprintf(text, room, "%s has no room for another session: the limit is %u.", en->name,
                 POOLS_LEASES_MAX);
    else if (r == -ENOENT)
        snprintf(text, room, "The session has ended, or it is another client's.");
    else
        snprintf(text, room, "%s has no prefix cache: it keeps no sessions. Raise --host-cache.", en->name);
}

static int open_session(struct engine *en, const struct job *j, struct lease_refusal *why)
{
    struct lease_open open = {.id = *session_of(j),
                              .tenant = j->seq.tenant_id,
                              .deadline_ns = clock_now_ns() + j->leases.ttl_s * NS_PER_S,
                              .bytes = engine_prefix_bytes(en, j->prompt_count),
                              .follows = j->leases.follows};
    return leases_open(en->pools.leases, &open, why);
}

/* The job adds to the session at most all its tokens beyond those that are held. */
static int grow_session(struct engine *en, const struct job *j, struct lease_refusal *why)
{
    uint32_t held = leases_tokens(en->pools.leases, session_of(j));
    uint64_t all = engine_prefix_bytes(en, j->seq.tokens_limit), has = engine_prefix_bytes(en, held);
    return leases_grow(en->pools.leases, session_of(j), j->seq.tenant_id, all > has ? all - has : 0, why);
}

bool engine_leases_enter(struct engine *en, struct job *j)
{
    struct lease_refusal why = {0};
    int r = -ENOTSUP;
    if (j->leases.session == JOB_NO_SESSION)
        return true;
    if (en->pools.leases && j->keys)
        r = j->leases.session == JOB_OPENS_SESSION ? open_session(en, j, &why) : grow_session(en, j, &why);
    if (r == 0)
        return true;
    say_refusal(en, j, r, &why);
    return false;
}

static uint32_t end_of(const struct engine *en, const struct job *j, uint32_t tokens)
{
    return pools_prefix_end(&en->pools, j->keys, MIN_OF(j->seq.key_count, tokens / PAGE_TOKENS));
}

static void hold(struct engine *en, struct job *j)
{
    struct leases *l = en->pools.leases;
    (void)leases_hold(l, session_of(j), end_of(en, j, UINT32_MAX));
    j->finish.leased_tokens = leases_tokens(l, session_of(j));
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
        leases_follow(en->pools.leases, j->seq.tenant_id, end_of(en, j, UINT32_MAX));
    if (j->leases.wish_count > 0)
        make_wishes(en, j);
}

/* ---- orders, and time ---- */

/* Takes an order out of the list. False: there is none. */
static bool take_order(struct engine_leases *l, struct engine_session *ret)
{
    bool found = false;
    pthread_mutex_lock(&l->lock);
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
    if (!en->leases.edited)
        en->leases.count = leases_each(en->pools.leases, list_session, &en->leases);
    en->leases.bytes = prefix_index_leased_bytes(en->pools.index) + n.promised_bytes;
    pthread_mutex_unlock(&en->leases.lock);
}

void engine_leases_tend(struct engine *en)
{
    uint64_t now_ns = clock_now_ns();
    if (en->pools.leases)
        (void)leases_expire(en->pools.leases, now_ns);
    if (en->pools.agents)
        (void)agents_expire(en->pools.agents, now_ns);
}

uint64_t engine_leases_wait_ns(const struct engine *en, uint64_t now_ns)
{
    uint64_t due_ns = en->pools.leases ? leases_due_ns(en->pools.leases) : UINT64_MAX;
    if (en->pools.agents)
        due_ns = MIN_OF(due_ns, agents_due_ns(en->pools.agents));
    if (due_ns == UINT64_MAX)
        return UINT64_MAX;
    return due_ns > now_ns ? due_ns - now_ns : 0;
}
