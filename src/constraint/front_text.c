#include "constraint/front_text.h"

#include "unicode/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int front_text_open(struct front_text *f, struct grammar_builder *b, struct slice text,
                    const struct charge *charge, const char *what, struct err *e)
{
    *f = (struct front_text){.b = b, .e = e, .at = text.ptr, .end = text.ptr + text.len, .line = 1};
    f->last = &f->first;
    if (text.len > FRONT_TEXT_BYTES_MAX)
        return f->error = err_set(e, -E2BIG, "a %s grammar has at most %zu KiB; this one has %zu", what,
                                  FRONT_TEXT_BYTES_MAX >> 10, text.len >> 10);
    int r = arena_create(&(struct arena_opts){.bytes_max = FRONT_TEXT_WORK_BYTES, .charge = charge}, &f->a);
    return f->error = r < 0 ? err_set(e, r, "no memory to read the grammar") : 0;
}

void front_text_close(struct front_text *f)
{
    arena_free(f->a);
}

int front_text_fail(struct front_text *f, int code, const char *format, ...)
{
    char text[300];
    va_list args;
    if (f->error)
        return f->error;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return f->error = err_set(f->e, code, "line %u of the grammar: %s", f->line, text);
}

static void *take(struct front_text *f, size_t bytes)
{
    void *p = f->error ? NULL : arena_alloc_align(f->a, bytes, 8);
    if (!p)
        front_text_fail(f, arena_overran(f->a) ? -E2BIG : -ENOMEM,
                        "the grammar takes too much memory to read");
    return p;
}

struct front_name *front_text_name(struct front_text *f, struct slice name)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (uint8_t)name.ptr[i]) * 16777619u;
    struct front_name **bucket = &f->names[(h ^ h >> 16) % FRONT_TEXT_NAMES];
    for (struct front_name *n = *bucket; n; n = n->next)
        if (slice_eq(n->name, name))
            return n;
    struct front_name *n = take(f, sizeof(*n));
    if (!n)
        return NULL;
    *n = (struct front_name){.name = name, .line = f->line, .rule = grammar_rule(f->b), .next = *bucket};
    *bucket = n;
    *f->last = n;
    f->last = &n->listed;
    return n;
}

uint32_t front_text_character(struct front_text *f)
{
    const struct slice left = {f->at, (size_t)(f->end - f->at)};
    struct utf8_char c = left.len > 0 ? utf8_at(left, 0) : (struct utf8_char){0};
    if (!c.valid) {
        front_text_fail(f, -EINVAL, left.len > 0 ? "this is not valid UTF-8" : "the grammar ends too early");
        return 0;
    }
    f->at += c.bytes;
    f->line += c.code == '\n';
    return c.code;
}

/* Takes `digits` hexadecimal digits and returns their character. */
static uint32_t hex_character(struct front_text *f, uint32_t digits)
{
    uint32_t code = 0;
    for (uint32_t i = 0; i < digits; i++) {
        int v = f->at < f->end ? slice_hex(*f->at) : -1;
        if (v < 0) {
            front_text_fail(f, -EINVAL, "an escape needs %u hexadecimal digits", digits);
            return 0;
        }
        code = code << 4 | (uint32_t)v;
        f->at++;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        front_text_fail(f, -EINVAL, "%X is not a character", code);
    return f->error ? 0 : code;
}

uint32_t front_text_escape(struct front_text *f, const char *plain)
{
    uint32_t c = front_text_character(f);
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'x':
        return hex_character(f, 2);
    case 'u':
        return hex_character(f, 4);
    case 'U':
        return hex_character(f, 8);
    default:
        if (c > 0 && c < 0x80 && strchr(plain, (int)c))
            return c;
        front_text_fail(f, -EINVAL, "there is no escape \\%c", c < 0x7F && c >= 0x20 ? (int)c : '?');
        return 0;
    }
}

uint32_t front_text_number(struct front_text *f)
{
    uint32_t value = 0;
    const char *from = f->at;
    while (f->at < f->end && *f->at >= '0' && *f->at <= '9' && value <= FRONT_TEXT_REPEAT_MAX)
        value = value * 10 + (uint32_t)(*f->at++ - '0');
    if (f->at == from)
        front_text_fail(f, -EINVAL, "a number is missing");
    if (value > FRONT_TEXT_REPEAT_MAX)
        front_text_fail(f, -E2BIG, "a repetition has a count above %d", FRONT_TEXT_REPEAT_MAX);
    return f->error ? 0 : value;
}

/* ---- rows and alternatives ---- */

void front_sequence_add(struct front_text *f, struct front_sequence *row, struct expr p)
{
    struct expr *last = row->count ? &row->pieces[row->count - 1] : NULL;
    if (f->error)
        return;
    if (last && last->regular && p.regular) {
        *last = expr_cat(f->b, *last, p);
        return;
    }
    if (row->count == row->capacity) {
        uint32_t capacity = row->capacity ? row->capacity * 2 : 8;
        struct expr *more = take(f, capacity * sizeof(*more));
        if (!more)
            return;
        if (row->count)
            memcpy(more, row->pieces, row->count * sizeof(*more));
        row->pieces = more;
        row->capacity = capacity;
    }
    row->pieces[row->count++] = p;
}

static void make_rule(struct front_text *f, struct front_alternatives *ways)
{
    if (!ways->rule_made)
        ways->rule = grammar_rule(f->b);
    ways->rule_made = true;
}

static void add_row(struct front_text *f, sym_id rule, const struct front_sequence *row)
{
    sym_id *symbols = take(f, (row->count + 1) * sizeof(*symbols));
    uint32_t count = 0;
    for (uint32_t i = 0; symbols && i < row->count; i++)
        if (!row->pieces[i].regular || row->pieces[i].rx != RX_EMPTY)
            symbols[count++] = expr_symbol(f->b, row->pieces[i]);
    if (symbols)
        grammar_alternative(f->b, rule, symbols, count);
}

void front_alternatives_add(struct front_text *f, struct front_alternatives *ways,
                            const struct front_sequence *row)
{
    if (row->count > 1 || (row->count == 1 && !row->pieces[0].regular)) {
        make_rule(f, ways);
        add_row(f, ways->rule, row);
        return;
    }
    rx_id rx = row->count ? row->pieces[0].rx : RX_EMPTY;
    ways->regular = ways->some ? rx_or(grammar_rx(f->b), ways->regular, rx) : rx;
    ways->some = true;
}

struct expr front_alternatives_done(struct front_text *f, const struct front_alternatives *ways)
{
    if (!ways->rule_made)
        return expr_rx(ways->regular);
    if (ways->some) {
        struct expr p = expr_rx(ways->regular);
        struct front_sequence row = {&p, 1, 1};
        add_row(f, ways->rule, &row);
    }
    return expr_sym(ways->rule);
}
