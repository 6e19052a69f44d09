/* err.c - messages with a bound. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, int code, const char *format, ...)
{
    if (!e)
        return code;
    va_list ap;
    va_start(ap, format);
    vsnprintf(e->text, sizeof(e->text), format, ap);
    va_end(ap);
    return code;
}

int err_prefix(struct err *e, int code, const char *format, ...)
{
    if (!e)
        return code;
    char old[sizeof(e->text)];
    memcpy(old, e->text, sizeof(old));
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(e->text, sizeof(e->text), format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(e->text))
        return code;
    snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %s", old);
    return code;
}
