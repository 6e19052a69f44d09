/* vp8l_groups.c - as much of the lossless bitstream as lies before the number of groups: header, transforms,
 * colour cache, and the image that chooses a group for each tile.
 *
 * Those images are read to find where they end. Of their pixels only the largest choice matters, and that is
 * one of the literal ones: all others are copies. So no pixel is stored, and memory is one group's codes on
 * the stack. Reading past the end gives zeros and is remembered. */
#include "vision/vp8l_groups.h"

#include "base/check.h"

#include <errno.h>

#define SIGNATURE    0x2f
#define CODE_BITS    15
#define GREEN_MAX    (256 + 24 + 2048) /* literals, lengths, colour cache */
#define LENGTH_CODES 19

enum { PREDICTOR, CROSS_COLOUR, SUBTRACT_GREEN, COLOUR_INDEXING };
enum { GREEN, RED, BLUE, ALPHA, DISTANCE, CODES };

struct bits {
    const uint8_t *ptr;
    size_t len, at; /* at: in bits */
    bool broken;    /* read past the end, or something that cannot be */
};

/* A canonical prefix code: how many symbols have each length, and the symbols in order of their codes. */
struct code {
    uint16_t count[CODE_BITS + 1];
    uint16_t symbols[GREEN_MAX];
    bool single; /* one symbol, which takes no bit */
};

struct group {
    struct code codes[CODES];
};

static uint32_t read_bits(struct bits *b, unsigned count)
{
    uint32_t v = 0;
    if (count > b->len * 8 - b->at) {
        b->broken = true;
        b->at = b->len * 8;
        return 0;
    }
    for (unsigned i = 0; i < count; i++, b->at++)
        v |= (uint32_t)(b->ptr[b->at / 8] >> b->at % 8 & 1) << i;
    return v;
}

/* From the length of each symbol's code. Every string of bits must begin with a code, unless there is one
 * symbol only. */
static void build(struct bits *b, struct code *c, const uint8_t *lengths, size_t symbols)
{
    uint16_t next[CODE_BITS + 1];
    size_t used = 0;
    memset(c->count, 0, sizeof(c->count));
    for (size_t i = 0; i < symbols; i++)
        c->count[lengths[i]]++;
    c->count[0] = 0;
    int open = 1;
    for (unsigned length = 1; length <= CODE_BITS; length++) {
        next[length] = (uint16_t)used;
        used += c->count[length];
        open = open * 2 - c->count[length];
        if (open < 0)
            b->broken = true;
    }
    c->single = used == 1;
    if (used == 0 || (used > 1 && open != 0))
        b->broken = true;
    for (size_t i = 0; i < symbols; i++)
        if (lengths[i])
            c->symbols[next[lengths[i]]++] = (uint16_t)i;
}

static unsigned read_symbol(struct bits *b, const struct code *c)
{
    if (c->single)
        return c->symbols[0];
    int code = 0, first = 0, index = 0;
    for (unsigned length = 1; length <= CODE_BITS && !b->broken; length++) {
        code |= (int)read_bits(b, 1);
        int count = c->count[length];
        if (code - first < count)
            return c->symbols[index + code - first];
        index += count;
        first = (first + count) * 2;
        code *= 2;
    }
    b->broken = true;
    return 0;
}

/* The lengths of a code's codes are coded themselves, with runs. */
static void read_lengths(struct bits *b, const struct code *c, uint8_t *lengths, size_t symbols)
{
    static const struct {
        uint8_t bits, least;
    } runs[] = {{2, 3}, {3, 3}, {7, 11}};
    size_t left = symbols;
    uint8_t before = 8;
    if (read_bits(b, 1)) {
        unsigned width = 2 + 2 * read_bits(b, 3);
        left = 2 + (size_t)read_bits(b, width);
    }
    if (left > symbols)
        b->broken = true;
    for (size_t i = 0; i < symbols && left > 0 && !b->broken; left--) {
        unsigned s = read_symbol(b, c);
        if (s < 16) {
            lengths[i++] = (uint8_t)s;
            before = s ? (uint8_t)s : before;
            continue;
        }
        size_t run = read_bits(b, runs[s - 16].bits) + runs[s - 16].least;
        if (run > symbols - i)
            b->broken = true;
        else
            memset(lengths + i, s == 16 ? before : 0, run);
        i += run;
    }
}

static void read_code(struct bits *b, struct code *c, size_t symbols)
{
    static const uint8_t order[LENGTH_CODES] = {17, 18, 0, 1,  2,  3,  4,  5,  16, 6,
                                                7,  8,  9, 10, 11, 12, 13, 14, 15};
    uint8_t lengths[GREEN_MAX] = {0}, of_lengths[LENGTH_CODES] = {0};
    ASSERT(symbols <= GREEN_MAX);
    if (read_bits(b, 1)) {
        bool two = read_bits(b, 1);
        lengths[read_bits(b, read_bits(b, 1) ? 8 : 1)] = 1;
        if (two)
            lengths[read_bits(b, 8)] = 1;
    } else {
        size_t count = 4 + read_bits(b, 4);
        for (size_t i = 0; i < count; i++)
            of_lengths[order[i]] = (uint8_t)read_bits(b, 3);
        build(b, c, of_lengths, LENGTH_CODES);
        if (!b->broken)
            read_lengths(b, c, lengths, symbols);
    }
    build(b, c, lengths, symbols);
}

/* How large a number is that is written as a symbol and some bits: lengths and distances. */
static uint32_t read_number(struct bits *b, unsigned symbol)
{
    if (symbol < 4)
        return symbol + 1;
    unsigned extra = (symbol - 2) / 2;
    return ((2 + symbol % 2) << extra) + read_bits(b, extra) + 1;
}

static unsigned read_cache_bits(struct bits *b)
{
    if (!read_bits(b, 1))
        return 0;
    unsigned bits = read_bits(b, 4);
    if (bits < 1 || bits > 11)
        b->broken = true;
    return b->broken ? 0 : bits;
}

/* An image of `pixels` pixels in one group of codes, to the largest red * 256 + green in it. */
static uint32_t read_image(struct bits *b, struct group *g, uint64_t pixels)
{
    unsigned cache = read_cache_bits(b);
    for (int i = 0; i < CODES; i++)
        read_code(b, &g->codes[i],
                  i == DISTANCE ? 40
                  : i > GREEN   ? 256
                                : 256 + 24 + (cache ? 1u << cache : 0));
    uint32_t most = 0;
    while (pixels > 0 && !b->broken) {
        unsigned s = read_symbol(b, &g->codes[GREEN]);
        uint64_t length = 1;
        if (s < 256) {
            uint32_t value = read_symbol(b, &g->codes[RED]) << 8 | s;
            most = MAX_OF(most, value);
            (void)read_symbol(b, &g->codes[BLUE]);
            (void)read_symbol(b, &g->codes[ALPHA]);
        } else if (s < 256 + 24) {
            length = read_number(b, s - 256);
            (void)read_number(b, read_symbol(b, &g->codes[DISTANCE]));
        }
        if (length > pixels)
            b->broken = true;
        pixels -= MIN_OF(length, pixels);
    }
    return most;
}

static uint64_t tiles(uint32_t width, uint32_t height, unsigned bits)
{
    uint32_t edge = 1u << bits;
    return (uint64_t)DIV_UP(width, edge) * DIV_UP(height, edge);
}

/* One transform; a palette of few colours packs several pixels into one, which makes the image narrower. */
static void read_transform(struct bits *b, struct group *g, unsigned *seen, uint32_t *width, uint32_t height)
{
    unsigned type = read_bits(b, 2);
    if (*seen & 1u << type)
        b->broken = true;
    *seen |= 1u << type;
    if (b->broken || type == SUBTRACT_GREEN)
        return;
    if (type == COLOUR_INDEXING) {
        uint32_t colours = read_bits(b, 8) + 1;
        unsigned narrower = colours > 16 ? 0 : colours > 4 ? 1 : colours > 2 ? 2 : 3;
        (void)read_image(b, g, colours);
        *width = DIV_UP(*width, 1u << narrower);
        return;
    }
    unsigned bits = read_bits(b, 3) + 2;
    (void)read_image(b, g, tiles(*width, height, bits));
}

static uint32_t read_groups(struct bits *b)
{
    struct group g;
    if (read_bits(b, 8) != SIGNATURE)
        b->broken = true;
    uint32_t width = read_bits(b, 14) + 1, height = read_bits(b, 14) + 1;
    (void)read_bits(b, 1); /* alpha is used */
    if (read_bits(b, 3) != 0)
        b->broken = true;
    unsigned seen = 0;
    while (!b->broken && read_bits(b, 1))
        read_transform(b, &g, &seen, &width, height);
    (void)read_cache_bits(b);
    if (b->broken || !read_bits(b, 1))
        return 1;
    unsigned bits = read_bits(b, 3) + 2;
    return read_image(b, &g, tiles(width, height, bits)) + 1;
}

int vp8l_groups(struct slice bitstream, uint32_t *ret, struct err *e)
{
    struct bits b = {.ptr = (const uint8_t *)bitstream.ptr, .len = bitstream.len};
    uint32_t groups = read_groups(&b);
    if (b.broken)
        return err_set(e, -EINVAL, "its pixels are broken, or end early");
    if (groups > VP8L_GROUPS_MAX)
        return err_set(e, -EINVAL, "it has %u groups of codes, the limit is %d", groups, VP8L_GROUPS_MAX);
    *ret = groups + 1;
    return 0;
}
