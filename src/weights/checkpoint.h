/* checkpoint.h - the tensors of a model, by name.
 *
 * A directory: model.safetensors.index.json if it exists, else model.safetensors, else model*.safetensors;
 * and an MTP side file (mtp/weights.safetensors, else model-mtp.safetensors). Or a GGUF model: one file, or
 * all its parts. Each kind has a reader (checkpoint_table.h). Opening reads headers and checks every offset,
 * length, shape and dtype: no tensor reaches outside its file at that time. The caller reads tensors piece by
 * piece into its own memory; a file that shrinks meanwhile is an error of that read.
 * Constant after opening, any thread. */
#ifndef PLATEAU_WEIGHTS_CHECKPOINT_H
#define PLATEAU_WEIGHTS_CHECKPOINT_H

#include "base/arena.h"
#include "base/err.h"
#include "memory/ledger.h"

struct checkpoint;
struct model_files;
struct slice;
struct tensor;

/* Opens the tensors of the files in `folder` of a model ("": its own), which outlives the checkpoint. `a`
 * keeps names and tables; `account` (may be NULL) is charged with one header's text at a time, until this
 * returns. 0, -ENOENT, -EINVAL (err names file and tensor), -ENOMEM, -ESTALE (a file changes meanwhile), or
 * what open and read said. */
int checkpoint_open(struct arena *a, struct model_files *model, const char *folder, struct account *account,
                    struct checkpoint **ret, struct err *e);

/* Its files, by their names relative to the folder. */
uint32_t checkpoint_file_count(const struct checkpoint *c);
const char *checkpoint_file_name(const struct checkpoint *c, uint32_t index);

/* The name of the file in a packed model: GGUF files are called *.gguf there. */
const char *checkpoint_packed_name(const struct checkpoint *c, uint32_t index);
/* The bytes at the begin of the file that are read to open it. 0, or what reading said. */
int checkpoint_head_bytes(const struct checkpoint *c, uint32_t index, uint64_t *ret, struct err *e);

/* Parses the first bytes of a file that weights_name_is(), whose head does not say its length. 0; -EAGAIN:
 * it is longer; or what is wrong with it. */
int checkpoint_head_check(struct slice text, uint64_t file_bytes);
#define CHECKPOINT_HEAD_BYTES_MAX  ((uint64_t)128 << 20)
#define CHECKPOINT_HEAD_FIRST_READ ((uint64_t)1 << 20)

uint32_t checkpoint_count(const struct checkpoint *c);
/* Sums the bytes of all files. */
uint64_t checkpoint_bytes(const struct checkpoint *c);
/* False when there is no such tensor. */
bool checkpoint_find(const struct checkpoint *c, const char *name, struct tensor *ret);
/* The index of that tensor, which there is. */
uint32_t checkpoint_index(const struct checkpoint *c, const char *name);
/* Whether a tensor's name begins so. */
bool checkpoint_any(const struct checkpoint *c, const char *head);
/* Name of tensor `index` < count, and the file (without directory) it lies in. */
const char *checkpoint_name(const struct checkpoint *c, uint32_t index);
const char *checkpoint_file_of(const struct checkpoint *c, const char *name);
/* The name of the tensor that `t` is, or that it was cut out of. */
const char *checkpoint_name_of(const struct checkpoint *c, const struct tensor *t);
/* Bytes [from, from + len) of a tensor of this checkpoint, or of one that was cut out of it. 0, -ESTALE (the
 * file became shorter), or what the system said: e names the file. */
int checkpoint_read(const struct checkpoint *c, const struct tensor *t, size_t from, void *into, size_t len,
                    struct err *e);
/* After the last read: 0, or -ESTALE if a file has changed since it was opened. The bytes may then be a
 * mixture. */
int checkpoint_check(const struct checkpoint *c, struct err *e);
/* All bytes of a tensor will be read, in small pieces: the system may bring them in one. */
void checkpoint_ahead(const struct checkpoint *c, const struct tensor *t);
/* The bytes of a tensor are not needed again: they leave the page cache. */
void checkpoint_drop(const struct checkpoint *c, const struct tensor *t);

#endif
