/* normalizer.c - each stage runs twice over its text: once to count the bytes, once to write them.
 *
 * So a copy is never larger than needed, whatever a table makes of a character. A stage that changes nothing
 * leaves no copy. */
#include "tokenizer/normalizer.h"

#include "tokenizer/split_regex.h"

#include "base/check.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

#include <errno.h>

struct output {
    char *ptr; /* NULL: only counted */
    size_t len;
};

static void put(struct output *o, struct slice s)
{
    if (o->ptr && s.len)
        memcpy(o->ptr + o->len, s.ptr, s.len);
    o->len += s.len;
}

static void put_code(struct output *o, uint32_t code)
{
    char bytes[UTF8_BYTES_MAX];
    put(o, (struct slice){bytes, utf8_encode(code, bytes)});
}

/* ---- one character ---- */

static bool is_ideograph(uint32_t code)
{
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
           (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
           (code >= 0x2F800 && code <= 0x2FA1F);
}

static void put_clean(struct output *o, uint32_t code, struct slice same)
{
    if (code == '\t' || code == '\n' || code == '\r') {
        put(o, SLICE(" "));
        return;
    }
    if (code == 0 || code == 0xFFFD || unicode_is_bert_control(code))
        return;
    put(o, unicode_class(code) == UNICODE_SPACE ? SLICE(" ") : same);
}

/* Normalises by SentencePiece's nmt_ rules: controls go, blanks of any kind become spaces. */
static void put_nmt(struct output *o, uint32_t code, struct slice same)
{
    bool control = (code >= 1 && code <= 8) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
                   code == 0x7F || code == 0x8F || code == 0x9F;
    bool blank = code == '\t' || code == '\n' || code == '\f' || code == '\r' || code == 0x1680 ||
                 (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                 code == 0xFEFF || code == 0xFFFD;
    if (!control)
        put(o, blank ? SLICE(" ") : same);
}

static void put_lower(struct output *o, uint32_t code, struct slice same)
{
    uint32_t lower[2];
    unsigned count = unicode_lower(code, lower);
    ASSERT(count <= COUNT_OF(lower));
    if (count == 1 && lower[0] == code) {
        put(o, same);
        return;
    }
    for (unsigned i = 0; i < count; i++)
        put_code(o, lower[i]);
}

static void put_char(const struct normalizer_stage *s, struct output *o, uint32_t code, struct slice same)
{
    if (s->kind == NORMALIZE_LOWERCASE) {
        put_lower(o, code, same);
    } else if (s->kind == NORMALIZE_MARKS) {
        put(o, unicode_is_accent(code) ? (struct slice){0} : same);
    } else if (s->kind == NORMALIZE_BERT_ACCENTS) {
        put(o, unicode_is_bert_accent(code) ? (struct slice){0} : same);
    } else if (s->kind == NORMALIZE_NMT) {
        put_nmt(o, code, same);
    } else if (s->kind == NORMALIZE_BERT_CLEAN) {
        put_clean(o, code, same);
    } else if (is_ideograph(code)) {
        put(o, SLICE(" "));
        put(o, same);
        put(o, SLICE(" "));
    } else {
        put(o, same);
    }
}

static int each_char(const struct normalizer_stage *s, struct slice text, const struct wanted *w,
                     struct output *o)
{
    size_t look = 0;
    uint32_t code;
    for (size_t i = 0; i < text.len;) {
        unsigned bytes = utf8_next(text.ptr + i, &code);
        int r = wanted_pass(w, i, &look);
        if (r < 0)
            return r;
        put_char(s, o, code, (struct slice){text.ptr + i, bytes});
        i += bytes;
    }
    return 0;
}

/* ---- stages ---- */

static int replace(const struct normalizer_stage *s, struct slice text, struct split_budget *b,
                   struct output *o)
{
    const struct split_text in = {text, false, b};
    split_budget_add(b, s->regex, text.len);
    for (size_t from = 0; from < text.len;) {
        struct split_match m = split_regex_find(s->regex, &in, from);
        if (m.error < 0)
            return m.error;
        ASSERT(from <= m.start && m.start <= m.end && from < m.end);
        put(o, slice_sub(text, from, m.start - from));
        if (m.end > m.start)
            put(o, s->content);
        from = m.end;
    }
    return 0;
}

static int write_stage(const struct normalizer_stage *s, struct slice text, struct split_budget *b,
                       struct output *o)
{
    switch (s->kind) {
    case NORMALIZE_REPLACE:
        return replace(s, text, b, o);
    case NORMALIZE_PREPEND:
        put(o, text.len ? s->content : (struct slice){0});
        put(o, text);
        return 0;
    case NORMALIZE_CHARSMAP: {
        struct charsmap_output to = {o->ptr, o->len};
        int r = charsmap_run(&s->charsmap, text, b->wanted, &to);
        o->len = to.len;
        return r;
    }
    case NORMALIZE_LOWERCASE:
    case NORMALIZE_MARKS:
    case NORMALIZE_BERT_ACCENTS:
    case NORMALIZE_NMT:
    case NORMALIZE_BERT_CLEAN:
    case NORMALIZE_BERT_CHINESE:
        return each_char(s, text, b->wanted, o);
    case NORMALIZE_FORM:
    case NORMALIZE_STRIP:
        break;
    }
    ASSERT(!"a stage that is not a writer");
    return -EINVAL;
}

static struct slice strip(const struct normalizer_stage *s, struct slice text)
{
    uint32_t code;
    while (s->left && text.len) {
        unsigned bytes = utf8_next(text.ptr, &code);
        if (unicode_class(code) != UNICODE_SPACE)
            break;
        text = slice_sub(text, bytes, text.len);
    }
    while (s->right && text.len) {
        unsigned bytes = utf8_previous(text.ptr, text.len, &code);
        if (unicode_class(code) != UNICODE_SPACE)
            break;
        text.len -= bytes;
    }
    return text;
}

static int run_stage(const struct normalizer_stage *s, struct arena *scratch, struct split_budget *b,
                     struct slice *text)
{
    if (s->kind == NORMALIZE_FORM)
        return unicode_normal(scratch, *text, s->form, b->wanted, text);
    if (s->kind == NORMALIZE_STRIP) {
        *text = strip(s, *text);
        return 0;
    }
    struct output count = {0};
    int r = write_stage(s, *text, b, &count);
    if (r < 0)
        return r;
    struct output copy = {.ptr = arena_alloc_align(scratch, count.len + 1, 1)};
    if (!copy.ptr)
        return -ENOMEM;
    r = write_stage(s, *text, b, &copy);
    ASSERT(r < 0 || copy.len == count.len);
    *text = (struct slice){copy.ptr, copy.len};
    return r;
}

int normalizer_run(const struct normalizer *n, struct arena *scratch, struct slice text,
                   struct split_budget *b, struct slice *ret)
{
    int r = 0;
    ASSERT(n->count <= NORMALIZER_STAGES_MAX);
    for (uint32_t i = 0; i < n->count && r == 0; i++)
        r = run_stage(&n->stages[i], scratch, b, &text);
    if (r == 0)
        *ret = text;
    return r;
}
