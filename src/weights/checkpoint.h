/* checkpoint.h - the tensors of a model directory, by name.
 *
 * model.safetensors.index.json if it exists, else model.safetensors, else model*.safetensors; and an MTP side file
 * (mtp/weights.safetensors, else model-mtp.safetensors). Files are mapped read-only; their pages are counted as `file`
 * against the ceiling while mapped. Every offset, length, shape and dtype is checked at opening: a
 * tensor_view never reaches outside its file. Read-only after opening, any thread. */
#ifndef PLATEAU_WEIGHTS_CHECKPOINT_H
#define PLATEAU_WEIGHTS_CHECKPOINT_H

#include "base/arena.h"
#include "base/err.h"
#include "memory/ledger.h"
#include "tensor/tensor.h"

struct checkpoint;

/* `a` keeps the names and views; `file` (may be NULL) is charged with the mapped bytes.
 * 0, -ENOENT, -EINVAL (err names file and tensor), -ENOMEM, or what open/mmap said. */
int checkpoint_open(struct arena *a, const char *dir, struct account *file, struct checkpoint **ret,
                    struct err *e);
/* Unmaps. NULL is fine. Views are invalid afterwards. */
void checkpoint_close(struct checkpoint *c);

uint32_t checkpoint_count(const struct checkpoint *c);
uint64_t checkpoint_bytes(const struct checkpoint *c);
/* False when there is no such tensor. */
bool checkpoint_find(const struct checkpoint *c, const char *name, struct tensor *ret);
/* Whether a tensor's name begins so. */
bool checkpoint_any(const struct checkpoint *c, const char *head);
/* Name of tensor `index` < count, and the file (without directory) it lies in. */
const char *checkpoint_name(const struct checkpoint *c, uint32_t index);
const char *checkpoint_file_of(const struct checkpoint *c, const char *name);
/* Tells the system that these bytes were read and are not needed again: keeps the page cache and RssFile small. */
void checkpoint_drop(const struct checkpoint *c, const struct tensor *t);

/* One file's bytes as tensors: the parser below checkpoint_open, for tests and fuzzing. Calls `found` for each
 * tensor in file order; stops at its first negative return. */
int safetensors_parse(struct slice file, int (*found)(void *arg, struct slice name, const struct tensor *t),
                      void *arg, struct err *e);

#endif
