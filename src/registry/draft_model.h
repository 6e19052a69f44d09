/* draft_model.h - a small model that drafts for a loaded one: its numbers, its load, and its end.
 *
 * It belongs to its target: planned, loaded and freed with it, below one account of the target's in each
 * domain. Its K and V lie in the target's pages. Its tokenizer is only compared. One thread at a time. */
#ifndef PLATEAU_REGISTRY_DRAFT_MODEL_H
#define PLATEAU_REGISTRY_DRAFT_MODEL_H

#include "model/model.h"
#include "registry/model_id.h"

struct model_settings;
struct slice;
struct store_identity;
struct tokenizer;

struct draft_model_plan {
    char dir[MODEL_DIR_BYTES]; /* empty: no draft model */
    /* Written by draft_model_probe(). */
    struct model_parts parts; /* for the load, but for page_stride */
    struct model_shape shape;
    uint64_t tokenizer_bytes; /* while it is compared */
};

/* Whether the directory has an EAGLE-3 head, which the target loads as its own (model_parts.eagle). */
bool draft_model_is_eagle(const struct draft_model_plan *p);

/* Reads the draft model's headers and checks what it and its target must be; loads nothing. `target`: the
 * target's shape without drafts, and the parts that it is loaded with. 0, -ENOTSUP (the reason is in `e`), or
 * what model_probe() said. */
int draft_model_probe(struct draft_model_plan *p, const struct model_shape *target,
                      const struct model_parts *parts, struct err *e);

struct draft_model {
    struct model *model;                      /* NULL: no draft model */
    struct account *account, *device_account; /* device_account: NULL where it is in the machine's memory */
};

/* `opts`: the target's, with the accounts of the target as parents. Opens the accounts, compares the
 * tokenizers, and loads. draft_model_close() is due in either case. 0, -EINVAL, -ENOMEM, or what reading
 * said. */
int draft_model_load(struct draft_model *d, const struct draft_model_plan *p, const struct model_opts *opts,
                     const struct model_shape *target, const struct tokenizer *tokenizer, struct err *e);
/* Zeroed is fine. */
void draft_model_close(struct draft_model *d);

/* Tells pages with K and V of this draft model from pages of another. 0, or as model_fingerprint(). */
int draft_model_mark(const struct draft_model_plan *p, struct store_identity *identity, struct err *e);

#endif
