/* check.h - stops the program after our own mistakes.
 *
 * ASSERT holds in every build: a broken invariant in a server that runs for days is worth a core dump.
 * Never use it for input of clients or errors of the system: those are values and errors. */
#ifndef PLATEAU_BASE_CHECK_H
#define PLATEAU_BASE_CHECK_H

#include <stddef.h>

/* Prints the place and the condition to stderr and aborts. */
_Noreturn void check_fail(const char *file, int line, const char *condition);

#define ASSERT(c)                                                                                            \
    do {                                                                                                     \
        if (__builtin_expect(!(c), 0))                                                                       \
            check_fail(__FILE__, __LINE__, #c);                                                              \
    } while (0)

#define COUNT_OF(a)        (sizeof(a) / sizeof((a)[0]))
#define MIN_OF(a, b)       ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b)       ((a) > (b) ? (a) : (b))
#define DIV_UP(a, b)       (((a) + (b)-1) / (b))
#define ROUND_UP(a, b)     (DIV_UP(a, b) * (b))
#define CONTAINER(p, t, m) ((t *)((char *)(p)-offsetof(t, m)))

#endif
