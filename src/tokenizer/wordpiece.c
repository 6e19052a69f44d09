/* wordpiece.c - one walk down the trie for each token. A word has few characters, so this is linear. */
#include "tokenizer/wordpiece.h"

#include "tokenizer/bpe.h"

#include "base/check.h"
#include "base/wanted.h"
#include "unicode/utf8.h"

/* The longest token at `from`, and its end. TOKEN_TRIE_NONE: there is none. */
static uint32_t longest(const struct wordpiece *p, struct slice word, size_t from, size_t *end)
{
    uint32_t node = from ? p->inner : TOKEN_TRIE_ROOT, found = TOKEN_TRIE_NONE;
    ASSERT(from < word.len);
    for (size_t at = from; at < word.len && node != TOKEN_TRIE_NONE;) {
        node = token_trie_step(&p->trie, node, (unsigned char)word.ptr[at++]);
        if (node == TOKEN_TRIE_NONE || p->trie.tokens[node] == TOKEN_TRIE_NONE)
            continue;
        found = p->trie.tokens[node];
        *end = at;
    }
    return found;
}

static bool is_long(const struct wordpiece *p, struct slice word)
{
    uint32_t code, chars = 0;
    for (size_t i = 0; i < word.len && chars <= p->chars_max; chars++)
        i += utf8_next(word.ptr + i, &code);
    return chars > p->chars_max;
}

int wordpiece_encode(const struct wordpiece *p, struct slice word, const struct wanted *w,
                     struct bpe_ids *out)
{
    size_t before = out->count, end = 0;
    int r = wanted_check(w);
    if (r == 0 && is_long(p, word))
        return bpe_ids_put(out, p->unknown);
    for (size_t from = 0; from < word.len && r == 0; from = end) {
        uint32_t id = longest(p, word, from, &end);
        if (id == TOKEN_TRIE_NONE) {
            out->count = before;
            return bpe_ids_put(out, p->unknown);
        }
        r = bpe_ids_put(out, id);
        ASSERT(from < end && end <= word.len);
    }
    return r;
}
