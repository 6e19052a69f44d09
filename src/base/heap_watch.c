#include "base/heap_watch.h"

#include "base/check.h"

#include <stdatomic.h>

#ifdef PLATEAU_DEBUG
#define TRAPS true
/* So that the linker takes the hooks along. */
extern const bool heap_hooks_are_here;
const bool *const heap_watch_hooks = &heap_hooks_are_here;
#else
#define TRAPS false
#endif

/* Initial-exec: looking at it allocates nothing, on any thread. */
static _Thread_local bool is_forbidden __attribute__((tls_model("initial-exec")));
static atomic_bool traps = TRAPS;
static _Atomic uint64_t seen, forbidden;

void heap_watch_forbid(bool on)
{
    is_forbidden = on;
}

#if defined(__clang__)
__attribute__((no_sanitize("thread")))
#endif
void heap_watch_see(void)
{
    atomic_fetch_add_explicit(&seen, 1, memory_order_relaxed);
    if (!is_forbidden)
        return;
    atomic_fetch_add(&forbidden, 1);
    if (!atomic_load(&traps))
        return;
    is_forbidden = false;
    check_fail_of(__FILE__, __LINE__, "no malloc", "a thread that may not allocate did: see the backtrace");
}

void heap_watch_set_trap(bool on)
{
    atomic_store(&traps, on);
}

uint64_t heap_watch_forbidden(void)
{
    return atomic_load(&forbidden);
}

uint64_t heap_watch_seen(void)
{
    return atomic_load(&seen);
}
