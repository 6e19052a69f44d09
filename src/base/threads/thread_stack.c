/* thread_stack.c - what pthread would do, with the bytes counted and given back when the thread is joined:
 * the C library keeps the stacks of ended threads. */
#include "base/threads/thread_stack.h"

#include "base/check.h"
#include "base/pages.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#define GUARD_BYTES ((size_t)64 << 10)
#define LEAST_BYTES ((size_t)0)
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
/* ThreadSanitizer keeps 900 KiB of its own on every stack. */
#undef LEAST_BYTES
#define LEAST_BYTES ((size_t)2 << 20)
#endif
#endif

size_t thread_stack_bytes(size_t bytes)
{
    return MAX_OF(bytes, LEAST_BYTES);
}

int thread_stack_init(struct thread_stack *s, size_t bytes, const struct charge *charge)
{
    bytes = thread_stack_bytes(bytes);
    int r = charge_take(charge, bytes);
    if (r < 0)
        return r;
    char *map = mmap(NULL, GUARD_BYTES + bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED) {
        charge_give(charge, bytes);
        return -ENOMEM;
    }
    r = pages_commit(map + GUARD_BYTES, bytes);
    if (r < 0) {
        munmap(map, GUARD_BYTES + bytes);
        charge_give(charge, bytes);
        return r;
    }
    *s = (struct thread_stack){map, bytes, charge ? *charge : (struct charge){0}};
    return 0;
}

void thread_stack_done(struct thread_stack *s)
{
    if (!s->map)
        return;
    munmap(s->map, GUARD_BYTES + s->bytes);
    charge_give(s->charge.give ? &s->charge : NULL, s->bytes);
    s->map = NULL;
}

bool thread_stack_join(pthread_t thread, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec += (long)(ns % 1000000000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int r = pthread_timedjoin_np(thread, NULL, &until);
    ASSERT(r == 0 || r == ETIMEDOUT);
    return r == 0;
}

/* All signals but those raised by a thread's own fault: a sanitizer needs to see them. */
static sigset_t not_for_threads(void)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigset_t s;
    sigfillset(&s);
    for (size_t i = 0; i < COUNT_OF(own); i++)
        sigdelset(&s, own[i]);
    return s;
}

int thread_stack_start(struct thread_stack *s, void *(*main)(void *), void *arg, pthread_t *ret)
{
    pthread_attr_t attr;
    sigset_t signals = not_for_threads();
    if (pthread_attr_init(&attr) != 0)
        return -EAGAIN;
    int r = pthread_attr_setstack(&attr, s->map + GUARD_BYTES, s->bytes);
    if (r == 0)
        r = pthread_attr_setsigmask_np(&attr, &signals);
    if (r == 0)
        r = pthread_create(ret, &attr, main, arg);
    pthread_attr_destroy(&attr);
    return r == 0 ? 0 : -EAGAIN;
}
