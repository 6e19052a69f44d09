#include "constraint/lark_text.h"

#include "constraint/front_text.h"

#include "base/check.h"
#include "base/slice.h"
#include "grammar/grammar.h"
#include "rx/rx_parse.h"

#include <errno.h>

void lark_skip(struct front_text *f, bool lines)
{
    for (; f->at < f->end; f->at++) {
        bool slashes = *f->at == '/' && f->end - f->at > 1 && f->at[1] == '/';
        if (*f->at == '#' || slashes)
            while (f->at < f->end && *f->at != '\n')
                f->at++;
        if (f->at == f->end)
            return;
        if (*f->at == '\n' && lines)
            f->line++;
        else if (*f->at != ' ' && *f->at != '\t' && *f->at != '\f' && !(*f->at == '\r' && lines))
            return;
    }
}

void lark_skip_to_bar(struct front_text *f)
{
    const char *at = f->at;
    uint32_t line = f->line;
    lark_skip(f, true);
    if (!front_text_has(f, '|')) {
        f->at = at;
        f->line = line;
    }
}

bool lark_is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

char lark_shown(char c)
{
    return c == '\n' || c == '\r' ? ' ' : c < 0x20 || c > 0x7E ? '?' : c;
}

struct slice lark_name(struct front_text *f)
{
    const char *from = f->at;
    while (f->at < f->end && lark_is_name(*f->at))
        f->at++;
    if (f->at == from)
        front_text_fail(f, -EINVAL, "a name is missing");
    return (struct slice){from, (size_t)(f->at - from)};
}

/* ---- strings ---- */

/* To the place after the quote that ends it. */
static void pass_quoted(struct front_text *f, char quote)
{
    bool list = false;
    for (f->at++; f->at < f->end && *f->at != '\n'; f->at++) {
        if (*f->at == '\\' && f->end - f->at > 1 && f->at[1] != '\n')
            f->at++;
        else if (quote == '/' && *f->at == '[')
            list = true;
        else if (quote == '/' && *f->at == ']')
            list = false;
        else if (*f->at == quote && !list) {
            f->at++;
            return;
        }
    }
    front_text_fail(f, -EINVAL, "a %c is missing", quote);
}

void lark_pass(struct front_text *f, char quote)
{
    pass_quoted(f, quote);
    while (f->at < f->end && *f->at >= 'a' && *f->at <= 'z')
        f->at++;
}

static uint32_t escaped(struct front_text *f)
{
    if (!front_text_has(f, 'f'))
        return front_text_escape(f, "\\\"'/");
    f->at++;
    return '\f';
}

static rx_id codepoints(struct front_text *f, struct rx_range range)
{
    struct rx_store *s = grammar_rx(f->b);
    return f->encode ? f->encode(f->encode_arg, s, &range, 1) : rx_codepoints(s, &range, 1);
}

static rx_id character(struct front_text *f, uint32_t c, bool any_case)
{
    struct rx_store *s = grammar_rx(f->b);
    struct rx_range one = {c, c}, other = {c ^ 32, c ^ 32};
    rx_id rx = codepoints(f, one);
    bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
    if (any_case && c > 0x7F)
        front_text_fail(f, -ENOTSUP, "the flag i is supported for ASCII only");
    return any_case && letter ? rx_or(s, rx, codepoints(f, other)) : rx;
}

struct text {
    rx_id rx;
    uint32_t first, count; /* characters */
};

static struct text read_text(struct front_text *f)
{
    struct text t = {.rx = RX_EMPTY};
    const char *from = f->at;
    pass_quoted(f, '"');
    const char *end = f->at;
    bool any_case = front_text_has(f, 'i');
    for (f->at = from + 1; !f->error && f->at < end - 1; t.count++) {
        uint32_t c = front_text_character(f);
        c = c == '\\' ? escaped(f) : c;
        t.first = t.count ? t.first : c;
        t.rx = rx_cat(grammar_rx(f->b), t.rx, character(f, c, any_case));
    }
    f->at = f->error ? f->at : end + any_case;
    return t;
}

rx_id lark_string(struct front_text *f)
{
    struct text from = read_text(f);
    if (f->error || f->end - f->at < 3 || memcmp(f->at, "..\"", 3) != 0)
        return from.rx;
    f->at += 2;
    struct text to = read_text(f);
    if (!f->error && (from.count != 1 || to.count != 1 || to.first < from.first))
        front_text_fail(f, -EINVAL, "a range needs two characters in order");
    struct rx_range low = {from.first, MIN_OF(to.first, 0xD7FFu)},
                    high = {MAX_OF(from.first, 0xE000u), to.first};
    rx_id rx = RX_NONE;
    if (!f->error && low.first <= low.last)
        rx = codepoints(f, low);
    if (!f->error && high.first <= high.last)
        rx = rx_or(grammar_rx(f->b), rx, codepoints(f, high));
    return rx;
}

/* ---- expressions ---- */

/* Python escapes any punctuation; the parser of expressions wants only its own escaped. */
static size_t plain_escapes(const char *from, size_t len, char *ret)
{
    bool list = false;
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        char c = from[i];
        if (c == '[')
            list = true;
        else if (c == ']')
            list = false;
        if (c != '\\' || i + 1 == len) {
            ret[out++] = c;
            continue;
        }
        char next = from[++i];
        bool letter = lark_is_name(next) || (unsigned char)next > 0x7E;
        if (letter || strchr(list ? "^$\\.*+?()[]{}|/-" : "^$\\.*+?()[]{}|/", next))
            ret[out++] = '\\';
        ret[out++] = next;
    }
    return out;
}

static rx_id parse(struct front_text *f, struct slice pattern)
{
    const struct rx_parse_opts whole = {.encode = f->encode, .encode_arg = f->encode_arg};
    struct err e = {{0}};
    rx_id rx = RX_NONE;
    int r = rx_parse(grammar_rx(f->b), pattern, &whole, &rx, &e);
    if (r < 0)
        front_text_fail(f, r == -EINVAL ? -ENOTSUP : r, "%s", e.text);
    return rx;
}

rx_id lark_regex(struct front_text *f)
{
    const char *from = f->at + 1;
    pass_quoted(f, '/');
    size_t len = f->error ? 0 : (size_t)(f->at - 1 - from);
    char *pattern = f->error ? NULL : arena_alloc_align(f->a, len + 1, 1);
    if (f->at < f->end && *f->at >= 'a' && *f->at <= 'z' && *f->at != 'u')
        front_text_fail(f, -ENOTSUP, "the flag %c of an expression is not supported", *f->at);
    if (!pattern)
        front_text_fail(f, -ENOMEM, "no memory to read the grammar");
    if (f->error)
        return RX_NONE;
    f->at += front_text_has(f, 'u');
    return parse(f, (struct slice){pattern, plain_escapes(from, len, pattern)});
}

#define DECIMAL "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"
#define FLOAT   "(?:[0-9]+[eE][+-]?[0-9]+|" DECIMAL "(?:[eE][+-]?[0-9]+)?)"

rx_id lark_common(struct front_text *f, struct slice name)
{
    static const struct {
        const char *name, *pattern;
    } all[] = {{"DIGIT", "[0-9]"},
               {"HEXDIGIT", "[0-9A-Fa-f]"},
               {"INT", "[0-9]+"},
               {"SIGNED_INT", "[+-]?[0-9]+"},
               {"DECIMAL", DECIMAL},
               {"FLOAT", FLOAT},
               {"SIGNED_FLOAT", "[+-]?" FLOAT},
               {"NUMBER", "(?:" FLOAT "|[0-9]+)"},
               {"SIGNED_NUMBER", "[+-]?(?:" FLOAT "|[0-9]+)"},
               {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
               {"LCASE_LETTER", "[a-z]"},
               {"UCASE_LETTER", "[A-Z]"},
               {"LETTER", "[A-Za-z]"},
               {"WORD", "[A-Za-z]+"},
               {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
               {"WS_INLINE", "[ \\t]+"},
               {"WS", "[ \\t\\f\\r\\n]+"},
               {"CR", "\\r"},
               {"LF", "\\n"},
               {"NEWLINE", "(?:\\r?\\n)+"},
               {"SH_COMMENT", "#[^\\n]*"},
               {"CPP_COMMENT", "\\/\\/[^\\n]*"},
               {"C_COMMENT", "\\/\\*(?:[^*]|\\*+[^*\\/])*\\*+\\/"},
               {"SQL_COMMENT", "--[^\\n]*"}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (slice_eq(name, slice_of(all[i].name)))
            return parse(f, slice_of(all[i].pattern));
    front_text_fail(f, -ENOTSUP, "%%import common.%.*s is not supported", SLICE_ARGS(slice_sub(name, 0, 60)));
    return RX_NONE;
}
