/* media_sample.h - which frames of a video a model looks at, and when they are (contract 4.5). Pure. */
#ifndef PLATEAU_API_MEDIA_SAMPLE_H
#define PLATEAU_API_MEDIA_SAMPLE_H

#include <stdint.h>

struct media_sample {
    uint32_t frames;      /* that there are; > 0 */
    double fps;           /* of the video; > 0 */
    double wanted;        /* frames per second to be looked at; > 0 */
    uint32_t least, most; /* of them; most > 0 */
};

/* How many: 1..frames. */
uint32_t media_sample_count(const struct media_sample *s);
/* The index of each, ascending: round(linspace(0, frames - 1, count)), halves to the even one. */
uint32_t media_sample_index(uint32_t frames, uint32_t count, uint32_t i);

#endif
