/* priority.c - refusals by the system are ignored: a load without low priority slows other work, and is
 * correct. */
#include "base/threads/priority.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

static _Thread_local bool is_low;

static int set(int policy)
{
    struct sched_param none = {0};
    int kept = errno; /* the caller's errno */
    int r = sched_setscheduler(0, policy, &none);
    errno = kept;
    return r;
}

static void *go_and_return(void *arg)
{
    bool *may = arg;
    *may = set(SCHED_IDLE) == 0 && set(SCHED_OTHER) == 0;
    return NULL;
}

static pthread_once_t tried = PTHREAD_ONCE_INIT;
static bool may_return;

static void try_once(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, go_and_return, &may_return) == 0)
        pthread_join(thread, NULL);
}

bool priority_may_return(void)
{
    pthread_once(&tried, try_once);
    return may_return;
}

void priority_lower(void)
{
    if (!is_low)
        set(SCHED_IDLE);
    is_low = true;
}

void priority_normal(void)
{
    if (is_low)
        set(SCHED_OTHER);
    is_low = false;
}

bool priority_is_low(void)
{
    return is_low;
}

void priority_raise(void)
{
    if (is_low)
        set(SCHED_OTHER);
}

void priority_restore(void)
{
    if (is_low)
        set(SCHED_IDLE);
}
