/* test.h - what a test program starts from: cmocka, and tests that register themselves.
 *
 *     TEST(take_never_evicts_a_referenced_page)
 *     {
 *         assert_int_equal(...);
 *     }
 *     PROPERTY(paged_equals_contiguous, seed)      runs with seeds 1 to TEST_SEEDS, or with TEST_SEED=n only;
 *                                                  under a sanitizer with a third of them
 *     {
 *         struct rng rng = {seed, 0};
 *     }
 *     TEST_MAIN()
 *
 * The program takes one argument: a pattern of the tests to run ("take_*"). A property that fails, or stops
 * the program, prints its seed and the command that replays it. */
#ifndef PLATEAU_TESTS_TEST_H
#define PLATEAU_TESTS_TEST_H

#include "test_rng.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef TEST_SEEDS
#define TEST_SEEDS 100
#endif
/* Sanitizers check each path, which few seeds reach; the release build runs all seeds. */
#ifdef TEST_SANITIZED
#define TEST_SEEDS_RUN ((TEST_SEEDS + 2) / 3)
#else
#define TEST_SEEDS_RUN TEST_SEEDS
#endif
#define TEST_COUNT_MAX 256

static struct {
    struct CMUnitTest tests[TEST_COUNT_MAX];
    size_t count;
    const char *program;
    /* The property that runs; 0 = none. Still set after it: it failed. */
    uint64_t seed;
    const char *property;
    /* Called after every test; `passed`: its end was reached. */
    void (*after)(bool passed);
    bool passed;
} test_state;

static inline void test_print_replay(void)
{
    char line[512];
    if (test_state.seed == 0)
        return;
    int n = snprintf(line, sizeof(line), "seed %llu; again with:  TEST_SEED=%llu %s %s\n",
                     (unsigned long long)test_state.seed, (unsigned long long)test_state.seed,
                     test_state.program, test_state.property);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1) < 0)
        _exit(1);
}

static inline int test_teardown(void **state)
{
    (void)state;
    test_print_replay();
    test_state.seed = 0;
    if (test_state.after)
        test_state.after(test_state.passed);
    test_state.passed = false;
    return 0;
}

static inline void test_register(const char *name, CMUnitTestFunction function)
{
    if (test_state.count == TEST_COUNT_MAX)
        abort();
    test_state.tests[test_state.count++] =
        (struct CMUnitTest){.name = name, .test_func = function, .teardown_func = test_teardown};
}

static inline void test_run_seeds(const char *name, void (*body)(uint64_t seed))
{
    const char *only = getenv("TEST_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1;
    uint64_t last = only ? first : TEST_SEEDS_RUN;
    test_state.property = name;
    for (uint64_t seed = first; seed <= last; seed++) {
        test_state.seed = seed;
        body(seed);
    }
    test_state.seed = 0;
}

static inline void test_on_abort(int sig)
{
    test_print_replay();
    signal(sig, SIG_DFL);
    raise(sig);
}

static inline int test_main(int argc, char **argv)
{
    test_state.program = argv[0];
    signal(SIGABRT, test_on_abort);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const char *name = argv[0];
    for (const char *at = argv[0]; *at; at++)
        if (*at == '/')
            name = at + 1;
    return _cmocka_run_group_tests(name, test_state.tests, test_state.count, NULL, NULL) ? 1 : 0;
}

#define TEST(name)                                                                                           \
    static void test_##name(void);                                                                           \
    static void test_##name##_run(void **state)                                                              \
    {                                                                                                        \
        (void)state;                                                                                         \
        test_##name();                                                                                       \
        test_state.passed = true;                                                                            \
    }                                                                                                        \
    __attribute__((constructor)) static void test_##name##_register(void)                                    \
    {                                                                                                        \
        test_register(#name, test_##name##_run);                                                             \
    }                                                                                                        \
    static void test_##name(void)

#define PROPERTY(name, seed)                                                                                 \
    static void property_##name(uint64_t seed);                                                              \
    TEST(name)                                                                                               \
    {                                                                                                        \
        test_run_seeds(#name, property_##name);                                                              \
    }                                                                                                        \
    static void property_##name(uint64_t seed)

#define TEST_MAIN()                                                                                          \
    int main(int argc, char **argv)                                                                          \
    {                                                                                                        \
        return test_main(argc, argv);                                                                        \
    }

/* The call stops the program (ASSERT). It runs in a child whose stderr and core are thrown away. */
#define assert_stops(call)                                                                                   \
    do {                                                                                                     \
        fflush(NULL);                                                                                        \
        pid_t test_child = fork();                                                                           \
        if (test_child == 0) {                                                                               \
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});                                                  \
            signal(SIGABRT, SIG_DFL);                                                                        \
            if (!freopen("/dev/null", "w", stderr))                                                          \
                _exit(2);                                                                                    \
            call;                                                                                            \
            _exit(0);                                                                                        \
        }                                                                                                    \
        int test_status = 0;                                                                                 \
        assert_true(test_child > 0 && waitpid(test_child, &test_status, 0) == test_child);                   \
        assert_true(WIFSIGNALED(test_status) && WTERMSIG(test_status) == SIGABRT);                           \
    } while (0)

/* As `assert_stops()`, but its last words have `words` in them. */
#define assert_stops_saying(call, words)                                                                     \
    do {                                                                                                     \
        char test_said[8192];                                                                                \
        FILE *test_file = tmpfile();                                                                         \
        assert_non_null(test_file);                                                                          \
        fflush(NULL);                                                                                        \
        pid_t test_child = fork();                                                                           \
        if (test_child == 0) {                                                                               \
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});                                                  \
            signal(SIGABRT, SIG_DFL);                                                                        \
            if (dup2(fileno(test_file), STDERR_FILENO) < 0)                                                  \
                _exit(2);                                                                                    \
            call;                                                                                            \
            _exit(0);                                                                                        \
        }                                                                                                    \
        int test_status = 0;                                                                                 \
        assert_true(test_child > 0 && waitpid(test_child, &test_status, 0) == test_child);                   \
        rewind(test_file);                                                                                   \
        test_said[fread(test_said, 1, sizeof(test_said) - 1, test_file)] = 0;                                \
        fclose(test_file);                                                                                   \
        if (!strstr(test_said, words))                                                                       \
            print_error("it said: %s\n", test_said);                                                         \
        assert_non_null(strstr(test_said, words));                                                           \
        assert_true(WIFSIGNALED(test_status) && WTERMSIG(test_status) == SIGABRT);                           \
    } while (0)

#endif
