/* vocab.c - one block of bytes and eight bytes per id: 250 000 tokens take under 4 MiB.
 *
 * The byte-level alphabet gives every byte that prints in Latin-1 its own code point, and the other 68, in
 * order, those from U+0100. */
#include "tokenizer/vocab.h"

#include "base/check.h"
#include "unicode/utf8.h"

#include <errno.h>

int vocab_init(struct vocab *v, struct arena *a, const struct vocab_opts *opts)
{
    ASSERT(opts->bytes_max < (uint32_t)1 << 29);
    *v = (struct vocab){.size = opts->size, .bytes_max = opts->bytes_max};
    v->entries = ARENA_ARRAY(a, struct vocab_entry, opts->size);
    v->bytes = arena_alloc(a, opts->bytes_max);
    return v->entries && v->bytes ? 0 : -ENOMEM;
}

static struct vocab_entry *vocab_entry_take(struct vocab *v, uint32_t id, size_t bytes_max)
{
    ASSERT(id < v->size && !v->entries[id].is_token && bytes_max <= v->bytes_max - v->bytes_count);
    v->entries[id].at = v->bytes_count;
    v->entries[id].is_token = true;
    return &v->entries[id];
}

void vocab_add(struct vocab *v, uint32_t id, struct slice bytes)
{
    struct vocab_entry *entry = vocab_entry_take(v, id, bytes.len);
    if (bytes.len)
        memcpy(v->bytes + entry->at, bytes.ptr, bytes.len);
    entry->len = (uint32_t)bytes.len;
    v->bytes_count += (uint32_t)bytes.len;
}

bool vocab_add_byte_level(struct vocab *v, uint32_t id, struct slice text)
{
    ASSERT(text.len <= v->bytes_max - v->bytes_count);
    size_t len = vocab_bytes_of(text, v->bytes + v->bytes_count);
    if (len == SIZE_MAX) {
        vocab_add(v, id, text);
        return false;
    }
    vocab_entry_take(v, id, text.len)->len = (uint32_t)len;
    v->bytes_count += (uint32_t)len;
    return true;
}

/* The byte a character stands for, or -1. */
static int byte_of_code(uint32_t code)
{
    if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD))
        return (int)code;
    if (code >= 0x100 && code <= 0x120)
        return (int)code - 0x100;
    if (code >= 0x121 && code <= 0x142)
        return (int)code - 0x121 + 0x7F;
    return code == 0x143 ? 0xAD : -1;
}

uint32_t vocab_code_of_byte(unsigned char byte)
{
    if (byte_of_code(byte) == byte)
        return byte;
    if (byte <= 0x20)
        return byte + 0x100u;
    return byte == 0xAD ? 0x143 : byte - 0x7Fu + 0x121;
}

size_t vocab_bytes_of(struct slice text, char *ret)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; len++) {
        struct utf8_char c = utf8_at(text, i);
        int byte = c.valid ? byte_of_code(c.code) : -1;
        if (byte < 0)
            return SIZE_MAX;
        ret[len] = (char)byte;
        i += c.bytes;
    }
    return len;
}
