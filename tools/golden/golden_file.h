/* golden_file.h - golden.json: what a reference computed from a model's weights. */
#ifndef PLATEAU_TOOLS_GOLDEN_FILE_H
#define PLATEAU_TOOLS_GOLDEN_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct golden_ids {
    uint32_t *ids;
    uint32_t count;
};

struct golden_values {
    double *values;
    uint32_t count;
};

/* An image of the size that the vision encoder reads: its pixels, or a file that has them; neither: the case
 * has none. */
struct golden_image {
    uint8_t *pixels;                  /* [height][width][3] */
    char file[64];                    /* below the golden's directory */
    uint32_t width, height;           /* size in pixels */
    uint32_t grid_rows, grid_columns; /* patches */
    struct golden_values features;    /* the first of the vision encoder's first token */
};

/* One prompt with its answers. What the file does not give has count 0; lists about the prompt may cover its
 * last positions only, so their last entry is about its last token. */
struct golden_case {
    char name[32];
    struct golden_ids prompt, argmax, greedy; /* argmax: at prompt positions */
    struct golden_values max_logit, margin;   /* at prompt positions */
    struct golden_values greedy_margin;       /* at every greedy step */
    struct golden_values last;                /* logits after the last prompt token: all, or of `last_ids` */
    struct golden_ids last_ids;
    struct golden_image image;
    /* The MTP head, about the last positions of prompt and greedy but the very last: its prediction after the
     * next token. */
    struct golden_ids mtp_argmax;
    struct golden_values mtp_max_logit;
    struct golden_values mtp_second_logit; /* best logit of the draft token after it; may be absent */
};

/* A text's pooled vector, or the score of a pair of texts. */
struct golden_vector {
    struct golden_ids ids;
    uint32_t second;             /* token types are 1 from this one on; 0: all are 0 */
    struct golden_values vector; /* vector; of a score its one value */
    bool scores, answers;        /* a score; by the logits of two tokens */
    uint32_t yes, no;
};

struct golden_file {
    struct golden_vector *vectors; /* then scores */
    uint32_t vector_count, score_count;
    struct golden_case *cases;
    uint32_t case_count;
    uint32_t mtp; /* cases with lists of the MTP head */
};

/* 0, -ENOENT, -EINVAL, -ENOMEM. */
int golden_file_load(const char *path, struct golden_file *ret, struct err *e);
void golden_file_free(struct golden_file *f);

#endif
