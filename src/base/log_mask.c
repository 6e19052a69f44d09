/* log_mask.c - characters by their first byte: how many follow, and between what the second one lies
 * (Unicode, table 3-7). */
#include "base/log_mask.h"

#include <stdbool.h>
#include <stdint.h>

static bool is_between(unsigned char c, unsigned least, unsigned most)
{
    return c >= least && c <= most;
}

/* Bytes of the character that begins with these; 0: not a character. */
static size_t character_bytes(const unsigned char *p, size_t len)
{
    size_t bytes = is_between(p[0], 0xc2, 0xdf)   ? 2
                   : is_between(p[0], 0xe0, 0xef) ? 3
                   : is_between(p[0], 0xf0, 0xf4) ? 4
                                                  : 0;
    if (bytes == 0 || bytes > len)
        return 0;
    unsigned least = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned most = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < bytes; i++)
        if (!is_between(p[i], i == 1 ? least : 0x80, i == 1 ? most : 0xbf))
            return 0;
    return bytes;
}

static bool is_control(const unsigned char *p, size_t bytes)
{
    if (bytes == 2)
        return p[0] == 0xc2 && p[1] < 0xa0;
    return bytes == 3 && p[0] == 0xe2 &&
           ((p[1] == 0x80 && is_between(p[2], 0xa8, 0xae)) || (p[1] == 0x81 && is_between(p[2], 0xa6, 0xa9)));
}

void log_mask(char *line, size_t len)
{
    unsigned char *p = (unsigned char *)line;
    for (size_t i = 0; i < len;) {
        size_t bytes = p[i] < 0x80 ? 1 : character_bytes(p + i, len - i);
        bool bad = bytes == 0 || p[i] == 0x7f || is_control(p + i, bytes);
        size_t end = i + (bytes ? bytes : 1);
        if (p[i] < 0x20)
            p[i] = ' ';
        for (; i < end; i++)
            p[i] = bad ? '?' : p[i];
    }
}
