/* media_ppm.c - reads the header byte by byte, so that no byte of the pixels after it is taken with it. */
#include "media/media_ppm.h"

#include "media/media_bytes.h"
#include "media/media_process.h"

#include <errno.h>
#include <string.h>

#define DIGITS_MAX 7

/* Reads a decimal number and the white space after it. */
static int read_number(struct media_process *p, uint32_t *ret)
{
    uint32_t n = 0;
    for (int digits = 0; digits < DIGITS_MAX; digits++) {
        char c;
        size_t len;
        int r = media_process_read(p, &c, 1, &len);
        if (r < 0 || len == 0)
            return r < 0 ? r : -EPIPE;
        if (digits > 0 && (c == '\n' || c == ' ')) {
            *ret = n;
            return 0;
        }
        if (c < '0' || c > '9')
            return -EPROTO;
        n = n * 10 + (uint32_t)(c - '0');
    }
    return -EPROTO;
}

static int read_header(struct media_process *p, uint32_t *width, uint32_t *height)
{
    char magic[3];
    uint32_t most = 0;
    size_t len;
    int r = media_process_read(p, magic, sizeof(magic), &len);
    if (r == 0 && len < sizeof(magic))
        return -EPIPE;
    if (r == 0 && memcmp(magic, "P6\n", 3) != 0)
        return -EPROTO;
    if (r == 0 && (r = read_number(p, width)) == 0 && (r = read_number(p, height)) == 0)
        r = read_number(p, &most);
    if (r < 0)
        return r;
    return most == 255 && *width > 0 && *height > 0 ? 0 : -EPROTO;
}

int media_ppm_read(const struct media_ppm *p, struct media_bytes *into, uint32_t *width, uint32_t *height)
{
    size_t len;
    int r = read_header(p->process, width, height);
    if (r < 0)
        return r;
    if ((uint64_t)*width * *height > p->pixels_max)
        return -E2BIG;
    size_t bytes = (size_t)*width * *height * 3;
    if (media_bytes_reserve(into, bytes, p->charge) < 0)
        return -ENOMEM;
    r = media_process_read(p->process, into->ptr, bytes, &len);
    return r == 0 && len < bytes ? -EPIPE : r;
}
