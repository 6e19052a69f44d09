/* mk_write.h - a made-up checkpoint on disk: DIR/model.safetensors, then DIR/config.json.
 *
 * config.json comes last, so a directory that has one is whole. One thread. */
#ifndef PLATEAU_TOOLS_MK_WRITE_H
#define PLATEAU_TOOLS_MK_WRITE_H

#include "mkmodel/mk_shape.h"

#include "base/err.h"

struct mk_write_opts {
    const struct mk_shape *shape;
    const struct mk_form *form;
    uint32_t layers; /* 0: the shape's */
    uint64_t seed;
};

/* Bytes of model.safetensors. 0, -EINVAL (more layers than the shape has), -ENOMEM. */
int mk_write_bytes(const struct mk_write_opts *o, uint64_t *ret, struct err *e);
/* Makes DIR if it is missing. Needs the bytes above and 64 MiB that stay free. 0, -EEXIST (DIR has a
 * config.json), -ENOSPC with the numbers, or the system's error; then no config.json remains. */
int mk_write(const struct mk_write_opts *o, const char *dir, struct err *e);

#endif
