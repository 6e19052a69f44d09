/* check.c - the one place where the program stops itself. Nothing here allocates: it is also what stops a
 * thread that may not. */
#include "base/check.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* From the source folder on, without the path of the build. */
static const char *place_of(const char *file)
{
    const char *in = strstr(file, "/src/");
    return in ? in + 1 : file;
}

static _Noreturn void stop(const char *file, int line, const char *condition, const char *what)
{
    char thread[17] = "";
    prctl(PR_GET_NAME, thread);
    log_write(LOG_LEVEL_FATAL, "invariant_broken", "thread=\"%s\"%s%s%s condition=\"%s\" at=%s:%d", thread,
              what ? " what=\"" : "", what ? what : "", what ? "\"" : "", condition, place_of(file), line);
    abort();
}

void check_fail(const char *file, int line, const char *condition)
{
    stop(file, line, condition, NULL);
}

void check_fail_of(const char *file, int line, const char *condition, const char *format, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof(what), format, ap);
    va_end(ap);
    stop(file, line, condition, what);
}
