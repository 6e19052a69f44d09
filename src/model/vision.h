/* vision.h - the vision tower of a loaded model: pixels to features that stand for tokens (contract 4).
 *
 * One picture at a time is on its way; its work is done in pieces of well under a millisecond each, so that
 * who calls can stop after any and let others compute. Its memory is committed when a picture begins and
 * stays for the next one until model_encode_relax(). The engine's thread, inside a turn of the workers. */
#ifndef PLATEAU_MODEL_VISION_H
#define PLATEAU_MODEL_VISION_H

#include "model/model.h"

/* What the account `vision` below the model's takes while a picture of so many pixels is encoded, the tower's
 * weights not among it. */
uint64_t model_encode_bytes(const struct model_shape *s, uint64_t pixels);

/* Multiply-adds that such a picture takes, in products and attention. */
uint64_t model_encode_products(const struct model_shape *s, uint64_t pixels);

struct model_picture {
    const uint8_t *frames[2]; /* [height][width][3] R, G, B; the same twice for a still picture. Borrowed
                                 until it is done */
    uint32_t width, height;   /* multiples of patch * merge; width * height <= pixels_max */
    float *features; /* [tokens][feature_floats]: the result; tokens = (width / edge) * (height / edge), edge
                        = patch * merge */
};
/* Commits its memory, a small unit a call, for that takes time as well. 0: it is on its way. 1: there is more
 * to commit, call again. -ENOMEM: the rest was refused, and nothing is on its way; what earlier calls
 * committed stays for others. No other picture is on its way. */
int model_encode_begin(struct model *m, const struct model_picture *p);
/* Works until it is done or the clock has passed deadline_ns, at least one piece. True: done, and none is on
 * its way. */
bool model_encode_run(struct model *m, uint64_t deadline_ns);
/* Forgets the picture that is on its way; fine when there is none. */
void model_encode_stop(struct model *m);
/* For reports: how much is done of what it takes; 0 of 0 when none is on its way. */
void model_encode_progress(const struct model *m, uint64_t *done, uint64_t *all);
/* Gives the memory back; no picture is on its way. At most 2 MiB per call; true: there is more. */
bool model_encode_relax(struct model *m);

#endif
