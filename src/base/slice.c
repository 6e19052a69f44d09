/* slice.c - the few slice operations that are loops. */
#include "base/slice.h"

size_t slice_find(struct slice s, struct slice needle, size_t from)
{
    if (from > s.len || needle.len > s.len - from)
        return SIZE_MAX;
    if (needle.len == 0)
        return from;
    const char *hit = memmem(s.ptr + from, s.len - from, needle.ptr, needle.len);
    return hit ? (size_t)(hit - s.ptr) : SIZE_MAX;
}

bool slice_u64(struct slice s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned d = (unsigned)(s.ptr[i] - '0');
        if (d > 9 || v > (UINT64_MAX - d) / 10)
            return false;
        v = v * 10 + d;
    }
    if (v > max)
        return false;
    *ret = v;
    return true;
}

struct slice slice_trim(struct slice s, const char *blanks)
{
    while (s.len > 0 && s.ptr[0] && strchr(blanks, s.ptr[0]))
        s = slice_sub(s, 1, s.len);
    while (s.len > 0 && s.ptr[s.len - 1] && strchr(blanks, s.ptr[s.len - 1]))
        s.len--;
    return s;
}

int slice_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
