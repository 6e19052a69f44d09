/* tmpl_methods.c - methods of strings, dicts, lists and loops, as in Python and Jinja. */
#include "template/tmpl_methods.h"

#include "template/tmpl_eval.h"
#include "template/tmpl_strings.h"

#include "base/check.h"

#include <utf8proc.h>

/* Charges in addition to the bytes. */
#define PUT_UNITS 16

TMPL_BUILTIN(method_lstrip, tmpl_string(tmpl_strip(run, v.s, tmpl_arg(args, 0, "chars"), TMPL_STRIP_LEFT)))
TMPL_BUILTIN(method_rstrip, tmpl_string(tmpl_strip(run, v.s, tmpl_arg(args, 0, "chars"), TMPL_STRIP_RIGHT)))

/* startswith and endswith take a string or a tuple of them. */
static struct tmpl_value at_edge(struct tmpl_run *run, struct slice s, const struct tmpl_args *args,
                                 bool (*holds)(struct slice, struct slice))
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "prefix");
    if (v && v->type == TMPL_STRING)
        return tmpl_bool(tmpl_work(run, tmpl_cost_copy(v->s.len)) && holds(s, v->s));
    if (!v || v->type != TMPL_SEQ || v->seq != TMPL_SEQ_TUPLE)
        return tmpl_fail(run, "the argument must be a string or a tuple of strings");
    for (uint32_t i = 0; i < v->list->count; i++) {
        const struct tmpl_value *item = &v->list->items[i];
        if (!tmpl_work(run, PUT_UNITS + tmpl_cost_copy(MIN_OF(item->s.len, s.len))))
            break;
        if (item->type == TMPL_STRING && holds(s, item->s))
            return tmpl_bool(true);
    }
    return tmpl_bool(false);
}

TMPL_BUILTIN(method_startswith, at_edge(run, v.s, args, slice_starts))
TMPL_BUILTIN(method_endswith, at_edge(run, v.s, args, slice_ends))

static bool push_text(struct tmpl_run *run, struct tmpl_seq *l, struct slice s)
{
    bool ok = tmpl_step(run, 1) && tmpl_seq_push(run->a, l, tmpl_string(s));
    if (!ok)
        tmpl_fail_memory(run);
    return ok;
}

/* split() without a separator: at runs of blanks, none at the edges. */
static void split_blanks(struct tmpl_run *run, struct slice s, int64_t limit, struct tmpl_seq *l)
{
    s = tmpl_strip(run, s, NULL, TMPL_STRIP_LEFT);
    while (s.len && !run->error) {
        size_t end = 0;
        if (limit-- == 0) {
            push_text(run, l, tmpl_strip(run, s, NULL, TMPL_STRIP_RIGHT));
            return;
        }
        while (end < s.len) {
            size_t n = tmpl_edge_char(slice_sub(s, end, s.len), false);
            if (!tmpl_work(run, tmpl_cost_unicode(1)) || tmpl_is_blank(slice_sub(s, end, n)))
                break;
            end += n;
        }
        push_text(run, l, slice_sub(s, 0, end));
        s = tmpl_strip(run, slice_sub(s, end, s.len), NULL, TMPL_STRIP_LEFT);
    }
}

static struct tmpl_value method_split(struct tmpl_run *run, struct tmpl_value self,
                                      const struct tmpl_args *args)
{
    const struct tmpl_value *separator = tmpl_arg(args, 0, "sep"), *max = tmpl_arg(args, 1, "maxsplit");
    struct tmpl_seq *l = tmpl_seq_begin(run, 0);
    int64_t limit = -1;
    if (!l)
        return tmpl_none();
    if (max && !tmpl_integer(max, &limit))
        return tmpl_fail(run, "split takes an integer as its limit");
    if (!separator || separator->type == TMPL_NONE) {
        split_blanks(run, self.s, limit, l);
        return tmpl_list_of(run, l, TMPL_SEQ_LIST);
    }
    if (separator->type != TMPL_STRING || separator->s.len == 0)
        return tmpl_fail(run, "split needs a separator that is not empty");
    size_t from = 0, at;
    if (!tmpl_work(run, tmpl_cost_find(self.s.len) + tmpl_cost_copy(separator->s.len)))
        return tmpl_none();
    for (; limit != 0 && (at = slice_find(self.s, separator->s, from)) != SIZE_MAX; limit--) {
        if (!push_text(run, l, slice_sub(self.s, from, at - from)))
            break;
        from = at + separator->s.len;
    }
    push_text(run, l, slice_sub(self.s, from, self.s.len));
    return tmpl_list_of(run, l, TMPL_SEQ_LIST);
}

static struct tmpl_value method_rsplit(struct tmpl_run *run, struct tmpl_value self,
                                       const struct tmpl_args *args)
{
    const struct tmpl_value *separator = tmpl_arg(args, 0, "sep"), *max = tmpl_arg(args, 1, "maxsplit");
    int64_t limit = -1;
    if (!max || !tmpl_integer(max, &limit) || limit < 0)
        return method_split(run, self, args);
    struct tmpl_args once = {.count = 1, .items = {separator ? *separator : tmpl_none()}};
    struct tmpl_value all = method_split(run, self, &once);
    if (run->error || (int64_t)all.list->count <= limit + 1 || !separator || separator->type != TMPL_STRING)
        return all;
    /* The first parts become one again: they are adjacent in the text. */
    struct tmpl_seq *l = all.list;
    uint32_t joined = l->count - (uint32_t)limit;
    ASSERT(joined > 1);
    const struct slice last = l->items[joined - 1].s;
    l->items[0] = tmpl_string(slice_sub(self.s, 0, (size_t)(last.ptr + last.len - self.s.ptr)));
    memmove(&l->items[1], &l->items[joined], (size_t)limit * sizeof(*l->items));
    l->count = (uint32_t)limit + 1;
    return all;
}

static struct tmpl_value method_splitlines(struct tmpl_run *run, struct tmpl_value self,
                                           const struct tmpl_args *args)
{
    struct tmpl_seq *l = tmpl_seq_begin(run, 0);
    (void)args;
    if (!tmpl_work(run, tmpl_cost_chars(self.s.len)))
        return tmpl_none();
    for (size_t from = 0; l && from < self.s.len && !run->error;) {
        size_t end = from;
        while (end < self.s.len && self.s.ptr[end] != '\n' && self.s.ptr[end] != '\r')
            end++;
        push_text(run, l, slice_sub(self.s, from, end - from));
        from = end + (slice_starts(slice_sub(self.s, end, 2), SLICE("\r\n")) ? 2 : 1);
    }
    return tmpl_list_of(run, l, TMPL_SEQ_LIST);
}

/* removeprefix and removesuffix: the text without that edge, or unchanged. */
static struct tmpl_value without_edge(struct tmpl_run *run, struct slice s, const struct tmpl_args *args,
                                      bool front)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "prefix");
    if (!v || v->type != TMPL_STRING)
        return tmpl_fail(run, "the argument must be a string");
    if (!tmpl_work(run, tmpl_cost_copy(v->s.len)) || !(front ? slice_starts(s, v->s) : slice_ends(s, v->s)))
        return tmpl_string(s);
    return tmpl_string(slice_sub(s, front ? v->s.len : 0, s.len - v->s.len));
}

TMPL_BUILTIN(method_removeprefix, without_edge(run, v.s, args, true))
TMPL_BUILTIN(method_removesuffix, without_edge(run, v.s, args, false))

/* Where the argument stands first or last; SIZE_MAX: nowhere, or the run has ended. */
static size_t place_of(struct tmpl_run *run, struct slice s, const struct tmpl_args *args, bool last,
                       bool may_be_empty)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "sub");
    size_t found = SIZE_MAX;
    if (!v || v->type != TMPL_STRING || (v->s.len == 0 && !may_be_empty)) {
        tmpl_fail(run, "the argument must be a string%s", may_be_empty ? "" : " that is not empty");
        return SIZE_MAX;
    }
    if (!tmpl_work(run, tmpl_cost_find(s.len) + tmpl_cost_chars(s.len) + tmpl_cost_copy(v->s.len)))
        return SIZE_MAX;
    for (size_t at = 0; (at = slice_find(s, v->s, at)) != SIZE_MAX && tmpl_step(run, 1); at++) {
        found = at;
        if (!last)
            break;
    }
    return found;
}

/* Its index in characters; -1: nowhere. */
static int64_t index_of(struct tmpl_run *run, struct slice s, const struct tmpl_args *args, bool last)
{
    size_t at = place_of(run, s, args, last, !last);
    return at == SIZE_MAX ? -1 : (int64_t)tmpl_chars(slice_sub(s, 0, at));
}

TMPL_BUILTIN(method_find, tmpl_int(index_of(run, v.s, args, false)))
TMPL_BUILTIN(method_rfind, tmpl_int(index_of(run, v.s, args, true)))

static struct tmpl_value method_index(struct tmpl_run *run, struct tmpl_value self,
                                      const struct tmpl_args *args)
{
    int64_t i = index_of(run, self.s, args, false);
    return i < 0 ? tmpl_fail(run, "substring not found") : tmpl_int(i);
}

/* The text before the separator, the separator, and the text after it. */
static struct tmpl_value parted(struct tmpl_run *run, struct slice s, const struct tmpl_args *args, bool last)
{
    size_t at = place_of(run, s, args, last, false), len = at == SIZE_MAX ? 0 : args->items[0].s.len;
    struct tmpl_seq *l = run->error ? NULL : tmpl_seq_begin(run, 3);
    if (!l)
        return tmpl_none();
    ASSERT(len <= s.len);
    size_t cut = at != SIZE_MAX ? at : last ? 0 : s.len;
    l->items[0] = tmpl_string(slice_sub(s, 0, cut));
    l->items[1] = tmpl_string(slice_sub(s, cut, len));
    l->items[2] = tmpl_string(slice_sub(s, cut + len, s.len));
    l->count = 3;
    return tmpl_list_of(run, l, TMPL_SEQ_TUPLE);
}

TMPL_BUILTIN(method_partition, parted(run, v.s, args, false))
TMPL_BUILTIN(method_rpartition, parted(run, v.s, args, true))

/* Texts of one line of a table. */
#define WIDTH_MAX 4096

/* The text within a width: of the missing characters, `left` halves stand in front of it. */
static struct tmpl_value padded(struct tmpl_run *run, struct slice s, const struct tmpl_args *args, int left)
{
    const struct tmpl_value *width = tmpl_arg(args, 0, "width"), *fill = tmpl_arg(args, 1, "fillchar");
    struct slice with = fill && fill->type == TMPL_STRING ? fill->s : SLICE(" ");
    struct tmpl_text t;
    int64_t wanted;
    if (!width || !tmpl_integer(width, &wanted) || wanted > WIDTH_MAX || tmpl_chars(with) != 1)
        return tmpl_fail(run, "the width must be an integer of at most %d, with one character to fill it",
                         WIDTH_MAX);
    if (!tmpl_work(run, tmpl_cost_chars(s.len)))
        return tmpl_none();
    int64_t missing = MAX_OF(wanted - (int64_t)tmpl_chars(s), (int64_t)0);
    int64_t front = left == 1 ? missing / 2 + (missing & wanted & 1) : left * missing / 2;
    tmpl_text_begin(run, &t);
    for (int64_t i = 0; i < front; i++)
        tmpl_text_put(&t, with);
    tmpl_text_put(&t, s);
    for (int64_t i = front; i < missing; i++)
        tmpl_text_put(&t, with);
    return tmpl_text_end(run, &t);
}

struct tmpl_value tmpl_filter_center(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    return padded(run, tmpl_to_string(run, &v).s, args, 1);
}

TMPL_BUILTIN(method_ljust, padded(run, v.s, args, 0))
TMPL_BUILTIN(method_rjust, padded(run, v.s, args, 2))

/* Classes of characters, as bits. */
enum { LOWER = 1, UPPER = 2, LETTER = 4, DIGIT = 8, BLANK = 16 };

static unsigned classes_of(struct slice c)
{
    utf8proc_int32_t code;
    if (utf8proc_iterate((const utf8proc_uint8_t *)c.ptr, (utf8proc_ssize_t)c.len, &code) <= 0)
        return 0;
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LL:
        return LETTER | LOWER;
    case UTF8PROC_CATEGORY_LU:
        return LETTER | UPPER;
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return LETTER;
    case UTF8PROC_CATEGORY_ND:
        return DIGIT;
    default:
        return tmpl_is_blank(c) ? BLANK : 0;
    }
}

/* True if the text has a character, each is in a class of `all`, and one is in a class of `any`. */
static struct tmpl_value is_of(struct tmpl_run *run, struct slice s, unsigned all, unsigned any)
{
    unsigned seen = 0;
    for (size_t at = 0, n; at < s.len && tmpl_work(run, tmpl_cost_unicode(1)); at += n) {
        n = tmpl_edge_char(slice_sub(s, at, s.len), false);
        unsigned one = classes_of(slice_sub(s, at, n));
        if (all && !(one & all))
            return tmpl_bool(false);
        seen |= one;
    }
    return tmpl_bool(!(any & (LOWER | UPPER)) ? (seen & any) != 0 : (seen & (LOWER | UPPER)) == any);
}

TMPL_BUILTIN(method_isalnum, is_of(run, v.s, LETTER | DIGIT, LETTER | DIGIT))
TMPL_BUILTIN(method_isalpha, is_of(run, v.s, LETTER, LETTER))
TMPL_BUILTIN(method_isdigit, is_of(run, v.s, DIGIT, DIGIT))
TMPL_BUILTIN(method_islower, is_of(run, v.s, 0, LOWER))
TMPL_BUILTIN(method_isspace, is_of(run, v.s, BLANK, BLANK))
TMPL_BUILTIN(method_isupper, is_of(run, v.s, 0, UPPER))

static struct tmpl_value method_count(struct tmpl_run *run, struct tmpl_value self,
                                      const struct tmpl_args *args)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "sub");
    int64_t n = 0;
    if (!v || v->type != TMPL_STRING || v->s.len == 0)
        return tmpl_fail(run, "count takes a string that is not empty");
    if (!tmpl_work(run, tmpl_cost_find(self.s.len) + tmpl_cost_copy(v->s.len)))
        return tmpl_none();
    for (size_t at = 0; (at = slice_find(self.s, v->s, at)) != SIZE_MAX && tmpl_step(run, 1); at += v->s.len)
        n++;
    return tmpl_int(n);
}

static struct tmpl_value method_join(struct tmpl_run *run, struct tmpl_value self,
                                     const struct tmpl_args *args)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "iterable");
    struct tmpl_seq *l = v ? tmpl_iterate(run, v) : NULL;
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    if (!l)
        return tmpl_fail(run, "join takes a list");
    for (uint32_t i = 0; i < l->count && tmpl_step(run, 1); i++) {
        if (l->items[i].type != TMPL_STRING)
            return tmpl_fail(run, "join: item %u is not a string but '%s'", i, tmpl_type_name(&l->items[i]));
        if (i > 0)
            tmpl_text_put(&t, self.s);
        tmpl_text_put(&t, l->items[i].s);
    }
    return tmpl_text_end(run, &t);
}

static struct tmpl_value method_get(struct tmpl_run *run, struct tmpl_value self,
                                    const struct tmpl_args *args)
{
    const struct tmpl_value *key = tmpl_arg(args, 0, "key"), *otherwise = tmpl_arg(args, 1, "default");
    if (!key)
        return tmpl_fail(run, "get takes a key");
    const struct tmpl_value *v = tmpl_dict_get(run, self.dict, key);
    return v ? *v : otherwise ? *otherwise : tmpl_none();
}

/* The keys of a dict, or its values. */
static struct tmpl_value listed(struct tmpl_run *run, const struct tmpl_value *items, uint32_t count)
{
    struct tmpl_seq *l = tmpl_seq_begin(run, count);
    for (uint32_t i = 0; l && i < count && tmpl_step(run, 1); i++)
        l->items[l->count++] = items[i];
    ASSERT(!l || l->count <= l->capacity);
    return tmpl_list_of(run, l, TMPL_SEQ_LIST);
}

/* loop.cycle(): one of the arguments, in turn by iterations. */
static struct tmpl_value method_cycle(struct tmpl_run *run, struct tmpl_value self,
                                      const struct tmpl_args *args)
{
    ASSERT(self.type == TMPL_LOOP && self.loop);
    return args->count ? args->items[self.loop->index0 % args->count]
                       : tmpl_fail(run, "no items for cycling given");
}

/* loop.changed(): true if the arguments differ from the last call's. */
static struct tmpl_value method_changed(struct tmpl_run *run, struct tmpl_value self,
                                        const struct tmpl_args *args)
{
    ASSERT(self.type == TMPL_LOOP && self.loop);
    struct tmpl_value now = listed(run, args->items, args->count);
    bool changed = run->error || !self.loop->called || !tmpl_equal(run, &self.loop->last, &now);
    self.loop->last = now;
    self.loop->called = true;
    return tmpl_bool(changed);
}

static struct tmpl_value method_list_count(struct tmpl_run *run, struct tmpl_value self,
                                           const struct tmpl_args *args)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "value");
    int64_t n = 0;
    ASSERT(self.type == TMPL_SEQ);
    for (uint32_t i = 0; v && i < self.list->count && tmpl_step(run, 1); i++)
        n += tmpl_equal(run, &self.list->items[i], v);
    return v ? tmpl_int(n) : tmpl_fail(run, "count takes a value");
}

static struct tmpl_value method_list_index(struct tmpl_run *run, struct tmpl_value self,
                                           const struct tmpl_args *args)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "value");
    ASSERT(self.type == TMPL_SEQ);
    for (uint32_t i = 0; v && i < self.list->count && tmpl_step(run, 1); i++)
        if (tmpl_equal(run, &self.list->items[i], v))
            return tmpl_int(i);
    return tmpl_fail(run, "the value is not in the list");
}

TMPL_BUILTIN(method_items, tmpl_pairs(run, v.dict))
TMPL_BUILTIN(method_keys, listed(run, v.dict->keys, v.dict->count))
TMPL_BUILTIN(method_values, listed(run, v.dict->values, v.dict->count))
/* The immutable sandbox forbids methods that change a value. */
TMPL_BUILTIN(method_unsafe, tmpl_fail(run, "a template may not change a %s", tmpl_type_name(&v)))

#define FUNCTION(type, name, function) {type, function},
static const struct {
    enum tmpl_type type;
    tmpl_builtin_fn *call;
} methods[] = {TMPL_METHODS(FUNCTION)};

struct tmpl_value tmpl_method_call(struct tmpl_run *run, int method, const struct tmpl_value *self,
                                   const struct tmpl_args *args)
{
    ASSERT(method >= 0 && (size_t)method < COUNT_OF(methods) && methods[method].type == self->type);
    return tmpl_step(run, 1) ? methods[method].call(run, *self, args) : *self;
}
