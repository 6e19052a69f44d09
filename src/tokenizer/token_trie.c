/* token_trie.c - nodes level by level, so that the children of a node are neighbours and need no links.
 *
 * A node stands for a range of the sorted tokens that share its bytes. */
#include "tokenizer/token_trie.h"

#include "tokenizer/vocab.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/slice.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct range {
    uint32_t low, high, depth;
};

static int compare(const void *one, const void *other, void *arg)
{
    struct slice a = vocab_bytes(arg, *(const uint32_t *)one), b = vocab_bytes(arg, *(const uint32_t *)other);
    size_t len = MIN_OF(a.len, b.len);
    int order = len ? memcmp(a.ptr, b.ptr, len) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static uint32_t count_nodes(const struct vocab *v, const uint32_t *ids, uint32_t count)
{
    struct slice before = {0};
    size_t nodes = 1;
    for (uint32_t i = 0; i < count; i++) {
        struct slice s = vocab_bytes(v, ids[i]);
        size_t same = 0;
        while (same < MIN_OF(s.len, before.len) && s.ptr[same] == before.ptr[same])
            same++;
        nodes += s.len - same;
        before = s;
    }
    ASSERT(nodes <= UINT32_MAX);
    return (uint32_t)nodes;
}

/* Gives node `at`, which stands for `r`, its token and its children, at the end of the trie. */
static void grow(struct token_trie *t, const struct vocab *v, const uint32_t *ids, struct range *ranges,
                 uint32_t at)
{
    struct range r = ranges[at];
    t->children[at] = t->count;
    t->tokens[at] = TOKEN_TRIE_NONE;
    if (r.low < r.high && vocab_bytes(v, ids[r.low]).len == r.depth)
        t->tokens[at] = ids[r.low++];
    while (r.low < r.high) {
        unsigned char label = (unsigned char)vocab_bytes(v, ids[r.low]).ptr[r.depth];
        uint32_t end = r.low;
        while (end < r.high && (unsigned char)vocab_bytes(v, ids[end]).ptr[r.depth] == label)
            end++;
        t->labels[t->count] = label;
        ranges[t->count++] = (struct range){r.low, end, r.depth + 1};
        r.low = end;
    }
}

int token_trie_init(struct token_trie *t, struct arena *a, const struct vocab *v, const struct hash_map *in)
{
    uint32_t count = 0, id;
    uint32_t *ids = ARENA_ARRAY(a, uint32_t, in->count);
    if (!ids)
        return -ENOMEM;
    for (uint32_t i = 0; i < v->size; i++)
        if (vocab_has(v, i) && hash_map_get(in, vocab_bytes(v, i), &id) && id == i)
            ids[count++] = i;
    ASSERT(count <= in->count);
    if (count)
        qsort_r(ids, count, sizeof(*ids), compare, (void *)v);
    uint32_t nodes = count_nodes(v, ids, count);
    *t = (struct token_trie){.count = 1,
                             .children = ARENA_ARRAY(a, uint32_t, (size_t)nodes + 1),
                             .tokens = ARENA_ARRAY(a, uint32_t, nodes),
                             .labels = arena_alloc(a, nodes)};
    size_t mark = arena_mark(a);
    struct range *ranges = ARENA_ARRAY(a, struct range, nodes);
    if (!ranges || !t->children || !t->tokens || !t->labels)
        return -ENOMEM;
    ranges[0] = (struct range){0, count, 0};
    for (uint32_t at = 0; at < t->count; at++)
        grow(t, v, ids, ranges, at);
    ASSERT(t->count == nodes);
    t->children[nodes] = nodes;
    arena_rewind(a, mark);
    return 0;
}

uint32_t token_trie_step(const struct token_trie *t, uint32_t node, unsigned char byte)
{
    ASSERT(node < t->count);
    uint32_t from = t->children[node], count = t->children[node + 1] - from;
    const uint8_t *found = count ? memchr(t->labels + from, byte, count) : NULL;
    return found ? (uint32_t)(found - t->labels) : TOKEN_TRIE_NONE;
}
