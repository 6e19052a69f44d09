/* tmpl_lexer.c - a template's text and tags.
 *
 * White space around tags is removed here only. `-` removes all of it, trim_blocks the first newline after a
 * block tag or comment, lstrip_blocks blanks before a tag that starts its line; `+` disables both. */
#include "template/tmpl_ast.h"

#include "base/check.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <stdlib.h>

struct lexer {
    struct arena *a;
    struct slice source;
    size_t at;
    uint32_t line;
    struct tmpl_token *tokens;
    uint32_t count, capacity;
    struct err *e;
};

static int push(struct lexer *x, struct tmpl_token t)
{
    ASSERT(x->count <= x->capacity);
    if (x->count == x->capacity) {
        uint32_t want = x->capacity ? x->capacity * 2 : 256;
        struct tmpl_token *tokens = ARENA_ARRAY(x->a, struct tmpl_token, want);
        if (!tokens)
            return -ENOMEM;
        if (x->count)
            memcpy(tokens, x->tokens, x->count * sizeof(*tokens));
        x->tokens = tokens;
        x->capacity = want;
    }
    t.line = x->line;
    x->tokens[x->count++] = t;
    return 0;
}

static char peek(const struct lexer *x, size_t ahead)
{
    return x->at + ahead < x->source.len ? x->source.ptr[x->at + ahead] : 0;
}

static void advance(struct lexer *x, size_t bytes)
{
    for (; bytes > 0 && x->at < x->source.len; bytes--)
        x->line += x->source.ptr[x->at++] == '\n';
    ASSERT(x->at <= x->source.len);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The text before the next tag at `end`, without the part of its tail that the tag's form removes. `mark` is
 * the byte after "{%". */
static int push_text(struct lexer *x, size_t begin, size_t end, char kind, char mark)
{
    ASSERT(begin <= end && end <= x->source.len);
    size_t stop = end;
    if (mark == '-') {
        while (stop > begin && is_space(x->source.ptr[stop - 1]))
            stop--;
    } else if (kind != '{' && mark != '+') {
        size_t blank = end;
        while (blank > begin && (x->source.ptr[blank - 1] == ' ' || x->source.ptr[blank - 1] == '\t'))
            blank--;
        /* A line starts after a newline or at the very start of the template, not after another tag. */
        if (blank == 0 || x->source.ptr[blank - 1] == '\n')
            stop = blank;
    }
    return stop > begin ? push(x, (struct tmpl_token){TMPL_TOKEN_TEXT,
                                                      .text = slice_sub(x->source, begin, stop - begin)})
                        : 0;
}

/* After a tag's end: `-` removes all white space, a block or comment (`trim`) the first newline. */
static void after_tag(struct lexer *x, char mark, bool trim)
{
    if (mark == '-') {
        while (x->at < x->source.len && is_space(x->source.ptr[x->at]))
            advance(x, 1);
    } else if (trim && mark != '+' && peek(x, 0) == '\n') {
        advance(x, 1);
    }
}

/* Decodes Python's escapes; unknown ones stay unchanged. */
static struct slice unescape(struct arena *a, struct slice s)
{
    char *out = arena_alloc_align(a, s.len + 1, 1);
    size_t n = 0;
    for (size_t i = 0; out && i < s.len; i++) {
        static const char from[] = "ntrbfav0\\'\"", to[] = "\n\t\r\b\f\a\v\0\\'\"";
        const char *at = s.ptr[i] == '\\' && i + 1 < s.len ? strchr(from, s.ptr[i + 1]) : NULL;
        unsigned digits = 0;
        if (at && *at) {
            out[n++] = to[at - from];
            i++;
            continue;
        }
        if (s.ptr[i] == '\\' && i + 1 < s.len)
            digits = s.ptr[i + 1] == 'x' ? 2 : s.ptr[i + 1] == 'u' ? 4 : 0;
        if (digits && i + 1 + digits < s.len) {
            char hex[8] = {0}, *end;
            memcpy(hex, s.ptr + i + 2, digits);
            uint32_t code = (uint32_t)strtoul(hex, &end, 16);
            if (*end == 0) {
                n += utf8_encode(code, out + n);
                i += 1 + digits;
                continue;
            }
        }
        if (s.ptr[i] == '\\' && i + 1 < s.len && s.ptr[i + 1] == '\n') {
            i++; /* a continued line */
            continue;
        }
        out[n++] = s.ptr[i];
    }
    ASSERT(n <= s.len);
    return (struct slice){out, n};
}

static int lex_string(struct lexer *x)
{
    ASSERT(peek(x, 0) == '"' || peek(x, 0) == '\'');
    char quote = peek(x, 0);
    size_t begin = x->at + 1, end = begin;
    while (end < x->source.len && x->source.ptr[end] != quote)
        end += x->source.ptr[end] == '\\' ? 2 : 1;
    if (end >= x->source.len)
        return err_set(x->e, -EINVAL, "line %u: a string does not end", x->line);
    struct slice text = unescape(x->a, slice_sub(x->source, begin, end - begin));
    int r = text.ptr ? push(x, (struct tmpl_token){TMPL_TOKEN_STRING, .text = text}) : -ENOMEM;
    advance(x, end + 1 - x->at);
    return r;
}

static int lex_number(struct lexer *x)
{
    char digits[64];
    size_t n = 0, taken = 0;
    bool real = false;
    while (n + 2 < sizeof(digits)) { /* an exponent is two */
        char c = peek(x, taken);
        bool point = c == '.' && !real && is_digit(peek(x, taken + 1));
        bool exponent =
            (c == 'e' || c == 'E') && n > 0 &&
            (is_digit(peek(x, taken + 1)) ||
             ((peek(x, taken + 1) == '-' || peek(x, taken + 1) == '+') && is_digit(peek(x, taken + 2))));
        if (exponent) {
            digits[n++] = c;
            digits[n++] = peek(x, ++taken);
            real = true;
        } else if (is_digit(c) || point) {
            digits[n++] = c;
            real |= point;
        } else if (c != '_') {
            break;
        }
        taken++;
    }
    ASSERT(n < sizeof(digits));
    digits[n] = 0;
    struct tmpl_token t = {.kind = real ? TMPL_TOKEN_FLOAT : TMPL_TOKEN_INT};
    errno = 0;
    if (real)
        t.f = strtod(digits, NULL);
    else
        t.i = strtoll(digits, NULL, 10);
    if (errno == ERANGE || is_name_start(peek(x, taken)) || is_digit(peek(x, taken)))
        return err_set(x->e, -EINVAL, "line %u: %s is not a number that this engine takes", x->line, digits);
    int r = push(x, t);
    advance(x, taken);
    return r;
}

static int lex_operator(struct lexer *x)
{
    static const char *const operators[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*",
                                            "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                            "]",  "{",  "}",  ",",  ".",  ":",  "|", ";"};
    struct slice rest = slice_sub(x->source, x->at, 2);
    for (size_t i = 0; i < COUNT_OF(operators); i++) {
        struct slice op = slice_of(operators[i]);
        if (!slice_starts(rest, op))
            continue;
        int r = push(x, (struct tmpl_token){TMPL_TOKEN_OP, .text = op});
        advance(x, op.len);
        return r;
    }
    return err_set(x->e, -EINVAL, "line %u: a character (byte 0x%02x) that no expression has", x->line,
                   (unsigned char)peek(x, 0));
}

static int lex_token(struct lexer *x)
{
    char c = peek(x, 0);
    if (is_space(c)) {
        advance(x, 1);
        return 0;
    }
    if (c == '"' || c == '\'')
        return lex_string(x);
    if (is_digit(c))
        return lex_number(x);
    if (!is_name_start(c))
        return lex_operator(x);
    size_t n = 1;
    while (is_name_start(peek(x, n)) || is_digit(peek(x, n)))
        n++;
    int r = push(x, (struct tmpl_token){TMPL_TOKEN_NAME, .text = slice_sub(x->source, x->at, n)});
    advance(x, n);
    return r;
}

/* The inside of {{ }} or {% %}, including its end. Brackets hide an end: "{{ {'a': {}} }}". */
static int lex_inside(struct lexer *x, char close, enum tmpl_token_kind end_kind)
{
    uint32_t brackets = 0, opened = x->line;
    while (x->at < x->source.len) {
        size_t mark = peek(x, 0) == '-' || peek(x, 0) == '+';
        if (brackets == 0 && peek(x, mark) == close && peek(x, mark + 1) == '}') {
            int r = push(x, (struct tmpl_token){end_kind});
            char m = mark ? peek(x, 0) : 0;
            advance(x, mark + 2);
            after_tag(x, m, close == '%');
            return r;
        }
        char c = peek(x, 0);
        if (c == '(' || c == '[' || c == '{')
            brackets++;
        if ((c == ')' || c == ']' || c == '}') && brackets > 0)
            brackets--;
        int r = lex_token(x);
        if (r < 0)
            return r;
    }
    return err_set(x->e, -EINVAL, "line %u: a tag opens here and does not end", opened);
}

static int lex_comment(struct lexer *x)
{
    size_t end = slice_find(x->source, SLICE("#}"), x->at);
    if (end == SIZE_MAX)
        return err_set(x->e, -EINVAL, "line %u: a comment opens here and does not end", x->line);
    char mark = end > x->at && (x->source.ptr[end - 1] == '-' || x->source.ptr[end - 1] == '+')
                    ? x->source.ptr[end - 1]
                    : 0;
    advance(x, end + 2 - x->at);
    after_tag(x, mark, true);
    return 0;
}

/* The next "{{", "{%" or "{#", or the end. */
static size_t find_tag(struct slice s, size_t from)
{
    ASSERT(from <= s.len);
    for (size_t i = from; i + 1 < s.len; i++)
        if (s.ptr[i] == '{' && (s.ptr[i + 1] == '{' || s.ptr[i + 1] == '%' || s.ptr[i + 1] == '#'))
            return i;
    return s.len;
}

static int lex_tag(struct lexer *x)
{
    ASSERT(x->at + 1 < x->source.len && x->source.ptr[x->at] == '{');
    char kind = peek(x, 1), mark = peek(x, 2);
    advance(x, 2 + (mark == '-' || mark == '+'));
    if (kind == '#')
        return lex_comment(x);
    int r = push(x, (struct tmpl_token){kind == '{' ? TMPL_TOKEN_OUTPUT_OPEN : TMPL_TOKEN_TAG_OPEN});
    if (r < 0)
        return r;
    return lex_inside(x, kind == '{' ? '}' : '%',
                      kind == '{' ? TMPL_TOKEN_OUTPUT_CLOSE : TMPL_TOKEN_TAG_CLOSE);
}

int tmpl_lex(struct arena *a, struct slice source, struct tmpl_token **ret, uint32_t *count, struct err *e)
{
    if (source.len > TMPL_SOURCE_BYTES_MAX)
        return err_set(e, -E2BIG, "the template has %zu bytes: at most %zu are taken", source.len,
                       TMPL_SOURCE_BYTES_MAX);
    struct lexer x = {.a = a, .source = source, .line = 1, .e = e};
    if (slice_ends(source, SLICE("\n")))
        x.source.len--; /* keep_trailing_newline is off */
    int r = 0;
    while (r == 0 && x.at < x.source.len) {
        size_t begin = x.at, tag = find_tag(x.source, begin);
        char kind = tag + 1 < x.source.len ? x.source.ptr[tag + 1] : '{';
        char mark = tag + 2 < x.source.len ? x.source.ptr[tag + 2] : 0;
        r = push_text(&x, begin, tag, kind, tag < x.source.len ? mark : 0);
        advance(&x, tag - begin);
        if (r == 0 && tag < x.source.len)
            r = lex_tag(&x);
    }
    ASSERT(r < 0 || x.at == x.source.len);
    if (r == 0)
        r = push(&x, (struct tmpl_token){TMPL_TOKEN_END});
    if (r < 0)
        return r == -ENOMEM ? err_set(e, r, "the template does not fit in its memory") : r;
    *ret = x.tokens;
    *count = x.count;
    return 0;
}
