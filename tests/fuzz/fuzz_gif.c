/* Any bytes as a GIF. */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {{0}};
    struct slice bytes = fuzz_image_copy(data, size, SLICE("GIF89a"));
    fuzz_image(bytes, &e);
    free((char *)bytes.ptr);
    return 0;
}
