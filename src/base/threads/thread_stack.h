/* thread_stack.h - a thread's stack, mapped by us: charged, resident, with a guard below it. */
#ifndef PLATEAU_BASE_THREAD_STACK_H
#define PLATEAU_BASE_THREAD_STACK_H

#include "base/charge.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct thread_stack {
    char *map; /* guard, then the stack; NULL: none */
    size_t bytes;
    struct charge charge;
};

/* Returns the charge for a stack of `bytes`: equal, but ThreadSanitizer gets more. */
size_t thread_stack_bytes(size_t bytes);
/* `bytes` of stack, a multiple of 4096. `charge` may be NULL. 0, or -ENOMEM and nothing is charged or
 * mapped. */
int thread_stack_init(struct thread_stack *s, size_t bytes, const struct charge *charge);
/* The thread has been joined. Zeroed is fine. */
void thread_stack_done(struct thread_stack *s);
/* pthread_join. False: it still runs after `ns`, and is still to be joined. */
bool thread_stack_join(pthread_t thread, uint64_t ns);
/* pthread_create on it. Signals from outside are blocked in the thread: they are the main thread's. 0 or
 * -EAGAIN. */
int thread_stack_start(struct thread_stack *s, void *(*main)(void *), void *arg, pthread_t *ret);

#endif
