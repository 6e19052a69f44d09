/* added.c - a sorted array searched byte by byte.
 *
 * At a byte that starts some token, binary search narrows the range of tokens that share the bytes read. It
 * ends when the range is empty; the last token that ended on the way is the longest match. A trie would be
 * faster without effect: "<" is rare in text. */
#include "tokenizer/added.h"

#include "base/check.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

#include <stdlib.h>

static int bytes_compare(struct slice a, struct slice b)
{
    size_t common = MIN_OF(a.len, b.len);
    int order = common ? memcmp(a.ptr, b.ptr, common) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int token_compare(const void *a, const void *b)
{
    return bytes_compare(((const struct added_token *)a)->content, ((const struct added_token *)b)->content);
}

const struct added_token *added_set_init(struct added_set *set, struct added_token *tokens, uint32_t count)
{
    *set = (struct added_set){.tokens = tokens, .count = count};
    if (count)
        qsort(tokens, count, sizeof(*tokens), token_compare);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(tokens[i].content.len > 0);
        set->starts[(unsigned char)tokens[i].content.ptr[0]] = true;
        if (i > 0 && slice_eq(tokens[i].content, tokens[i - 1].content))
            return &tokens[i];
    }
    return NULL;
}

bool added_set_find(const struct added_set *set, struct slice content, uint32_t *ret)
{
    uint32_t low = 0, high = set->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = bytes_compare(set->tokens[middle].content, content);
        if (order == 0) {
            *ret = set->tokens[middle].id;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* First token in [low, high), all of which agree on the bytes before `depth`, whose byte there is at least
 * `byte`. A token that ends before `depth` is smaller than any byte. */
static uint32_t narrow(const struct added_set *set, uint32_t low, uint32_t high, size_t depth, unsigned byte)
{
    ASSERT(low <= high && high <= set->count);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct slice content = set->tokens[middle].content;
        if (content.len > depth && (unsigned char)content.ptr[depth] >= byte)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The longest token that starts at `at`, or NULL. */
static const struct added_token *longest_at(const struct added_set *set, struct slice text, size_t at)
{
    ASSERT(at < text.len);
    const struct added_token *longest = NULL;
    uint32_t low = 0, high = set->count;
    for (size_t depth = 0; at + depth < text.len && low < high; depth++) {
        unsigned byte = (unsigned char)text.ptr[at + depth];
        low = narrow(set, low, high, depth, byte);
        high = narrow(set, low, high, depth, byte + 1);
        if (low < high && set->tokens[low].content.len == depth + 1)
            longest = &set->tokens[low];
    }
    return longest;
}

const struct added_token *added_set_longest(const struct added_set *set, struct slice text)
{
    return text.len && set->starts[(unsigned char)text.ptr[0]] ? longest_at(set, text, 0) : NULL;
}

/* True when a word character ends before `from`, or starts at `until`. */
static bool word_touches(struct slice text, size_t from, size_t until)
{
    ASSERT(from <= until && until <= text.len);
    uint32_t code;
    if (from > 0 && (utf8_previous(text.ptr, from, &code), unicode_is_word(code)))
        return true;
    return until < text.len && (utf8_next(text.ptr + until, &code), unicode_is_word(code));
}

/* End of the white space at `from`. Runs are remembered: a token that is white space itself would otherwise
 * make the walk measure the same run at every match. */
static size_t space_end(struct added_walk *w, size_t from)
{
    ASSERT(from <= w->text.len);
    if (from >= w->space_from && from < w->space_until)
        return w->space_until;
    uint32_t code;
    size_t end = from;
    for (unsigned bytes; end < w->text.len; end += bytes) {
        bytes = utf8_next(w->text.ptr + end, &code);
        if (unicode_class(code) != UNICODE_SPACE)
            break;
    }
    w->space_from = from;
    w->space_until = end;
    return end;
}

/* Start of the white space that ends at `end`, not before `from`. */
static size_t space_start(struct slice text, size_t from, size_t end)
{
    ASSERT(from <= end && end <= text.len);
    uint32_t code;
    for (unsigned bytes; end > from; end -= bytes) {
        bytes = utf8_previous(text.ptr, end, &code);
        if (unicode_class(code) != UNICODE_SPACE)
            break;
    }
    return end;
}

void added_walk_init(struct added_walk *w, const struct added_set *set, struct slice text,
                     const struct wanted *wanted)
{
    *w = (struct added_walk){.set = set, .text = text, .wanted = wanted};
}

struct added_match added_walk_next(struct added_walk *w)
{
    struct slice text = w->text;
    while (w->search < text.len) {
        size_t start = w->search;
        const struct added_token *token = NULL;
        int r = wanted_pass(w->wanted, start, &w->look);
        if (r < 0)
            return (struct added_match){.error = r};
        if (w->set->starts[(unsigned char)text.ptr[start]])
            token = longest_at(w->set, text, start);
        if (!token) {
            w->search++;
            continue;
        }
        size_t end = start + token->content.len;
        /* A match that is refused is passed over whole, as in the reference. */
        w->search = end;
        if (token->single_word && word_touches(text, start, end))
            continue;
        if (token->lstrip && start > w->from)
            start = space_start(text, w->from, start);
        if (token->rstrip)
            end = space_end(w, end);
        struct added_match match = {.found = true, .id = token->id};
        if (w->from < start)
            match.before = slice_sub(text, w->from, start - w->from);
        w->from = end;
        return match;
    }
    struct added_match rest = {.before = slice_sub(text, w->from, text.len)};
    return rest;
}
