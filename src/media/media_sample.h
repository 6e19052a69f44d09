/* media_sample.h - which frames of a video are sampled for the model (contract 4.5). Pure.
 *
 * Frames are spread evenly from the first to the last one, or taken at fixed times (`longest`), each once. */
#ifndef PLATEAU_MEDIA_MEDIA_SAMPLE_H
#define PLATEAU_MEDIA_MEDIA_SAMPLE_H

#include <stdint.h>

struct media_sample {
    uint32_t frames;      /* in the video; > 0 */
    double fps;           /* frame rate of the video; > 0 */
    double wanted;        /* sampled frames per second; > 0 */
    uint32_t least, most; /* bounds of the sampled frames; most > 0 */
    double longest; /* > 0: frames are taken at fixed times, of a video of more seconds as many as of one of
                     * these; `least` counts as 1 */
};

/* Number of sampled frames: 1..frames. */
uint32_t media_sample_count(const struct media_sample *s);
/* Index of the i-th of media_sample_count() sampled frames, ascending. */
uint32_t media_sample_frame(const struct media_sample *s, uint32_t count, uint32_t i);
/* Index of the i-th of `count` frames that are spread evenly: round(linspace(0, frames - 1, count)), halves
 * to the even one. */
uint32_t media_sample_index(uint32_t frames, uint32_t count, uint32_t i);

#endif
