/* data_url.h - the bytes in a data: URL (RFC 2397).
 *
 *     data:[type/subtype][;name=value]...;base64,BYTES
 *
 * "data:" and "base64" in any case. BYTES are base64 of RFC 4648's first alphabet; the padding may be left
 * off. Characters of percent-escapes and of base64url are refused, as is anything after the padding. ASCII
 * white space among the bytes (mail's line ends) is skipped. A URL without ";base64" is refused: images are
 * never escaped byte by byte. The type is returned and not trusted: the format is detected from the bytes.
 * Pure; any thread. */
#ifndef PLATEAU_VISION_DATA_URL_H
#define PLATEAU_VISION_DATA_URL_H

#include "base/err.h"
#include "base/slice.h"

#define DATA_URL_HEAD_MAX 1024 /* bytes before the comma */

struct data_url {
    struct slice type;   /* "image/png"; may be empty */
    struct slice base64; /* all after the comma */
    size_t bytes_max;    /* most bytes that it decodes to: room for data_url_decode() */
};

/* Whether it begins as one. */
bool data_url_is(struct slice url);
/* Looks at the head only; the slices lie in `url`. 0, or -EINVAL with words for the client. */
int data_url_parse(struct slice url, struct data_url *ret, struct err *e);
/* How many bytes it is exactly, if it is well formed: a look at each character. */
size_t data_url_bytes(const struct data_url *u);
/* Writes the bytes to `to`, which has room for u->bytes_max and may be where u->base64 lies: bytes go in
 * place. Returns how many in *ret. 0, or -EINVAL with words for the client that say at which character. */
int data_url_decode(const struct data_url *u, uint8_t *to, size_t *ret, struct err *e);

#endif
