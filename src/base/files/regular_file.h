/* regular_file.h - the one way to open a foreign file: model files, key files, settings.
 *
 * Opening never waits for a writer: a pipe, a device, a socket or a directory is refused with a message.
 * Bytes are read, never mapped, so a shrinking file or a failing disk is an error of one call and not a
 * signal. A read from a dead drive hangs: model files are read on a load's thread, or at the start while
 * SIGTERM still ends the process. One thread at a time. */
#ifndef PLATEAU_BASE_REGULAR_FILE_H
#define PLATEAU_BASE_REGULAR_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* A part of a file that lies in a bundle (bundle.h). */
struct file_part {
    uint64_t from, bytes; /* range of the file */
    uint64_t at;          /* in the bundle */
    uint64_t check;       /* XXH3-64 */
};
struct file_parts {
    uint64_t file_bytes; /* bytes of the bundle */
    uint32_t count;
    struct file_part parts[];
};

struct regular_file {
    int fd; /* -1: not open */
    mode_t mode;
    uint64_t bytes;            /* at opening */
    struct timespec changed;   /* time of the last change at opening */
    struct file_parts *inside; /* it lies in a bundle; heap. NULL: it is a file of its own */
};

#define REGULAR_FILE_NONE ((struct regular_file){.fd = -1})

/* 0, -EINVAL (not a regular file), or what open and fstat said; e begins with the path. */
int regular_file_open(const char *path, struct regular_file *ret, struct err *e);
/* As `regular_file_open()`, but opens `name` relative to the directory `dir`; messages have `path`. */
int regular_file_open_at(int dir, const char *name, const char *path, struct regular_file *ret,
                         struct err *e);
/* As `regular_file_open()`, but does not follow a symbolic link (-ELOOP): a file that this program wrote. */
int regular_file_open_own(const char *path, struct regular_file *ret, struct err *e);
/* REGULAR_FILE_NONE is fine. */
void regular_file_close(struct regular_file *f);
/* Reads `len` bytes at `at`, all of them. 0; -ESTALE: the file ends before, although it was long enough at
 * opening or the caller knows that it was; or what the system said. e says what happened and does not name
 * the file: err_prefix() does. */
int regular_file_read(const struct regular_file *f, uint64_t at, void *into, size_t len, struct err *e);
/* 0, or -ESTALE: size or time of change differ from those at opening. e as above. */
int regular_file_check(const struct regular_file *f, struct err *e);
/* [at, at + len) will be read: the system may begin with it. */
void regular_file_ahead(const struct regular_file *f, uint64_t at, uint64_t len);
/* Drops [at, at + len) from the page cache. */
void regular_file_drop(const struct regular_file *f, uint64_t at, uint64_t len);

#endif
