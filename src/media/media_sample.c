/* media_sample.c - the reference's arithmetic in the reference's order: rounding decides between two
 * neighbouring frames. */
#include "media/media_sample.h"

#include "base/check.h"

#include <math.h>

uint32_t media_sample_count(const struct media_sample *s)
{
    double n = floor((double)s->frames / s->fps * s->wanted);
    double least = MIN_OF(MIN_OF(s->least, s->most), s->frames), most = MIN_OF(s->most, s->frames);
    return (uint32_t)fmax(fmin(fmax(n, least), most), 1);
}

uint32_t media_sample_index(uint32_t frames, uint32_t count, uint32_t i)
{
    ASSERT(frames > 0 && count > 0 && i < count);
    if (i == 0)
        return 0;
    if (i == count - 1)
        return frames - 1;
    double step = (double)(frames - 1) / (double)(count - 1);
    return (uint32_t)nearbyint(i * step);
}
