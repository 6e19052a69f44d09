/* conversations_file.h - the store of conversations in a file, from a stop to the next start.
 *
 * A file is written aside and renamed, and is its owner's alone: it has the definitions of tools. It
 * begins with the seed of json_digest.h, so that hashes mean the same after it was read. Called before the
 * first request and after the last one. */
#ifndef PLATEAU_API_CONVERSATIONS_FILE_H
#define PLATEAU_API_CONVERSATIONS_FILE_H

#include "base/err.h"

#include <stdint.h>

struct conversations;

#define CONVERSATIONS_FILE_BYTES_MAX ((uint64_t)1 << 30)

/* 0, or what the system said; `e` has it. */
int conversations_save(struct conversations *c, const char *path, struct err *e);
/* Takes over the file's seed and its conversations, as far as they fit. 0, also where there is no file;
 * -EINVAL: it is damaged or of another version, and nothing or a part of it was taken over; -ENOMEM, or
 * what the system said. */
int conversations_load(struct conversations *c, const char *path, uint64_t now_ns, struct err *e);

#endif
