/* The requests of a --warm file: objects that do not overlap, in their order, whatever the text is. */
#include "api/warm_file.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = {(const char *)data, size};
    struct warm_file_at at = {0};
    struct warm_request r;
    struct err e = {{0}};
    size_t end = 0;
    while (warm_file_next(text, &at, &r, &e) > 0) {
        ASSERT(r.body.ptr >= text.ptr + end && r.body.len >= 2);
        ASSERT(r.body.ptr[0] == '{' && r.line > 0);
        end = (size_t)(r.body.ptr - text.ptr) + r.body.len;
        ASSERT(end <= size && at.byte == end);
    }
    return 0;
}
