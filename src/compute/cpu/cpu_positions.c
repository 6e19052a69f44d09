/* cpu_positions.c - torch's bicubic filter without antialias, and its bilinear one with it. */
#include "compute/cpu/cpu_positions.h"

#include <math.h>

static double cubic(double d)
{
    const double a = -0.75;
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

static double weight_at(const struct cpu_position_axis *a, int32_t entry)
{
    const double distance = fabs(entry - a->center);
    return a->cubic ? cubic(distance) : fmax(1 - distance / a->support, 0);
}

double cpu_position_weight(const struct cpu_position_axis *a, int32_t entry)
{
    return weight_at(a, entry) / a->sum;
}

struct cpu_position_axis cpu_position_axis(enum encode_positions kind, uint32_t index, uint32_t count,
                                           uint32_t grid)
{
    const double scale = (double)grid / count;
    struct cpu_position_axis a = {.cubic = kind == ENCODE_POSITIONS_CUBIC,
                                  .center = (index + 0.5) * scale - 0.5,
                                  .support = fmax(scale, 1),
                                  .sum = 1};
    if (a.cubic) {
        a.from = (int32_t)floor(a.center) - 1;
        a.to = a.from + 4;
        return a;
    }
    a.from = (int32_t)fmax(ceil(a.center - a.support), 0);
    a.to = (int32_t)fmin(floor(a.center + a.support) + 1, grid);
    a.sum = 0;
    for (int32_t i = a.from; i < a.to; i++)
        a.sum += weight_at(&a, i);
    return a;
}
