/* token_bound.c - parts of a token in fixed point, rounded down.
 *
 * Normalising keeps an ASCII byte that another ASCII byte (or the end) follows: composition only changes a
 * character before marks, and marks are not ASCII. The other bytes count as the longest token of all, and
 * four times as long where the text is normalised. The worst case of Unicode 15 is 3.5: U+0390 from seven
 * bytes. */
#include "tokenizer/token_bound.h"

#include "tokenizer/bpe.h"
#include "tokenizer/vocab.h"

#include "base/check.h"

#define NFC_SHORTENS 4

static bool is_blank(unsigned byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static void note_bytes(uint32_t with[256], struct slice token, uint32_t len)
{
    for (size_t i = 0; i < token.len; i++) {
        unsigned byte = (unsigned char)token.ptr[i];
        with[byte] = MAX_OF(with[byte], len);
    }
}

void token_bound_init(struct token_bound *b, const struct vocab *v, const struct token_bound_opts *opts)
{
    uint32_t with[256] = {0}, longest = 1;
    *b = (struct token_bound){0};
    if (opts->unbounded)
        return;
    for (uint32_t id = 0; id < v->size; id++) {
        struct slice token = vocab_bytes(v, id), text = vocab_bytes(opts->texts, id);
        uint32_t len = (uint32_t)MAX_OF(token.len, text.len);
        longest = MAX_OF(longest, len);
        note_bytes(with, token, len);
        note_bytes(with, text, len);
    }
    for (unsigned i = 0; i < 256; i++) {
        uint32_t bytes = with[i] && (i < 0x80 || !opts->normalised) ? with[i] : longest;
        ASSERT(bytes > 0);
        b->parts[i] = opts->strips && (is_blank(i) || i >= 0x80) ? 0 : TOKEN_BOUND_ONE / bytes;
    }
    b->other = opts->strips ? 0 : TOKEN_BOUND_ONE / longest / (opts->normalised ? NFC_SHORTENS : 1);
    for (unsigned i = 0x80; i < 256 && opts->normalised; i++)
        b->parts[i] = b->other;
    for (unsigned i = 0; i < 256 && opts->byte_ids; i++)
        if (opts->byte_ids[i] == BPE_NONE)
            b->parts[i] = b->other = 0;
}

static uint64_t sum_of(const struct token_bound *b, struct slice text, size_t from, size_t to)
{
    ASSERT(from <= to && to <= text.len);
    uint64_t sum = 0;
    for (size_t i = from; i < to; i++) {
        unsigned byte = (unsigned char)text.ptr[i];
        bool kept = byte >= 0x80 || i + 1 == text.len || (unsigned char)text.ptr[i + 1] < 0x80;
        sum += kept ? b->parts[byte] : MIN_OF(b->other, b->parts[byte]);
    }
    return sum;
}

int token_bound_exceeds(const struct token_bound *b, struct slice text, size_t tokens, const struct wanted *w)
{
    uint64_t sum = 0;
    if (text.len <= tokens)
        return 0;
    for (size_t from = 0, to; from < text.len; from = to) {
        int r = wanted_check(w);
        if (r < 0)
            return r;
        to = from + MIN_OF(text.len - from, WANTED_BYTES);
        sum += sum_of(b, text, from, to);
        if (sum / TOKEN_BOUND_ONE > tokens)
            return 1;
    }
    return 0;
}

size_t token_bound_bytes(const struct token_bound *b, size_t tokens)
{
    size_t bytes;
    if (b->other == 0 || __builtin_mul_overflow(tokens, (size_t)TOKEN_BOUND_ONE, &bytes))
        return SIZE_MAX;
    /* One token more, as parts of a token are rounded down. */
    return bytes / b->other + TOKEN_BOUND_ONE / b->other + 1;
}
