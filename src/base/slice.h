/* slice.h - borrowed bytes. */
#ifndef PLATEAU_BASE_SLICE_H
#define PLATEAU_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct slice {
    const char *ptr; /* not terminated; may be NULL when len is 0 */
    size_t len;
};

#define SLICE(literal) ((struct slice){(literal), sizeof(literal) - 1})
/* For printf("%.*s", SLICE_ARGS(s)). */
#define SLICE_ARGS(s) (int)(s).len, (s).ptr ? (s).ptr : ""
/* For printf("%llu", (ull)bytes). */
typedef unsigned long long ull;

static inline struct slice slice_of(const char *cstr)
{
    return (struct slice){cstr, cstr ? strlen(cstr) : 0};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool slice_starts(struct slice s, struct slice head)
{
    return s.len >= head.len && (head.len == 0 || memcmp(s.ptr, head.ptr, head.len) == 0);
}

/* ASCII letters in either case. */
static inline bool slice_starts_any_case(struct slice s, struct slice head)
{
    return s.len >= head.len && (head.len == 0 || strncasecmp(s.ptr, head.ptr, head.len) == 0);
}

static inline bool slice_ends(struct slice s, struct slice tail)
{
    return s.len >= tail.len && (tail.len == 0 || memcmp(s.ptr + s.len - tail.len, tail.ptr, tail.len) == 0);
}

static inline bool slice_eq_any_case(struct slice a, struct slice b)
{
    return a.len == b.len && slice_starts_any_case(a, b);
}

/* Bytes [from, from + len), cut to what exists. */
static inline struct slice slice_sub(struct slice s, size_t from, size_t len)
{
    if (from > s.len)
        from = s.len;
    if (len > s.len - from)
        len = s.len - from;
    return (struct slice){s.ptr ? s.ptr + from : NULL, len};
}

/* The white space of JSON. */
#define SLICE_BLANKS " \t\r\n"

/* Without the bytes at its ends that are in `blanks`. */
struct slice slice_trim(struct slice s, const char *blanks);

/* True for a character of SLICE_BLANKS. */
static inline bool slice_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The value of a hexadecimal digit in either case, or -1. */
int slice_hex(char c);

/* Index of the first `needle` at or after `from`, or SIZE_MAX. An empty needle is found at `from`. */
size_t slice_find(struct slice s, struct slice needle, size_t from);

/* Whole slice as a decimal number in [0, max]. False on anything else, and then *ret is untouched. */
bool slice_u64(struct slice s, uint64_t max, uint64_t *ret);

#endif
