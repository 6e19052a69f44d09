/* json_out.c - one bit a level, so that a writer fits into two cache lines and starts without a loop.
 *
 * Streams write a few of these values for each token: comma, key and colon are one append, and integers take
 * no printf(). */
#include "base/json/json_out.h"

#include "base/check.h"
#include "base/json/json_write.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct json_out json_out(struct buf *b)
{
    return (struct json_out){.buf = b};
}

struct json_out json_out_items(struct buf *b)
{
    return (struct json_out){.buf = b, .items = true, .filled = b->len > 0};
}

/* ---- before a value ---- */

/* Notes an item of the open container. True if a comma goes before it. */
static bool begin_item(struct json_out *j)
{
    uint32_t bit = 1u << j->depth;
    bool comma = j->filled & bit;
    ASSERT(!comma || j->depth > 0 || j->items);
    j->filled |= bit;
    return comma;
}

static char *put_separator(const struct json_out *j, char *at, char c)
{
    *at++ = c;
    if (j->spaced)
        *at++ = ' ';
    return at;
}

static bool takes_keys(const struct json_out *j)
{
    return j->depth > 0 && !(j->arrays & 1u << j->depth);
}

/* Writes comma, key and colon before a value, in one append. */
static void begin(struct json_out *j, const char *key)
{
    if (j->keyed) {
        ASSERT(!key);
        j->keyed = false;
        return;
    }
    ASSERT(key ? takes_keys(j) || (j->items && j->depth == 0) : !takes_keys(j));
    bool comma = begin_item(j);
    size_t len = key ? strlen(key) : 0, separator = j->spaced ? 2 : 1;
    char *at = buf_extend(j->buf, (comma ? separator : 0) + (key ? len + 2 + separator : 0));
    if (at && comma)
        at = put_separator(j, at, ',');
    if (!at || !key)
        return;
    at[0] = at[len + 1] = '"';
    memcpy(at + 1, key, len);
    put_separator(j, at + len + 2, ':');
}

static void put_comma(struct json_out *j)
{
    if (begin_item(j))
        buf_puts(j->buf, j->spaced ? ", " : ",");
}

void json_key(struct json_out *j, struct slice key)
{
    ASSERT(!j->keyed && takes_keys(j));
    put_comma(j);
    json_write_string(j->buf, key);
    buf_puts(j->buf, j->spaced ? ": " : ":");
    j->keyed = true;
}

/* ---- containers ---- */

static void open_container(struct json_out *j, const char *key, bool array)
{
    begin(j, key);
    ASSERT(j->depth < JSON_OUT_DEPTH_MAX);
    uint32_t bit = 1u << ++j->depth;
    j->arrays = array ? j->arrays | bit : j->arrays & ~bit;
    j->filled &= ~bit;
    buf_putc(j->buf, array ? '[' : '{');
}

void json_open(struct json_out *j, const char *key)
{
    open_container(j, key, false);
}

void json_open_array(struct json_out *j, const char *key)
{
    open_container(j, key, true);
}

void json_close(struct json_out *j)
{
    ASSERT(j->depth > 0 && !j->keyed);
    buf_putc(j->buf, takes_keys(j) ? '}' : ']');
    j->depth--;
}

struct json_out json_out_object(struct buf *b)
{
    struct json_out j = json_out(b);
    json_open(&j, NULL);
    return j;
}

void json_end(struct json_out *j)
{
    ASSERT(j->depth == 1);
    json_close(j);
}

/* ---- values ---- */

void json_put_raw(struct json_out *j, const char *key, struct slice json)
{
    begin(j, key);
    buf_put_slice(j->buf, json);
}

void json_put_items(struct json_out *j, struct slice items)
{
    if (!items.len)
        return;
    put_comma(j);
    buf_put_slice(j->buf, items);
}

void json_put_list(struct json_out *j, const char *key, struct slice items)
{
    json_open_array(j, key);
    json_put_items(j, items);
    json_close(j);
}

void json_put_null(struct json_out *j, const char *key)
{
    json_put_raw(j, key, SLICE("null"));
}

void json_put_bool(struct json_out *j, const char *key, bool value)
{
    json_put_raw(j, key, value ? SLICE("true") : SLICE("false"));
}

static void put_integer(struct json_out *j, const char *key, bool negative, uint64_t value)
{
    char digits[24];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    if (negative)
        digits[--at] = '-';
    json_put_raw(j, key, (struct slice){digits + at, sizeof(digits) - at});
}

void json_put_u64(struct json_out *j, const char *key, uint64_t value)
{
    put_integer(j, key, false, value);
}

void json_put_i64(struct json_out *j, const char *key, int64_t value)
{
    put_integer(j, key, value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void json_put_u64s(struct json_out *j, const struct json_u64 *members, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put_integer(j, members[i].key, false, members[i].value);
}

void json_put_real(struct json_out *j, const char *key, double value)
{
    begin(j, key);
    json_write_real(j->buf, value);
}

void json_put_float(struct json_out *j, const char *key, float value)
{
    int digits = 6;
    char text[32];
    do
        snprintf(text, sizeof(text), "%.*g", digits, (double)value);
    while (digits++ < 9 && strtof(text, NULL) != value);
    json_put_raw(j, key, isfinite(value) ? slice_of(text) : SLICE("null"));
}

static void put_printed(struct json_out *j, const char *key, bool general, int digits, double value)
{
    if (!isfinite(value)) {
        json_put_null(j, key);
        return;
    }
    begin(j, key);
    buf_printf(j->buf, general ? "%.*g" : "%.*f", digits, value);
}

void json_put_fixed(struct json_out *j, const char *key, int decimals, double value)
{
    put_printed(j, key, false, decimals, value);
}

void json_put_general(struct json_out *j, const char *key, int digits, double value)
{
    put_printed(j, key, true, digits, value);
}

void json_put_text(struct json_out *j, const char *key, struct slice value)
{
    begin(j, key);
    json_write_string(j->buf, value);
}

void json_put_string(struct json_out *j, const char *key, const char *value)
{
    if (value)
        json_put_text(j, key, slice_of(value));
    else
        json_put_null(j, key);
}

void json_put_strings(struct json_out *j, const struct json_string *members, size_t count)
{
    for (size_t i = 0; i < count; i++)
        json_put_string(j, members[i].key, members[i].value);
}

void json_put_format(struct json_out *j, const char *key, const char *format, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    ASSERT(n >= 0 && (size_t)n < sizeof(text));
    json_put_text(j, key, (struct slice){text, (size_t)n});
}

void json_put_value(struct json_out *j, const char *key, const json_t *value)
{
    if (!value) {
        json_put_null(j, key);
        return;
    }
    begin(j, key);
    if (j->spaced)
        json_write_spaced(j->buf, value);
    else
        json_write_value(j->buf, value);
}

struct buf *json_begin_text(struct json_out *j, const char *key)
{
    begin(j, key);
    buf_putc(j->buf, '"');
    return j->buf;
}

void json_end_text(struct json_out *j)
{
    buf_putc(j->buf, '"');
}
