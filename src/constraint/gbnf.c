#include "constraint/gbnf.h"

#include "constraint/front_text.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

#define CLASS_MAX 512 /* ranges of one class */

static struct expr alternatives(struct front_text *f, bool nested);

/* ---- white space ---- */

static void skip_comment(struct front_text *f)
{
    while (f->at < f->end && *f->at != '\n' && *f->at != '\r')
        f->at++;
}

static void skip(struct front_text *f, bool lines)
{
    for (; f->at < f->end; f->at++) {
        if (*f->at == '#')
            skip_comment(f);
        if (f->at == f->end)
            return;
        if (*f->at == '\n' && lines)
            f->line++;
        else if (*f->at != ' ' && *f->at != '\t' && !(*f->at == '\r' && lines))
            return;
    }
}

/* Over line ends, if the next line goes on with |. */
static void skip_to_bar(struct front_text *f)
{
    const char *at = f->at;
    uint32_t line = f->line;
    skip(f, true);
    if (!front_text_has(f, '|')) {
        f->at = at;
        f->line = line;
    }
}

/* ---- characters ---- */

static uint32_t character(struct front_text *f)
{
    uint32_t c = front_text_character(f);
    return c == '\\' ? front_text_escape(f, "\\\"[]-^/") : c;
}

static rx_id one(struct front_text *f, uint32_t code)
{
    struct rx_range r = {code, code};
    return rx_codepoints(grammar_rx(f->b), &r, 1);
}

static struct expr literal(struct front_text *f)
{
    rx_id all = RX_EMPTY;
    while (!f->error && !front_text_has(f, '"'))
        all = rx_cat(grammar_rx(f->b), all, one(f, character(f)));
    f->at++;
    return expr_rx(all);
}

static int compare(const void *a, const void *b)
{
    const struct rx_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Sorts, joins what overlaps or touches, and leaves surrogates out. Returns how many are left. */
static uint32_t normalise(struct rx_range *r, uint32_t count)
{
    uint32_t kept = 0;
    qsort(r, count, sizeof(*r), compare);
    for (uint32_t i = 0; i < count; i++)
        if (kept && r[i].first <= r[kept - 1].last + 1)
            r[kept - 1].last = r[i].last > r[kept - 1].last ? r[i].last : r[kept - 1].last;
        else
            r[kept++] = r[i];
    return kept;
}

static rx_id complement(struct front_text *f, const struct rx_range *r, uint32_t count)
{
    static const struct rx_range all[] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}};
    struct rx_range left[CLASS_MAX + 4];
    uint32_t n = 0;
    for (int part = 0; part < 2; part++) {
        uint32_t from = all[part].first;
        for (uint32_t i = 0; i < count && from <= all[part].last; i++) {
            if (r[i].last < from)
                continue;
            if (r[i].first > all[part].last)
                break;
            if (r[i].first > from)
                left[n++] = (struct rx_range){from, r[i].first - 1};
            from = r[i].last + 1;
        }
        if (from <= all[part].last)
            left[n++] = (struct rx_range){from, all[part].last};
    }
    return n ? rx_codepoints(grammar_rx(f->b), left, n) : RX_NONE;
}

static rx_id within(struct front_text *f, const struct rx_range *r, uint32_t count)
{
    struct rx_store *s = grammar_rx(f->b);
    rx_id all = RX_NONE;
    for (uint32_t i = 0; i < count; i++) {
        struct rx_range low = {r[i].first, MIN_OF(r[i].last, 0xD7FFu)};
        struct rx_range high = {MAX_OF(r[i].first, 0xE000u), r[i].last};
        if (low.first <= low.last)
            all = rx_or(s, all, rx_codepoints(s, &low, 1));
        if (high.first <= high.last)
            all = rx_or(s, all, rx_codepoints(s, &high, 1));
    }
    return all;
}

static struct expr class_of(struct front_text *f)
{
    struct rx_range ranges[CLASS_MAX];
    uint32_t count = 0;
    bool negated = front_text_has(f, '^');
    f->at += negated;
    while (!f->error && !front_text_has(f, ']')) {
        struct rx_range r = {.first = character(f)};
        r.last = r.first;
        if (front_text_has(f, '-') && f->end - f->at > 1 && f->at[1] != ']') {
            f->at++;
            r.last = character(f);
        }
        if (r.last < r.first)
            front_text_fail(f, -EINVAL, "a range in [] ends before it begins");
        if (count == CLASS_MAX) {
            front_text_fail(f, -E2BIG, "[] has more than %d ranges", CLASS_MAX);
            break;
        }
        ranges[count++] = r;
    }
    f->at++;
    if (f->error)
        return expr_rx(RX_NONE);
    count = normalise(ranges, count);
    return expr_rx(negated ? complement(f, ranges, count) : within(f, ranges, count));
}

static struct expr any_character(struct front_text *f)
{
    return expr_rx(complement(f, NULL, 0));
}

/* ---- rules ---- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static struct slice name(struct front_text *f)
{
    const char *from = f->at;
    while (f->at < f->end && is_name(*f->at))
        f->at++;
    if (f->at == from)
        front_text_fail(f, -EINVAL, "a name is missing");
    return (struct slice){from, (size_t)(f->at - from)};
}

static struct expr group(struct front_text *f)
{
    if (++f->depth > FRONT_TEXT_DEPTH_MAX)
        front_text_fail(f, -E2BIG, "groups are nested more than %d deep", FRONT_TEXT_DEPTH_MAX);
    if (f->error)
        return expr_rx(RX_NONE);
    skip(f, true);
    struct expr p = alternatives(f, true);
    if (!front_text_has(f, ')'))
        front_text_fail(f, -EINVAL, "a ) is missing");
    f->at++;
    f->depth--;
    return p;
}

static struct expr reference(struct front_text *f)
{
    struct front_name *n = front_text_name(f, name(f));
    return n ? expr_sym(n->rule) : expr_rx(RX_NONE);
}

static struct expr element(struct front_text *f)
{
    char c = *f->at;
    if (c == '<' || c == '!') {
        front_text_fail(f, -ENOTSUP, "tokens as <name> are not supported");
        return expr_rx(RX_NONE);
    }
    if (is_name(c))
        return reference(f);
    f->at++;
    if (c == '"')
        return literal(f);
    if (c == '[')
        return class_of(f);
    if (c == '(')
        return group(f);
    if (c == '.')
        return any_character(f);
    f->at--;
    front_text_fail(f, -EINVAL, "%c is not expected here", c >= 0x20 && c < 0x7F ? c : '?');
    return expr_rx(RX_NONE);
}

static struct expr counted(struct front_text *f, struct expr p)
{
    f->at++;
    skip(f, true);
    uint32_t min = front_text_has(f, ',') ? 0 : front_text_number(f), max = min;
    skip(f, true);
    if (front_text_has(f, ',')) {
        f->at++;
        skip(f, true);
        max = front_text_has(f, '}') ? RX_UNBOUNDED : front_text_number(f);
        skip(f, true);
    }
    if (!front_text_has(f, '}') || max < min)
        front_text_fail(f, -EINVAL, "{} needs {m}, {m,} or {m,n} with m at most n");
    f->at++;
    return f->error ? p : expr_repeat(f->b, p, min, max);
}

static struct expr repeated(struct front_text *f, struct expr p)
{
    while (f->at < f->end && !f->error) {
        if (*f->at == '{') {
            p = counted(f, p);
            continue;
        }
        if (*f->at != '?' && *f->at != '*' && *f->at != '+')
            break;
        p = expr_repeat(f->b, p, *f->at == '+', *f->at == '?' ? 1 : RX_UNBOUNDED);
        f->at++;
    }
    return p;
}

static void sequence(struct front_text *f, struct front_sequence *row, bool nested)
{
    while (!f->error && f->at < f->end && *f->at != '|' && *f->at != ')' && *f->at != '\n' &&
           *f->at != '\r') {
        struct expr p = element(f);
        if (f->error)
            return;
        skip(f, nested);
        front_sequence_add(f, row, repeated(f, p));
        skip(f, nested);
    }
}

static struct expr alternatives(struct front_text *f, bool nested)
{
    struct front_alternatives ways = {0};
    for (;;) {
        struct front_sequence row = {0};
        sequence(f, &row, nested);
        front_alternatives_add(f, &ways, &row);
        skip_to_bar(f);
        if (f->error || !front_text_has(f, '|'))
            return front_alternatives_done(f, &ways);
        f->at++;
        skip(f, true);
    }
}

static void rule(struct front_text *f)
{
    struct front_name *n = front_text_name(f, name(f));
    skip(f, false);
    if (!n || f->error)
        return;
    if (f->end - f->at < 3 || memcmp(f->at, "::=", 3) != 0) {
        front_text_fail(f, -EINVAL, "::= is missing after %.*s", SLICE_ARGS(slice_sub(n->name, 0, 60)));
        return;
    }
    if (n->defined)
        front_text_fail(f, -EINVAL, "%.*s is defined twice", SLICE_ARGS(slice_sub(n->name, 0, 60)));
    n->defined = true;
    f->at += 3;
    skip(f, true);
    struct expr p = alternatives(f, false);
    if (f->error)
        return;
    sym_id s = p.regular && p.rx == RX_EMPTY ? 0 : expr_symbol(f->b, p);
    grammar_alternative(f->b, n->rule, &s, p.regular && p.rx == RX_EMPTY ? 0 : 1);
    if (f->at < f->end && *f->at != '\n' && *f->at != '\r')
        front_text_fail(f, -EINVAL, "the rule should end here");
}

static int finish(struct front_text *f, sym_id *ret)
{
    struct front_name *root = front_text_name(f, SLICE("root"));
    if (root && !root->defined)
        front_text_fail(f, -EINVAL, "there is no rule root");
    for (const struct front_name *n = f->first; n && !f->error; n = n->listed)
        if (!n->defined) {
            f->line = n->line;
            front_text_fail(f, -EINVAL, "there is no rule %.*s", SLICE_ARGS(slice_sub(n->name, 0, 60)));
        }
    if (!f->error)
        *ret = root->rule;
    return f->error;
}

int gbnf_compile(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                 struct err *e)
{
    struct front_text f;
    int r = front_text_open(&f, b, text, charge, "GBNF", e);
    if (r == 0) {
        skip(&f, true);
        while (f.at < f.end && !f.error && !grammar_builder_failed(b)) {
            rule(&f);
            skip(&f, true);
        }
        r = finish(&f, ret);
    }
    front_text_close(&f);
    return r;
}
