#include "base/hex.h"

#include "base/check.h"
#include "base/rng.h"
#include "base/slice.h"

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

void hex_secret(size_t count, char *ret)
{
    uint8_t bytes[HEX_SECRET_MAX];
    ASSERT(count <= sizeof(bytes));
    rng_secret(bytes, count);
    hex_text(bytes, count, ret);
    explicit_bzero(bytes, sizeof(bytes));
}

static int lower_digit(char c)
{
    return c >= 'A' && c <= 'F' ? -1 : slice_hex(c);
}

bool hex_bytes(const char *text, size_t count, void *ret)
{
    unsigned char *to = ret;
    for (size_t i = 0; i < count; i++) {
        int high = lower_digit(text[2 * i]), low = high < 0 ? -1 : lower_digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        to[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}
