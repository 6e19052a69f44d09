/* rx_parse.c - patterns: alternatives, groups, repetition, anchors.
 *
 * An anchor stands at an end of the text, or its alternative matches nothing. So each part of a pattern is
 * four expressions, by whether it must begin where the text begins and end where it ends. Only the first term
 * of an alternative can need the first, and only the last the second. Anything else is refused.
 *
 * A look-ahead where the text begins is a condition on the whole text, so it is an intersection. */
#include "rx/rx_parse.h"

#include "rx/rx_parse_state.h"
#include "rx/rx_property.h"
#include "rx/rx_store.h"

#include "base/check.h"
#include "base/err.h"

#include <errno.h>

enum { DEPTH_MAX = 60, AT_START = 2, AT_END = 1 };

struct part {
    rx_id of[4]; /* by AT_START | AT_END */
};

static struct part parse_alternatives(struct rx_parser *p);

static rx_id encode(struct rx_parser *p, const struct rx_set *set)
{
    if (p->opts->encode)
        return p->opts->encode(p->opts->encode_arg, p->store, set->at, set->count);
    return rx_codepoints(p->store, set->at, set->count);
}

static struct part plain(rx_id x)
{
    return (struct part){{x, RX_NONE, RX_NONE, RX_NONE}};
}

static bool is_anchored(const struct part *part, int end)
{
    return part->of[end] != RX_NONE || part->of[AT_START | AT_END] != RX_NONE;
}

/* ---- Atoms ---- */

/* After (: past ?: or ?s: or a name. False: not supported. */
static bool group_head(struct rx_parser *p)
{
    static const struct {
        const char *head, *what;
    } refused[] = {{"?=", "look-ahead is supported at the beginning only, after ^"},
                   {"?!", "negative look-ahead is supported at the beginning only, after ^"},
                   {"?<=", "look-behind is not supported"},
                   {"?<!", "negative look-behind is not supported"}};
    struct slice left = slice_sub(p->text, p->at, p->text.len);
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        if (slice_starts(left, slice_of(refused[i].head)))
            return rx_parse_fail(p, p->at - 1, refused[i].what);
    if (!slice_starts(left, SLICE("?")))
        return true;
    if (slice_starts(left, SLICE("?:"))) {
        p->at += 2;
        return true;
    }
    if (slice_starts(left, SLICE("?s:"))) {
        p->at += 3;
        p->dot_all = true;
        return true;
    }
    size_t end = slice_starts(left, SLICE("?<")) ? slice_find(p->text, SLICE(">"), p->at) : SIZE_MAX;
    if (end == SIZE_MAX || end == p->at + 2)
        return rx_parse_fail(p, p->at - 1, "this kind of group is not supported");
    p->at = end + 1;
    return true;
}

static struct part group(struct rx_parser *p)
{
    size_t start = p->at - 1;
    struct part made = plain(RX_NONE);
    bool dot_all = p->dot_all;
    if (++p->depth > DEPTH_MAX)
        rx_parse_fail(p, start, "groups are nested more than 60 deep");
    else if (group_head(p))
        made = parse_alternatives(p);
    if (p->result == 0 && !rx_parse_next_is(p, ')'))
        rx_parse_fail(p, start, "a group has no closing parenthesis");
    p->at++;
    p->depth--;
    p->dot_all = dot_all;
    return made;
}

/* Any character, but no line's end outside of (?s:...). */
static bool any_character(struct rx_parser *p, struct rx_set *set)
{
    struct arena *a = p->store->arena;
    bool ok = p->dot_all || (rx_set_add(a, set, '\n', '\n') && rx_set_add(a, set, '\r', '\r') &&
                             rx_set_add(a, set, 0x2028, 0x2029));
    return ok && rx_set_complement(a, set);
}

/* One character or class. */
static struct part character(struct rx_parser *p)
{
    struct rx_set set = {0};
    uint32_t code;
    bool many, ok;
    if (rx_parse_next_is(p, '\\')) {
        p->at++;
        ok = rx_parse_escape(p, false, &set, &many);
    } else if (rx_parse_next_is(p, '[')) {
        p->at++;
        ok = rx_parse_class(p, &set);
    } else if (rx_parse_next_is(p, '.')) {
        p->at++;
        ok = any_character(p, &set);
    } else
        ok = rx_parse_code(p, &code) && rx_set_add(p->store->arena, &set, code, code);
    if (!ok && p->result == 0)
        p->result = -ENOMEM;
    return plain(ok ? encode(p, &set) : (rx_id)RX_NONE);
}

/* ---- Repetition ---- */

/* Digits; more than the limits all mean too many. */
static bool number(struct rx_parser *p, uint32_t *ret)
{
    size_t start = p->at;
    uint64_t made = 0;
    for (; p->at < p->text.len && p->text.ptr[p->at] >= '0' && p->text.ptr[p->at] <= '9'; p->at++)
        made = MIN_OF(made * 10 + (uint64_t)(p->text.ptr[p->at] - '0'), (uint64_t)RX_UNBOUNDED - 1);
    *ret = (uint32_t)made;
    return p->at > start;
}

/* {m}, {m,} or {m,n}; anything else in braces is text, and nothing is passed. */
static bool braces(struct rx_parser *p, uint32_t *min, uint32_t *max)
{
    ASSERT(rx_parse_next_is(p, '{'));
    size_t start = p->at++;
    bool ok = number(p, min);
    *max = *min;
    if (ok && rx_parse_next_is(p, ',')) {
        p->at++;
        if (!number(p, max))
            *max = RX_UNBOUNDED;
    }
    ok = ok && rx_parse_next_is(p, '}');
    p->at = ok ? p->at + 1 : start;
    return ok;
}

static bool quantifier(struct rx_parser *p, uint32_t *min, uint32_t *max)
{
    *min = 0;
    *max = RX_UNBOUNDED;
    char c = p->at < p->text.len ? p->text.ptr[p->at] : 0;
    if (c == '{')
        return braces(p, min, max);
    if (c != '*' && c != '+' && c != '?')
        return false;
    p->at++;
    if (c == '+')
        *min = 1;
    if (c == '?')
        *max = 1;
    return true;
}

static struct part repeat(struct rx_parser *p, struct part one, bool is_group)
{
    size_t start = p->at;
    uint32_t min, max, most = is_group ? RX_GROUP_REPEAT_MAX : RX_CHAR_REPEAT_MAX;
    if (p->result || !quantifier(p, &min, &max))
        return one;
    p->at += rx_parse_next_is(p, '?');
    if (is_anchored(&one, AT_START) || is_anchored(&one, AT_END))
        rx_parse_fail(p, start, "an anchor cannot be repeated");
    else if (min > most || (max != RX_UNBOUNDED && max > most))
        rx_parse_fail(p, start,
                      is_group ? "a group may be repeated 1000 times at most"
                               : "a character may be repeated 1000000 times at most");
    else if (min > max)
        rx_parse_fail(p, start, "the numbers of a repetition are out of order");
    size_t next = p->at;
    uint32_t again[2];
    if (p->result == 0 && quantifier(p, &again[0], &again[1]))
        rx_parse_fail(p, next, "there is nothing to repeat");
    return p->result ? one : plain(rx_repeat(p->store, one.of[0], min, max));
}

/* ---- Alternatives ---- */

static struct part term(struct rx_parser *p)
{
    ASSERT(p->at < p->text.len);
    char c = p->text.ptr[p->at];
    size_t start = p->at;
    if (c == '^' || c == '$') {
        struct part anchor = plain(RX_NONE);
        p->at++;
        anchor.of[c == '^' ? AT_START : AT_END] = RX_EMPTY;
        return repeat(p, anchor, true);
    }
    if (c == '*' || c == '+' || c == '?') {
        rx_parse_fail(p, start, "there is nothing to repeat");
        return plain(RX_NONE);
    }
    p->at += c == '(';
    return c == '(' ? repeat(p, group(p), true) : repeat(p, character(p), false);
}

/* All texts. */
static rx_id anything(struct rx_parser *p)
{
    struct rx_range all[] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}};
    struct rx_set set = {.at = all, .count = 2};
    return rx_repeat(p->store, encode(p, &set), 0, RX_UNBOUNDED);
}

struct alternative {
    struct part head, tail; /* the first term if it needs the start, the last if it needs the end */
    bool has_head, has_tail;
    uint32_t from; /* the terms between, on the store's stack */
    bool looks;
    rx_id seen; /* texts that its look-aheads demand of the whole text */
};

/* A look-ahead stands here, where the text begins. */
static bool at_look_ahead(const struct rx_parser *p, const struct alternative *a)
{
    struct slice left = slice_sub(p->text, p->at, p->text.len);
    const rx_id *head = a->head.of;
    bool anchored = a->has_head && !a->has_tail && head[AT_START] == RX_EMPTY && head[0] == RX_NONE &&
                    head[AT_END] == RX_NONE && head[AT_START | AT_END] == RX_NONE;
    return anchored && p->store->list_count == a->from && p->depth == 0 && p->opts->search &&
           (slice_starts(left, SLICE("(?=")) || slice_starts(left, SLICE("(?!")));
}

static void look_ahead(struct rx_parser *p, struct alternative *a)
{
    ASSERT(p->at + 2 < p->text.len);
    struct rx_store *s = p->store;
    size_t start = p->at;
    bool negative = p->text.ptr[start + 2] == '!';
    uint32_t again[2];
    p->at += 3;
    p->depth++;
    struct part x = parse_alternatives(p);
    p->depth--;
    if (p->result == 0 && !rx_parse_next_is(p, ')'))
        rx_parse_fail(p, start, "a group has no closing parenthesis");
    p->at++;
    if (p->result == 0 && quantifier(p, &again[0], &again[1]))
        rx_parse_fail(p, start, "a look-ahead cannot be repeated");
    if (p->result)
        return;
    rx_id open = rx_cat(s, rx_or(s, x.of[0], x.of[AT_START]), anything(p));
    rx_id seen = rx_or(s, open, rx_or(s, x.of[AT_END], x.of[AT_START | AT_END]));
    a->seen = rx_and(s, a->seen, negative ? rx_not(s, seen) : seen);
    a->looks = true;
}

static bool add_term(struct rx_parser *p, struct alternative *a, struct part t, size_t start)
{
    bool first = !a->has_head && p->store->list_count == a->from;
    if (a->has_tail)
        return rx_parse_fail(p, start, "'$' is supported at the end of an alternative only");
    if (is_anchored(&t, AT_START)) {
        if (!first)
            return rx_parse_fail(p, start, "'^' is supported at the beginning of an alternative only");
        a->head = t;
        a->has_head = true;
        a->has_tail = is_anchored(&t, AT_END);
        return true;
    }
    if (is_anchored(&t, AT_END)) {
        a->tail = t;
        a->has_tail = true;
        return true;
    }
    return rx_push(p->store, t.of[0]);
}

static struct part join(struct rx_parser *p, const struct alternative *a)
{
    ASSERT(p->store->list_count >= a->from);
    struct rx_store *s = p->store;
    rx_id middle = RX_EMPTY;
    /* A head that needs both ends is the whole alternative. */
    if (a->has_head && a->has_tail && is_anchored(&a->head, AT_END))
        return a->head;
    for (uint32_t i = s->list_count; i-- > a->from;)
        middle = rx_cat(s, s->list[i], middle);
    struct part made;
    for (int ends = 0; ends < 4; ends++)
        made.of[ends] = rx_cat(s, a->head.of[ends & AT_START], rx_cat(s, middle, a->tail.of[ends & AT_END]));
    return made;
}

/* The alternative's whole texts that its look-aheads allow. */
static struct part with_look(struct rx_parser *p, const struct alternative *a, struct part made)
{
    struct rx_store *s = p->store;
    rx_id open = rx_cat(s, made.of[AT_START], anything(p));
    rx_id all = rx_or(s, open, made.of[AT_START | AT_END]);
    struct part ret = plain(RX_NONE);
    ret.of[AT_START | AT_END] = rx_and(s, all, a->seen);
    return ret;
}

static struct part parse_alternative(struct rx_parser *p)
{
    struct alternative a = {
        .head = plain(RX_EMPTY), .tail = plain(RX_EMPTY), .from = p->store->list_count, .seen = RX_ALL};
    while (p->result == 0 && p->at < p->text.len && !rx_parse_next_is(p, '|') && !rx_parse_next_is(p, ')')) {
        size_t start = p->at;
        if (at_look_ahead(p, &a)) {
            look_ahead(p, &a);
            continue;
        }
        struct part t = term(p);
        if (p->result == 0 && !add_term(p, &a, t, start))
            break;
        if (rx_failed(p->store))
            p->result = -E2BIG;
    }
    struct part made = p->result == 0 ? join(p, &a) : plain(RX_NONE);
    if (p->result == 0 && a.looks)
        made = with_look(p, &a, made);
    p->store->list_count = a.from;
    return made;
}

/* Every alternative leaves its four expressions on the stack; each of the four is united at the end. */
static struct part parse_alternatives(struct rx_parser *p)
{
    struct rx_store *s = p->store;
    uint32_t from = s->list_count, count = 0;
    for (bool more = true; more && p->result == 0; count++) {
        struct part one = parse_alternative(p);
        for (int i = 0; i < 4 && p->result == 0; i++)
            if (!rx_push(s, one.of[i]))
                p->result = -E2BIG;
        more = rx_parse_next_is(p, '|');
        p->at += more;
    }
    ASSERT(p->result || s->list_count == from + 4 * count);
    struct part made = plain(RX_NONE);
    for (uint32_t i = 0; i < 4 && p->result == 0; i++) {
        uint32_t list = s->list_count;
        for (uint32_t k = 0; k < count && p->result == 0; k++)
            if (!rx_push_list(s, RX_K_OR, s->list[from + 4 * k + i]))
                p->result = -E2BIG;
        made.of[i] = rx_or_list(s, list);
    }
    s->list_count = from;
    return made;
}

/* ---- The whole ---- */

int rx_parse(struct rx_store *s, struct slice pattern, const struct rx_parse_opts *opts, rx_id *ret,
             struct err *e)
{
    static const struct rx_parse_opts none;
    struct rx_parser p = {.store = s, .text = pattern, .opts = opts ? opts : &none, .e = e};
    if (pattern.len > RX_PATTERN_BYTES_MAX)
        return err_set(e, -E2BIG, "the pattern has %zu bytes; %zu are allowed", pattern.len,
                       RX_PATTERN_BYTES_MAX);
    struct part whole = parse_alternatives(&p);
    if (p.result == 0 && p.at < pattern.len)
        rx_parse_fail(&p, p.at, "a closing parenthesis has no opening one");
    rx_id around = p.result == 0 && p.opts->search ? anything(&p) : (rx_id)RX_EMPTY;
    rx_id made = RX_NONE;
    for (int i = 0; i < 4 && p.result == 0; i++) {
        rx_id one = i & AT_START ? whole.of[i] : rx_cat(s, around, whole.of[i]);
        made = rx_or(s, made, i & AT_END ? one : rx_cat(s, one, around));
    }
    ASSERT(p.depth == 0);
    if (rx_failed(s) && p.result != -EINVAL && s->stopped)
        return err_set(e, s->stopped,
                       s->stopped == -ETIME ? "the pattern takes too long to compile"
                                            : "the compilation was cancelled");
    if (rx_failed(s) && p.result != -EINVAL)
        return s->too_large || arena_overran(s->arena) ? err_set(e, -E2BIG, "the pattern is too large")
                                                       : err_set(e, -ENOMEM, "no memory for the pattern");
    if (p.result == 0)
        *ret = made;
    return p.result;
}
