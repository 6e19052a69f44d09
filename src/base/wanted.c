/* wanted.c - checks the flag first: it needs no clock. */
#include "base/wanted.h"

#include "base/clock.h"

#include <errno.h>

int wanted_check(const struct wanted *w)
{
    if (!w)
        return 0;
    if (w->cancelled && atomic_load_explicit(w->cancelled, memory_order_relaxed))
        return -ECANCELED;
    if (w->deadline_ns && clock_now_ns() >= w->deadline_ns)
        return -ETIME;
    return w->cpu_deadline_ns && clock_thread_ns() >= w->cpu_deadline_ns ? -ETIME : 0;
}
