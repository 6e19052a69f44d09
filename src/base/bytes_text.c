/* bytes_text.c - binary units with one decimal, up to TiB. */
#include "base/bytes_text.h"

#include "base/check.h"

#include <stdio.h>

struct bytes_text bytes_text(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct bytes_text ret;
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < COUNT_OF(units); unit++)
        value /= 1024;
    snprintf(ret.text, sizeof(ret.text), unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return ret;
}
