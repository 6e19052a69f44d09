#include "base/hex.h"

#include "base/check.h"

void hex_text(const void *bytes, size_t count, char *ret)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    ASSERT(from || count == 0);
    for (size_t i = 0; i < count; i++) {
        *ret++ = digits[from[i] >> 4];
        *ret++ = digits[from[i] & 15];
    }
    *ret = 0;
}
