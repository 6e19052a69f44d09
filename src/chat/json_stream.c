/* json_stream.c - a pushdown automaton, one byte at a time. */
#include "chat/json_stream.h"

#include "base/check.h"

enum {
    AT_VALUE,
    AT_VALUE_OR_END, /* after [ */
    AT_KEY_OR_END,   /* after { */
    AT_KEY,          /* after a comma in an object */
    AT_COLON,
    AT_COMMA, /* after a value inside brackets */
    IN_STRING,
    IN_ESCAPE,
    IN_HEX,
    IN_WORD,
    IN_NUMBER,
    /* Not JSON: quotes and brackets only. */
    LOOSE,
    LOOSE_STRING,
    LOOSE_ESCAPE
};

void json_stream_init(struct json_stream *s, size_t bytes_max, const struct charge *charge)
{
    *s = (struct json_stream){.state = AT_VALUE};
    buf_init(&s->held, bytes_max, charge);
}

void json_stream_done(struct json_stream *s)
{
    buf_done(&s->held);
}

void json_stream_restart(struct json_stream *s)
{
    struct buf held = s->held;
    held.len = 0;
    *s = (struct json_stream){.state = AT_VALUE, .held = held};
}

static bool in_object(const struct json_stream *s)
{
    ASSERT(s->depth > 0);
    uint32_t top = s->depth - 1;
    return top < JSON_STREAM_DEPTH_MAX && (s->brackets[top / 8] >> top % 8 & 1);
}

static void open_bracket(struct json_stream *s, bool object)
{
    uint32_t top = s->depth++;
    if (top >= JSON_STREAM_DEPTH_MAX) {
        s->broken = true;
        return;
    }
    s->brackets[top / 8] &= (uint8_t) ~(1u << top % 8);
    s->brackets[top / 8] |= (uint8_t)(object << top % 8);
}

/* The value can be completed from here: hands on the held bytes. */
static void show(struct json_stream *s, struct buf *ret)
{
    buf_put_slice(ret, buf_slice(&s->held));
    s->held.len = 0;
}

static void show_byte(struct json_stream *s, char c, struct buf *ret)
{
    show(s, ret);
    buf_putc(ret, c);
}

static void end_value(struct json_stream *s)
{
    s->state = AT_COMMA;
    s->done = s->depth == 0;
}

static void close_bracket(struct json_stream *s, char c, struct buf *ret)
{
    ASSERT(s->depth > 0);
    show_byte(s, c, ret);
    s->depth--;
    end_value(s);
}

static void loose_byte(struct json_stream *s, char c, struct buf *ret)
{
    ASSERT(s->broken && s->state >= LOOSE);
    show_byte(s, c, ret);
    if (s->state == LOOSE_ESCAPE) {
        s->state = LOOSE_STRING;
    } else if (s->state == LOOSE_STRING) {
        s->state = c == '\\' ? LOOSE_ESCAPE : c == '"' ? LOOSE : LOOSE_STRING;
    } else if (c == '"') {
        s->state = LOOSE_STRING;
    } else if (c == '{' || c == '[') {
        open_bracket(s, c == '{');
    } else if ((c == '}' || c == ']') && s->depth > 0) {
        s->depth--;
    }
    if (s->state == LOOSE && s->depth == 0)
        s->done = true;
}

static void break_off(struct json_stream *s, char c, struct buf *ret)
{
    s->broken = true;
    s->state = s->state == IN_STRING || s->state == IN_ESCAPE || s->state == IN_HEX ? LOOSE_STRING : LOOSE;
    loose_byte(s, c, ret);
}

static void begin_word(struct json_stream *s, char c, const char *word)
{
    ASSERT(c == word[0]);
    s->state = IN_WORD;
    s->word = word;
    s->word_at = 1;
    buf_putc(&s->held, c);
}

static void begin_string(struct json_stream *s, bool key, struct buf *ret)
{
    ASSERT(!key || s->depth > 0);
    s->state = IN_STRING;
    s->key = key;
    if (key)
        buf_putc(&s->held, '"');
    else
        show_byte(s, '"', ret);
}

static void value_byte(struct json_stream *s, char c, struct buf *ret)
{
    if (c == '{' || c == '[') {
        show_byte(s, c, ret);
        open_bracket(s, c == '{');
        s->state = s->broken ? LOOSE : c == '{' ? AT_KEY_OR_END : AT_VALUE_OR_END;
    } else if (c == '"') {
        begin_string(s, false, ret);
    } else if (c == 't' || c == 'f' || c == 'n') {
        begin_word(s, c, c == 't' ? "true" : c == 'f' ? "false" : "null");
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        s->state = IN_NUMBER;
        buf_putc(&s->held, c);
    } else {
        break_off(s, c, ret);
    }
}

/* A byte outside of strings, words and numbers. */
static void outside_byte(struct json_stream *s, char c, struct buf *ret)
{
    if (slice_is_blank(c)) {
        if (s->depth > 0)
            buf_putc(&s->held, c);
        return;
    }
    switch (s->state) {
    case AT_COLON:
        if (c != ':') {
            break_off(s, c, ret);
            return;
        }
        buf_putc(&s->held, c);
        s->state = AT_VALUE;
        return;
    case AT_COMMA:
        if (c == ',') {
            buf_putc(&s->held, c);
            s->state = in_object(s) ? AT_KEY : AT_VALUE;
            return;
        }
        if (c == (in_object(s) ? '}' : ']'))
            close_bracket(s, c, ret);
        else
            break_off(s, c, ret);
        return;
    case AT_KEY:
    case AT_KEY_OR_END:
        if (c == '"')
            begin_string(s, true, ret);
        else if (c == '}' && s->state == AT_KEY_OR_END)
            close_bracket(s, c, ret);
        else
            break_off(s, c, ret);
        return;
    default:
        if (c == ']' && s->state == AT_VALUE_OR_END)
            close_bracket(s, c, ret);
        else
            value_byte(s, c, ret);
    }
}

/* Writes a byte of a string; bytes of keys wait for the value. */
static void put_string_byte(struct json_stream *s, char c, struct buf *ret)
{
    static const char hex[] = "0123456789abcdef";
    struct buf *out = s->key ? &s->held : ret;
    unsigned char u = (unsigned char)c;
    if (u >= 0x20)
        buf_putc(out, c);
    else if (c == '\n')
        buf_puts(out, "\\n");
    else if (c == '\t')
        buf_puts(out, "\\t");
    else
        buf_put(out, (char[]){'\\', 'u', '0', '0', hex[u >> 4], hex[u & 15]}, 6);
}

static void string_byte(struct json_stream *s, char c, struct buf *ret)
{
    if (c == '\\') {
        s->state = IN_ESCAPE;
        buf_putc(&s->held, c);
        return;
    }
    put_string_byte(s, c, ret);
    if (c != '"')
        return;
    if (s->key)
        s->state = AT_COLON;
    else
        end_value(s);
}

static void escape_ends(struct json_stream *s, struct buf *ret)
{
    ASSERT(s->state == IN_ESCAPE || (s->state == IN_HEX && s->hex_left == 0));
    s->state = IN_STRING;
    if (!s->key)
        show(s, ret);
}

static void escape_byte(struct json_stream *s, char c, struct buf *ret)
{
    if (s->state == IN_ESCAPE && c == 'u') {
        buf_putc(&s->held, c);
        s->state = IN_HEX;
        s->hex_left = 4;
        return;
    }
    bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (s->state == IN_ESCAPE ? !c || !strchr("\"\\/bfnrt", c) : !hex) {
        break_off(s, c, ret);
        return;
    }
    buf_putc(&s->held, c);
    if (s->state == IN_ESCAPE || --s->hex_left == 0)
        escape_ends(s, ret);
}

/* False: the byte follows the number or word, which is complete. */
static bool scalar_byte(struct json_stream *s, char c, struct buf *ret)
{
    if (s->state == IN_NUMBER && c && strchr("0123456789+-.eE", c)) {
        buf_putc(&s->held, c);
        return true;
    }
    if (s->state == IN_WORD && s->word[s->word_at]) {
        if (c != s->word[s->word_at]) {
            break_off(s, c, ret);
            return true;
        }
        buf_putc(&s->held, c);
        s->word_at++;
        return true;
    }
    show(s, ret);
    end_value(s);
    return false;
}

size_t json_stream_feed(struct json_stream *s, struct slice text, struct buf *ret)
{
    size_t i = 0;
    bool broken = s->broken;
    ASSERT(!s->done || s->depth == 0);
    while (i < text.len && !s->done && s->broken == broken) {
        char c = text.ptr[i];
        if (s->state >= LOOSE) {
            loose_byte(s, c, ret);
        } else if (s->state == IN_STRING) {
            string_byte(s, c, ret);
        } else if (s->state == IN_ESCAPE || s->state == IN_HEX) {
            escape_byte(s, c, ret);
        } else if (s->state == IN_WORD || s->state == IN_NUMBER) {
            if (!scalar_byte(s, c, ret))
                continue;
        } else {
            outside_byte(s, c, ret);
        }
        i++;
    }
    return i;
}

void json_stream_close(struct json_stream *s, struct buf *ret)
{
    if (s->done)
        return;
    /* A number or word at the end of the input is complete only when nothing is open around it. */
    if (s->depth == 0 && (s->state == IN_NUMBER || (s->state == IN_WORD && !s->word[s->word_at])))
        show(s, ret);
    bool string = s->state == IN_STRING || s->state == IN_ESCAPE || s->state == IN_HEX;
    if (s->state == LOOSE_ESCAPE)
        buf_putc(ret, '\\');
    if ((string && !s->key) || s->state == LOOSE_STRING || s->state == LOOSE_ESCAPE)
        buf_putc(ret, '"');
    while (s->depth > 0) {
        buf_putc(ret, in_object(s) ? '}' : ']');
        s->depth--;
    }
    s->done = true;
}
