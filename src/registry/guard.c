/* guard.c - whoever makes room, and the guard's own thread. */
#include "registry/guard.h"

#include "base/thread_stack.h"

#define GUARD_STACK_BYTES ((size_t)256 << 10)

uint64_t guard_stack_bytes(void)
{
    return thread_stack_bytes(GUARD_STACK_BYTES);
}
