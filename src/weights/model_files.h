/* model_files.h - the files of one model, which are opened once.
 *
 * Opening decides what a path is: a directory of safetensors, a GGUF model, or a packed file of either
 * (bundle.h). A GGUF model is a file *.gguf, a file of Ollama's store (sha256-HEX), or a directory with files
 * *.gguf and without *.safetensors; its config.json is not read. Such a directory holds one model: one file,
 * or the parts NAME-00001-of-0000N.gguf. Files mmproj*.gguf hold vision encoders, and are not models.
 *
 * A file has a descriptor from the first time that it is asked for until model_files_close(). A file that is
 * replaced or renamed meanwhile is still the one that was opened: all readers see the files of one model. One
 * thread at a time. */
#ifndef PLATEAU_WEIGHTS_MODEL_FILES_H
#define PLATEAU_WEIGHTS_MODEL_FILES_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct account;
struct bundle;
struct gguf_head;
struct model_files;
struct regular_file;
struct small_file;
struct tensor_naming;

#define MODEL_FILES_MAX        8192 /* files that are open at once */
#define MODEL_FILES_PATH_BYTES 4096
#define MODEL_FILES_NAME_BYTES 256 /* bytes of a GGUF file's name, with its zero */

/* 0, -ENOENT, -ENOTDIR (neither a directory nor a file of a model), -EINVAL (a directory with several GGUF
 * models, a damaged packed file), -ENAMETOOLONG, -ENOMEM, or what opening said. The caller closes *ret. */
int model_files_open(const char *path, struct model_files **ret, struct err *e);
/* Closes all descriptors. NULL is fine. */
void model_files_close(struct model_files *f);

/* Returns the path that was given. */
const char *model_files_path(const struct model_files *f);
/* It is a GGUF model: JSON and texts are made of its metadata (gguf_view.h), whatever lies beside it. */
bool model_files_is_view(const struct model_files *f);
/* The names of its tensors; *ret is NULL if they are those of Hugging Face's files. 0, -EINVAL, -ENOTSUP (an
 * architecture that is not read), or what reading said. */
int model_files_naming(struct model_files *f, const struct tensor_naming **ret, struct err *e);
/* The path leads to a directory. */
bool model_files_is_directory(const struct model_files *f);
/* The packed file; NULL: it is not one. */
const struct bundle *model_files_bundle(const struct model_files *f);

/* The file at `name`, relative to the model's directory: "2_Dense/config.json". It stays open, and belongs to
 * `f`. 0, -ENOENT, -E2BIG (more than MODEL_FILES_MAX), -ENAMETOOLONG, -EINVAL (not a regular file; or in a
 * packed file: a checksum differs), -ENOMEM; e begins with the path. */
int model_files_file(struct model_files *f, const char *name, const struct regular_file **ret, struct err *e);
/* The content of the text file `name`. 0, or as model_files_file() and small_file_read(). */
int model_files_text(struct model_files *f, const char *name, size_t bytes_max, struct small_file *ret,
                     struct err *e);
/* The bytes of the file `name`, about those of a view; 0: there is no such file. */
uint64_t model_files_bytes(struct model_files *f, const char *name);
/* Whether there is something of that name. */
bool model_files_has(const struct model_files *f, const char *name);
/* Calls `found` for the files in `folder` ("": the model's own) whose names `is` takes, in the order of their
 * names; without the folder there are none. 0, -ENOMEM, what reading the folder or `found` said. */
int model_files_each(const struct model_files *f, const char *folder, bool (*is)(const char *name),
                     int (*found)(void *arg, const char *name, struct err *e), void *arg, struct err *e);

/* Parts of a GGUF model by the name of its first one; 1 without such a name. */
uint32_t model_files_part_count(const struct model_files *f);
/* The name of part `index` of `count` of a GGUF model; its first part names itself. 0, or -EINVAL: it is not
 * named as the first of `count` parts. */
int model_files_part(const struct model_files *f, uint32_t index, uint32_t count,
                     char ret[MODEL_FILES_NAME_BYTES], struct err *e);
/* Reads the head of a GGUF model's first part (gguf_head.h). `account` may be NULL. As gguf_head_read(), but
 * e begins with the path. */
int model_files_head(struct model_files *f, struct account *account, struct gguf_head *ret, struct err *e);
/* Returns the name of the file with a GGUF model's vision encoder, the first in its directory that fits it
 * (gguf_vision.h); NULL without one. */
const char *model_files_encoder(struct model_files *f);
/* Takes the file at `path` for the vision encoder instead of one beside the model. 0; -EINVAL, -ENOTSUP: not
 * a GGUF model, or not an encoder of its own; what reading said. e names the file. */
int model_files_use_encoder(struct model_files *f, const char *path, struct err *e);
/* As `model_files_head()`, but of the encoder's file. -ENOENT: the model has none. */
int model_files_encoder_head(struct model_files *f, struct account *account, struct gguf_head *ret,
                             struct err *e);

#endif
