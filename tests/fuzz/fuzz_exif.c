/* Any bytes as EXIF data: an orientation. */
#include "vision/format.h"

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned o = exif_orientation((struct slice){(const char *)data, size});
    ASSERT(o >= 1 && o <= 8);
    return 0;
}
