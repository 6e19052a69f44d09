/* media_ppm.h - frames that a process writes, one after the other, as binary PPM ("P6", 8 bits). One thread
 * at a time. */
#ifndef PLATEAU_MEDIA_MEDIA_PPM_H
#define PLATEAU_MEDIA_MEDIA_PPM_H

#include <stdint.h>

struct media_bytes;
struct media_process;

struct media_ppm {
    struct media_process *process; /* whose output is read */
    uint64_t pixels_max;           /* limit of a frame */
    const struct charge *charge;   /* pays for a frame's bytes before they are read */
};

/* The next frame: width * height * 3 bytes in `into`, which may have room already. `width` and `height` may
 * be written on failure too. 0; -EPIPE: there are no more, or the last one is cut; -EPROTO: it is no PPM;
 * -E2BIG: over pixels_max; -ENOMEM; or as media_process_read(). */
int media_ppm_read(const struct media_ppm *p, struct media_bytes *into, uint32_t *width, uint32_t *height);

#endif
