/* data_url.c - the head by hand, the bytes through a table of 256. */
#include "vision/data_url.h"

#include "base/check.h"

#include <errno.h>
#include <strings.h>

enum { WRONG = 255, SPACE = 254, PAD = 253 };

static bool same_word(struct slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp(s.ptr, word, s.len) == 0;
}

bool data_url_is(struct slice url)
{
    return same_word(slice_sub(url, 0, 5), "data:");
}

int data_url_parse(struct slice url, struct data_url *ret, struct err *e)
{
    if (!data_url_is(url))
        return err_set(e, -EINVAL, "this is not a data: URL");
    struct slice head = slice_sub(url, 5, DATA_URL_HEAD_MAX);
    size_t comma = slice_find(head, SLICE(","), 0);
    if (comma == SIZE_MAX)
        return err_set(
            e, -EINVAL,
            "the data: URL has no comma within its first %d bytes: it has to be data:TYPE;base64,BYTES",
            DATA_URL_HEAD_MAX);
    head.len = comma;
    size_t semicolon = slice_find(head, SLICE(";"), 0);
    size_t last = head.len;
    while (last > 0 && head.ptr[last - 1] != ';')
        last--;
    if (last == 0 || !same_word(slice_sub(head, last, SIZE_MAX), "base64"))
        return err_set(
            e, -EINVAL,
            "the data: URL is not in base64: it has to be data:TYPE;base64,BYTES, and percent-escapes are "
            "not read");
    ret->type = slice_sub(head, 0, semicolon);
    ret->base64 = slice_sub(url, 5 + comma + 1, SIZE_MAX);
    ret->bytes_max = ret->base64.len / 4 * 3 + 3;
    return 0;
}

static uint8_t digit_of(unsigned c)
{
    if (c >= 'A' && c <= 'Z')
        return (uint8_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint8_t)(c - 'a' + 26);
    if (c >= '0' && c <= '9')
        return (uint8_t)(c - '0' + 52);
    switch (c) {
    case '+':
        return 62;
    case '/':
        return 63;
    case '=':
        return PAD;
    case ' ':
    case '\t':
    case '\n':
    case '\r':
    case '\f':
        return SPACE;
    default:
        return WRONG;
    }
}

size_t data_url_bytes(const struct data_url *u)
{
    size_t count = 0;
    for (size_t i = 0; i < u->base64.len; i++)
        count += digit_of((uint8_t)u->base64.ptr[i]) < 64;
    return count / 4 * 3 + count % 4 * 3 / 4;
}

struct decoding {
    uint8_t digits[256];
    uint8_t *to;
    size_t written;
    uint32_t group;       /* digits that do not make a byte yet */
    unsigned count, pads; /* digits in the group; trailing pads */
};

static void put_group(struct decoding *d, uint32_t group)
{
    uint8_t *to = d->to + d->written;
    to[0] = (uint8_t)(group >> 16);
    to[1] = (uint8_t)(group >> 8);
    to[2] = (uint8_t)group;
    d->written += 3;
}

/* Decodes the groups of four digits from `from` on that have nothing between them; returns how many bytes of
 * `s` they are. */
static size_t put_groups(struct decoding *d, struct slice s, size_t from)
{
    size_t at = from;
    for (; s.len - at >= 4; at += 4) {
        uint32_t digits[4];
        for (size_t i = 0; i < 4; i++)
            digits[i] = d->digits[(uint8_t)s.ptr[at + i]];
        if ((digits[0] | digits[1] | digits[2] | digits[3]) > 63)
            break;
        put_group(d, digits[0] << 18 | digits[1] << 12 | digits[2] << 6 | digits[3]);
    }
    return at - from;
}

static void put_digit(struct decoding *d, uint8_t digit)
{
    d->group = d->group << 6 | digit;
    if (++d->count < 4)
        return;
    put_group(d, d->group);
    d->count = 0;
}

/* The rest of the last group: nothing, or two digits for a byte, or three for two; padding is complete or
 * absent. */
static int put_end(struct decoding *d, struct err *e)
{
    if (d->count == 1 || (d->pads > 0 && d->count + d->pads != 4))
        return err_set(e, -EINVAL, "the data: URL ends within four characters of base64: bytes are missing");
    if (d->count == 0)
        return 0;
    unsigned spare = d->count == 2 ? 4 : 2;
    if (d->group & ((1u << spare) - 1))
        return err_set(e, -EINVAL, "the last character of the data: URL has bits of a byte that is missing");
    uint32_t bytes = d->group >> spare;
    if (d->count == 3)
        d->to[d->written++] = (uint8_t)(bytes >> 8);
    d->to[d->written++] = (uint8_t)bytes;
    return 0;
}

int data_url_decode(const struct data_url *u, uint8_t *to, size_t *ret, struct err *e)
{
    struct decoding d = {.to = to};
    for (unsigned c = 0; c < COUNT_OF(d.digits); c++)
        d.digits[c] = digit_of(c);
    for (size_t i = put_groups(&d, u->base64, 0); i < u->base64.len; i++) {
        uint8_t digit = d.digits[(uint8_t)u->base64.ptr[i]];
        if (digit < 64 && d.pads == 0) {
            put_digit(&d, digit);
            i += d.count == 0 ? put_groups(&d, u->base64, i + 1) : 0;
        } else if (digit == PAD)
            d.pads++;
        else if (digit != SPACE)
            return err_set(e, -EINVAL, "character %zu after the comma of the data: URL does not belong there",
                           i + 1);
    }
    int r = put_end(&d, e);
    if (r == 0)
        *ret = d.written;
    return r;
}
