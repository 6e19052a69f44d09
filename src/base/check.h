/* check.h - stops the program after our own mistakes.
 *
 * ASSERT holds in every build: a broken invariant in a server that runs for days is worth a core dump.
 * Never use it for input of clients or errors of the system: those are values and errors. The last
 * line of the log names the fault: event=invariant_broken, with the condition, its place and the thread (the
 * thread of an engine has the name of its model). */
#ifndef PLATEAU_BASE_CHECK_H
#define PLATEAU_BASE_CHECK_H

#include <stddef.h>

/* Writes that line to stderr and aborts. */
_Noreturn void check_fail(const char *file, int line, const char *condition);
/* As `check_fail()`, but `format` names the faulty thing: an account, a page, a sequence. */
_Noreturn void check_fail_of(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define ASSERT(c)                                                                                            \
    do {                                                                                                     \
        if (__builtin_expect(!(c), 0))                                                                       \
            check_fail(__FILE__, __LINE__, #c);                                                              \
    } while (0)

/* ASSERT_OF(refs == 0, "page %u", page): for one of many, where the condition alone does not say which. */
#define ASSERT_OF(c, ...)                                                                                    \
    do {                                                                                                     \
        if (__builtin_expect(!(c), 0))                                                                       \
            check_fail_of(__FILE__, __LINE__, #c, __VA_ARGS__);                                              \
    } while (0)

#define COUNT_OF(a)        (sizeof(a) / sizeof((a)[0]))
#define MIN_OF(a, b)       ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b)       ((a) > (b) ? (a) : (b))
#define DIV_UP(a, b)       (((a) + (b)-1) / (b))
#define ROUND_UP(a, b)     (DIV_UP(a, b) * (b))
#define CONTAINER(p, t, m) ((t *)((char *)(p)-offsetof(t, m)))

#endif
