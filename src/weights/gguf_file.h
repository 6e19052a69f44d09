/* gguf_file.h - a model that is a GGUF file, by its path, and the head of such a file in memory.
 *
 * A path is a GGUF model if it is a file *.gguf, a file of Ollama's store (sha256-HEX), a directory with
 * files *.gguf and without *.safetensors, or a packed file of either; its config.json is not read. A
 * directory must hold one model: one file, or the parts NAME-00001-of-0000N.gguf of one. Files mmproj*.gguf,
 * which hold vision encoders, do not count. */
#ifndef PLATEAU_WEIGHTS_GGUF_FILE_H
#define PLATEAU_WEIGHTS_GGUF_FILE_H

#include "weights/gguf.h"

#include "base/files/regular_file.h"
#include "memory/ledger.h"

#define GGUF_PATH_BYTES 4096

bool gguf_file_is(const char *path);
/* The model's one file, or its first part. 0, -EINVAL (a directory with several models), -ENAMETOOLONG, or
 * what reading the directory said. */
int gguf_file_find(const char *path, char ret[GGUF_PATH_BYTES], struct err *e);
/* The path of part `index` of `count` beside `first`. 0, or -EINVAL: `first` is not named as the first of
 * `count` parts. */
int gguf_file_part(const char *first, uint32_t index, uint32_t count, char ret[GGUF_PATH_BYTES],
                   struct err *e);

/* A head that is in memory, and the file that it was read from. */
struct gguf_file {
    struct arena *arena; /* arena of text and tables */
    struct regular_file at;
    struct gguf head;
};
#define GGUF_FILE_NONE ((struct gguf_file){.at = REGULAR_FILE_NONE})

/* `account` (may be NULL) is charged until the head is closed. 0, -EINVAL, -ENOTSUP, -ENOMEM, -ESTALE, or
 * what open and read said; e names the file. */
int gguf_file_open(const char *file, struct account *account, struct gguf_file *ret, struct err *e);
/* gguf_file_find(), and the head of that file. */
int gguf_file_open_model(const char *path, char first[GGUF_PATH_BYTES], struct account *account,
                         struct gguf_file *ret, struct err *e);
/* Forgets the head; the file stays open. */
void gguf_file_forget(struct gguf_file *f);
/* As `gguf_file_forget()`, but also closes the file. GGUF_FILE_NONE is fine. */
void gguf_file_close(struct gguf_file *f);

#endif
