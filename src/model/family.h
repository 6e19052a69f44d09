/* family.h - what makes one family of models differ from the others.
 *
 * A family checks a configuration, binds one layer's tensors and runs one layer; the blocks it composes
 * (attention, delta net, MLP, experts) are shared. Adding a family is a file with one of these and a line in
 * family.c. */
#ifndef PLATEAU_MODEL_FAMILY_H
#define PLATEAU_MODEL_FAMILY_H

#include "model/config.h"

struct binder;
struct layer;
struct step;

struct family {
    const char *names[5]; /* model_type, without "_text" */
    double partial_rotary_default;
    bool shifted_norms; /* HF stores its norms as w - 1 */
    bool images;        /* its checkpoints may have a vision encoder */
    bool mtp;           /* or an MTP head, one of its full-attention layers */
    bool deepstack;     /* whose features also go to the first layers */
    /* Checks that everything is there that the family needs, and nothing that it does not know. 0, -EINVAL,
     * -ENOTSUP. */
    int (*check)(const struct config *c, struct err *e);
    int (*bind_layer)(struct binder *b, uint32_t index, struct layer *ret);
    void (*layer)(struct step *s, const struct layer *l);
};

extern const struct family family_llama;    /* family_llama.c */
extern const struct family family_qwen3_vl; /* family_llama.c */
extern const struct family family_qwen3_5;  /* family_qwen3_5.c */

/* By model_type. Returns NULL for an unknown one. */
const struct family *family_find(const char *model_type);
/* "llama, qwen3, ..." */
const char *family_list(char *ret, size_t bytes_max);

#endif
