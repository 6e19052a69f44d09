/* hub_variants.h - the GGUF models of one revision of a repository: the files of each, and its name there.
 *
 * A model is a GGUF file, or the parts NAME-00001-of-0000N of one folder. Its quantisation (Q4_K_M) is its
 * name if no other model has that one, else its file's name without the ending; the only model may have
 * none. Vision encoders (mmproj) are not models. One thread at a time. */
#ifndef PLATEAU_HUB_HUB_VARIANTS_H
#define PLATEAU_HUB_HUB_VARIANTS_H

#include "hub/hub_name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct hub_list;

#define HUB_VARIANTS_MAX 1024

struct hub_variant {
    char *file;     /* the first of its parts, with its folders; owned */
    uint64_t bytes; /* bytes of all parts that are there */
    uint32_t parts, parts_max;
    char quant[HUB_QUANT_BYTES]; /* its name: hub_name.quant */
};

struct hub_variants {
    struct hub_variant *list; /* the smallest first */
    uint32_t count;
    bool safetensors; /* there are such files, too */
};

/* From a list of files, and from a snapshot on this machine, whose links are followed. 0, -ENOMEM, -E2BIG
 * (more than HUB_VARIANTS_MAX models). hub_variants_done() either way. */
int hub_variants_of_list(const struct hub_list *l, struct hub_variants *ret, struct err *e);
int hub_variants_of_snapshot(const char *dir, struct hub_variants *ret, struct err *e);
/* Zeroed is fine. */
void hub_variants_done(struct hub_variants *g);

/* The model that `quant` chooses, in any case of letters: by its name, else by the end of its file's name,
 * else by a word of that. With "" it is the only model. 0, -ENOENT, or -ENOTUNIQ; `e` lists the models. */
int hub_variants_find(const struct hub_variants *g, const struct hub_name *name,
                      const struct hub_variant **ret, struct err *e);
/* Whether a file is one of the model's. */
bool hub_variant_has(const struct hub_variant *m, const char *file);
/* "Q4_K_M (2.3 GiB), Q8_0 (4.1 GiB)", cut at `bytes`. */
void hub_variants_text(const struct hub_variants *g, char *ret, size_t bytes);

/* The index of the model to take if in doubt, of those of at most `bytes`: one of four to five bits a weight,
 * which loses little; else the largest; the smallest if none fits. There is one. */
uint32_t hub_variants_suggest(const struct hub_variants *g, uint64_t bytes);

/* Leaves those files of `l` that serving the models needs whose index is marked in `chosen`, with one vision
 * encoder, and the files that match `include`. */
void hub_variants_keep(struct hub_list *l, const struct hub_variants *g, const bool *chosen,
                       const char *const *include);

#endif
