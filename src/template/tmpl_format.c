/* tmpl_format.c - str.format() and the filter format of templates.
 *
 * Replacement fields are Python's: {} and {0} by position, {name} by keyword, then .name and [index], !s and
 * !r, and a format specification, which may have fields itself. A specification has fill, alignment, sign, 0,
 * width, grouping and precision, with the types s, d, x, f and %. Other types end the run, since chat
 * templates do not use them.
 *
 * The filter fills Python's older fields: %s and %(name)s, with the flags -, +, blank and 0, with width and
 * precision, and with the types s, r, d, i, x and f. */
#include "template/tmpl_eval.h"
#include "template/tmpl_strings.h"

#include "base/check.h"

#include <math.h>
#include <stdio.h>

#define WIDTH_MAX     4096
#define PRECISION_MAX 100
/* A text's fields, those of a field's specification, and of a field there: Python's own limit. */
#define LEVELS_MAX   3
#define NUMBER_UNITS 500

/* One call of format(). */
struct call {
    struct tmpl_run *run;
    const struct tmpl_args *args;
    bool markup;      /* values are HTML-escaped */
    uint32_t next;    /* position of the next {} */
    bool counts, has; /* fields have no numbers; one was met */
};

struct field {
    struct slice name, spec;
    char conversion; /* 's', 'r', or 0 */
};

struct spec {
    struct slice fill; /* one code point */
    char align;        /* '<', '>', '^', '=', or 0 */
    char sign;         /* '+', ' ', '-', or 0 */
    bool zero;
    size_t width;
    char group;    /* ',', '_', or 0 */
    int precision; /* -1: none */
    char type;     /* 0: none */
};

static bool is_align(const struct slice s, size_t at)
{
    return at < s.len && memchr("<>^=", s.ptr[at], 4) != NULL;
}

/* Reads the digits at *at and moves *at past them. -1: there are none. -2: over `max`. */
static int digits(struct slice s, size_t *at, int max)
{
    int n = -1;
    for (; *at < s.len && s.ptr[*at] >= '0' && s.ptr[*at] <= '9'; (*at)++) {
        n = MAX_OF(n, 0) * 10 + (s.ptr[*at] - '0');
        if (n > max)
            return -2;
    }
    return n;
}

static char one_of(struct slice s, size_t *at, const char *chars)
{
    return *at < s.len && strchr(chars, s.ptr[*at]) && s.ptr[*at] ? s.ptr[(*at)++] : 0;
}

static bool parse_spec(struct tmpl_run *run, struct slice s, struct spec *ret)
{
    size_t at = tmpl_char_at(s, 1);
    *ret = (struct spec){.fill = SLICE(" "), .precision = -1};
    bool filled = is_align(s, at);
    if (filled)
        ret->fill = slice_sub(s, 0, at);
    else
        at = 0;
    ret->align = one_of(s, &at, "<>^=");
    ret->sign = one_of(s, &at, "+- ");
    ret->zero = !filled && one_of(s, &at, "0");
    int width = digits(s, &at, WIDTH_MAX);
    ret->group = one_of(s, &at, ",_");
    if (one_of(s, &at, "."))
        ret->precision = digits(s, &at, PRECISION_MAX);
    bool dot = at > 0 && s.ptr[at - 1] == '.';
    ASSERT(at <= s.len);
    ret->type = one_of(s, &at, "sdxf%");
    if (at < s.len || width == -2 || ret->precision == -2 || dot) {
        tmpl_fail(run, "format: the specification \"%.*s\" is not one of those that templates may use",
                  SLICE_ARGS(slice_sub(s, 0, 40)));
        return false;
    }
    ret->width = (size_t)MAX_OF(width, 0);
    if (ret->zero)
        ret->fill = SLICE("0");
    return true;
}

static void put_times(struct tmpl_text *t, struct slice s, size_t times)
{
    for (; times > 0 && !t->failed; times--)
        tmpl_text_put(t, s);
}

/* Sign and body within the width; `align` where the specification has none. */
static void put_padded(struct tmpl_text *t, const struct spec *spec, char align, struct slice sign,
                       struct slice body)
{
    size_t chars = sign.len + tmpl_chars(body), pad = spec->width > chars ? spec->width - chars : 0;
    align = spec->align ? spec->align : align;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0, inner = align == '=' ? pad : 0;
    ASSERT(left + inner <= pad);
    put_times(t, spec->fill, left);
    tmpl_text_put(t, sign);
    put_times(t, spec->fill, inner);
    tmpl_text_put(t, body);
    put_times(t, spec->fill, pad - left - inner);
}

static void put_string(struct tmpl_run *run, struct tmpl_text *t, const struct spec *spec, struct slice s)
{
    if ((spec->type && spec->type != 's') || spec->sign || spec->group || spec->align == '=') {
        tmpl_fail(run, "format: a specification for numbers is used with a string");
        return;
    }
    if (!tmpl_work(run, 2 * tmpl_cost_chars(s.len)))
        return;
    if (spec->precision >= 0)
        s = slice_sub(s, 0, tmpl_char_at(s, (size_t)spec->precision));
    put_padded(t, spec, '<', SLICE(""), s);
}

/* Digits with a separator after each group of `size`, counted from the point or the end. */
static struct slice grouped(struct slice s, char separator, size_t size, char *out)
{
    ASSERT(size > 0);
    size_t whole = 0, n = 0;
    while (whole < s.len && s.ptr[whole] != '.' && s.ptr[whole] != '%')
        whole++;
    for (size_t i = 0; i < s.len; i++) {
        if (i > 0 && i < whole && (whole - i) % size == 0)
            out[n++] = separator;
        out[n++] = s.ptr[i];
    }
    return (struct slice){out, n};
}

static void put_number(struct tmpl_run *run, struct tmpl_text *t, const struct spec *spec,
                       const struct tmpl_value *v)
{
    char text[512], parts[1024]; /* %.100f has 309 + 1 + 100 */
    int64_t i = 0;
    double f = 0;
    bool whole = tmpl_integer(v, &i), real = spec->type == 'f' || spec->type == '%';
    tmpl_number(v, &f);
    bool zeros = spec->zero || (spec->align == '=' && slice_eq(spec->fill, SLICE("0")));
    bool fits =
        real || (whole ? spec->type != 's' && spec->precision < 0 : !spec->type && spec->precision < 0);
    if (!fits || (spec->group == ',' && spec->type == 'x') || (spec->group && (zeros || (!whole && !real)))) {
        tmpl_fail(run, "format: the specification does not fit '%s'", tmpl_type_name(v));
        return;
    }
    if (!tmpl_work(run, NUMBER_UNITS))
        return;
    bool negative = real || !whole ? signbit(f) && !isnan(f) : i < 0;
    uint64_t magnitude = i < 0 ? -(uint64_t)i : (uint64_t)i;
    if (real)
        snprintf(text, sizeof(text), spec->type == '%' ? "%.*f%%" : "%.*f",
                 spec->precision < 0 ? 6 : spec->precision,
                 isnan(f) ? (double)NAN : fabs(f) * (spec->type == '%' ? 100 : 1));
    else if (whole)
        snprintf(text, sizeof(text), spec->type == 'x' ? "%llx" : "%llu", (unsigned long long)magnitude);
    struct slice body = slice_of(text);
    if (!real && !whole) {
        body = tmpl_to_string(run, v).s;
        body = slice_sub(body, negative, body.len);
    }
    if (spec->group && (!real || isfinite(f))) {
        ASSERT(body.len <= sizeof(parts) / 2);
        body = grouped(body, spec->group, spec->type == 'x' ? 4 : 3, parts);
    }
    struct slice sign = negative                          ? SLICE("-")
                        : spec->sign && spec->sign != '-' ? (struct slice){&spec->sign, 1}
                                                          : SLICE("");
    if (!run->error)
        put_padded(t, spec, spec->zero ? '=' : '>', sign, body);
}

static void put_value(struct call *c, struct tmpl_text *t, const struct tmpl_value *v, struct slice text)
{
    struct spec spec;
    struct tmpl_run *run = c->run;
    double f;
    if (text.len == 0)
        tmpl_print(t, v);
    else if (!parse_spec(run, text, &spec))
        return;
    else if (v->type == TMPL_STRING)
        put_string(run, t, &spec, v->s);
    else if (tmpl_number(v, &f))
        put_number(run, t, &spec, v);
    else
        tmpl_fail(run, "format: a specification for '%s' is not supported", tmpl_type_name(v));
}

/* Reads the field after an opening brace at *at, and moves *at past its closing brace. */
static bool parse_field(struct tmpl_run *run, struct slice s, size_t *at, struct field *ret)
{
    ASSERT(*at <= s.len);
    size_t i = *at, depth = 1;
    *ret = (struct field){0};
    for (; i < s.len && !memchr("!:{}", s.ptr[i], 4); i++)
        if (s.ptr[i] == '[')
            i = MIN_OF(slice_find(s, SLICE("]"), i), s.len - 1);
    ret->name = slice_sub(s, *at, i - *at);
    if (i + 1 < s.len && s.ptr[i] == '!') {
        ret->conversion = s.ptr[i + 1];
        i += 2;
        depth = ret->conversion == 's' || ret->conversion == 'r';
    }
    size_t from = i + 1;
    if (depth && i < s.len && s.ptr[i] == ':') {
        for (i = from; i < s.len && (depth += s.ptr[i] == '{', depth -= s.ptr[i] == '}') > 0; i++)
            ;
        ret->spec = slice_sub(s, from, i - from);
        depth = 1;
    }
    if (depth == 0 || i >= s.len || s.ptr[i] != '}') {
        tmpl_fail(run, "format: \"{%.*s\" is not a replacement field", SLICE_ARGS(slice_sub(s, *at, 40)));
        return false;
    }
    *at = i + 1;
    return true;
}

/* The argument that a field names, then what its path names there. */
static struct tmpl_value field_value(struct call *c, struct slice name)
{
    struct tmpl_run *run = c->run;
    size_t end = 0, from;
    uint64_t index;
    while (end < name.len && name.ptr[end] != '.' && name.ptr[end] != '[')
        end++;
    struct slice first = slice_sub(name, 0, end);
    bool counted = first.len == 0, positional = counted || slice_u64(first, UINT32_MAX, &index);
    if (positional && c->has && c->counts != counted)
        return tmpl_fail(run, "format: fields with and without numbers are mixed");
    if (positional) {
        c->has = true;
        c->counts = counted;
        index = counted ? c->next++ : index;
    }
    const struct tmpl_value *found = NULL;
    for (uint32_t i = 0, position = 0; i < c->args->count && !found; i++) {
        bool named = c->args->names[i].ptr != NULL;
        if (named ? !positional && slice_eq(c->args->names[i], first) : positional && position++ == index)
            found = &c->args->items[i];
    }
    if (!found)
        return tmpl_fail(run, "format: the field \"%.*s\" has no argument",
                         SLICE_ARGS(slice_sub(name, 0, 40)));
    struct tmpl_value v = *found;
    while (end < name.len && !run->error && tmpl_step(run, 1)) {
        bool item = name.ptr[end] == '[';
        from = end + 1;
        end = item ? slice_find(name, SLICE("]"), from) : from;
        while (!item && end < name.len && name.ptr[end] != '.' && name.ptr[end] != '[')
            end++;
        if (end == SIZE_MAX || end == from ||
            (item && end + 1 < name.len && !memchr(".[", name.ptr[end + 1], 2)))
            return tmpl_fail(run, "format: \"%.*s\" is not a field's name",
                             SLICE_ARGS(slice_sub(name, 0, 40)));
        struct slice key = slice_sub(name, from, end - from);
        if (!item)
            v = tmpl_get_attribute(run, v, key);
        else
            v = tmpl_get_item(
                run, v, slice_u64(key, INT32_MAX, &index) ? tmpl_int((int64_t)index) : tmpl_string(key));
        end += item;
        ASSERT(end <= name.len);
    }
    return v;
}

static void put_format(struct call *c, struct tmpl_text *t, struct slice s, int level);

static void put_field(struct call *c, struct tmpl_text *t, const struct field *field, int level)
{
    struct tmpl_run *run = c->run;
    struct tmpl_text own;
    ASSERT(level < LEVELS_MAX);
    struct tmpl_value v = field_value(c, field->name);
    tmpl_text_begin(run, &own);
    if (!run->error && field->conversion == 's')
        v = tmpl_to_string(run, &v);
    else if (!run->error && field->conversion == 'r')
        tmpl_print_repr(&own, &v);
    if (field->conversion == 'r')
        v = tmpl_text_end(run, &own);
    struct slice spec = field->spec;
    if (!run->error && slice_find(spec, SLICE("{"), 0) != SIZE_MAX) {
        tmpl_text_begin(run, &own);
        put_format(c, &own, spec, level + 1);
        spec = tmpl_text_end(run, &own).s;
    }
    if (run->error)
        return;
    bool escapes = c->markup && !(v.type == TMPL_STRING && v.markup);
    tmpl_text_begin(run, &own);
    put_value(c, escapes ? &own : t, &v, spec);
    if (escapes)
        v = tmpl_text_end(run, &own);
    if (escapes && !run->error)
        tmpl_text_put(t, tmpl_escape(run, v.s).s);
}

static void put_format(struct call *c, struct tmpl_text *t, struct slice s, int level)
{
    ASSERT(level <= LEVELS_MAX);
    struct tmpl_run *run = c->run;
    struct field field;
    if (level == LEVELS_MAX) {
        tmpl_fail(run, "format: fields lie too deeply within fields");
        return;
    }
    if (!tmpl_work(run, 2 * tmpl_cost_chars(s.len)))
        return;
    for (size_t at = 0, end; at < s.len && !run->error && !t->failed && tmpl_step(run, 1);) {
        for (end = at; end < s.len && s.ptr[end] != '{' && s.ptr[end] != '}'; end++)
            ;
        tmpl_text_put(t, slice_sub(s, at, end - at));
        at = end + 1;
        if (end + 1 < s.len && s.ptr[end] == s.ptr[end + 1]) {
            tmpl_text_putc(t, s.ptr[end]);
            at++;
        } else if (end < s.len && s.ptr[end] == '}') {
            tmpl_fail(run, "format: a '}' stands alone");
        } else if (end < s.len && parse_field(run, s, &at, &field)) {
            put_field(c, t, &field, level);
        }
    }
}

struct tmpl_value tmpl_method_format(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    struct call c = {.run = run, .args = args, .markup = v.markup};
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    put_format(&c, &t, v.s, 0);
    if (run->error)
        return tmpl_none();
    struct tmpl_value ret = tmpl_text_end(run, &t);
    ret.markup = v.markup;
    return ret;
}

/* ---- the filter ---- */

/* A field after its '%', which *at is moved past; `ret->type` '%': it is that character. */
static bool parse_older(struct tmpl_run *run, struct slice s, size_t *at, struct spec *ret, struct slice *key)
{
    ASSERT(*at > 0 && s.ptr[*at - 1] == '%');
    const size_t from = *at;
    *ret = (struct spec){.fill = SLICE(" "), .align = '>', .precision = -1};
    *key = (struct slice){0};
    if (one_of(s, at, "(")) {
        size_t end = MIN_OF(slice_find(s, SLICE(")"), *at), s.len);
        *key = slice_sub(s, *at, end - *at);
        *at = end + 1;
    }
    for (char flag; (flag = one_of(s, at, "-+ 0"));) {
        if (flag == '-')
            ret->align = '<';
        else if (flag == '0')
            ret->zero = true;
        else if (ret->sign != '+')
            ret->sign = flag;
    }
    int width = digits(s, at, WIDTH_MAX);
    if (one_of(s, at, ".")) {
        int precision = digits(s, at, PRECISION_MAX);
        ret->precision = precision == -1 ? 0 : precision;
    }
    ret->width = (size_t)MAX_OF(width, 0);
    ret->type = one_of(s, at, "srdixf%");
    if (ret->type && width != -2 && ret->precision != -2)
        return true;
    tmpl_fail(run, "format: \"%%%.*s\" is not one of the fields that templates may use",
              SLICE_ARGS(slice_sub(s, from, 40)));
    return false;
}

/* A number by a field: d and i drop the fraction, as in Python. */
static void put_older_number(struct tmpl_run *run, struct tmpl_text *t, struct spec *spec,
                             const struct tmpl_value *v)
{
    double f;
    struct tmpl_value whole = *v;
    if (!tmpl_number(v, &f)) {
        tmpl_fail(run, "format: %%%c needs a number, not '%s'", spec->type, tmpl_type_name(v));
        return;
    }
    if (spec->type != 'f' && spec->type != 'x' && v->type == TMPL_FLOAT && fabs(f) < 9e18)
        whole = tmpl_int((int64_t)f);
    if (spec->type == 'i')
        spec->type = 'd';
    if (spec->zero && spec->align == '<')
        spec->zero = false;
    if (spec->zero) {
        spec->fill = SLICE("0");
        spec->align = 0;
    }
    put_number(run, t, spec, &whole);
}

static void put_older(struct tmpl_run *run, struct tmpl_text *t, struct spec *spec,
                      const struct tmpl_value *v)
{
    ASSERT(spec->type);
    if (spec->type != 's' && spec->type != 'r') {
        put_older_number(run, t, spec, v);
        return;
    }
    struct tmpl_text own;
    tmpl_text_begin(run, &own);
    if (spec->type == 'r')
        tmpl_print_repr(&own, v);
    else
        tmpl_print(&own, v);
    struct slice s = tmpl_text_end(run, &own).s;
    spec->type = 's';
    spec->sign = 0;
    if (!run->error)
        put_string(run, t, spec, s);
}

struct tmpl_value tmpl_filter_format(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    struct slice s = tmpl_to_string(run, &v).s, key;
    struct spec spec;
    struct tmpl_text t;
    uint32_t used = 0, named = 0;
    tmpl_text_begin(run, &t);
    for (uint32_t i = 0; i < args->count; i++)
        named += args->names[i].ptr != NULL;
    if (named > 0 && named < args->count)
        return tmpl_fail(run, "format takes either positional or keyword arguments");
    for (size_t at = 0, end; at < s.len && !run->error && !t.failed && tmpl_step(run, 1);) {
        if (!tmpl_work(run, tmpl_cost_find(s.len - at)))
            break;
        end = MIN_OF(slice_find(s, SLICE("%"), at), s.len);
        tmpl_text_put(&t, slice_sub(s, at, end - at));
        at = end + 1;
        if (end == s.len || !parse_older(run, s, &at, &spec, &key))
            break;
        if (spec.type == '%') {
            tmpl_text_putc(&t, '%');
            continue;
        }
        const struct tmpl_value *one = NULL;
        for (uint32_t i = 0; named && i < args->count && !one; i++)
            one = slice_eq(args->names[i], key) ? &args->items[i] : NULL;
        if (!named && !key.ptr && used < args->count)
            one = &args->items[used++];
        ASSERT(used <= args->count);
        if (!one)
            return tmpl_fail(run, "format: a field has no argument");
        put_older(run, &t, &spec, one);
    }
    if (!run->error && !named && used < args->count)
        return tmpl_fail(run, "format: not all arguments have a field");
    return run->error ? tmpl_none() : tmpl_text_end(run, &t);
}
