/* check.c - the one place where the program stops itself. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void check_fail(const char *file, int line, const char *condition)
{
    fprintf(stderr, "plateau: broken invariant at %s:%d: %s\n", file, line, condition);
    fflush(stderr);
    abort();
}
