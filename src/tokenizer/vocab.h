/* vocab.h - the tokens of a model: from id to bytes, and from bytes to id while needed.
 *
 * Built once in an arena, then read from any thread. Ids may have gaps. */
#ifndef PLATEAU_TOKENIZER_VOCAB_H
#define PLATEAU_TOKENIZER_VOCAB_H

#include "base/arena.h"
#include "base/slice.h"

struct vocab_entry {
    uint32_t at; /* offset of the first byte */
    uint32_t len : 29;
    uint32_t is_token : 1, is_added : 1, is_special : 1;
};

struct vocab {
    uint32_t size; /* 1 + the highest id */
    uint32_t bytes_count, bytes_max;
    struct vocab_entry *entries;
    char *bytes;
};

struct vocab_opts {
    uint32_t size;
    uint32_t bytes_max; /* bytes of all tokens together, < 2^29 */
};

/* 0 or -ENOMEM. */
int vocab_init(struct vocab *v, struct arena *a, const struct vocab_opts *opts);
/* A token of exactly these bytes. `id` < size and still free; the bytes fit. */
void vocab_add(struct vocab *v, uint32_t id, struct slice bytes);
/* A token of the byte-level alphabet: every byte is written as one printable character (0x20 as U+0120 ...).
 * False when `text` has a character outside the alphabet. Then the token's bytes are `text` itself, as the
 * reference decodes it, and no text ever encodes to it. */
bool vocab_add_byte_level(struct vocab *v, uint32_t id, struct slice text);

/* Writes the bytes that byte-level `text` encodes (never more than text.len). SIZE_MAX: a character outside
 * the alphabet. */
size_t vocab_bytes_of(struct slice text, char *ret);

/* The character of the byte-level alphabet that stands for `byte`. */
uint32_t vocab_code_of_byte(unsigned char byte);

static inline bool vocab_has(const struct vocab *v, uint32_t id)
{
    return id < v->size && v->entries[id].is_token;
}

/* Empty when `id` is not a token. */
static inline struct slice vocab_bytes(const struct vocab *v, uint32_t id)
{
    if (!vocab_has(v, id))
        return (struct slice){0};
    return (struct slice){v->bytes + v->entries[id].at, v->entries[id].len};
}

#endif
