/* unicode_normal.c - the normalisation forms over the tables of utf8proc.
 *
 * A text is normalised in segments. A segment starts before a character that no earlier one can change: its
 * decomposition starts with a starter that is never the second half of a composition. Almost every character
 * of almost every text is such a segment and stays as it is; only other segments are decomposed, ordered and
 * composed. utf8proc's own ordering exchanges neighbours and so is quadratic in the length of a run of marks,
 * which a client chooses; ours counts by combining class, which is linear. `inert_marks` lists the
 * marks younger than the normaliser of `tokenizers` (Unicode 9): it neither orders nor composes them. */
#include "unicode/unicode_normal.h"

#include "unicode/code_range.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

#include "base/check.h"

#include <errno.h>
#include <utf8proc.h>

/* Marks that are neither ordered nor composed. */
static const struct code_range inert_marks[] = {
    {0x07FD, 0x07FD, 0},   {0x0898, 0x089F, 0},   {0x08CA, 0x08D3, 0},   {0x09FE, 0x09FE, 0},
    {0x0C3C, 0x0C3C, 0},   {0x0D3B, 0x0D3C, 0},   {0x0EBA, 0x0EBA, 0},   {0x1715, 0x1715, 0},
    {0x1ABF, 0x1ACE, 0},   {0x1DF6, 0x1DFA, 0},   {0xA82C, 0xA82C, 0},   {0x10D24, 0x10D27, 0},
    {0x10EAB, 0x10EAC, 0}, {0x10EFD, 0x10EFF, 0}, {0x10F46, 0x10F50, 0}, {0x10F82, 0x10F85, 0},
    {0x11070, 0x11070, 0}, {0x1133B, 0x1133B, 0}, {0x1145E, 0x1145E, 0}, {0x11839, 0x1183A, 0},
    {0x11930, 0x11930, 0}, {0x1193D, 0x1193E, 0}, {0x11943, 0x11943, 0}, {0x119E0, 0x119E0, 0},
    {0x11A34, 0x11A34, 0}, {0x11A47, 0x11A47, 0}, {0x11A99, 0x11A99, 0}, {0x11D42, 0x11D42, 0},
    {0x11D44, 0x11D45, 0}, {0x11D97, 0x11D97, 0}, {0x11F41, 0x11F42, 0}, {0x16FF0, 0x16FF1, 0},
    {0x1E08F, 0x1E08F, 0}, {0x1E130, 0x1E136, 0}, {0x1E2AE, 0x1E2AE, 0}, {0x1E2EC, 0x1E2EF, 0},
    {0x1E4EC, 0x1E4EF, 0}};
/* Characters with a decomposition that is younger. */
static const struct code_range newer_parts[] = {
    {0x32FF, 0x32FF, 0},   {0xA7F1, 0xA7F4, 0},   {0xAB69, 0xAB69, 0},   {0x10781, 0x10785, 0},
    {0x10787, 0x107B0, 0}, {0x107B2, 0x107BA, 0}, {0x11938, 0x11938, 0}, {0x1CCD6, 0x1CCF9, 0},
    {0x1E030, 0x1E06D, 0}, {0x1F16C, 0x1F16C, 0}, {0x1FBF0, 0x1FBF9, 0}};

enum {
    CANONICAL_MAX = 4, /* code points of the longest canonical decomposition */
    PARTS_MAX = 18,    /* code points of the longest decomposition */
    SMALL = 64         /* code points of a segment that needs no scratch */
};

struct normalising {
    struct arena *scratch;
    const struct wanted *wanted;
    bool composes, compatible; /* which form */
    size_t look;
};

static bool is_inert(uint32_t code)
{
    return code_range_find(inert_marks, COUNT_OF(inert_marks), code) != NULL;
}

static unsigned class_of(utf8proc_int32_t code)
{
    unsigned class = (unsigned)utf8proc_get_property(code)->combining_class;
    return class && is_inert((uint32_t)code) ? 0 : class;
}

/* The decomposition of a character, in full. */
static size_t decompose(const struct normalising *n, uint32_t code, utf8proc_int32_t ret[PARTS_MAX])
{
    int boundclass = 0;
    unsigned options = UTF8PROC_STABLE | UTF8PROC_COMPOSE | (n->compatible ? UTF8PROC_COMPAT : 0);
    if (code_range_find(newer_parts, COUNT_OF(newer_parts), code)) {
        ret[0] = (utf8proc_int32_t)code;
        return 1;
    }
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)code, ret, PARTS_MAX,
                                                     (utf8proc_option_t)options, &boundclass);
    ASSERT(count >= 1 && count <= (n->compatible ? PARTS_MAX : CANONICAL_MAX));
    return (size_t)count;
}

static size_t compose(utf8proc_int32_t *codes, size_t count)
{
    utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    ASSERT(composed >= 0 && (size_t)composed <= count);
    return (size_t)composed;
}

/* Every second half of a composition is a mark or a Hangul vowel or final. */
static bool is_second_half(uint32_t code)
{
    if (code >= 0x1160 && code <= 0x11FF)
        return true;
    unsigned category = unicode_general_category(code);
    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME && !is_inert(code);
}

/* True when a text can be split before this character. *same: alone, it is normal. */
static bool is_boundary(const struct normalising *n, uint32_t code, bool *same)
{
    utf8proc_int32_t parts[PARTS_MAX];
    *same = true;
    if (code < 0xA0 || (code < 0xC0 && !n->compatible) || (code < 0x300 && !n->compatible && n->composes) ||
        (code >= 0x3400 && code <= 0x9FFF) || (code >= 0xAC00 && code <= 0xD7A3 && n->composes))
        return true;
    size_t count = decompose(n, code, parts);
    bool first = n->composes ? !is_second_half((uint32_t)parts[0]) : class_of(parts[0]) == 0;
    if (n->composes && count > 1)
        count = compose(parts, count);
    *same = count == 1 && parts[0] == (utf8proc_int32_t)code;
    return first;
}

/* Puts a run of non-starters in the order of their classes, stably. */
static void order_run(utf8proc_int32_t *codes, size_t count, utf8proc_int32_t *other)
{
    size_t at[256] = {0};
    for (size_t i = 0; i < count; i++)
        at[class_of(codes[i])]++;
    for (size_t class = 0, sum = 0; class < 256; class ++) {
        size_t here = at[class];
        at[class] = sum;
        sum += here;
    }
    for (size_t i = 0; i < count; i++)
        other[at[class_of(codes[i])]++] = codes[i];
    ASSERT(at[255] == count);
    memcpy(codes, other, count * sizeof(*codes));
}

/* `other` has room for the longest run. */
static void order(utf8proc_int32_t *codes, size_t count, utf8proc_int32_t *other)
{
    for (size_t from = 0, end; from < count; from = end) {
        for (end = from; end < count && class_of(codes[end]) != 0;)
            end++;
        if (end - from > 1)
            order_run(codes + from, end - from, other);
        end += end == from;
    }
}

/* Decomposes `s` to codes[0 .. *count), or only counts where `codes` is NULL. 0, or cancelled. */
static int decompose_all(struct normalising *n, struct slice s, utf8proc_int32_t *codes, size_t *count)
{
    size_t look = 0, all = 0;
    utf8proc_int32_t parts[PARTS_MAX];
    uint32_t code;
    for (size_t i = 0; i < s.len;) {
        int r = wanted_pass(n->wanted, i, &look);
        if (r < 0)
            return r;
        i += utf8_next(s.ptr + i, &code);
        all += decompose(n, code, codes ? codes + all : parts);
    }
    *count = all;
    return 0;
}

/* The bytes of `count` code points, written to `out` if it is not NULL. */
static size_t encode(const utf8proc_int32_t *codes, size_t count, char *out)
{
    char bytes[UTF8_BYTES_MAX];
    size_t written = 0;
    for (size_t i = 0; i < count; i++)
        written += utf8_encode((uint32_t)codes[i], out ? out + written : bytes);
    return written;
}

/* Normalises one segment to `out` (NULL: only counts) and returns its bytes, or an error. */
static ssize_t segment(struct normalising *n, struct slice s, char *out)
{
    utf8proc_int32_t small[2 * SMALL], *codes = small, *other = small + SMALL;
    size_t mark = arena_mark(n->scratch), count = 0;
    ASSERT(s.len > 0);
    ssize_t r = decompose_all(n, s, NULL, &count);
    if (r < 0)
        return r;
    if (count > SMALL) {
        codes = ARENA_ARRAY(n->scratch, utf8proc_int32_t, count);
        other = ARENA_ARRAY(n->scratch, utf8proc_int32_t, count);
    }
    r = codes && other ? decompose_all(n, s, codes, &count) : -ENOMEM;
    if (r == 0) {
        order(codes, count, other);
        r = wanted_check(n->wanted);
    }
    if (r == 0) {
        count = n->composes ? compose(codes, count) : count;
        r = (ssize_t)encode(codes, count, out);
    }
    arena_rewind(n->scratch, mark);
    return r;
}

/* End of the segment at `from`; *same: it is normal. SIZE_MAX: cancelled. */
static size_t segment_end(struct normalising *n, struct slice text, size_t from, bool *same)
{
    uint32_t code;
    bool ignored;
    ASSERT(from < text.len);
    size_t end = from + utf8_next(text.ptr + from, &code);
    *same = is_boundary(n, code, same) && *same;
    while (end < text.len) {
        if (wanted_pass(n->wanted, end, &n->look) < 0)
            return SIZE_MAX;
        unsigned bytes = utf8_next(text.ptr + end, &code);
        if (is_boundary(n, code, &ignored))
            break;
        *same = false;
        end += bytes;
    }
    return end;
}

/* Normalises the text from `from` on to `out` (NULL: only counts). Returns its bytes, or an error. */
static ssize_t normalise(struct normalising *n, struct slice text, size_t from, char *out)
{
    size_t len = 0;
    bool same;
    n->look = from;
    for (size_t end; from < text.len; from = end) {
        end = segment_end(n, text, from, &same);
        if (end == SIZE_MAX)
            return wanted_check(n->wanted);
        ASSERT(end > from && end <= text.len);
        struct slice s = slice_sub(text, from, end - from);
        ssize_t bytes = (ssize_t)s.len;
        if (!same)
            bytes = segment(n, s, out ? out + len : NULL);
        else if (out)
            memcpy(out + len, s.ptr, s.len);
        if (bytes < 0)
            return bytes;
        len += (size_t)bytes;
    }
    return (ssize_t)len;
}

/* The bytes from `from` on that are certainly segments of one ASCII character each, which are normal in every
 * form; WANTED_BYTES at most. What follows the last one may join it. */
static size_t ascii_segments(struct slice text, size_t from)
{
    size_t end = from, limit = text.len - from > WANTED_BYTES ? from + WANTED_BYTES : text.len;
    while (limit - end >= 8 && utf8_ascii_eight(text.ptr + end))
        end += 8;
    return end > from ? end - from - 1 : 0;
}

/* Bytes of the text that are normal, up to the end of a segment; SIZE_MAX: cancelled. */
static size_t normal_part(struct normalising *n, struct slice text)
{
    bool same = true;
    for (size_t from = 0, end; from < text.len; from = end) {
        from += ascii_segments(text, from);
        end = segment_end(n, text, from, &same);
        if (end == SIZE_MAX || !same)
            return end == SIZE_MAX ? SIZE_MAX : from;
    }
    return text.len;
}

int unicode_normal(struct arena *scratch, struct slice text, enum unicode_form form, const struct wanted *w,
                   struct slice *ret)
{
    struct normalising n = {.scratch = scratch,
                            .wanted = w,
                            .composes = form == UNICODE_NFC || form == UNICODE_NFKC,
                            .compatible = form >= UNICODE_NFKC};
    size_t from = normal_part(&n, text), mark = arena_mark(scratch);
    if (from == SIZE_MAX)
        return wanted_check(w);
    if (from == text.len) {
        *ret = text;
        return 0;
    }
    ASSERT(from < text.len);
    ssize_t bytes = n.compatible ? normalise(&n, text, from, NULL) : (ssize_t)(3 * (text.len - from));
    char *out = bytes < 0 ? NULL : arena_alloc_align(scratch, from + (size_t)bytes + 1, 1);
    if (!out)
        return bytes < 0 ? (int)bytes : -ENOMEM;
    memcpy(out, text.ptr, from);
    bytes = normalise(&n, text, from, out + from);
    if (bytes < 0) {
        arena_rewind(scratch, mark);
        return (int)bytes;
    }
    *ret = (struct slice){out, from + (size_t)bytes};
    return 0;
}
