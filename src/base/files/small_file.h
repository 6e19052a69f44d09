/* small_file.h - a file that is read whole: settings, keys, the JSON files and the template of a model.
 *
 * Regular files only, see regular_file.h. */
#ifndef PLATEAU_BASE_SMALL_FILE_H
#define PLATEAU_BASE_SMALL_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <sys/types.h>

struct regular_file;

struct small_file {
    char *bytes; /* `len` of them and a zero; small_file_done() frees them */
    size_t len;
    mode_t mode;
};

/* 0, -EINVAL (not a regular file), -EFBIG (more than bytes_max), -ENOMEM, -ESTALE (it became shorter
 * meanwhile), or what the system said; e begins with the path. */
int small_file_read(const char *path, size_t bytes_max, struct small_file *ret, struct err *e);
/* As `small_file_read()`, but of an open file; messages have `path`. */
int small_file_read_open(const struct regular_file *from, const char *path, size_t bytes_max,
                         struct small_file *ret, struct err *e);
/* Overwrites the content, which may be a secret. Zeroed is fine. */
void small_file_done(struct small_file *f);

#endif
