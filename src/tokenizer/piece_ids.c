/* piece_ids.c - entries of 32 bytes, two in a line of the processor's cache. */
#include "tokenizer/piece_ids.h"

#include "tokenizer/bpe.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

#define PIECE_MAX 16
#define IDS_MAX   3
#define LOG2      12

struct piece_key {
    uint64_t head, tail; /* eight bytes each, which overlap in a piece of fewer than 16 */
    uint32_t len;
};

struct piece_entry {
    uint64_t head, tail;
    uint16_t len, count; /* bytes; 0: empty. Tokens */
    uint32_t ids[IDS_MAX];
};

_Static_assert(sizeof(struct piece_entry) << LOG2 == PIECE_IDS_BYTES, "entries");

int piece_ids_init(struct piece_ids *p, struct arena *scratch)
{
    p->entries = ARENA_ARRAY(scratch, struct piece_entry, (size_t)1 << LOG2);
    return p->entries ? 0 : -ENOMEM;
}

/* 1 to 16 bytes. */
static struct piece_key key_of(struct slice piece)
{
    ASSERT(piece.len > 0 && piece.len <= PIECE_MAX);
    struct piece_key k = {.len = (uint32_t)piece.len};
    if (piece.len >= 8) {
        memcpy(&k.head, piece.ptr, 8);
        memcpy(&k.tail, piece.ptr + piece.len - 8, 8);
    } else if (piece.len >= 4) {
        memcpy(&k.head, piece.ptr, 4);
        memcpy(&k.tail, piece.ptr + piece.len - 4, 4);
    } else {
        for (size_t i = 0; i < piece.len; i++)
            k.head = k.head << 8 | (unsigned char)piece.ptr[i];
    }
    return k;
}

static struct piece_entry *place_of(const struct piece_ids *p, const struct piece_key *k)
{
    uint64_t mixed = (k->head + k->len) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ mixed >> 32 ^ k->tail) * 0x9E3779B97F4A7C15ull;
    return &p->entries[mixed >> (64 - LOG2)];
}

int piece_ids_put(const struct piece_ids *p, struct slice piece, struct bpe_ids *out)
{
    if (!p->entries || piece.len == 0 || piece.len > PIECE_MAX)
        return 0;
    const struct piece_key k = key_of(piece);
    const struct piece_entry *entry = place_of(p, &k);
    if (entry->len != k.len || entry->head != k.head || entry->tail != k.tail)
        return 0;
    ASSERT(entry->count <= IDS_MAX);
    int r = 0;
    for (uint32_t i = 0; i < entry->count && r == 0; i++)
        r = bpe_ids_put(out, entry->ids[i]);
    return r < 0 ? r : 1;
}

void piece_ids_keep(struct piece_ids *p, struct slice piece, const struct bpe_ids *out, size_t first)
{
    ASSERT(first <= out->count);
    size_t count = out->count - first;
    if (!p->entries || piece.len == 0 || piece.len > PIECE_MAX || count > IDS_MAX)
        return;
    const struct piece_key k = key_of(piece);
    struct piece_entry *entry = place_of(p, &k);
    *entry = (struct piece_entry){k.head, k.tail, (uint16_t)k.len, (uint16_t)count, {0}};
    memcpy(entry->ids, out->ids + first, count * sizeof(*out->ids));
}
