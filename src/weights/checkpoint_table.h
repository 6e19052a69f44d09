/* checkpoint_table.h - the files and tensors of a checkpoint that is open, and what its readers fill it with.
 *
 * A reader knows a kind of files: which of them count, and which tensor lies in which. It adds files and
 * tensors; finding, reading and closing are the same for all (checkpoint.c). */
#ifndef PLATEAU_WEIGHTS_CHECKPOINT_TABLE_H
#define PLATEAU_WEIGHTS_CHECKPOINT_TABLE_H

#include "weights/checkpoint.h"

#include "base/files/regular_file.h"
#include "base/hash.h"
#include "tensor/tensor.h"
#include "weights/model_files.h"

#define CHECKPOINT_FILES_MAX   4096
#define CHECKPOINT_TENSORS_MAX 1000000

struct checkpoint_file {
    const char *name;              /* relative to the folder */
    const struct regular_file *at; /* the model's; NULL: it is not open yet */
};

struct checkpoint_entry {
    const char *name;
    uint32_t name_len;
    uint32_t file;
    bool found; /* its file has been read and holds it; false only while opening */
    struct tensor tensor;
};

/* A tensor whose runs come from two tensors of a file in turn. Its offsets begin at the file's end. */
struct checkpoint_woven {
    uint32_t file;
    uint64_t at;       /* offset of the woven tensor; 0: the checkpoint has none */
    uint64_t parts[2]; /* offsets of the two tensors */
    size_t run;        /* bytes of a run */
};

struct checkpoint {
    struct arena *arena;
    struct account *account; /* charged with a text while there is one; may be NULL */
    uint64_t file_bytes;
    struct model_files *model;
    const char *folder; /* in the model's directory; "": the directory itself */
    struct checkpoint_file *files;
    uint32_t file_count;
    struct checkpoint_woven woven;
    bool has_side; /* the last file is the MTP side file of a directory of safetensors */
    struct checkpoint_entry *entries;
    uint32_t entry_count, entries_max;
    struct hash_map by_name;
};

/* The readers of two kinds of models. They fill files and entries. 0, or as checkpoint_open(). */
int checkpoint_safetensors_open(struct checkpoint *c, struct err *e);
int checkpoint_gguf_open(struct checkpoint *c, struct err *e);
/* Return checkpoint_head_bytes() and checkpoint_packed_name() of the two kinds. */
int checkpoint_safetensors_head_bytes(const struct regular_file *at, uint64_t *ret, struct err *e);
int checkpoint_gguf_head_bytes(const struct regular_file *at, uint64_t *ret, struct err *e);
const char *checkpoint_gguf_name(const char *name);

/* Adds a file by its name in the folder; it is not open. 0, -EINVAL (too many), -ENOMEM. */
int checkpoint_table_add_file(struct checkpoint *c, const char *name, size_t len, struct err *e);
/* Whether the folder has a file of that name. */
bool checkpoint_table_has(const struct checkpoint *c, const char *name);
/* Opens the file. 0, -EINVAL (empty), or what opening said. */
int checkpoint_table_open_file(const struct checkpoint *c, struct checkpoint_file *f, struct err *e);
/* Opens all files, and counts their bytes. */
int checkpoint_table_open_files(struct checkpoint *c, struct err *e);
/* Makes room for `entries_max` tensors; once. 0, -EINVAL (too many), -ENOMEM. */
int checkpoint_table_make(struct checkpoint *c, uint32_t entries_max, struct err *e);
/* Adds a tensor of file number `file`; t NULL: one that its file must still have. 0, -EINVAL (the name occurs
 * twice), -ESTALE (no room: the files changed), -ENOMEM. */
int checkpoint_table_add(struct checkpoint *c, struct slice name, uint32_t file, const struct tensor *t,
                         struct err *e);

#endif
