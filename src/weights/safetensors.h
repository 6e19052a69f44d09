/* safetensors.h - limits of the format as we read it, and the parser of one file's header. */
#ifndef PLATEAU_WEIGHTS_SAFETENSORS_H
#define PLATEAU_WEIGHTS_SAFETENSORS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct slice;
struct tensor;

#define SAFETENSORS_HEADER_BYTES_MAX 100000000ull /* limit of the reference implementation */
#define SAFETENSORS_COUNT_MAX        1000000
#define SAFETENSORS_NAME_MAX         512
#define SAFETENSORS_FIRST_BYTES      8 /* first bytes of a file: the length of its header */

/* Where the data of a file of `file_bytes` begins that begins with `first`: SAFETENSORS_FIRST_BYTES, or all
 * of a shorter one. 0 or -EINVAL. */
int safetensors_data_at(struct slice first, uint64_t file_bytes, size_t *ret, struct err *e);
/* `head`: the file up to its data. Calls `found` for each tensor in the order of the header, with its offset
 * in the file; stops at the first negative return. 0, -EINVAL, -ENOTSUP, -ESTALE
 * (`head` ends before its data begins), or what found said. */
int safetensors_parse(struct slice head, uint64_t file_bytes,
                      int (*found)(void *arg, struct slice name, const struct tensor *t), void *arg,
                      struct err *e);

#endif
