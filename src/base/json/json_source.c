/* json_source.c - runs of unchanged bytes, each followed by a change. */
#include "base/json/json_source.h"

#include "base/check.h"
#include "base/wide_integer.h"

#include <string.h>

#define ESCAPE_BYTES ((size_t)6)    /* \ud83d */
#define LOOK_BYTES   ((size_t)4096) /* searched before they are copied */

void json_source_init(struct json_source *s, struct slice text)
{
    *s = (struct json_source){.text = text};
}

/* ---- surrogates ---- */

/* The code of the escape \uXXXX at `s`; -1: `s` begins otherwise. */
static int escape_of(struct slice s)
{
    int code = 0;
    if (s.len < ESCAPE_BYTES || s.ptr[0] != '\\' || s.ptr[1] != 'u')
        return -1;
    for (size_t i = 2; i < ESCAPE_BYTES; i++) {
        int digit = slice_hex(s.ptr[i]);
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code;
}

/* Bytes of what begins with the backslash at `s`. *half: it is half of a pair. */
static size_t escape_bytes(struct slice s, bool *half)
{
    int code = escape_of(s);
    bool first = code >= 0xD800 && code <= 0xDBFF;
    int next = first ? escape_of(slice_sub(s, ESCAPE_BYTES, s.len)) : -1;
    if (next >= 0xDC00 && next <= 0xDFFF)
        return 2 * ESCAPE_BYTES;
    *half = first || (code >= 0xDC00 && code <= 0xDFFF);
    return code >= 0 ? ESCAPE_BYTES : MIN_OF(s.len, (size_t)2);
}

/* ---- numbers ---- */

static bool is_of_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Bytes of the number at `s`. *wide: an integer beyond 64 bits. */
static size_t number_bytes(struct slice s, bool *wide)
{
    static const char most[] = "9223372036854775807", least[] = "9223372036854775808";
    const size_t sign = s.ptr[0] == '-', limit = sizeof(most) - 1;
    bool whole = true;
    size_t len = sign;
    for (; len < s.len && is_of_number(s.ptr[len]); len++)
        whole &= s.ptr[len] >= '0' && s.ptr[len] <= '9';
    const size_t digits = len - sign;
    *wide = whole &&
            (digits > limit || (digits == limit && memcmp(s.ptr + sign, sign ? least : most, limit) > 0));
    return len;
}

/* ---- the text ---- */

/* Finds the next change, if it is near, and moves past it. */
static void find_change(struct json_source *s)
{
    const size_t from = s->at, until = MIN_OF(s->text.len, from + LOOK_BYTES);
    bool half = false, wide = false;
    size_t i = from, len = 0;
    s->patch = (struct slice){0};
    for (; i < until && !half && !wide; i += len) {
        const struct slice rest = slice_sub(s->text, i, s->text.len);
        const char c = rest.ptr[0];
        len = 1;
        if (c == '"')
            s->in_string = !s->in_string;
        else if (s->in_string && c == '\\')
            len = escape_bytes(rest, &half);
        else if (!s->in_string && (c == '-' || (c >= '0' && c <= '9')))
            len = number_bytes(rest, &wide);
        if (wide)
            wide_integer_note(slice_sub(rest, 0, len));
    }
    ASSERT(i > from && i <= s->text.len);
    s->at = i;
    s->run = slice_sub(s->text, from, i - from - (half ? len : 0));
    if (half)
        s->patch = SLICE("\\ufffd");
    else if (wide)
        s->patch = SLICE(".0");
}

static size_t take(struct slice *s, char *into, size_t len)
{
    const size_t bytes = MIN_OF(len, s->len);
    if (bytes)
        memcpy(into, s->ptr, bytes);
    *s = slice_sub(*s, bytes, s->len);
    return bytes;
}

size_t json_source_read(struct json_source *s, char *into, size_t len)
{
    size_t done = 0;
    while (done < len) {
        if (s->run.len == 0 && s->patch.len == 0) {
            if (s->at == s->text.len)
                break;
            find_change(s);
        }
        done += take(&s->run, into + done, len - done);
        if (s->run.len == 0)
            done += take(&s->patch, into + done, len - done);
    }
    return done;
}
