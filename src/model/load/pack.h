/* pack.h - writes a packed file (packed.h) of a model.
 *
 * The file grows under the name OUT.part, whose weights are mapped and packed in place; OUT.journal has a
 * checksum of each part that is complete and on disk. A later call with the same model and options goes on
 * after the last of them. At the end OUT.part becomes OUT. One thread. */
#ifndef PLATEAU_MODEL_PACK_H
#define PLATEAU_MODEL_PACK_H

#include "compute/mode.h"

#include <stdbool.h>
#include <stdint.h>

struct device;
struct err;
struct model_files;

struct pack_opts {
    enum compute_mode compute;
    uint32_t quant;
    struct device *device;   /* the CPU */
    const char *fingerprint; /* digest of the source's files, in hex, 64 digits */
    struct account *parent;  /* model_opts.parent */
    uint64_t part_bytes;     /* a multiple of 4096; 0: PACKED_PART_BYTES. For tests */
    bool replace;            /* OUT may exist */
    int (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total); /* nonzero: -ECANCELED */
    void *progress_arg;
};

struct pack_result {
    uint64_t bytes;         /* bytes of the file */
    uint64_t weight_bytes;  /* bytes of weights in it */
    uint64_t resumed_bytes; /* bytes of weights that were found complete */
};

/* 0; -ECANCELED: complete parts stay for the next call; -EEXIST: OUT is there; -EBUSY: another process
 * packs to OUT; -ENOSPC; -ENOTSUP (a packed file, a device); or as model_load(). */
int pack_model(struct model_files *files, const char *out, const struct pack_opts *opts,
               struct pack_result *ret, struct err *e);

#endif
