/* vision.h - the vision encoder of a loaded model: pixels to embeddings that stand for tokens (contract 4).
 *
 * One image at a time is in progress. Its work is done in pieces of well under a millisecond each, so the
 * caller can stop after any piece and let other sequences compute. Its memory is committed when an image
 * begins and stays for the next one until vision_encoder_trim(). The engine's thread, inside a turn of the
 * workers. */
#ifndef PLATEAU_MODEL_VISION_H
#define PLATEAU_MODEL_VISION_H

#include "memory/dev.h"

struct model;
struct model_shape;

/* Bytes of the account `vision` below the model's while an image of this many pixels is encoded, without
 * the encoder's weights. */
uint64_t model_encode_bytes(const struct model_shape *s, uint64_t pixels);

struct model_image {
    const uint8_t *frames[2]; /* [height][width][3] R, G, B; the same twice for a still image. Borrowed until
                                 it is done */
    uint32_t width, height;   /* multiples of patch * merge; width * height <= pixels_max */
    dev_ptr features; /* [tokens][feature_floats]: the result; tokens = (width / edge) * (height / edge), edge
                       * = patch * merge */
};
struct vision_encoder;
/* The model's; not to be used without vision.present. */
struct vision_encoder *model_vision_encoder(struct model *m);

/* Commits its memory, a small unit a call, because that takes time as well. 0: the image is in progress.
 * 1: there is more to commit, call again. The account (-ENOMEM) or the system (-ENOBUFS) refused the
 * rest: no image is in progress; memory of earlier calls stays for others. No other image is in progress. */
int vision_encoder_begin(struct vision_encoder *e, const struct model_image *p);
/* Works until the image is done or the clock has passed deadline_ns, at least one piece. True: the image is
 * done, and none is in progress. */
bool vision_encoder_run(struct vision_encoder *e, uint64_t deadline_ns);
/* Drops the image in progress; fine without one. */
void vision_encoder_stop(struct vision_encoder *e);
/* Gives the memory back; no image is in progress. At most 2 MiB per call; true: there is more. */
bool vision_encoder_trim(struct vision_encoder *e);

#endif
