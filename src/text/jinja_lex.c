/* jinja_lex.c - Jinja2's lexer without its regular expressions.
 *
 * In text, the next of the three openings is looked for; what precedes it is cut according to its sign. Text goes
 * out first and its tag with the following call (`opened`), so that nobody needs a queue. `{% raw %}` is recognised
 * together with the opening, like a comment. */
#include "text/jinja_lex.h"

#include "text/utf8.h"

#include <errno.h>

static bool is_space(uint32_t c)
{
    if (c < 0x80)
        return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t jinja_space_at(struct slice s, size_t at)
{
    uint32_t c;
    unsigned n = utf8_next(s.ptr + at, &c);
    return is_space(c) ? n : 0;
}

size_t jinja_space_before(struct slice s, size_t end)
{
    uint32_t c;
    unsigned n = utf8_previous(s.ptr, end, &c);
    return is_space(c) ? n : 0;
}

void jinja_lex_init(struct jinja_lex *l, struct slice source)
{
    *l = (struct jinja_lex){.source = source, .line = 1};
}

static void advance(struct jinja_lex *l, size_t to)
{
    for (; l->at < to; l->at++)
        if (l->source.ptr[l->at] == '\n')
            l->line++;
}

static size_t skip_space(const struct jinja_lex *l, size_t at)
{
    size_t n;
    while (at < l->source.len && (n = jinja_space_at(l->source, at)) > 0)
        at += n;
    return at;
}

static char char_at(const struct jinja_lex *l, size_t at)
{
    return at < l->source.len ? l->source.ptr[at] : 0;
}

static bool has(const struct jinja_lex *l, size_t at, struct slice word)
{
    return slice_starts(slice_sub(l->source, at, word.len), word);
}

static char sign_at(const struct jinja_lex *l, size_t at)
{
    char c = char_at(l, at);
    return c == '-' || c == '+' ? c : 0;
}

/* Where the text [from, to) ends once the tag behind it, with this sign, has had its share. */
static size_t text_end(const struct jinja_lex *l, size_t from, size_t to, char sign, bool strip_blocks)
{
    struct slice text = slice_sub(l->source, 0, to);
    size_t end = to, n;
    if (sign == '-') {
        while (end > from && (n = jinja_space_before(text, end)) > 0)
            end -= n;
        return end;
    }
    if (sign == '+' || !strip_blocks)
        return to;
    while (end > from && text.ptr[end - 1] != '\n' && (n = jinja_space_before(text, end)) > 0)
        end -= n;
    /* Only blanks, back to the start of a line: where this text begins counts if the line does. */
    bool at_start = end == 0 || text.ptr[end - 1] == '\n';
    return at_start ? end : to;
}

/* What a block's or comment's end takes with it, given its sign. */
static size_t after_block(const struct jinja_lex *l, char sign, size_t at)
{
    if (sign == '-')
        return skip_space(l, at);
    return sign == 0 && char_at(l, at) == '\n' ? at + 1 : at;
}

/* The offset behind `{% raw %}` at `at`, or 0 when something else is there. */
static size_t raw_begin(const struct jinja_lex *l, size_t at)
{
    at += 2;
    at += sign_at(l, at) != 0;
    at = skip_space(l, at);
    if (!has(l, at, SLICE("raw")))
        return 0;
    at = skip_space(l, at + 3);
    if (has(l, at, SLICE("-%}")))
        return skip_space(l, at + 3);
    return has(l, at, SLICE("%}")) ? at + 2 : 0;
}

/* The `{% endraw %}` at `at`: its sign and the offset behind it. */
static bool raw_end(const struct jinja_lex *l, size_t at, char *sign, size_t *ret)
{
    at += 2;
    *sign = sign_at(l, at);
    at = skip_space(l, at + (*sign != 0));
    if (!has(l, at, SLICE("endraw")))
        return false;
    at = skip_space(l, at + 6);
    char close = sign_at(l, at);
    at += close != 0;
    if (!has(l, at, SLICE("%}")))
        return false;
    *ret = after_block(l, close, at + 2);
    return true;
}

static int lex_raw(struct jinja_lex *l, size_t from, struct jinja_token *ret, struct err *e)
{
    uint32_t line = l->line;
    advance(l, from);
    for (size_t at = from; (at = slice_find(l->source, SLICE("{%"), at)) != SIZE_MAX; at += 2) {
        char sign;
        size_t after;
        if (!raw_end(l, at, &sign, &after))
            continue;
        size_t end = text_end(l, from, at, sign, true);
        *ret = (struct jinja_token){TOKEN_TEXT, l->line, slice_sub(l->source, from, end - from)};
        advance(l, after);
        return 0;
    }
    return err_set(e, -EINVAL, "line %u: {%% raw %%} is never closed by {%% endraw %%}", line);
}

static int lex_comment(struct jinja_lex *l, struct err *e)
{
    size_t from = l->at + 2;
    from += sign_at(l, from) != 0;
    size_t close = slice_find(l->source, SLICE("#}"), from);
    if (close == SIZE_MAX)
        return err_set(e, -EINVAL, "line %u: a comment {# is never closed by #}", l->line);
    char sign = close > from ? sign_at(l, close - 1) : 0;
    advance(l, after_block(l, sign, close + 2));
    return 0;
}

static size_t next_tag(const struct jinja_lex *l, size_t at)
{
    while (at + 1 < l->source.len) {
        const char *p = memchr(l->source.ptr + at, '{', l->source.len - 1 - at);
        if (!p)
            break;
        if (p[1] == '{' || p[1] == '%' || p[1] == '#')
            return (size_t)(p - l->source.ptr);
        at = (size_t)(p - l->source.ptr) + 1;
    }
    return l->source.len;
}

/* The text before the next tag, which may be empty; the lexer stands at the tag. */
static void lex_text(struct jinja_lex *l, struct jinja_token *ret)
{
    size_t from = l->at, tag = next_tag(l, from), end = tag;
    if (tag < l->source.len)
        end = text_end(l, from, tag, sign_at(l, tag + 2), l->source.ptr[tag + 1] != '{');
    *ret = (struct jinja_token){TOKEN_TEXT, l->line, slice_sub(l->source, from, end - from)};
    advance(l, tag);
    l->opened = true;
}

/* The tag at l->at. *ret may come out as an empty text. */
static int lex_tag(struct jinja_lex *l, struct jinja_token *ret, struct err *e)
{
    l->opened = false;
    *ret = (struct jinja_token){TOKEN_TEXT, l->line, {0}};
    if (l->at == l->source.len) {
        ret->kind = TOKEN_END;
        return 0;
    }
    if (l->source.ptr[l->at + 1] == '#')
        return lex_comment(l, e);
    bool block = l->source.ptr[l->at + 1] == '%';
    size_t raw = block ? raw_begin(l, l->at) : 0;
    if (raw)
        return lex_raw(l, raw, ret, e);
    ret->kind = block ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN;
    l->mode = block ? LEX_BLOCK : LEX_PRINT;
    l->brackets = 0;
    advance(l, l->at + 2 + (sign_at(l, l->at + 2) != 0));
    return 0;
}

/* The end of a tag, if it is here. */
static bool lex_close(struct jinja_lex *l, struct jinja_token *ret)
{
    bool block = l->mode == LEX_BLOCK;
    char sign = sign_at(l, l->at);
    if (sign == '+' && !block)
        sign = 0;
    size_t at = l->at + (sign != 0);
    if (l->brackets > 0 || !has(l, at, block ? SLICE("%}") : SLICE("}}")))
        return false;
    *ret = (struct jinja_token){block ? TOKEN_BLOCK_END : TOKEN_PRINT_END, l->line, {0}};
    at += 2;
    advance(l, block ? after_block(l, sign, at) : sign ? skip_space(l, at) : at);
    l->mode = LEX_TEXT;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
           (unsigned char)c >= 0x80;
}

/* Digits with single underscores between them. */
static size_t skip_digits(const struct jinja_lex *l, size_t at)
{
    while (is_digit(char_at(l, at)) || (char_at(l, at) == '_' && is_digit(char_at(l, at + 1))))
        at++;
    return at;
}

static void lex_number(struct jinja_lex *l, struct jinja_token *ret)
{
    size_t from = l->at, end = skip_digits(l, from);
    bool member = from > 0 && l->source.ptr[from - 1] == '.'; /* x.0 is an index */
    char base = (char)(char_at(l, from + 1) | 0x20);
    ret->kind = TOKEN_INT;
    if (char_at(l, from) == '0' && end == from + 1 && (base == 'x' || base == 'o' || base == 'b')) {
        end = from + 2;
        while (is_name(char_at(l, end)))
            end++;
    } else if (!member) {
        size_t at = end;
        if (char_at(l, at) == '.' && is_digit(char_at(l, at + 1)))
            end = at = skip_digits(l, at + 1);
        if ((char_at(l, at) | 0x20) == 'e') {
            at++;
            at += sign_at(l, at) != 0;
            if (is_digit(char_at(l, at)))
                end = skip_digits(l, at);
        }
        if (end > skip_digits(l, from))
            ret->kind = TOKEN_FLOAT;
    }
    ret->text = slice_sub(l->source, from, end - from);
    advance(l, end);
}

static int lex_string(struct jinja_lex *l, struct jinja_token *ret, struct err *e)
{
    char quote = l->source.ptr[l->at];
    size_t from = l->at + 1, at = from;
    while (at < l->source.len && l->source.ptr[at] != quote)
        at += l->source.ptr[at] == '\\' ? 2 : 1;
    if (at >= l->source.len)
        return err_set(e, -EINVAL, "line %u: a string is never closed", l->line);
    ret->kind = TOKEN_STRING;
    ret->text = slice_sub(l->source, from, at - from);
    advance(l, at + 1);
    return 0;
}

/* Keeps count of brackets: inside of them, }} and %} end nothing. */
static int lex_bracket(struct jinja_lex *l, char c, struct err *e)
{
    char closes = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : 0;
    if (closes) {
        if (l->brackets == JINJA_LEX_BRACKETS_MAX)
            return err_set(e, -EINVAL, "line %u: more than %d brackets inside each other", l->line,
                           JINJA_LEX_BRACKETS_MAX);
        l->open[l->brackets++] = closes;
    } else if (c == ')' || c == ']' || c == '}') {
        if (l->brackets == 0)
            return err_set(e, -EINVAL, "line %u: unexpected '%c'", l->line, c);
        if (l->open[--l->brackets] != c)
            return err_set(e, -EINVAL, "line %u: unexpected '%c', expected '%c'", l->line, c,
                           l->open[l->brackets]);
    }
    return 0;
}

static int lex_operator(struct jinja_lex *l, struct jinja_token *ret, struct err *e)
{
    static const char *const words[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t len = 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (has(l, l->at, slice_of(words[i])))
            len = 2;
    char c = l->source.ptr[l->at];
    if (len == 0 && !(c && strchr("+-/*%~[](){}><=.:|,;", c)))
        return err_set(e, -EINVAL, "line %u: unexpected character (0x%02x)", l->line, (unsigned char)c);
    ret->kind = TOKEN_OPERATOR;
    ret->text = slice_sub(l->source, l->at, len ? len : 1);
    int r = len ? 0 : lex_bracket(l, c, e);
    advance(l, l->at + ret->text.len);
    return r;
}

static int lex_code(struct jinja_lex *l, struct jinja_token *ret, struct err *e)
{
    if (lex_close(l, ret))
        return 0;
    advance(l, skip_space(l, l->at));
    if (lex_close(l, ret))
        return 0;
    *ret = (struct jinja_token){.line = l->line};
    if (l->at == l->source.len)
        return err_set(e, -EINVAL, "line %u: the template ends inside a tag", l->line);
    char c = l->source.ptr[l->at];
    if (is_digit(c))
        return lex_number(l, ret), 0;
    if (c == '"' || c == '\'')
        return lex_string(l, ret, e);
    if (!is_name(c))
        return lex_operator(l, ret, e);
    size_t end = l->at;
    while (end < l->source.len && is_name(l->source.ptr[end]))
        end++;
    ret->kind = TOKEN_NAME;
    ret->text = slice_sub(l->source, l->at, end - l->at);
    advance(l, end);
    return 0;
}

int jinja_lex_next(struct jinja_lex *l, struct jinja_token *ret, struct err *e)
{
    if (l->mode != LEX_TEXT)
        return lex_code(l, ret, e);
    int r = 0;
    do {
        if (l->opened)
            r = lex_tag(l, ret, e);
        else
            lex_text(l, ret);
    } while (r == 0 && ret->kind == TOKEN_TEXT && ret->text.len == 0);
    return r;
}
