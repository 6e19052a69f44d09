/* holder_ask.c - a message that outlives a sender whose wait for the answer has timed out. */
#include "reclaim/holders.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

static void unref(struct holder_ask *a, uint32_t count, bool is_done)
{
    pthread_mutex_lock(&a->lock);
    ASSERT(a->refs >= count);
    ASSERT(!(is_done && a->is_done));
    a->is_done = a->is_done || is_done;
    a->refs -= count;
    bool last = a->refs == 0;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (!last)
        return;
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

struct holder_ask *holder_ask_create(enum holder_ask_kind kind, uint64_t bytes, uint64_t before_ns)
{
    struct holder_ask *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    a->kind = kind;
    a->bytes = bytes;
    a->before_ns = before_ns;
    a->refs = 2;
    list_init(&a->link);
    clock_cond_init(&a->changed);
    pthread_mutex_init(&a->lock, NULL);
    return a;
}

void holder_ask_done(struct holder_ask *a)
{
    unref(a, 1, true);
}

void holder_ask_drop(struct holder_ask *a)
{
    ASSERT(a->refs == 2 && !a->is_done);
    unref(a, 2, false);
}

int holder_ask_wait(struct holder_ask *a, uint64_t deadline_ns, struct holder_answer *ret)
{
    uint64_t now_ns = clock_now_ns();
    struct timespec until = clock_deadline(deadline_ns - MIN_OF(now_ns, deadline_ns));
    int r = 0;
    pthread_mutex_lock(&a->lock);
    while (!a->is_done && r == 0)
        r = pthread_cond_timedwait(&a->changed, &a->lock, &until);
    bool is_done = a->is_done;
    ASSERT(!is_done || a->refs == 1);
    if (is_done)
        *ret = a->answer;
    pthread_mutex_unlock(&a->lock);
    unref(a, 1, false);
    return is_done ? 0 : -ETIMEDOUT;
}
