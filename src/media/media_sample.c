/* media_sample.c - the reference's arithmetic in the reference's order: rounding decides between two
 * neighbouring frames. */
#include "media/media_sample.h"

#include "base/check.h"

#include <math.h>
#include <stdbool.h>

/* ---- fixed times ---- */

static double seconds_of(const struct media_sample *s)
{
    return (double)s->frames / s->fps;
}

/* Frames that are wanted, before equal ones count once. */
static double timed_wanted(const struct media_sample *s)
{
    return fmax(fmin(floor(fmin(seconds_of(s), s->longest) * s->wanted), s->most), 1);
}

/* Whether frames are spread over a video that is too long for the wanted interval. */
static bool timed_spread(const struct media_sample *s)
{
    return seconds_of(s) > s->longest || floor(seconds_of(s) * s->wanted) > s->most;
}

/* Index of the i-th of the `wanted` frames. */
static double timed_index(const struct media_sample *s, double wanted, double i)
{
    const bool spread = timed_spread(s);
    const double at = spread ? i * (seconds_of(s) / fmax(wanted - 1, 1)) * s->fps : i * s->fps / s->wanted;
    return fmin(spread && wanted >= s->frames ? i : ceil(at), s->frames - 1);
}

/* Intervals shorter than a frame's give all frames. */
static uint32_t timed_count(const struct media_sample *s)
{
    const double wanted = timed_wanted(s);
    double last = -1;
    uint32_t count = 0;
    for (double i = 0; i < wanted; i++) {
        const double index = timed_index(s, wanted, i);
        count += index > last;
        last = index;
    }
    return count;
}

static uint32_t timed_frame(const struct media_sample *s, uint32_t i)
{
    /* Rounding of equal rates must not give a frame twice. */
    const bool all = s->fps < s->wanted * (1 + 1e-9) && !timed_spread(s);
    return (uint32_t)(all ? fmin(i, s->frames - 1) : timed_index(s, timed_wanted(s), i));
}

/* ---- all ---- */

uint32_t media_sample_frame(const struct media_sample *s, uint32_t count, uint32_t i)
{
    ASSERT(count > 0 && i < count);
    return s->longest > 0 ? timed_frame(s, i) : media_sample_index(s->frames, count, i);
}

uint32_t media_sample_count(const struct media_sample *s)
{
    if (s->longest > 0)
        return timed_count(s);
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
