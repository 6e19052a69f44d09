/* Any text as a data: URL: bytes within their bound, the same in place as beside it, or words. */
#include "vision/data_url.h"

#include "base/check.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {{0}};
    struct data_url u;
    char *url = malloc(size + 1);
    ASSERT(url);
    if (size)
        memcpy(url, data, size);
    int r = data_url_parse((struct slice){url, size}, &u, &e);
    ASSERT(r == 0 || e.text[0]);
    if (r == 0) {
        ASSERT(u.base64.ptr >= url && u.base64.ptr + u.base64.len == url + size);
        size_t len = 0, again = 0;
        uint8_t *bytes = malloc(u.bytes_max);
        ASSERT(bytes);
        r = data_url_decode(&u, bytes, &len, &e);
        ASSERT(len <= u.bytes_max && (r == 0 || e.text[0]));
        ASSERT(r < 0 || len == data_url_bytes(&u));
        uint8_t *place = (uint8_t *)url + (u.base64.ptr - url);
        ASSERT(data_url_decode(&u, place, &again, &e) == r && again == len);
        ASSERT(len == 0 || memcmp(bytes, place, len) == 0);
        free(bytes);
    }
    free(url);
    return 0;
}
