/* vp8l_groups.h - the memory of a lossless WebP's tables, before libwebp allocates them. Pure.
 *
 * Such an image has groups of prefix codes, up to 65,536 of them. Each becomes tables of up to 20 KiB
 * while its description takes three bytes of the file: a 160 KB file can make libwebp allocate a gigabyte,
 * whatever the image's size. The number of groups stands after the transforms, in an image of its own;
 * this reads as far as that. */
#ifndef PLATEAU_VISION_VP8L_GROUPS_H
#define PLATEAU_VISION_VP8L_GROUPS_H

#include "base/err.h"
#include "base/slice.h"

/* libwebp's tables of one group: 5004 entries of 4 bytes and some bookkeeping. */
#define VP8L_GROUP_BYTES ((size_t)20800)
/* libwebp's own encoder writes at most 2600. */
#define VP8L_GROUPS_MAX 4096

/* Counts the groups in the bitstream of a VP8L chunk, >= 1, including groups that only its header needs.
 * 0; -EINVAL with a message: damaged, cut short, or more than VP8L_GROUPS_MAX. */
int vp8l_groups(struct slice bitstream, uint32_t *ret, struct err *e);

#endif
