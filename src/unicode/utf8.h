/* utf8.h - UTF-8 as the Unicode standard defines it: no overlong forms, no surrogates, nothing above
 * U+10FFFF.
 *
 * Pure functions on bytes. Broken input is replaced the way Rust and browsers do it: every maximal broken
 * part (standard, section 3.9, table 3-8) becomes one U+FFFD. */
#ifndef PLATEAU_UNICODE_UTF8_H
#define PLATEAU_UNICODE_UTF8_H

#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf;

#define UTF8_BYTES_MAX   4
#define UTF8_REPLACEMENT "\xEF\xBF\xBD"

/* A character, or a broken one, at a position. */
struct utf8_char {
    uint32_t code;  /* the code point; meaningless unless `valid` */
    uint8_t bytes;  /* its bytes; of a broken part, the bytes one U+FFFD stands for: 1 to 3 */
    bool valid;     /* a whole character */
    bool truncated; /* not valid, but more bytes at the end of the text could make it so */
};

/* `from` < s.len. */
struct utf8_char utf8_at(struct slice s, size_t from);

/* Bytes of the character at `ptr` and its code point, of text known to be valid. */
static inline unsigned utf8_next(const char *ptr, uint32_t *ret)
{
    const unsigned char *p = (const unsigned char *)ptr;
    if (p[0] < 0x80)
        return *ret = p[0], 1;
    if (p[0] < 0xE0)
        return *ret = (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2;
    if (p[0] < 0xF0)
        return *ret = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3;
    *ret = (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
    return 4;
}

/* As `utf8_next()`, but for the character that ends before `end` (> 0). */
unsigned utf8_previous(const char *ptr, size_t end, uint32_t *ret);

/* Writes the bytes of `code` (<= U+10FFFF, no surrogate) and returns how many. */
unsigned utf8_encode(uint32_t code, char ret[UTF8_BYTES_MAX]);

/* Whether the eight bytes at `ptr` are ASCII. Most text is. */
static inline bool utf8_ascii_eight(const char *ptr)
{
    uint64_t word;
    memcpy(&word, ptr, sizeof(word));
    return (word & 0x8080808080808080u) == 0;
}

/* Offset of the first byte that belongs to no character; s.len when all is valid. */
size_t utf8_valid_bytes(struct slice s);
static inline bool utf8_valid(struct slice s)
{
    return utf8_valid_bytes(s) == s.len;
}

/* Appends `s` with broken parts replaced, except for a truncated character at its end, which is left alone.
 * Returns how many bytes that is: 0 to 3. */
size_t utf8_put_decided(struct buf *out, struct slice s);
/* Appends all of `s`: a truncated character at the end is broken too. */
void utf8_put_lossy(struct buf *out, struct slice s);

/* Shortens a text, in place, to its whole characters other than control characters. For sentences that quote
 * foreign bytes and may have been cut. */
void utf8_clean(char *text);

#endif
