/* media_prompt.h - images in a prompt: first in its text, then among its tokens (contract 4.4, 4.5). Pure;
 * prep threads.
 *
 * A template writes one placeholder for each image or video. A client could write one too, so a request with
 * images may not have the placeholder's characters in any of its texts. Then each placeholder found is the
 * template's, and the k-th stands for the k-th part. If their number is not that of the parts, the request is
 * refused. */
#ifndef PLATEAU_GEN_MEDIA_PROMPT_H
#define PLATEAU_GEN_MEDIA_PROMPT_H

#include "base/slice.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;
struct chat_cuts;
struct job_image;
struct media_result;
struct model_vision;
struct reject;
struct tokenizer;

/* The model's marks for images and videos, from its tokenizer. An empty slice: the model has no such mark. */
struct media_marks {
    struct slice image, video, start, end;
    struct slice token; /* the image token, where the mark of images is another */
    uint32_t image_id, video_id;
    uint32_t row_end_id, last_id; /* tokens after a row of image tokens, and after the last row, if there are
                                   * some */
    const struct model_vision *vision;
};

struct media_marks media_marks_of(const struct model_vision *v, const struct tokenizer *t);

/* The first string of `v` (names of members too) that contains a mark; NULL: none does. `v` is nested at most
 * as deep as requests may be. */
const char *media_prompt_forged(const struct media_marks *m, const json_t *v);

/* Results of the request's parts, in order. */
struct media_results {
    const struct media_result *parts;
    uint32_t count;
    const char *field; /* the request's field that has them: a refusal names it */
};

/* Copies the rendered text to ret; a video's placeholder becomes a group with its time for each pair of
 * frames. `cuts` move with the text. */
bool media_prompt_text(const struct media_marks *m, const struct media_results *results, struct slice text,
                       struct chat_cuts *cuts, struct buf *ret, struct reject *why);

/* Counts the prompt's tokens with each placeholder expanded to the tokens of its image, and the images.
 * False: the placeholders do not fit the images. */
bool media_prompt_count(const struct media_marks *m, const struct media_results *results, const uint32_t *ids,
                        uint32_t count, uint64_t *ret, uint32_t *images, struct reject *why);
/* After media_prompt_count(): writes the tokens to `to` and each image's place to `images`, which have room
 * for the counted numbers. `cuts`, in tokens, move with them. */
void media_prompt_expand(const struct media_marks *m, const struct media_results *results,
                         const uint32_t *ids, uint32_t count, uint32_t *to, struct job_image *images,
                         uint32_t *cuts, uint32_t cut_count);

#endif
