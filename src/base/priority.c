/* priority.c - what the system refuses is left as it is: a load that is not low is slower for others, not wrong. */
#include "base/priority.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>

static _Thread_local bool is_low;

static void set(int policy)
{
    struct sched_param none = {0};
    int kept = errno; /* of the call in between */
    (void)sched_setscheduler(0, policy, &none);
    errno = kept;
}

void priority_lower(void)
{
    is_low = true;
    set(SCHED_IDLE);
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
