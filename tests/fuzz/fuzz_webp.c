/* Any bytes as a WebP. Its length is corrected. The code that counts the groups of codes must accept every
 * image that libwebp decodes. */
#include "fuzz_image.h"

#include <webp/decode.h>

static void mend(uint8_t *bytes, size_t len)
{
    for (int i = 0; i < 4; i++)
        bytes[4 + i] = (uint8_t)((len - 8) >> 8 * i);
    memcpy(bytes + 8, "WEBP", 4);
}

/* Its first chunk alone, because libwebp would read on after the chunk's end. */
static bool libwebp_decodes(struct slice bytes)
{
    int width, height;
    size_t len = 20 + ((uint8_t)bytes.ptr[16] | (size_t)(uint8_t)bytes.ptr[17] << 8);
    uint8_t *pixels =
        WebPDecodeRGB((const uint8_t *)bytes.ptr + 12, MIN_OF(len, bytes.len) - 12, &width, &height);
    WebPFree(pixels);
    return pixels;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {{0}};
    struct slice bytes = fuzz_image_copy(data, size, SLICE("RIFF"));
    if (size >= 12)
        mend((uint8_t *)bytes.ptr, size);
    bool lossless = size > 20 && memcmp(bytes.ptr + 12, "VP8L", 4) == 0;
    if (fuzz_image(bytes, &e) == -EINVAL && lossless && strstr(e.text, "its pixels are broken, or end early"))
        ASSERT(!libwebp_decodes(bytes));
    free((char *)bytes.ptr);
    return 0;
}
