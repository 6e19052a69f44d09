/* run_golden.h - runs the program golden from a test. */
#ifndef PLATEAU_TESTS_RUN_GOLDEN_H
#define PLATEAU_TESTS_RUN_GOLDEN_H

#include "test_files.h"

#define GOLDEN_DATA(name) PLATEAU_SOURCE_DIR "/tests/golden/data/" name

/* Returns its exit status; `said` gets its output, cut to fit. */
static inline int run_golden(const char *args, char *said, size_t said_max)
{
    char command[2048];
    snprintf(command, sizeof(command), "%s %s 2>&1", GOLDEN_PROGRAM, args);
    FILE *p = popen(command, "re");
    assert_non_null(p);
    size_t n = fread(said, 1, said_max - 1, p);
    said[n] = 0;
    while (fgetc(p) != EOF)
        ;
    int status = pclose(p);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static inline void golden_holds(const char *args)
{
    char said[16384];
    int status = run_golden(args, said, sizeof(said));
    print_message("%s", said);
    assert_int_equal(status, 0);
    assert_true(strstr(said, " 0 prompts wrong") || strstr(said, " 0 vectors wrong"));
    assert_non_null(strstr(said, ": the same bits"));
}

#endif
