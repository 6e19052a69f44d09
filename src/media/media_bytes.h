/* media_bytes.h - the encoded bytes of an image or a video: one block of anonymous memory, charged before it
 * grows and returned to the system when it is freed. One thread at a time. A zeroed struct is empty. */
#ifndef PLATEAU_MEDIA_MEDIA_BYTES_H
#define PLATEAU_MEDIA_MEDIA_BYTES_H

#include "base/charge.h"

#include <stdint.h>

struct media_bytes {
    uint8_t *ptr;
    size_t len, capacity; /* capacity: the bytes mapped and charged */
    struct charge charge; /* paid for the capacity */
};

/* Makes room for `bytes` in all; the content stays. 0, or -ENOMEM (refused by the charge or the system), and
 * nothing has changed. */
int media_bytes_reserve(struct media_bytes *b, size_t bytes, const struct charge *charge);
void media_bytes_done(struct media_bytes *b);

#endif
