/* jinja_text.c - the three ways Python writes a value down.
 *
 * All of them walk nested values, and client data can be nested: every level is counted. */
#include "text/jinja_text.h"

#include "text/jinja_ast.h"
#include "text/jinja_list.h"
#include "text/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

void jinja_float_text(double v, char *ret)
{
    char digits[40];
    int precision = 0;
    if (isnan(v) || isinf(v)) {
        strcpy(ret, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    do {
        snprintf(digits, sizeof(digits), "%.*e", precision, v);
    } while (strtod(digits, NULL) != v && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision - exponent;
        snprintf(ret, 32, "%.*f", decimals > 1 ? decimals : 1, v);
    } else {
        snprintf(ret, 32, "%s", digits);
    }
}

/* ---- repr ---- */

static bool is_printable(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return true;
    }
}

static void put_code(struct jinja_text *t, uint32_t c)
{
    char text[16];
    snprintf(text, sizeof(text), c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    jinja_text_puts(t, text);
}

static void put_repr_str(struct jinja_text *t, struct slice s)
{
    char quote = s.len && memchr(s.ptr, '\'', s.len) && !memchr(s.ptr, '"', s.len) ? '"' : '\'';
    size_t from = 0;
    jinja_text_putc(t, quote);
    for (size_t at = 0; at < s.len && !t->r->error;) {
        uint32_t c;
        size_t n = utf8_next(s.ptr + at, &c);
        bool plain = c != '\\' && c != (uint32_t)quote && (c < 0x7F ? c >= 0x20 : is_printable(c));
        if (!plain) {
            jinja_text_put(t, slice_sub(s, from, at - from));
            from = at + n;
            if (c == '\n' || c == '\r' || c == '\t')
                jinja_text_puts(t, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
            else if (c == '\\' || c == (uint32_t)quote)
                jinja_text_put(t, (struct slice){(char[2]){'\\', (char)c}, 2});
            else
                put_code(t, c);
        }
        at += n;
    }
    jinja_text_put(t, slice_sub(s, from, s.len));
    jinja_text_putc(t, quote);
}

static void put_repr_items(struct jinja_text *t, const struct jinja_value *v, const char *open,
                           const char *close)
{
    struct jinja_value *items;
    if (jinja_items(t->r, v, &items) < 0)
        return;
    jinja_text_puts(t, open);
    for (size_t i = 0; i < v->l->len && !t->r->error; i++) {
        if (i > 0)
            jinja_text_puts(t, ", ");
        jinja_put_repr(t, &items[i]);
    }
    if (v->kind == VALUE_TUPLE && v->l->len == 1)
        jinja_text_putc(t, ',');
    jinja_text_puts(t, close);
}

static void put_repr_dict(struct jinja_text *t, const struct jinja_value *v)
{
    struct jinja_pair *pairs;
    if (jinja_pairs(t->r, v, &pairs) < 0)
        return;
    jinja_text_puts(t, v->kind == VALUE_NAMESPACE ? "<Namespace {" : "{");
    for (size_t i = 0; i < v->d->count && !t->r->error; i++) {
        if (i > 0)
            jinja_text_puts(t, ", ");
        jinja_put_repr(t, &pairs[i].key);
        jinja_text_puts(t, ": ");
        jinja_put_repr(t, &pairs[i].value);
    }
    jinja_text_puts(t, v->kind == VALUE_NAMESPACE ? "}>" : "}");
}

static void put_range(struct jinja_text *t, const struct jinja_list *l)
{
    char text[96];
    int64_t start = l->len ? l->items[0].i : 0, step = l->len > 1 ? l->items[1].i - start : 1;
    int64_t stop = start + step * (int64_t)l->len;
    snprintf(text, sizeof(text), step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
             (long long)start, (long long)stop, (long long)step);
    jinja_text_puts(t, text);
}

static void put_repr_kind(struct jinja_text *t, const struct jinja_value *v)
{
    char number[40];
    switch (v->kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
        jinja_text_puts(t, "Undefined");
        return;
    case VALUE_NONE:
        jinja_text_puts(t, "None");
        return;
    case VALUE_BOOL:
        jinja_text_puts(t, v->b ? "True" : "False");
        return;
    case VALUE_INT:
        snprintf(number, sizeof(number), "%lld", (long long)v->i);
        jinja_text_puts(t, number);
        return;
    case VALUE_FLOAT:
        jinja_float_text(v->f, number);
        jinja_text_puts(t, number);
        return;
    case VALUE_STR:
        put_repr_str(t, jinja_slice(v));
        return;
    case VALUE_LIST:
        put_repr_items(t, v, "[", "]");
        return;
    case VALUE_TUPLE:
        put_repr_items(t, v, "(", ")");
        return;
    case VALUE_VIEW:
        jinja_text_puts(t, v->l->name);
        put_repr_items(t, v, "([", "])");
        return;
    case VALUE_RANGE:
        put_range(t, v->l);
        return;
    case VALUE_DICT:
    case VALUE_NAMESPACE:
        put_repr_dict(t, v);
        return;
    default: /* Python prints an address here, so no template can mean it */
        jinja_text_putc(t, '<');
        jinja_text_puts(t, jinja_type(v));
        jinja_text_putc(t, '>');
        return;
    }
}

int jinja_put_repr(struct jinja_text *t, const struct jinja_value *v)
{
    if (jinja_enter(t->r) == 0 && jinja_spend(t->r, 1) == 0)
        put_repr_kind(t, v);
    jinja_leave(t->r);
    return t->r->error;
}

int jinja_to_str(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    if (v->kind == VALUE_STR) {
        *ret = *v;
        return 0;
    }
    if (v->kind == VALUE_UNDEFINED || v->kind == VALUE_MISSING)
        return jinja_str(r, SLICE(""), ret);
    jinja_put_repr(&t, v);
    return jinja_text_value(&t, ret);
}

void jinja_put_escaped(struct jinja_text *t, struct slice s)
{
    size_t from = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        const char *name = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '"'  ? "&#34;"
                           : c == '\'' ? "&#39;"
                                       : NULL;
        if (!name)
            continue;
        jinja_text_put(t, slice_sub(s, from, i - from));
        jinja_text_puts(t, name);
        from = i + 1;
    }
    jinja_text_put(t, slice_sub(s, from, s.len));
}

/* ---- JSON ---- */

static void put_json_code(struct jinja_text *t, uint32_t c)
{
    static const char names[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    char text[16];
    for (size_t i = 0; i + 1 < sizeof(names); i += 2) {
        if ((uint32_t)names[i] == c) {
            jinja_text_put(t, (struct slice){(char[2]){'\\', names[i + 1]}, 2});
            return;
        }
    }
    if (c < 0x10000)
        snprintf(text, sizeof(text), "\\u%04x", c);
    else
        snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
    jinja_text_puts(t, text);
}

static void put_json_str(struct jinja_text *t, struct slice s, bool ensure_ascii)
{
    size_t from = 0;
    jinja_text_putc(t, '"');
    for (size_t at = 0; at < s.len && !t->r->error;) {
        uint32_t c;
        size_t n = utf8_next(s.ptr + at, &c);
        if (c < 0x20 || c == '"' || c == '\\' || (ensure_ascii && c > 0x7E)) {
            jinja_text_put(t, slice_sub(s, from, at - from));
            put_json_code(t, c);
            from = at + n;
        }
        at += n;
    }
    jinja_text_put(t, slice_sub(s, from, s.len));
    jinja_text_putc(t, '"');
}

struct json_walk {
    struct jinja_text *t;
    const struct jinja_json_opts *opts;
    uint32_t level;
};

static void put_json(struct json_walk *w, const struct jinja_value *v);

static void put_line(struct json_walk *w)
{
    if (!w->opts->indent)
        return;
    jinja_text_putc(w->t, '\n');
    for (uint32_t i = 0; i < w->level && !w->t->r->error; i++)
        jinja_text_put(w->t, jinja_slice(w->opts->indent));
}

static void put_json_list(struct json_walk *w, const struct jinja_value *v)
{
    struct jinja_value *items;
    if (jinja_items(w->t->r, v, &items) < 0)
        return;
    jinja_text_putc(w->t, '[');
    w->level++;
    for (size_t i = 0; i < v->l->len && !w->t->r->error; i++) {
        if (i > 0)
            jinja_text_put(w->t, w->opts->item_separator);
        put_line(w);
        put_json(w, &items[i]);
    }
    w->level--;
    if (v->l->len > 0)
        put_line(w);
    jinja_text_putc(w->t, ']');
}

static void put_json_key(struct json_walk *w, const struct jinja_value *key)
{
    char number[40];
    switch (key->kind) {
    case VALUE_STR:
        put_json_str(w->t, jinja_slice(key), w->opts->ensure_ascii);
        return;
    case VALUE_NONE:
    case VALUE_BOOL:
        jinja_text_puts(w->t, key->kind == VALUE_NONE ? "\"null\"" : key->b ? "\"true\"" : "\"false\"");
        return;
    case VALUE_INT:
        snprintf(number, sizeof(number), "\"%lld\"", (long long)key->i);
        jinja_text_puts(w->t, number);
        return;
    case VALUE_FLOAT:
        number[0] = '"';
        jinja_float_text(key->f, number + 1);
        jinja_text_puts(w->t, number);
        jinja_text_putc(w->t, '"');
        return;
    default:
        jinja_fail(w->t->r, "keys must be str, int, float, bool or None, not %s", jinja_type(key));
        return;
    }
}

static void put_json_dict(struct json_walk *w, const struct jinja_value *v)
{
    struct jinja_pair *pairs;
    if (jinja_pairs(w->t->r, v, &pairs) < 0)
        return;
    if (w->opts->sort_keys && jinja_sort_pairs(w->t->r, v, &pairs) < 0)
        return;
    jinja_text_putc(w->t, '{');
    w->level++;
    for (size_t i = 0; i < v->d->count && !w->t->r->error; i++) {
        if (i > 0)
            jinja_text_put(w->t, w->opts->item_separator);
        put_line(w);
        put_json_key(w, &pairs[i].key);
        jinja_text_put(w->t, w->opts->key_separator);
        put_json(w, &pairs[i].value);
    }
    w->level--;
    if (v->d->count > 0)
        put_line(w);
    jinja_text_putc(w->t, '}');
}

static void put_json_float(struct jinja_text *t, double v)
{
    char number[40];
    jinja_float_text(v, number);
    if (isnan(v) || isinf(v))
        strcpy(number, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
    jinja_text_puts(t, number);
}

static void put_json_kind(struct json_walk *w, const struct jinja_value *v)
{
    switch (v->kind) {
    case VALUE_NONE:
        jinja_text_puts(w->t, "null");
        return;
    case VALUE_BOOL:
        jinja_text_puts(w->t, v->b ? "true" : "false");
        return;
    case VALUE_INT:
        put_repr_kind(w->t, v);
        return;
    case VALUE_FLOAT:
        put_json_float(w->t, v->f);
        return;
    case VALUE_STR:
        put_json_str(w->t, jinja_slice(v), w->opts->ensure_ascii);
        return;
    case VALUE_LIST:
    case VALUE_TUPLE:
        put_json_list(w, v);
        return;
    case VALUE_DICT:
        put_json_dict(w, v);
        return;
    default:
        jinja_fail(w->t->r, "Object of type %s is not JSON serializable", jinja_type(v));
        return;
    }
}

static void put_json(struct json_walk *w, const struct jinja_value *v)
{
    if (jinja_enter(w->t->r) == 0 && jinja_spend(w->t->r, 1) == 0)
        put_json_kind(w, v);
    jinja_leave(w->t->r);
}

int jinja_put_json(struct jinja_text *t, const struct jinja_value *v, const struct jinja_json_opts *opts)
{
    struct json_walk w = {t, opts, 0};
    put_json(&w, v);
    return t->r->error;
}
