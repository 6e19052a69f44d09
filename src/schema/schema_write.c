#include "schema/decimal.h"
#include "schema/schema.h"

#include "base/buf.h"

#include <stdio.h>

static void write_string(struct buf *out, struct slice s)
{
    buf_putc(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c == '"' || c == '\\')
            buf_putc(out, '\\');
        if (c < 0x20)
            buf_printf(out, "\\u%04x", c);
        else
            buf_putc(out, (char)c);
    }
    buf_putc(out, '"');
}

static void write_number(struct buf *out, const json_t *value)
{
    struct decimal d;
    if (!decimal_of(value, &d))
        return;
    buf_printf(out, "%s%.*s", d.negative ? "-" : "", (int)d.whole, d.digits);
    if (d.fraction)
        buf_printf(out, ".%.*s", (int)d.fraction, d.digits + d.whole);
    else if (json_is_real(value)) /* In draft 4, 1.0 is not an integer. */
        buf_puts(out, ".0");
}

static void write_object(struct buf *out, const json_t *value)
{
    const char *key, *comma = "";
    json_t *member;
    buf_putc(out, '{');
    json_object_foreach((json_t *)value, key, member) {
        buf_puts(out, comma);
        write_string(out, slice_of(key));
        buf_putc(out, ':');
        schema_write(out, member);
        comma = ",";
    }
    buf_putc(out, '}');
}

void schema_write(struct buf *out, const json_t *value)
{
    if (json_is_string(value))
        write_string(out, (struct slice){json_string_value(value), json_string_length(value)});
    else if (json_is_number(value))
        write_number(out, value);
    else if (json_is_object(value))
        write_object(out, value);
    else if (json_is_array(value)) {
        buf_putc(out, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i)
                buf_putc(out, ',');
            schema_write(out, json_array_get(value, i));
        }
        buf_putc(out, ']');
    } else
        buf_puts(out, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null");
}
