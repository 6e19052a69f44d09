#include "base/median.h"

#include "base/check.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of(double *values, uint32_t count)
{
    ASSERT(count > 0);
    qsort(values, count, sizeof(values[0]), by_size);
    return values[count / 2];
}
