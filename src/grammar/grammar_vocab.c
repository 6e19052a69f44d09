/* grammar_vocab.c - a vocabulary as tries.
 *
 * The trie lies in one array, in the order in which a walk meets its nodes: the next node is the first child,
 * and a subtree is skipped by adding its size. Most tokens of a vocabulary are plain characters. Where a
 * string may continue with any of them, one precomputed mask stands for all, and a walk over the trie of the
 * others adds these. */
#include "grammar/grammar_vocab.h"

#include "base/arena.h"
#include "base/check.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

enum { PLANNED_TOKEN_BYTES = 64, PLANNED_FIXED_BYTES = 192 << 10 };

static const uint32_t slice_chars[VOCAB_SLICES] = {64, 12};

/* ---- Plain characters ---- */

/* Bytes of the plain character at `at`, or 0. A control character, quote, backslash or line separator (which
 * the dot of a pattern does not match) is not plain. */
static uint32_t plain_char(struct slice s, size_t at)
{
    uint8_t byte = (uint8_t)s.ptr[at];
    if (byte < 0x80)
        return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7F;
    uint32_t len = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    uint32_t code = byte & (0x7Fu >> len);
    if (byte < 0xC2 || byte > 0xF4 || s.len - at < len)
        return 0;
    for (uint32_t i = 1; i < len; i++) {
        uint8_t next = (uint8_t)s.ptr[at + i];
        if ((next & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (next & 0x3F);
    }
    bool wrong = (len == 3 && (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF))) ||
                 (len == 4 && (code < 0x10000 || code > 0x10FFFF)) || code == 0x2028 || code == 0x2029;
    return wrong ? 0 : len;
}

/* How many characters a token has when all are plain, else 0. */
static uint32_t plain_chars(struct slice s)
{
    uint32_t count = 0;
    for (size_t at = 0; at < s.len; count++) {
        uint32_t len = plain_char(s, at);
        if (len == 0)
            return 0;
        at += len;
    }
    return count;
}

/* ---- Building ---- */

static int compare(const void *one, const void *other, void *arg)
{
    const struct grammar_vocab *v = arg;
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    struct slice x = grammar_vocab_text(v, a), y = grammar_vocab_text(v, b);
    size_t len = MIN_OF(x.len, y.len);
    int order = len ? memcmp(x.ptr, y.ptr, len) : 0;
    if (order == 0)
        order = (x.len > y.len) - (x.len < y.len);
    return order ? order : (a > b) - (a < b);
}

static uint32_t common(struct slice a, struct slice b)
{
    size_t len = MIN_OF(a.len, b.len), at = 0;
    while (at < len && a.ptr[at] == b.ptr[at])
        at++;
    return (uint32_t)at;
}

/* Nodes of the trie of these tokens, which are sorted. */
static uint32_t count_nodes(const struct grammar_vocab *v, const uint32_t *tokens, uint32_t count)
{
    struct slice before = {0};
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct slice text = grammar_vocab_text(v, tokens[i]);
        nodes += (uint32_t)text.len - common(before, text);
        before = text;
    }
    return nodes;
}

static void fill_trie(const struct grammar_vocab *v, const uint32_t *tokens, uint32_t count,
                      struct trie *trie)
{
    uint32_t path[TOKEN_BYTES_MAX + 1], depth = 0;
    struct slice before = {0};
    for (uint32_t i = 0; i <= count; i++) {
        struct slice text = i < count ? grammar_vocab_text(v, tokens[i]) : (struct slice){0};
        uint32_t keep = common(before, text);
        for (; depth > keep; depth--)
            trie->nodes[path[depth - 1]].size = trie->count - path[depth - 1];
        if (i < count && keep == text.len) {
            trie->nodes[path[depth - 1]].same = 1;
            continue;
        }
        while (depth < text.len) {
            path[depth] = trie->count;
            trie->nodes[trie->count] = (struct trie_node){
                .byte = (uint8_t)text.ptr[depth], .token = VOCAB_TOKENS_MAX, .depth = depth + 1};
            trie->count++;
            depth++;
        }
        if (i < count)
            trie->nodes[path[depth - 1]].token = tokens[i];
        before = text;
    }
}

static int make_trie(struct grammar_vocab *v, const uint32_t *tokens, uint32_t count, struct trie *trie)
{
    uint32_t nodes = count_nodes(v, tokens, count);
    if (nodes >= 1u << 24)
        return -E2BIG;
    trie->nodes = ARENA_ARRAY(v->arena, struct trie_node, nodes);
    if (!trie->nodes)
        return -ENOMEM;
    fill_trie(v, tokens, count, trie);
    ASSERT(trie->count == nodes);
    return 0;
}

static int make_slice(struct grammar_vocab *v, uint32_t *tokens, uint32_t count, uint32_t *others,
                      uint32_t index)
{
    struct vocab_slice *s = &v->slices[index];
    uint32_t *bits = ARENA_ARRAY(v->arena, uint32_t, v->words), other_count = 0;
    if (!bits)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t chars = plain_chars(grammar_vocab_text(v, tokens[i]));
        if (chars == 0 || chars > slice_chars[index]) {
            others[other_count++] = tokens[i];
            continue;
        }
        bits[tokens[i] / 32] |= 1u << tokens[i] % 32;
        s->chars = MAX_OF(s->chars, chars);
    }
    s->count = count - other_count;
    s->bits = bits;
    return make_trie(v, others, other_count, &s->rest);
}

static int compare_same(const void *one, const void *other)
{
    const struct same_bytes *a = one, *b = other;
    if (a->token != b->token)
        return a->token > b->token ? 1 : -1;
    return (a->other > b->other) - (a->other < b->other);
}

static int make_same(struct grammar_vocab *v, const uint32_t *tokens, uint32_t count)
{
    uint32_t pairs = 0;
    for (uint32_t i = 1; i < count; i++)
        pairs += slice_eq(grammar_vocab_text(v, tokens[i]), grammar_vocab_text(v, tokens[i - 1]));
    struct same_bytes *same = ARENA_ARRAY(v->arena, struct same_bytes, pairs);
    if (!same)
        return -ENOMEM;
    uint32_t first = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (slice_eq(grammar_vocab_text(v, tokens[i]), grammar_vocab_text(v, tokens[first])))
            same[v->same_count++] = (struct same_bytes){tokens[first], tokens[i]};
        else
            first = i;
    }
    ASSERT(v->same_count == pairs);
    qsort(same, v->same_count, sizeof(*same), compare_same);
    v->same = same;
    return 0;
}

static int copy_texts(struct grammar_vocab *v, const struct grammar_vocab_opts *opts)
{
    uint64_t bytes = 0;
    uint32_t *at = ARENA_ARRAY(v->arena, uint32_t, (size_t)v->size + 1);
    for (uint32_t id = 0; at && id < v->size; id++) {
        at[id] = (uint32_t)bytes;
        bytes += opts->bytes(opts->arg, id).len;
        if (bytes > UINT32_MAX)
            return -E2BIG;
    }
    char *text = arena_alloc_align(v->arena, bytes + 1, 1);
    uint32_t *ends = ARENA_ARRAY(v->arena, uint32_t, opts->end_count);
    if (!at || !text || !ends)
        return -ENOMEM;
    at[v->size] = (uint32_t)bytes;
    for (uint32_t id = 0; id < v->size; id++) {
        struct slice s = opts->bytes(opts->arg, id);
        if (s.len)
            memcpy(text + at[id], s.ptr, s.len);
    }
    if (opts->end_count)
        memcpy(ends, opts->ends, opts->end_count * sizeof(*ends));
    v->text_at = at;
    v->text = text;
    v->ends = ends;
    v->end_count = opts->end_count;
    return 0;
}

/* `scratch`: two lists of tokens. */
static int build(struct grammar_vocab *v, struct arena *scratch)
{
    uint32_t *tokens = ARENA_ARRAY(scratch, uint32_t, v->size),
             *others = ARENA_ARRAY(scratch, uint32_t, v->size);
    uint32_t count = 0;
    if (!tokens || !others)
        return -ENOMEM;
    for (uint32_t id = 0; id < v->size; id++) {
        size_t len = grammar_vocab_text(v, id).len;
        if (len == 0 || len > TOKEN_BYTES_MAX)
            continue;
        tokens[count++] = id;
        v->longest = MAX_OF(v->longest, (uint32_t)len);
    }
    qsort_r(tokens, count, sizeof(*tokens), compare, v);
    int r = make_trie(v, tokens, count, &v->all);
    if (r == 0)
        r = make_same(v, tokens, count);
    for (uint32_t i = 0; i < VOCAB_SLICES && r == 0; i++)
        r = make_slice(v, tokens, count, others, i);
    return r;
}

size_t grammar_vocab_planned_bytes(uint32_t size)
{
    return ROUND_UP((size_t)size * PLANNED_TOKEN_BYTES, (size_t)65536) + PLANNED_FIXED_BYTES;
}

int grammar_vocab_create(const struct grammar_vocab_opts *opts, struct grammar_vocab **ret)
{
    struct arena *a = NULL, *scratch = NULL;
    if (opts->size >= VOCAB_TOKENS_MAX)
        return -E2BIG;
    int r = arena_create(&(struct arena_opts){.bytes_max = (size_t)1 << 30, .charge = opts->charge}, &a);
    if (r == 0)
        r = arena_create(&(struct arena_opts){.bytes_max = (size_t)1 << 28, .charge = opts->charge},
                         &scratch);
    struct grammar_vocab *v = r == 0 ? ARENA_NEW(a, struct grammar_vocab) : NULL;
    if (r == 0 && !v)
        r = -ENOMEM;
    if (r == 0) {
        *v = (struct grammar_vocab){.arena = a, .size = opts->size, .words = DIV_UP(opts->size, 32)};
        r = copy_texts(v, opts);
    }
    if (r == 0)
        r = build(v, scratch);
    arena_free(scratch);
    if (r < 0) {
        arena_free(a);
        return r;
    }
    *ret = v;
    return 0;
}

void grammar_vocab_free(struct grammar_vocab *v)
{
    if (v)
        arena_free(v->arena);
}

size_t grammar_vocab_bytes(const struct grammar_vocab *v)
{
    return arena_committed_bytes(v->arena);
}

uint32_t grammar_vocab_set(const struct grammar_vocab *v, const struct trie_node *node, uint32_t *bits)
{
    uint32_t token = node->token, low = 0, high = v->same_count, count = 1;
    ASSERT(token < v->size);
    bits[token / 32] |= 1u << token % 32;
    if (!node->same)
        return count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (v->same[mid].token < token)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < v->same_count && v->same[low].token == token; low++, count++)
        bits[v->same[low].other / 32] |= 1u << v->same[low].other % 32;
    return count;
}
