/* model_ggufs.h - files that are models by themselves, among those of a directory, and what they are called:
 * GGUF files, and packed files *.plateau. */
#ifndef PLATEAU_HOST_MODEL_GGUFS_H
#define PLATEAU_HOST_MODEL_GGUFS_H

#include "host/models/catalog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dirent;

/* Calls `found` if entry `index` of `dir` is a packed file, or a file *.gguf with a model's weights, for one
 * in parts if it is the first part that is there. `entries` are the directory's names, sorted.
 * 0, or the result of `found`. */
int model_ggufs_entry(const char *dir, struct dirent *const *entries, int index, model_found_fn *found,
                      void *arg, struct err *e);
/* Finds the GGUF models among all files of a directory; a file that cannot be read has none. */
int model_ggufs_in(const char *dir, model_found_fn *found, void *arg, struct err *e);

/* Whether the path is a GGUF model: a file, or a directory with one. */
bool model_ggufs_is(const char *path);

/* *.plateau */
bool model_ggufs_packed(const char *name);

/* The id of such a file: its name without .gguf and the number of a part, or without .plateau. The names of
 * `folders` directories above it stand before it. False: the path is not that of such a file, or is longer
 * than `bytes`. */
bool model_ggufs_id(const char *path, unsigned folders, char *ret, size_t bytes);

/* The name of a model among others. */
struct model_ggufs_named {
    const char *path;
    char *id;
    size_t id_bytes;
    bool has_id;  /* the id is one that another may not have */
    bool renames; /* a file that is renamed where others have its id */
    bool twin;    /* written by the function */
};
/* A file whose id others have too is called DIRECTORY/NAME, then with two directories. */
void model_ggufs_name_twins(struct model_ggufs_named *list, uint32_t count);

/* The first file with a vision encoder beside a GGUF model, which is a file or a directory. False: none. */
bool model_ggufs_encoder(const char *path, char *ret, size_t bytes);

/* The bytes of a GGUF model's files, of all parts that are there. */
uint64_t model_ggufs_bytes(const char *path);

#endif
