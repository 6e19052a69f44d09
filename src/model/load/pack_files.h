/* pack_files.h - which files of a model go into its packed file, and which parts of them.
 *
 * Small files that a loader reads go in whole; of files of weights the heads, and the tensors that a load
 * reads beside packing. One thread. */
#ifndef PLATEAU_MODEL_PACK_FILES_H
#define PLATEAU_MODEL_PACK_FILES_H

#include "base/buf.h"

struct err;
struct model_files;
struct source;

struct pack_files {
    int fd; /* written to at `at`, which moves */
    uint64_t at;
    struct buf table; /* table of bundle.h, without the number of files */
    uint32_t count;
};

/* 0, -ENOSPC, or what reading and writing said. */
int pack_files_add(struct pack_files *p, struct model_files *files, const struct source *s, struct err *e);
/* A file of these bytes. */
int pack_files_put(struct pack_files *p, const char *name, struct slice bytes, struct err *e);

#endif
