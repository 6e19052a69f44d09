/* jinja_filters.c - the table of filters, and those that look at one value. */
#include "text/jinja_filters.h"

#include "base/check.h"
#include "text/jinja_args.h"
#include "text/jinja_exec.h"
#include "text/jinja_lex.h"
#include "text/jinja_strings.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- text ---- */

static int filter_case(struct jinja_run *r, struct jinja_call *c, enum jinja_case to, struct jinja_value *ret)
{
    struct jinja_value text;
    if (jinja_to_str(r, &c->self, &text) < 0)
        return r->error;
    return jinja_change_case(r, jinja_slice(&text), to, ret);
}

static int filter_lower(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return filter_case(r, c, JINJA_LOWER, ret);
}

static int filter_upper(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return filter_case(r, c, JINJA_UPPER, ret);
}

static int filter_capitalize(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return filter_case(r, c, JINJA_CAPITALIZE, ret);
}

static int filter_title(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return filter_case(r, c, JINJA_TITLE_FILTER, ret);
}

static int filter_trim(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value text;
    if (jinja_to_str(r, &c->self, &text) < 0)
        return r->error;
    return jinja_strip(r, &text, &c->arg[0], JINJA_LEFT | JINJA_RIGHT, ret);
}

static int filter_string(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_to_str(r, &c->self, ret);
}

static int filter_safe(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value text;
    if (jinja_to_str(r, &c->self, &text) < 0 || jinja_str(r, jinja_slice(&text), ret) < 0)
        return r->error;
    ret->s->markup = true;
    return 0;
}

static int filter_escape(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    struct jinja_value text;
    if (c->self.kind == VALUE_STR && c->self.s->markup) {
        *ret = c->self;
        return 0;
    }
    if (jinja_to_str(r, &c->self, &text) < 0)
        return r->error;
    jinja_put_escaped(&t, jinja_slice(&text));
    if (jinja_text_value(&t, ret) < 0)
        return r->error;
    ret->s->markup = true;
    return 0;
}

static int filter_replace(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value text, old, new;
    int64_t max;
    if (jinja_to_str(r, &c->self, &text) < 0 || jinja_to_str(r, &c->arg[0], &old) < 0 ||
        jinja_to_str(r, &c->arg[1], &new) < 0 || jinja_arg_int(r, &c->arg[2], -1, &max) < 0)
        return r->error;
    return jinja_replace(r, jinja_slice(&text), jinja_slice(&old), jinja_slice(&new), max, ret);
}

static int filter_center(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value text;
    int64_t width;
    if (jinja_to_str(r, &c->self, &text) < 0 || jinja_arg_int(r, &c->arg[0], 80, &width) < 0)
        return r->error;
    return jinja_pad(r, &text, width, SLICE(" "), JINJA_LEFT | JINJA_RIGHT, ret);
}

/* The indentation of indent(): a text, or so many blanks. */
static int indentation(struct jinja_run *r, const struct jinja_value *v, int64_t absent,
                       struct jinja_value *ret)
{
    struct jinja_value none;
    int64_t width;
    if (v->kind == VALUE_STR) {
        *ret = *v;
        return 0;
    }
    if (jinja_arg_int(r, v, absent, &width) < 0 || jinja_str(r, SLICE(""), &none) < 0)
        return r->error;
    return jinja_pad(r, &none, width, SLICE(" "), JINJA_LEFT, ret);
}

/* (width, first, blank) */
static int filter_indent(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    struct jinja_value unit, lines;
    bool first = jinja_arg_bool(&c->arg[1], false), blank = jinja_arg_bool(&c->arg[2], false);
    if (c->self.kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, &c->self);
    if (c->self.kind != VALUE_STR)
        return jinja_fail(r, "unsupported operand type(s) for +=: '%s' and 'str'", jinja_type(&c->self));
    /* Jinja appends a line break before it splits, so that a last one shows as an empty line. */
    jinja_text_put(&t, jinja_slice(&c->self));
    jinja_text_putc(&t, '\n');
    if (indentation(r, &c->arg[0], 4, &unit) < 0 ||
        jinja_split_lines(r, (struct slice){t.ptr, t.len}, false, &lines) < 0)
        return r->error;
    struct jinja_text out = {.r = r};
    for (size_t i = 0; i < lines.l->len && !r->error; i++) {
        struct slice line = jinja_slice(&lines.l->items[i]);
        if (i > 0)
            jinja_text_putc(&out, '\n');
        if (i == 0 ? first : blank || line.len > 0)
            jinja_text_put(&out, jinja_slice(&unit));
        jinja_text_put(&out, line);
    }
    return jinja_text_value(&out, ret);
}

/* (length, killwords, end, leeway) */
static int filter_truncate(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value end, cut, bounds[3] = {{0}};
    int64_t length, leeway;
    if (jinja_arg_int(r, &c->arg[0], 255, &length) < 0 || jinja_arg_int(r, &c->arg[3], 5, &leeway) < 0)
        return r->error;
    if (c->self.kind != VALUE_STR)
        return jinja_fail(r, "truncate wants a str, not '%s'", jinja_type(&c->self));
    if (c->arg[2].kind == VALUE_STR)
        end = c->arg[2];
    else if (jinja_str(r, SLICE("..."), &end) < 0)
        return r->error;
    int64_t chars = (int64_t)jinja_chars(c->self.s), tail = (int64_t)jinja_chars(end.s);
    if (length < tail || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX)
        return jinja_fail(r,
                          "truncate wants a length of at least that of its end, and a leeway of at least 0");
    if (chars <= length + leeway) {
        *ret = c->self;
        return 0;
    }
    bounds[1] = jinja_int(length - tail);
    if (jinja_cut(r, &c->self, bounds, &cut) < 0)
        return r->error;
    if (!jinja_arg_bool(&c->arg[1], false)) {
        size_t at = cut.s->len;
        while (at > 0 && cut.s->ptr[at - 1] != ' ')
            at--;
        if (at > 0 && jinja_str(r, (struct slice){cut.s->ptr, at - 1}, &cut) < 0)
            return r->error;
    }
    return jinja_str_join(r, cut.s, end.s, ret);
}

static int filter_wordcount(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value text;
    int64_t count = 0;
    bool inside = false;
    if (jinja_to_str(r, &c->self, &text) < 0 || jinja_spend_bytes(r, text.s->len) < 0)
        return r->error;
    for (size_t at = 0; at < text.s->len;) {
        uint32_t code;
        size_t n = utf8_next(text.s->ptr + at, &code);
        bool word = code >= 0x80 ? jinja_space_at(jinja_slice(&text), at) == 0
                                 : (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') ||
                                       (code >= 'a' && code <= 'z') || code == '_';
        count += word && !inside;
        inside = word;
        at += n;
    }
    *ret = jinja_int(count);
    return 0;
}

/* ---- numbers ---- */

/* A whole text as a number, as Python's int() and float() read it. */
static bool read_number(struct slice s, int64_t *i, double *d, bool *whole)
{
    char text[64];
    size_t len = 0, n;
    while (s.len > 0 && (n = jinja_space_at(s, 0)) > 0)
        s = slice_sub(s, n, s.len);
    while (s.len > 0 && (n = jinja_space_before(s, s.len)) > 0)
        s.len -= n;
    for (size_t k = 0; k < s.len; k++) {
        bool between = k > 0 && k + 1 < s.len && s.ptr[k - 1] != '_' && s.ptr[k + 1] != '_';
        if (s.ptr[k] == '_' && between)
            continue;
        if (len == sizeof(text) - 1 || !strchr("+-.eE0123456789", s.ptr[k]) || !s.ptr[k])
            return false;
        text[len++] = s.ptr[k];
    }
    text[len] = 0;
    char *end;
    errno = 0;
    *i = strtoll(text, &end, 10);
    *whole = len > 0 && !*end && errno == 0;
    *d = strtod(text, &end);
    return len > 0 && !*end;
}

/* (default, base) */
static int filter_int(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    int64_t i = 0, base;
    double d = 0;
    bool whole = false, read = false;
    if (c->self.kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, &c->self);
    if (jinja_arg_int(r, &c->arg[1], 10, &base) < 0)
        return r->error;
    if (base != 10)
        return jinja_fail(r, "int() reads base 10 only");
    if (jinja_as_int(&c->self, &i))
        read = whole = true;
    else if (c->self.kind == VALUE_FLOAT)
        read = (d = c->self.f, true);
    else if (c->self.kind == VALUE_STR)
        read = read_number(jinja_slice(&c->self), &i, &d, &whole);
    if (!whole && !(fabs(d) < 9223372036854774784.0))
        read = false;
    if (!read)
        *ret = c->arg[0].kind == VALUE_MISSING ? jinja_int(0) : c->arg[0];
    else
        *ret = jinja_int(whole ? i : (int64_t)d);
    return 0;
}

/* (default) */
static int filter_float(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    int64_t i;
    double d = 0;
    bool whole;
    if (c->self.kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, &c->self);
    bool read = jinja_as_float(&c->self, &d) ||
                (c->self.kind == VALUE_STR && read_number(jinja_slice(&c->self), &i, &d, &whole));
    *ret = read ? jinja_float(d) : c->arg[0].kind == VALUE_MISSING ? jinja_float(0) : c->arg[0];
    return 0;
}

static int filter_abs(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    int64_t i = 0;
    if (c->self.kind == VALUE_FLOAT) {
        *ret = jinja_float(fabs(c->self.f));
        return 0;
    }
    if (!jinja_as_int(&c->self, &i) || i >= 0) {
        *ret = jinja_int(i);
        return jinja_as_int(&c->self, &i) ? 0
               : c->self.kind == VALUE_UNDEFINED
                   ? jinja_fail_undefined(r, &c->self)
                   : jinja_fail(r, "bad operand type for abs(): '%s'", jinja_type(&c->self));
    }
    return jinja_negate(r, &c->self, ret);
}

/* (precision, method) */
static int filter_round(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    char text[400];
    struct slice method = SLICE("common");
    int64_t precision;
    double d;
    if (jinja_arg_int(r, &c->arg[0], 0, &precision) < 0 ||
        (c->arg[1].kind != VALUE_MISSING && jinja_arg_str(r, &c->arg[1], &method) < 0))
        return r->error;
    if (c->self.kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, &c->self);
    if (!jinja_as_float(&c->self, &d))
        return jinja_fail(r, "type %s doesn't define __round__ method", jinja_type(&c->self));
    if (precision < 0 || precision > 30)
        return jinja_fail(r, "round() wants a precision of 0 to 30");
    double scale = pow(10, (double)precision);
    if (slice_eq(method, SLICE("ceil")) || slice_eq(method, SLICE("floor"))) {
        *ret = jinja_float((*method.ptr == 'c' ? ceil(d * scale) : floor(d * scale)) / scale);
        return 0;
    }
    if (!slice_eq(method, SLICE("common")))
        return jinja_fail(r, "method must be common, ceil or floor");
    if (c->self.kind != VALUE_FLOAT) {
        *ret = c->self;
        return 0;
    }
    /* Correctly rounded, half to even of the exact binary value: what Python's round() does. */
    snprintf(text, sizeof(text), "%.*f", (int)precision, d);
    *ret = jinja_float(strtod(text, NULL));
    return 0;
}

/* ---- the rest ---- */

/* (default_value, boolean) */
static int filter_default(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    bool absent =
        c->self.kind == VALUE_UNDEFINED || (jinja_arg_bool(&c->arg[1], false) && !jinja_truth(&c->self));
    *ret = c->self;
    if (!absent)
        return 0;
    *ret = c->arg[0];
    return c->arg[0].kind == VALUE_MISSING ? jinja_str(r, SLICE(""), ret) : 0;
}

static int filter_attr(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct slice name;
    if (jinja_arg_str(r, &c->arg[0], &name) < 0)
        return r->error;
    if (c->self.kind != VALUE_DICT)
        return jinja_attribute(r, &c->self, name, ret);
    /* Members only, never items. */
    bool unsafe;
    if (jinja_method_find(VALUE_DICT, name, &unsafe) || unsafe)
        return jinja_attribute(r, &c->self, name, ret);
    return jinja_undefined(r, UNDEFINED_ATTRIBUTE, name, "dict", ret);
}

static int separators(struct jinja_run *r, const struct jinja_value *v, struct jinja_json_opts *opts)
{
    struct jinja_value *items;
    size_t len;
    if (v->kind == VALUE_MISSING || v->kind == VALUE_NONE)
        return 0;
    if (jinja_iterate(r, v, &items, &len) < 0)
        return r->error;
    if (len != 2 || items[0].kind != VALUE_STR || items[1].kind != VALUE_STR)
        return jinja_fail(r, "separators are two texts");
    opts->item_separator = jinja_slice(&items[0]);
    opts->key_separator = jinja_slice(&items[1]);
    return 0;
}

/* (ensure_ascii, indent, separators, sort_keys), as transformers has it */
static int filter_tojson(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    struct jinja_value unit;
    struct jinja_json_opts opts = {.ensure_ascii = jinja_arg_bool(&c->arg[0], false),
                                   .sort_keys = jinja_arg_bool(&c->arg[3], false),
                                   .item_separator = SLICE(", "),
                                   .key_separator = SLICE(": ")};
    if (c->arg[1].kind != VALUE_MISSING && c->arg[1].kind != VALUE_NONE) {
        if (indentation(r, &c->arg[1], 0, &unit) < 0)
            return r->error;
        opts.indent = &unit;
        opts.item_separator = SLICE(",");
    }
    if (separators(r, &c->arg[2], &opts) < 0 || jinja_put_json(&t, &c->self, &opts) < 0)
        return r->error;
    return jinja_text_value(&t, ret);
}

/* Parsed JSON as a value of the rendering, to the last level: the parser's tree does not outlive this. */
static int copy_json(struct jinja_run *r, const json_t *json, struct jinja_value *ret);

static int copy_json_parts(struct jinja_run *r, const json_t *json, struct jinja_value *ret)
{
    struct jinja_value key, value;
    if (json_is_string(json))
        return jinja_str_copy(r, (struct slice){json_string_value(json), json_string_length(json)}, ret);
    if (json_is_array(json)) {
        if (jinja_list(r, VALUE_LIST, json_array_size(json), ret) < 0)
            return r->error;
        for (size_t i = 0; i < ret->l->len; i++)
            if (copy_json(r, json_array_get(json, i), &ret->l->items[i]) < 0)
                return r->error;
        return 0;
    }
    if (!json_is_object(json))
        return jinja_json(r, json, ret);
    if (jinja_dict(r, VALUE_DICT, json_object_size(json), ret) < 0)
        return r->error;
    json_t *object = (json_t *)json;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        struct slice name = {json_object_iter_key(it), json_object_iter_key_len(it)};
        if (jinja_str_copy(r, name, &key) < 0 || copy_json(r, json_object_iter_value(it), &value) < 0 ||
            jinja_dict_put(r, ret, &key, &value) < 0)
            return r->error;
    }
    return 0;
}

static int copy_json(struct jinja_run *r, const json_t *json, struct jinja_value *ret)
{
    if (jinja_enter(r) == 0 && jinja_spend(r, 1) == 0)
        copy_json_parts(r, json, ret);
    jinja_leave(r);
    return r->error;
}

static int filter_from_json(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    json_error_t where;
    struct slice text;
    if (jinja_arg_str(r, &c->self, &text) < 0 || jinja_spend(r, text.len / 8) < 0)
        return r->error;
    /* jansson's tree is some 20 times its text at worst, and gone at the end of this. */
    if (text.len > r->limits.memory_bytes_max / 32)
        return jinja_fail(r, "from_json: %zu bytes are too many", text.len);
    json_t *root = json_loadb(text.ptr, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    if (!root)
        return jinja_fail(r, "from_json: %s", where.text);
    copy_json(r, root, ret);
    json_decref(root);
    return r->error;
}

static const struct jinja_builtin filters[] = {
    {"abs", filter_abs, {0}, 0, false},
    {"attr", filter_attr, {"name"}, 1, false},
    {"batch", jinja_filter_batch, {"linecount", "fill_with"}, 1, false},
    {"capitalize", filter_capitalize, {0}, 0, false},
    {"center", filter_center, {"width"}, 0, false},
    {"count", jinja_filter_length, {0}, 0, false},
    {"d", filter_default, {"default_value", "boolean"}, 0, false},
    {"default", filter_default, {"default_value", "boolean"}, 0, false},
    {"dictsort", jinja_filter_dictsort, {"case_sensitive", "by", "reverse"}, 0, false},
    {"e", filter_escape, {0}, 0, false},
    {"escape", filter_escape, {0}, 0, false},
    {"first", jinja_filter_first, {0}, 0, false},
    {"float", filter_float, {"default"}, 0, false},
    {"from_json", filter_from_json, {0}, 0, false},
    {"indent", filter_indent, {"width", "first", "blank"}, 0, false},
    {"int", filter_int, {"default", "base"}, 0, false},
    {"items", jinja_filter_items, {0}, 0, false},
    {"join", jinja_filter_join, {"d", "attribute"}, 0, false},
    {"last", jinja_filter_last, {0}, 0, false},
    {"length", jinja_filter_length, {0}, 0, false},
    {"list", jinja_filter_list, {0}, 0, false},
    {"lower", filter_lower, {0}, 0, false},
    {"map", jinja_filter_map, {0}, 0, true},
    {"max", jinja_filter_max, {"case_sensitive", "attribute"}, 0, false},
    {"min", jinja_filter_min, {"case_sensitive", "attribute"}, 0, false},
    {"reject", jinja_filter_reject, {0}, 0, true},
    {"rejectattr", jinja_filter_rejectattr, {0}, 0, true},
    {"replace", filter_replace, {"old", "new", "count"}, 2, false},
    {"reverse", jinja_filter_reverse, {0}, 0, false},
    {"round", filter_round, {"precision", "method"}, 0, false},
    {"safe", filter_safe, {0}, 0, false},
    {"select", jinja_filter_select, {0}, 0, true},
    {"selectattr", jinja_filter_selectattr, {0}, 0, true},
    {"sort", jinja_filter_sort, {"reverse", "case_sensitive", "attribute"}, 0, false},
    {"string", filter_string, {0}, 0, false},
    {"sum", jinja_filter_sum, {"attribute", "start"}, 0, false},
    {"title", filter_title, {0}, 0, false},
    {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, false},
    {"trim", filter_trim, {"chars"}, 0, false},
    {"truncate", filter_truncate, {"length", "killwords", "end", "leeway"}, 0, false},
    {"unique", jinja_filter_unique, {"case_sensitive", "attribute"}, 0, false},
    {"upper", filter_upper, {0}, 0, false},
    {"wordcount", filter_wordcount, {0}, 0, false},
};

const struct jinja_builtin *jinja_filter_find(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(filters); i++)
        if (slice_eq(slice_of(filters[i].name), name))
            return &filters[i];
    return NULL;
}
