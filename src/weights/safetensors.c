/* safetensors.c - one file: u64 header length, JSON header, data.
 *
 * Every tensor is checked against the file before use: dtype known, rank and shape within limits, bytes =
 * product * size without overflow, offsets inside the data. Overlaps need all tensors at once and are
 * checkpoint.c's. Offsets need no order and gaps are allowed: writers that align tensors leave harmless
 * gaps. */
#include "weights/safetensors.h"

#include "weights/json_scan.h"

#include "base/check.h"
#include "tensor/tensor.h"

#include <errno.h>

struct parse {
    struct json_scan scan;
    uint64_t data_at, data_bytes; /* the bytes after the header */
    struct slice name;            /* the tensor being read */
    struct err *e;
};

static int syntax(struct parse *p)
{
    return err_set(p->e, -EINVAL, "header is not valid: %s at byte %zu", p->scan.error, p->scan.at + 8);
}

static int bad_tensor(struct parse *p, const char *what)
{
    return err_set(p->e, -EINVAL, "tensor %.*s: %s", SLICE_ARGS(p->name), what);
}

static int read_shape(struct parse *p, struct tensor *t)
{
    bool first = true;
    t->rank = 0;
    if (!json_scan_open(&p->scan, '['))
        return syntax(p);
    while (json_scan_element(&p->scan, &first)) {
        if (t->rank == TENSOR_RANK_MAX)
            return bad_tensor(p, "more than 6 dimensions");
        if (!json_scan_u64(&p->scan, &t->shape[t->rank++]))
            break;
    }
    return p->scan.error ? syntax(p) : 0;
}

static int read_offsets(struct parse *p, uint64_t *begin, uint64_t *end)
{
    uint64_t *const place[2] = {begin, end};
    bool first = true;
    int count = 0;
    if (!json_scan_open(&p->scan, '['))
        return syntax(p);
    while (json_scan_element(&p->scan, &first)) {
        if (count == 2)
            return bad_tensor(p, "data_offsets must be two numbers");
        if (!json_scan_u64(&p->scan, place[count++]))
            break;
    }
    if (p->scan.error)
        return syntax(p);
    return count == 2 ? 0 : bad_tensor(p, "data_offsets must be two numbers");
}

static int check_extent(struct parse *p, struct tensor *t, uint64_t begin, uint64_t end)
{
    char shape[160];
    uint64_t bytes;
    if (begin > end || end > p->data_bytes)
        return err_set(
            p->e, -EINVAL,
            "tensor %.*s: data_offsets [%llu, %llu] do not lie in the %llu bytes of data (truncated file?)",
            SLICE_ARGS(p->name), (ull)begin, (ull)end, (ull)p->data_bytes);
    uint64_t count = tensor_count(t);
    if (count == UINT64_MAX || __builtin_mul_overflow(count, (uint64_t)dtype_bytes(t->dtype), &bytes) ||
        bytes != end - begin)
        return err_set(p->e, -EINVAL, "tensor %.*s: %s %s does not take the %llu bytes of its data_offsets",
                       SLICE_ARGS(p->name), dtype_name(t->dtype),
                       tensor_shape_text(t->rank, t->shape, shape, sizeof(shape)), (ull)(end - begin));
    t->offset = p->data_at + begin;
    t->bytes = (size_t)bytes;
    return 0;
}

static int read_tensor(struct parse *p, struct tensor *t)
{
    enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };
    struct slice key, dtype;
    uint64_t begin = 0, end = 0;
    unsigned has = 0;
    bool first = true;
    if (!json_scan_open(&p->scan, '{'))
        return syntax(p);
    while (json_scan_key(&p->scan, &first, &key)) {
        unsigned bit = slice_eq(key, SLICE("dtype"))          ? HAS_DTYPE
                       : slice_eq(key, SLICE("shape"))        ? HAS_SHAPE
                       : slice_eq(key, SLICE("data_offsets")) ? HAS_OFFSETS
                                                              : 0;
        if (bit == 0 || has & bit)
            return bad_tensor(p, "its entry must have dtype, shape and data_offsets, once each");
        has |= bit;
        int r = 0;
        if (bit == HAS_DTYPE) {
            if (!json_scan_string(&p->scan, &dtype))
                return syntax(p);
            if (!dtype_parse(dtype, &t->dtype))
                return err_set(p->e, -ENOTSUP, "tensor %.*s: dtype %.*s is not known", SLICE_ARGS(p->name),
                               (int)MIN_OF(dtype.len, 32), dtype.ptr);
        } else if (bit == HAS_SHAPE) {
            r = read_shape(p, t);
        } else {
            r = read_offsets(p, &begin, &end);
        }
        if (r < 0)
            return r;
    }
    if (p->scan.error)
        return syntax(p);
    if (has != HAS_ALL)
        return bad_tensor(p, "its entry must have dtype, shape and data_offsets, once each");
    return check_extent(p, t, begin, end);
}

static int check_name(struct parse *p)
{
    if (p->name.len == 0 || p->name.len > SAFETENSORS_NAME_MAX) {
        p->name.len = MIN_OF(p->name.len, 64);
        return err_set(p->e, -EINVAL, "tensor name '%.*s...' is empty or longer than %d bytes",
                       SLICE_ARGS(p->name), SAFETENSORS_NAME_MAX);
    }
    return 0;
}

int safetensors_data_at(struct slice first, uint64_t file_bytes, size_t *ret, struct err *e)
{
    uint64_t header_bytes;
    if (first.len < SAFETENSORS_FIRST_BYTES)
        return err_set(e, -EINVAL, "%zu bytes are not a safetensors file", first.len);
    memcpy(&header_bytes, first.ptr, SAFETENSORS_FIRST_BYTES);
    if (header_bytes > SAFETENSORS_HEADER_BYTES_MAX)
        return err_set(e, -EINVAL,
                       "header of %llu bytes is over the limit of %llu (or not a safetensors file)",
                       (ull)header_bytes, (ull)SAFETENSORS_HEADER_BYTES_MAX);
    if (header_bytes > file_bytes - SAFETENSORS_FIRST_BYTES)
        return err_set(e, -EINVAL, "header of %llu bytes is longer than the file (truncated?)",
                       (ull)header_bytes);
    *ret = SAFETENSORS_FIRST_BYTES + (size_t)header_bytes;
    return 0;
}

int safetensors_parse(struct slice head, uint64_t file_bytes,
                      int (*found)(void *arg, struct slice name, const struct tensor *t), void *arg,
                      struct err *e)
{
    size_t data_at;
    int r = safetensors_data_at(head, file_bytes, &data_at, e);
    if (r < 0)
        return r;
    if (head.len < data_at)
        return err_set(e, -ESTALE, "the header was changed while it was read");
    struct parse p = {.e = e, .data_at = data_at, .data_bytes = file_bytes - data_at};
    p.scan.text = slice_sub(head, SAFETENSORS_FIRST_BYTES, data_at - SAFETENSORS_FIRST_BYTES);
    if (p.scan.text.len == 0 || p.scan.text.ptr[0] != '{')
        return err_set(e, -EINVAL, "header does not begin with '{'");
    bool first = true;
    uint32_t count = 0;
    json_scan_open(&p.scan, '{');
    while (json_scan_key(&p.scan, &first, &p.name)) {
        if (slice_eq(p.name, SLICE("__metadata__"))) {
            if (!json_scan_skip(&p.scan))
                break;
            continue;
        }
        r = check_name(&p);
        if (r < 0)
            return r;
        if (count++ == SAFETENSORS_COUNT_MAX)
            return err_set(e, -EINVAL, "more than %d tensors", SAFETENSORS_COUNT_MAX);
        struct tensor t = {0};
        r = read_tensor(&p, &t);
        if (r == 0)
            r = found(arg, p.name, &t);
        if (r < 0)
            return r;
    }
    return json_scan_end(&p.scan) ? 0 : syntax(&p);
}
