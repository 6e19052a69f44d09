/* code_range.h - sorted ranges of code points, searched by halves. */
#ifndef PLATEAU_UNICODE_CODE_RANGE_H
#define PLATEAU_UNICODE_CODE_RANGE_H

#include <stddef.h>
#include <stdint.h>

struct code_range {
    uint32_t first, last;
    unsigned category; /* where the table is about categories */
};

/* The range that has `code`; NULL: none. */
static inline const struct code_range *code_range_find(const struct code_range *ranges, size_t count,
                                                       uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= code ? &ranges[low] : NULL;
}

#endif
