/* catalog_files.h - files that are models by themselves, among those of a directory: GGUF files, and packed
 * files *.plateau. */
#ifndef PLATEAU_HOST_CATALOG_FILES_H
#define PLATEAU_HOST_CATALOG_FILES_H

#include "host/models/catalog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dirent;

/* Calls `found` if entry `index` of `dir` is a packed file, or a file *.gguf with a model's weights, for one
 * in parts if it is the first part that is there. `entries` are the directory's names, sorted.
 * 0, or the result of `found`. */
int catalog_file_entry(const char *dir, struct dirent *const *entries, int index, catalog_found_fn *found,
                       void *arg, struct err *e);
/* Finds the GGUF models among all files of a directory; a file that cannot be read has none. */
int catalog_files_in(const char *dir, catalog_found_fn *found, void *arg, struct err *e);

/* Whether the path is a GGUF model: a file, or a directory with one. */
bool catalog_is_gguf(const char *path);

/* The first file with a vision encoder beside a GGUF model, which is a file or a directory. False: none. */
bool catalog_encoder_beside(const char *path, char *ret, size_t bytes);

/* The bytes of a GGUF model's files, of all parts that are there. */
uint64_t catalog_file_bytes(const char *path);

#endif
