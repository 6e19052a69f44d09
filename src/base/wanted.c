/* wanted.c - checks the flag first: it needs no clock. */
#include "base/wanted.h"

#include "base/clock.h"

#include <errno.h>

int wanted_look(const struct wanted *w)
{
    if (!w)
        return 0;
    if (w->cancelled && atomic_load_explicit(w->cancelled, memory_order_relaxed))
        return -ECANCELED;
    return w->deadline_ns && clock_now_ns() >= w->deadline_ns ? -ETIME : 0;
}
