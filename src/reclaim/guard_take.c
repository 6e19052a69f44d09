/* guard_take.c - asks holders, and waits for their answers for as long as a step may take.
 *
 * A computing engine answers after its step, within a second. One that does not is stuck, and others are
 * asked instead. */
#include "reclaim/guard_state.h"

#include "base/clock.h"

#define ANSWER_NS (2 * NS_PER_S)

static bool is_silent(const struct guard_silent *s, uint64_t id)
{
    for (uint32_t i = 0; s && i < s->count; i++)
        if (s->ids[i] == id)
            return true;
    return false;
}

/* All are asked before the first is waited for. */
uint64_t guard_take_free(struct guard *g, const struct domain *domain, uint64_t except, uint64_t bytes)
{
    struct holder_info all[HOLDERS_MAX];
    struct holder_ask *asks[HOLDERS_MAX] = {NULL};
    uint32_t count = holders_list(g->opts.holders, all, HOLDERS_MAX);
    uint64_t sum = 0, deadline_ns = clock_now_ns() + ANSWER_NS;
    for (uint32_t i = 0; i < count; i++)
        if (all[i].domain == domain && all[i].id != except && all[i].now.free_bytes > 0)
            (void)holders_ask(g->opts.holders, all[i].id, HOLDER_GIVE, bytes, 0, NULL, &asks[i]);
    for (uint32_t i = 0; i < count; i++) {
        struct holder_answer answer = {0};
        if (asks[i] && holder_ask_wait(asks[i], deadline_ns, &answer) == 0)
            sum += answer.bytes;
    }
    atomic_fetch_add(&g->given.free_bytes, sum);
    return sum;
}

uint64_t guard_take_cached(struct guard *g, const struct domain *domain, struct guard_silent *silent,
                           uint64_t bytes, const char *name)
{
    struct holder_ask *ask = NULL;
    struct holder_answer answer = {0};
    uint64_t id, before_ns, now_ns = clock_now_ns();
    if (!holders_stalest(g->opts.holders, domain, silent->ids, silent->count, now_ns, &id, &before_ns))
        return 0;
    if (holders_ask(g->opts.holders, id, HOLDER_GIVE, bytes, before_ns, name, &ask) == 0)
        (void)holder_ask_wait(ask, now_ns + ANSWER_NS, &answer);
    /* Dropped without a byte: its units are in use. There may be more to drop. */
    if (answer.bytes == 0 && answer.entries == 0 && silent->count < HOLDERS_MAX)
        silent->ids[silent->count++] = id;
    atomic_fetch_add(&g->given.cached_bytes, answer.bytes);
    return answer.bytes;
}

void guard_pass_over_floors(struct guard *g, struct guard_silent *silent)
{
    struct holder_info all[HOLDERS_MAX];
    uint32_t count = holders_list(g->opts.holders, all, HOLDERS_MAX);
    for (uint32_t i = 0; i < count && silent->count < HOLDERS_MAX; i++)
        if (all[i].now.reach_bytes == 0 && !is_silent(silent, all[i].id))
            silent->ids[silent->count++] = all[i].id;
}

struct guard_count guard_count(struct guard *g, const struct domain *domain,
                               const struct guard_silent *silent)
{
    struct holder_info all[HOLDERS_MAX];
    uint32_t count = holders_list(g->opts.holders, all, HOLDERS_MAX);
    struct guard_count sum = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (all[i].domain != domain)
            continue;
        bool passed_over = is_silent(silent, all[i].id);
        sum.free_bytes += passed_over ? 0 : all[i].now.free_bytes;
        sum.cached_bytes += passed_over ? 0 : all[i].now.cached_bytes;
        sum.reach_bytes += all[i].now.reach_bytes;
    }
    return sum;
}

uint64_t guard_take_idle_locked(struct guard *g, const struct domain *domain, uint64_t bytes,
                                const char *name)
{
    uint64_t given = g->models.free_idle ? g->models.free_idle(g->models.arg, domain, bytes, name) : 0;
    atomic_fetch_add(&g->given.idle_bytes, given);
    return given;
}

uint64_t guard_take_idle(struct guard *g, const struct domain *domain, uint64_t bytes, const char *name)
{
    pthread_mutex_lock(&g->room);
    uint64_t given = guard_take_idle_locked(g, domain, bytes, name);
    pthread_mutex_unlock(&g->room);
    return given;
}
