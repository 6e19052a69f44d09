/* chat_literal.c - a small automaton. An escape or a quotation mark that is not there whole waits in the
 * caller's text, so that no state is needed for it. */
#include "chat/chat_literal.h"

#include "base/check.h"
#include "base/json/json_write.h"
#include "unicode/utf8.h"

enum { AT_KEY, IN_KEY, AT_COLON, AT_VALUE, IN_STRING, IN_WORD, AT_COMMA };

/* Kinds of brackets: arguments of a call, an object with bare keys, a dictionary, a list, a tuple. */
#define KIND_CALL   'c'
#define KIND_OBJECT 'o'
#define KIND_DICT   'd'
#define KIND_LIST   'l'
#define KIND_TUPLE  't'

void chat_literal_init(struct chat_literal *l, enum chat_notation notation, struct slice quote,
                       size_t bytes_max, const struct charge *charge)
{
    *l = (struct chat_literal){.notation = notation, .quote = quote};
    buf_init(&l->held, bytes_max, charge);
    buf_init(&l->word, bytes_max, charge);
}

void chat_literal_done(struct chat_literal *l)
{
    buf_done(&l->held);
    buf_done(&l->word);
}

static void open_bracket(struct chat_literal *l, char kind)
{
    ASSERT(l->depth <= CHAT_LITERAL_DEPTH_MAX);
    if (l->depth == CHAT_LITERAL_DEPTH_MAX) {
        l->broken = true;
        return;
    }
    l->kind[l->depth] = kind;
    l->count[l->depth++] = 0;
    l->state = kind == KIND_LIST || kind == KIND_TUPLE ? AT_VALUE : AT_KEY;
}

void chat_literal_restart(struct chat_literal *l)
{
    l->depth = 0;
    l->done = l->broken = l->key = false;
    l->held.len = l->word.len = 0;
    open_bracket(l, l->notation == CHAT_LITERAL_PYTHON ? KIND_CALL : KIND_OBJECT);
    ASSERT(l->depth == 1 && !l->broken);
}

static char kind_of(const struct chat_literal *l)
{
    ASSERT(l->depth > 0);
    return l->kind[l->depth - 1];
}

static bool has_keys(const struct chat_literal *l)
{
    return kind_of(l) != KIND_LIST && kind_of(l) != KIND_TUPLE;
}

static char close_of(const struct chat_literal *l)
{
    return kind_of(l) == KIND_LIST ? ']' : kind_of(l) == KIND_OBJECT || kind_of(l) == KIND_DICT ? '}' : ')';
}

static void show(struct chat_literal *l, struct buf *ret)
{
    buf_put_slice(ret, buf_slice(&l->held));
    l->held.len = 0;
}

/* The comma before a member. */
static void begin_member(struct chat_literal *l)
{
    ASSERT(l->depth > 0);
    if (l->count[l->depth - 1]++ > 0)
        buf_puts(&l->held, ", ");
}

static void begin_value(struct chat_literal *l)
{
    if (!has_keys(l))
        begin_member(l);
}

static void end_value(struct chat_literal *l)
{
    ASSERT(l->depth > 0);
    l->state = AT_COMMA;
}

static void put_byte(struct buf *ret, char c)
{
    static const char hex[] = "0123456789abcdef", short_names[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    unsigned char u = (unsigned char)c;
    if (u >= 0x20 && c != '"' && c != '\\') {
        buf_putc(ret, c);
        return;
    }
    for (size_t i = 0; i + 1 < sizeof(short_names) - 1; i += 2)
        if (short_names[i] == c) {
            buf_put(ret, (char[]){'\\', short_names[i + 1]}, 2);
            return;
        }
    buf_put(ret, (char[]){'\\', 'u', '0', '0', hex[u >> 4], hex[u & 15]}, 6);
}

static bool is_number(struct slice s)
{
    size_t i = 0, digits;
    if (i < s.len && s.ptr[i] == '-')
        i++;
    bool zero = i < s.len && s.ptr[i] == '0';
    for (digits = 0; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++)
        digits++;
    if (digits == 0 || (zero && digits > 1))
        return false;
    if (i < s.len && s.ptr[i] == '.') {
        for (i++, digits = 0; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++)
            digits++;
        if (digits == 0)
            return false;
    }
    if (i < s.len && (s.ptr[i] == 'e' || s.ptr[i] == 'E')) {
        i++;
        if (i < s.len && (s.ptr[i] == '-' || s.ptr[i] == '+'))
            i++;
        for (digits = 0; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++)
            digits++;
        if (digits == 0)
            return false;
    }
    return i == s.len;
}

static bool is_word(struct slice s, const char *a, const char *b)
{
    return slice_eq(s, slice_of(a)) || slice_eq(s, slice_of(b));
}

static void put_word(struct chat_literal *l, struct buf *ret)
{
    ASSERT(l->state == IN_WORD || l->state == IN_KEY);
    struct slice s = buf_slice(&l->word);
    while (s.len && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\n'))
        s.len--;
    show(l, ret);
    if (is_word(s, "True", "true"))
        buf_puts(ret, "true");
    else if (is_word(s, "False", "false"))
        buf_puts(ret, "false");
    else if (is_word(s, "None", "null"))
        buf_puts(ret, "null");
    else if (is_number(s))
        buf_put_slice(ret, s);
    else
        json_write_string(ret, s);
    l->word.len = 0;
    end_value(l);
}

static size_t close_bracket(struct chat_literal *l, struct buf *ret)
{
    ASSERT(l->depth > 0);
    show(l, ret);
    buf_putc(ret, has_keys(l) ? '}' : ']');
    l->done = --l->depth == 0;
    if (!l->done)
        end_value(l);
    return 1;
}

/* The text is, or may be with more of it, the mark that quotes strings: 0 no, SIZE_MAX perhaps, else its
 * bytes. */
static size_t string_begin(const struct chat_literal *l, struct slice s, char mark[3])
{
    ASSERT(s.len > 0);
    if (l->notation == CHAT_LITERAL_BRACED) {
        if (slice_starts(s, l->quote))
            return l->quote.len;
        return slice_starts(l->quote, s) ? SIZE_MAX : 0;
    }
    char c = s.ptr[0];
    if (c != '"' && c != '\'')
        return 0;
    if (s.len < 3 && (s.len < 2 || s.ptr[1] == c))
        return SIZE_MAX;
    bool three = s.ptr[1] == c && s.ptr[2] == c;
    memset(mark, c, 3);
    return three ? 3 : 1;
}

/* Begins a string, a key's or a value's. 0: more text is needed, or none begins here (*none). */
static size_t try_string(struct chat_literal *l, struct slice s, bool key, struct buf *ret, bool *none)
{
    size_t n = string_begin(l, s, l->string);
    *none = n == 0;
    if (n == 0 || n == SIZE_MAX)
        return 0;
    ASSERT(n <= UINT8_MAX);
    l->string_len = (uint8_t)n;
    l->key = key;
    if (key)
        begin_member(l);
    else
        begin_value(l);
    buf_putc(&l->held, '"');
    if (!key)
        show(l, ret);
    l->state = IN_STRING;
    return n;
}

/* The key of a value that has none. */
static void put_place(struct chat_literal *l)
{
    ASSERT(l->depth > 0);
    uint32_t place = l->count[l->depth - 1];
    begin_member(l);
    buf_printf(&l->held, "\"arg%u\": ", place);
}

static size_t key_byte(struct chat_literal *l, struct slice s, struct buf *ret)
{
    bool none, call = kind_of(l) == KIND_CALL;
    char c = s.ptr[0];
    if (slice_is_blank(c) || c == ',')
        return 1;
    if (c == close_of(l))
        return close_bracket(l, ret);
    if (call && strchr("\"'[{(-0123456789", c)) {
        put_place(l);
        l->state = AT_VALUE;
        return 0;
    }
    size_t n = call ? 0 : try_string(l, s, true, ret, &none);
    if (call || none)
        l->state = IN_KEY;
    return n;
}

static void end_key(struct chat_literal *l)
{
    ASSERT(l->state == IN_KEY);
    struct slice key = buf_slice(&l->word);
    while (key.len && slice_is_blank(key.ptr[key.len - 1]))
        key.len--;
    begin_member(l);
    json_write_string(&l->held, key);
    buf_puts(&l->held, ": ");
    l->word.len = 0;
    l->state = AT_VALUE;
}

static size_t in_key_byte(struct chat_literal *l, char c, struct buf *ret)
{
    bool call = kind_of(l) == KIND_CALL;
    if (c == (call ? '=' : ':')) {
        end_key(l);
        return 1;
    }
    if (c != ',' && c != close_of(l)) {
        buf_putc(&l->word, c);
        return 1;
    }
    if (!call) {
        l->broken = true;
        return 0;
    }
    /* A word without a key. */
    put_place(l);
    put_word(l, ret);
    return 0;
}

static size_t value_byte(struct chat_literal *l, struct slice s, struct buf *ret)
{
    bool none;
    char c = s.ptr[0];
    if (slice_is_blank(c))
        return 1;
    if (!has_keys(l) && c == close_of(l))
        return close_bracket(l, ret);
    if (c == '{' || c == '[' || (c == '(' && l->notation == CHAT_LITERAL_PYTHON)) {
        begin_value(l);
        show(l, ret);
        buf_putc(ret, c == '{' ? '{' : '[');
        bool python = l->notation == CHAT_LITERAL_PYTHON;
        open_bracket(l, c == '[' ? KIND_LIST : c == '(' ? KIND_TUPLE : python ? KIND_DICT : KIND_OBJECT);
        if (l->broken) /* too deep: but each bracket is closed */
            buf_putc(ret, c == '{' ? '}' : ']');
        return 1;
    }
    size_t n = try_string(l, s, false, ret, &none);
    if (!none)
        return n;
    if (c == ',' || c == '}' || c == ']' || c == ')') {
        l->broken = true;
        return 0;
    }
    begin_value(l);
    l->state = IN_WORD;
    return 0;
}

/* An escape of `digits` hexadecimal digits; 0: it is not there whole. */
static size_t hex_escape(struct slice s, size_t digits, struct buf *out)
{
    ASSERT(digits <= 8);
    char utf8[UTF8_BYTES_MAX];
    uint32_t code = 0;
    for (size_t i = 2; i < 2 + digits; i++) {
        if (i >= s.len)
            return 0;
        int v = slice_hex(s.ptr[i]);
        if (v < 0) {
            buf_puts(out, "\\\\");
            return 1;
        }
        code = code << 4 | (uint32_t)v;
    }
    if (code >= 0xd800 && code < 0xe000)
        buf_printf(out, "\\u%04x", code); /* half of a pair: JSON has the same */
    else if (code < 0x80)
        put_byte(out, (char)code);
    else if (code <= 0x10ffff)
        buf_put(out, utf8, utf8_encode(code, utf8));
    else
        buf_puts(out, UTF8_REPLACEMENT);
    return 2 + digits;
}

static size_t escape(struct slice s, struct buf *out)
{
    ASSERT(s.len > 0 && s.ptr[0] == '\\');
    static const char names[] = "n\nt\tr\rb\bf\f\\\\''\"\"//a\av\v";
    if (s.len < 2)
        return 0;
    char c = s.ptr[1];
    if (c == 'x' || c == 'u' || c == 'U')
        return hex_escape(s, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    if (c == '\n')
        return 2;
    for (size_t i = 0; i + 1 < sizeof(names) - 1; i += 2)
        if (names[i] == c) {
            put_byte(out, names[i + 1]);
            return 2;
        }
    buf_puts(out, "\\\\");
    return 1;
}

static size_t string_byte(struct chat_literal *l, struct slice s, struct buf *ret)
{
    struct buf *out = l->key ? &l->held : ret;
    bool python = l->notation == CHAT_LITERAL_PYTHON;
    ASSERT(!python || l->string_len == 1 || l->string_len == 3);
    struct slice end = python ? (struct slice){l->string, l->string_len} : l->quote;
    if (slice_starts(s, end)) {
        buf_putc(out, '"');
        if (l->key)
            l->state = AT_COLON;
        else
            end_value(l);
        return end.len;
    }
    if (slice_starts(end, s))
        return 0;
    if (python && s.ptr[0] == '\\')
        return escape(s, out);
    put_byte(out, s.ptr[0]);
    return 1;
}

static size_t comma_byte(struct chat_literal *l, char c, struct buf *ret)
{
    if (slice_is_blank(c))
        return 1;
    if (c == ',') {
        l->state = has_keys(l) ? AT_KEY : AT_VALUE;
        return 1;
    }
    if (c == close_of(l))
        return close_bracket(l, ret);
    l->broken = true;
    return 0;
}

static size_t colon_byte(struct chat_literal *l, char c)
{
    if (slice_is_blank(c))
        return 1;
    l->broken = c != ':';
    if (l->broken)
        return 0;
    buf_puts(&l->held, ": ");
    l->state = AT_VALUE;
    return 1;
}

static size_t word_byte(struct chat_literal *l, char c, struct buf *ret)
{
    if (c == ',' || c == '}' || c == ']' || c == ')') {
        put_word(l, ret);
        return 0;
    }
    buf_putc(&l->word, c);
    return 1;
}

static size_t read_byte(struct chat_literal *l, struct slice s, struct buf *ret)
{
    ASSERT(s.len > 0 && l->depth > 0);
    switch (l->state) {
    case AT_KEY:
        return key_byte(l, s, ret);
    case IN_KEY:
        return in_key_byte(l, s.ptr[0], ret);
    case AT_COLON:
        return colon_byte(l, s.ptr[0]);
    case AT_VALUE:
        return value_byte(l, s, ret);
    case IN_STRING:
        return string_byte(l, s, ret);
    case IN_WORD:
        return word_byte(l, s.ptr[0], ret);
    default:
        return comma_byte(l, s.ptr[0], ret);
    }
}

size_t chat_literal_feed(struct chat_literal *l, struct slice text, struct buf *ret)
{
    size_t at = 0;
    while (at < text.len && !l->done && !l->broken) {
        uint8_t state = l->state;
        size_t n = read_byte(l, slice_sub(text, at, text.len), ret);
        if (n == 0 && state == l->state && !l->broken)
            break; /* too little text */
        at += n;
    }
    ASSERT(at <= text.len);
    return at;
}

void chat_literal_close(struct chat_literal *l, struct buf *ret)
{
    if (l->done)
        return;
    ASSERT(l->depth <= CHAT_LITERAL_DEPTH_MAX);
    if (l->state == IN_STRING && !l->key)
        buf_putc(ret, '"');
    while (l->depth > 0) {
        buf_putc(ret, has_keys(l) ? '}' : ']');
        l->depth--;
    }
    l->done = true;
}
