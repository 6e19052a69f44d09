/* mapped_file.h - a range of a file in memory: its pages are the page cache's, shared between processes, and
 * the system may take them back while they are not used.
 *
 * A page that the file no longer has, or that its disk does not give, would end the process with SIGBUS. A
 * handler puts zeros there instead, and the range counts as damaged. mapped_file_check() says so, and also
 * notices a file that was written or cut without a fault. Any thread; opening and closing one at a time for a
 * range. */
#ifndef PLATEAU_BASE_MAPPED_FILE_H
#define PLATEAU_BASE_MAPPED_FILE_H

#include "base/files/regular_file.h"

#define MAPPED_FILES_MAX 256 /* mapped files of the process */

struct mapped_file {
    char *at;                 /* NULL: not open */
    size_t bytes;             /* whole pages */
    struct regular_file file; /* its own descriptor */
    int slot;
};

/* Maps [from, from + bytes) of `f`, both multiples of 4096, for reading. 0, -EINVAL (the file has not so many
 * bytes), -ENFILE (too many), -ENOMEM, or what the system said. */
int mapped_file_open(const struct regular_file *f, uint64_t from, size_t bytes, struct mapped_file *ret,
                     struct err *e);
/* 0; -EIO: bytes of it are lost, or the file is not as it was when it was opened. Takes no lock. */
int mapped_file_check(const struct mapped_file *m, struct err *e);
/* Zeroed is fine. */
void mapped_file_close(struct mapped_file *m);

#endif
