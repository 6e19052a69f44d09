/* format.c - what the readers of all formats check. */
#include "vision/format.h"

#include "base/charge.h"
#include "base/err.h"

#include <errno.h>

int format_charge(const struct charge *charge, size_t bytes, struct err *e)
{
    if (charge_take(charge, bytes) < 0)
        return err_set(e, -ENOMEM, "there is no memory for decoding the image at present");
    return 0;
}

int format_agree(const struct format_size *size, uint64_t width, uint64_t height, struct err *e)
{
    if (width == size->width && height == size->height)
        return 0;
    return err_set(e, -EINVAL, "its headers contradict each other: %u x %u and %llu x %llu pixels",
                   size->width, size->height, (ull)width, (ull)height);
}
