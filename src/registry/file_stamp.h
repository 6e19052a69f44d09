/* file_stamp.h - detects whether a model's files have changed. */
#ifndef PLATEAU_REGISTRY_FILE_STAMP_H
#define PLATEAU_REGISTRY_FILE_STAMP_H

#include <stdbool.h>
#include <stdint.h>

/* Names, sizes and times of all files of a directory, as one number. 0: it cannot be read. */
struct file_stamp {
    uint64_t hash;
};

struct file_stamp file_stamp_of(const char *dir);
static inline bool file_stamp_same(struct file_stamp a, struct file_stamp b)
{
    return a.hash == b.hash;
}

#endif
