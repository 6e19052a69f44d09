/* vision_preprocessor.h - how images and videos become pixels of a vision encoder, by the preprocessors'
 * files. A file that is missing has the values of the encoder's family. Inside config/ only. */
#ifndef PLATEAU_MODEL_VISION_PREPROCESSOR_H
#define PLATEAU_MODEL_VISION_PREPROCESSOR_H

#include <stdint.h>

struct json_read;
struct model_vision;
struct vision_config;

/* Each reads into `v`, whose sizes of patches and tokens are set, and records a failure in `r`. */

/* Reads how many tiles an image may have. */
void vision_preprocessor_counts(struct json_read *r, struct vision_config *v);
/* `tokens_asked`: --image-tokens; 0: the file's budget. */
void vision_preprocessor_image(struct json_read *r, uint32_t tokens_asked, struct vision_config *v);
/* Called after vision_preprocessor_image(). */
void vision_preprocessor_video(struct json_read *r, struct vision_config *v);
/* Bounds an image by `pixels_max`, 0: VISION_PIXELS_USUAL. It has at least one token. */
void vision_preprocessor_cap(struct json_read *r, struct model_vision *s, uint64_t pixels_max);

#endif
