/* measure.h - the first half of a load: the checkpoint is open, its tensors are found and checked, and the
 * memory that packing will take is counted. A probe ends here; a load and plateau pack go on.
 *
 * One thread, the loading one. */
#ifndef PLATEAU_MODEL_MEASURE_H
#define PLATEAU_MODEL_MEASURE_H

#include "model/load/binder.h"
#include "model/load/packers.h"
#include "model/vector_head.h"

#include "memory/accounts.h"

struct model_ends;
struct model_files;
struct model_parts;
struct vision_block;
struct vision_weights;

/* Where binding is: bytes of packed memory, and what their layout depends on. */
struct bind_mark {
    uint64_t used, digest;
};

/* Results of binding without packing. */
struct measured {
    struct binder text, mtp;
    struct bind_mark text_mark; /* without the vision encoder, which follows */
    struct bind_mark head_mark; /* the MTP head, without the draft vocabulary, which follows */
    struct err mtp_absent;      /* why a requested MTP head is missing */
};

/* A checkpoint, its tables, and its packers. */
struct source {
    struct account *account; /* account of the tables, the checkpoint and the packers */
    struct arena *arena;
    struct checkpoint *checkpoint;
    /* With parts.eagle: where its configuration stays, set by the caller; its files, closed with the
     * source. */
    struct arena *tables;
    struct model_files *eagle_files;
    struct checkpoint *eagle_checkpoint;
    struct packers packers;
    struct vector_head_source vector_head;
};

/* The results of binding. While measuring there are no layers and no blocks. */
struct bind_targets {
    struct model_ends *ends;
    struct layer *layers;
    struct vision_block *vision_blocks;
    struct vision_weights *vision;
};

/* Opens an account below `parent`, none below NULL. 0 or -ENOMEM. */
int measure_account(struct account *parent, enum account_id id, struct account **ret);
/* An arena that charges `account`, which may be NULL. 0 or -ENOMEM. */
int measure_arena(struct account *account, size_t bytes_max, struct arena **ret);

/* 0, or as checkpoint_open(). The caller closes it in both cases, before the model's files. */
int measure_source_open(struct source *s, struct model_files *files, struct account *parent, struct err *e);
/* Bytes of the largest stage that packing needs, whole grains of an arena. */
uint64_t measure_staging_bytes(const struct measured *m);
/* Plans the account's bytes and starts the packers. `stage_bytes` 0: their stages are empty. 0 or -ENOMEM. */
int measure_source_begin(struct source *s, const struct device *device, uint64_t stage_bytes, struct err *e);
/* The packers read the EAGLE-3 checkpoint from now on. 0 or -ENOMEM. */
int measure_source_turn(struct source *s, const struct device *device, uint64_t stage_bytes, struct err *e);
/* Zeroed is fine. */
void measure_source_close(struct source *s);

/* Whether there are such parts. 0, -ENOTSUP, -EINVAL. */
int measure_check_parts(const struct model_parts *p, struct err *e);
/* Whether the checkpoint has a vision encoder that the backend computes. */
bool measure_sees(const struct config *c, const struct checkpoint *checkpoint);
/* Binds the text model and the vision encoder: measures, or packs. */
int measure_bind(struct binder *b, const struct bind_targets *to, struct bind_mark *text);
/* Takes the parts that the checkpoint has into *c, and measures them. An incomplete MTP head counts as
 * missing, with the reason. 0, -EINVAL, -ENOTSUP, -ENOENT, -ENOMEM. */
int measure_model(struct config *c, const struct model_parts *parts, struct model_files *files,
                  struct source *s, struct measured *ret, struct err *e);

#endif
