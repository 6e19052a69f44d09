/* key_pipes.h - files of keys that are pipes, such as a shell's <(command): their text at the start.
 *
 * A pipe can be read once, so its text is kept for reloads, at most KEYRING_FILE_BYTES_MAX of each;
 * key_pipes_done() overwrites it. One thread. */
#ifndef PLATEAU_HOST_KEY_PIPES_H
#define PLATEAU_HOST_KEY_PIPES_H

#include "base/err.h"
#include "base/slice.h"

#include <stdbool.h>

struct key_pipe;

struct key_pipes {
    struct key_pipe *first;
    bool over; /* the start is: a pipe that was not read by then is refused, because reading it may wait */
};

/* The text of `path`, read at the first call up to its end; lives as long as `p`. 0 with `ret` untouched:
 * not a pipe. 1: a pipe. -EINVAL, -EFBIG, -ENOMEM, or a system error. */
int key_pipes_text(struct key_pipes *p, const char *path, struct slice *ret, struct err *e);
/* Zeroed is fine. */
void key_pipes_done(struct key_pipes *p);

#endif
