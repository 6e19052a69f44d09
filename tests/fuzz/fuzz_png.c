/* Any bytes as a PNG. The chunks' checksums are corrected; otherwise nothing after the first change would be
 * read. */
#include "fuzz_image.h"

#include <zlib.h>

static void mend(uint8_t *bytes, size_t len)
{
    for (size_t at = 8; len - at >= 12;) {
        size_t data = (size_t)bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
        if (data > len - at - 12)
            return;
        uint32_t sum = (uint32_t)crc32(0, bytes + at + 4, (uInt)data + 4);
        at += 8 + data;
        for (int i = 0; i < 4; i++)
            bytes[at + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += 4;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {{0}};
    struct slice bytes = fuzz_image_copy(data, size, SLICE("\x89PNG\r\n\x1a\n"));
    if (size >= 8)
        mend((uint8_t *)bytes.ptr, size);
    fuzz_image(bytes, &e);
    free((char *)bytes.ptr);
    return 0;
}
