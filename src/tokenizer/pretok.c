/* pretok.c - three regular expressions by hand.
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]* |
 *     \s*[\r\n]+ | \s+(?!\S) | \s+
 *
 * The first alternative that matches wins. Written out, no alternative backtracks by more than one character.
 * Every character starts some alternative, so pieces have no gaps. Time is linear for every text; a regex
 * engine guarantees none of this. The case that is easily missed: the engine folds U+017F (long s) to s. */
#include "tokenizer/pretok.h"

#include "base/check.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

#define PRETOK_HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
#define PRETOK_TAIL "]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct pretok_spec {
    struct slice regex;
    bool marks_join;      /* a mark counts as a letter */
    unsigned numbers_max; /* in one piece */
} pretok_specs[] = {
    [PRETOK_QWEN2] = {SLICE(PRETOK_HEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}" PRETOK_TAIL), false, 1},
    [PRETOK_QWEN3_5] = {SLICE(PRETOK_HEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}" PRETOK_TAIL),
                        true, 1},
    [PRETOK_LLAMA3] = {SLICE(PRETOK_HEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}" PRETOK_TAIL), false, 3},
};

bool pretok_rule_find(struct slice regex, enum pretok_rule *ret)
{
    for (size_t i = 0; i < COUNT_OF(pretok_specs); i++) {
        if (slice_eq(regex, pretok_specs[i].regex)) {
            *ret = (enum pretok_rule)i;
            return true;
        }
    }
    return false;
}

struct slice pretok_rule_regex(enum pretok_rule rule)
{
    ASSERT((size_t)rule < COUNT_OF(pretok_specs));
    return pretok_specs[rule].regex;
}

/* A character of the text as the rules see it; KIND_END (and 0 bytes) after the last one. */
struct pretok_char {
    uint32_t code;
    unsigned bytes;
    enum { KIND_OTHER, KIND_END, KIND_LETTER, KIND_NUMBER, KIND_SPACE, KIND_NEWLINE } kind;
};

static struct pretok_char char_beyond_ascii(const struct pretok_spec *spec, struct slice text, size_t at)
{
    ASSERT(at < text.len);
    struct pretok_char c = {.kind = KIND_OTHER};
    c.bytes = utf8_next(text.ptr + at, &c.code);
    switch (unicode_class(c.code)) {
    case UNICODE_LETTER:
        c.kind = KIND_LETTER;
        break;
    case UNICODE_MARK:
        c.kind = spec->marks_join ? KIND_LETTER : KIND_OTHER;
        break;
    case UNICODE_NUMBER:
        c.kind = KIND_NUMBER;
        break;
    case UNICODE_SPACE:
        c.kind = c.code == '\r' || c.code == '\n' ? KIND_NEWLINE : KIND_SPACE;
        break;
    case UNICODE_OTHER:
        c.kind = KIND_OTHER;
        break;
    }
    return c;
}

/* Most texts are mostly ASCII. */
static const unsigned char ascii_kinds[128] = {
    ['A' ... 'Z'] = KIND_LETTER, ['a' ... 'z'] = KIND_LETTER, ['0' ... '9'] = KIND_NUMBER,
    ['\t'] = KIND_SPACE,         ['\n'] = KIND_NEWLINE,       ['\v'] = KIND_SPACE,
    ['\f'] = KIND_SPACE,         ['\r'] = KIND_NEWLINE,       [' '] = KIND_SPACE};

static inline struct pretok_char char_at(const struct pretok_spec *spec, struct slice text, size_t at)
{
    if (at == text.len)
        return (struct pretok_char){.kind = KIND_END};
    unsigned char byte = (unsigned char)text.ptr[at];
    if (byte < 0x80)
        return (struct pretok_char){byte, 1, ascii_kinds[byte]};
    return char_beyond_ascii(spec, text, at);
}

/* The end of the characters of `kind` that follow `at`. SIZE_MAX: cancelled, also as `at`. */
static size_t run_end(const struct pretok_spec *spec, struct slice text, size_t at, unsigned kind,
                      const struct wanted *w)
{
    if (at == SIZE_MAX)
        return at;
    size_t look = at + WANTED_BYTES;
    for (struct pretok_char c; (c = char_at(spec, text, at)).kind == kind; at += c.bytes)
        if (wanted_pass(w, at, &look) < 0)
            return SIZE_MAX;
    return at;
}

/* 's 't 'm 'd 're 've 'll in any case; `at` is after the apostrophe. 0: none of them. */
static size_t contraction_end(struct slice text, size_t at)
{
    static const struct slice endings[] = {SLICE("s"), SLICE("t"),  SLICE("re"), SLICE("ve"),
                                           SLICE("m"), SLICE("ll"), SLICE("d")};
    if (slice_starts(slice_sub(text, at, 2), SLICE("\xC5\xBF")))
        return at + 2;
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        struct slice have = slice_sub(text, at, endings[i].len);
        size_t same = 0;
        while (same < have.len && (have.ptr[same] | 0x20) == endings[i].ptr[same])
            same++;
        if (same == endings[i].len)
            return at + same;
    }
    return 0;
}

/* White space at `from`. `\s*[\r\n]+` ends after the last newline of the run. Otherwise the last character of
 * the run is left to the next piece, unless the text ends or it is the only one. */
static size_t space_end(const struct pretok_spec *spec, struct slice text, size_t from,
                        const struct wanted *w)
{
    size_t end = from, last = from, newline = 0, look = from + WANTED_BYTES;
    struct pretok_char c;
    for (; (c = char_at(spec, text, end)).kind == KIND_SPACE || c.kind == KIND_NEWLINE; end += c.bytes) {
        if (wanted_pass(w, end, &look) < 0)
            return SIZE_MAX;
        last = end;
        if (c.kind == KIND_NEWLINE)
            newline = end + c.bytes;
    }
    if (newline)
        return newline;
    return c.kind == KIND_END || last == from ? end : last;
}

size_t pretok_end(enum pretok_rule rule, struct slice text, size_t from, const struct wanted *w)
{
    const struct pretok_spec *spec = &pretok_specs[rule];
    ASSERT(from < text.len);
    struct pretok_char first = char_at(spec, text, from);
    size_t next = from + first.bytes;
    if (first.code == '\'') {
        size_t end = contraction_end(text, next);
        if (end)
            return end;
    }
    if (first.kind == KIND_LETTER)
        return run_end(spec, text, next, KIND_LETTER, w);
    if (first.kind == KIND_NUMBER) {
        struct pretok_char c;
        for (unsigned n = 1; n < spec->numbers_max && (c = char_at(spec, text, next)).kind == KIND_NUMBER;
             n++)
            next += c.bytes;
        return next;
    }
    if (first.kind == KIND_NEWLINE)
        return space_end(spec, text, from, w);
    struct pretok_char second = char_at(spec, text, next);
    if (second.kind == KIND_LETTER)
        return run_end(spec, text, next, KIND_LETTER, w);
    if (first.kind == KIND_OTHER || (first.code == ' ' && second.kind == KIND_OTHER))
        return run_end(spec, text, run_end(spec, text, next, KIND_OTHER, w), KIND_NEWLINE, w);
    return space_end(spec, text, from, w);
}
