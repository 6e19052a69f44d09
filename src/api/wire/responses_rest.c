/* responses_rest.c - bounded work for a tick: a check visits WALK_ASKS entries, the least recently used.
 * The store of conversations shrinks and is checked beside it. */
#include "api/wire/responses_rest.h"

#include "api/api_state.h"
#include "api/conversations.h"
#include "api/responses_store.h"

#include "base/clock.h"
#include "reclaim/guard.h"

#define SHRINK_PART    8
#define SHRINK_NS      NS_PER_S
#define CHECK_EVERY_NS (10 * NS_PER_S)

static void shrink(struct api *a)
{
    struct guard_numbers n;
    guard_numbers(a->opts.guard, &n);
    if (n.stage < PRESSURE_SHRINK)
        return;
    if (a->responses)
        responses_store_give(a->responses, responses_store_numbers(a->responses).bytes / SHRINK_PART + 1);
    if (a->conversations)
        conversations_give(a->conversations, conversations_numbers(a->conversations).bytes / SHRINK_PART + 1);
}

static bool goes_on(void *arg)
{
    (void)arg;
    return false; /* asked after WALK_ASKS entries */
}

void responses_rest(struct api *a, uint64_t now_ns)
{
    struct walk w = {.goes_on = goes_on}, conversations = w;
    if (a->responses)
        responses_store_expire(a->responses, now_ns);
    if (a->opts.guard && now_ns >= a->responses_shrink_ns) {
        a->responses_shrink_ns = now_ns + SHRINK_NS;
        shrink(a);
    }
    if (now_ns < a->responses_check_ns || atomic_load(&a->requests_now) > 0)
        return;
    a->responses_check_ns = now_ns + CHECK_EVERY_NS;
    if (a->responses)
        responses_store_check(a->responses, &w);
    if (a->conversations)
        conversations_check(a->conversations, &conversations);
}
