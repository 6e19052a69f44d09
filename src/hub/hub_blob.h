/* hub_blob.h - one file of the hub's cache while it is fetched.
 *
 * Bytes are in blobs/ETAG.plateau.incomplete, in parts of 64 MiB; ETAG.plateau.parts has the length of each
 * part so far. A process that is killed leaves both, and the next one goes on. The file gets its name ETAG
 * after its sum was found right, and never before. */
#ifndef PLATEAU_HUB_HUB_BLOB_H
#define PLATEAU_HUB_HUB_BLOB_H

#include "hub/hub_cache.h"

struct hub_file;

#define HUB_PART_BYTES ((uint64_t)64 << 20)

struct hub_blob {
    const struct hub_file *file; /* borrowed */
    char path[HUB_PATH_BYTES];   /* its final name */
    bool present;                /* it has that name */
    bool whole;                  /* the hub has no ranges: one part, and nothing to go on from */
    uint32_t parts;
    uint32_t *done; /* [parts] bytes that are there; NULL: not open */
    int fd, parts_fd;
    void *sum; /* while it is checked */
    uint64_t summed;
};

/* Looks whether it is there. 0 or -ENAMETOOLONG. */
int hub_blob_init(const char *folder, const struct hub_file *f, struct hub_blob *ret, struct err *e);
/* Opens the unfinished file; 0, -ENOMEM, or what the system said. */
int hub_blob_open(struct hub_blob *b, struct err *e);
uint64_t hub_blob_part_bytes(const struct hub_blob *b, uint32_t part);
/* Bytes that are there. */
uint64_t hub_blob_done(const struct hub_blob *b);
/* Bytes of disk that an unfinished file takes. */
uint64_t hub_blob_on_disk(const struct hub_blob *b);
/* Appends to a part. 0, or what writing said (-ENOSPC). */
int hub_blob_write(struct hub_blob *b, uint32_t part, struct slice bytes);
/* Notes the bytes of a part; cheap enough for each MiB. */
void hub_blob_note(struct hub_blob *b, uint32_t part);
/* Forgets all bytes. `whole`: from now on in one part. */
int hub_blob_restart(struct hub_blob *b, bool whole, struct err *e);
/* Sums some more of the file. 1: not at its end; 0: the sum is right, and the file has its name;
 * -EBADMSG: the sum is wrong; or what the system said. */
int hub_blob_check(struct hub_blob *b, struct err *e);
/* Removes its bytes, finished or not, and closes it. */
void hub_blob_remove(struct hub_blob *b);
/* Closes it; its bytes stay. Zeroed is fine. */
void hub_blob_done_with(struct hub_blob *b);

#endif
