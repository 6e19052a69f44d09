/* split_regex_parse.c - from the text of an expression to its items, by recursive descent.
 *
 * Items of one alternative lie in a row. A group's items are parsed first, so an alternative
 * collects its items on a small stack and copies them at its end. */
#include "tokenizer/split_regex.h"
#include "tokenizer/split_regex_program.h"

#include "base/check.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <limits.h>

enum { ITEMS_IN_ALT = 48, ALTS_IN_GROUP = 48, CLASS_PARTS = 128, OPERANDS = 8 };

struct parsing {
    struct slice s;
    size_t at;
    struct split_regex *r;
    struct err *e;
    uint32_t depth;
    bool any_case; /* within (?i: */
};

static int refuse(struct parsing *p, const char *what)
{
    return err_set(p->e, -EINVAL, "%s is not supported in the regex \"%.*s\" (byte %zu)", what,
                   SLICE_ARGS(p->r->source), p->at);
}

static bool ahead(const struct parsing *p, struct slice text)
{
    return slice_starts(slice_sub(p->s, p->at, text.len), text);
}

static bool take(struct parsing *p, struct slice text)
{
    if (!ahead(p, text))
        return false;
    p->at += text.len;
    return true;
}

static bool at_end(const struct parsing *p)
{
    return p->at == p->s.len;
}

static uint32_t take_char(struct parsing *p)
{
    ASSERT(!at_end(p));
    uint32_t code;
    p->at += utf8_next(p->s.ptr + p->at, &code);
    return code;
}

/* ---- tables ---- */

static int new_set(struct parsing *p, const struct regex_part *parts, uint32_t count, bool negated,
                   uint32_t *ret)
{
    ASSERT(p->r->set_count <= REGEX_SETS_MAX && p->r->part_count <= REGEX_PARTS_MAX);
    struct split_regex *r = p->r;
    if (r->set_count == REGEX_SETS_MAX || r->part_count + count > REGEX_PARTS_MAX)
        return refuse(p, "so many classes");
    struct regex_set *s = &r->sets[r->set_count];
    *s = (struct regex_set){.part = r->part_count, .part_count = count, .negated = negated};
    if (count)
        memcpy(r->parts + r->part_count, parts, count * sizeof(*parts));
    r->part_count += count;
    for (uint32_t code = 0; code < 0x80; code++)
        if (regex_set_has_slow(r, r->set_count, code))
            s->ascii[code / 64] |= 1ull << code % 64;
    *ret = r->set_count++;
    return 0;
}

static struct regex_part range(uint32_t first, uint32_t last)
{
    return (struct regex_part){.kind = PART_RANGE, .first = first, .last = last};
}

/* The characters beyond ASCII whose other case is s or k. */
static struct regex_part folded_sign(uint32_t letter)
{
    ASSERT((letter | 0x20) == 's' || (letter | 0x20) == 'k');
    return (letter | 0x20) == 's' ? range(0x17F, 0x17F) : range(0x212A, 0x212A);
}

/* ---- escapes and classes ---- */

/* The name within \p{...}. */
static int parse_property(struct parsing *p, struct regex_part *ret)
{
    if (!take(p, SLICE("{")))
        return refuse(p, "\\p without braces");
    bool negated = take(p, SLICE("^"));
    size_t close = slice_find(p->s, SLICE("}"), p->at);
    struct slice name = slice_sub(p->s, p->at, close == SIZE_MAX ? 0 : close - p->at);
    *ret = (struct regex_part){.kind = PART_CATEGORIES, .categories = unicode_categories_named(name)};
    ret->negated = negated;
    ret->script = unicode_script_named(name);
    if (ret->script != UNICODE_NO_SCRIPT)
        ret->kind = PART_SCRIPT;
    else if (ret->categories == 0)
        return refuse(p, "this property");
    ASSERT(close != SIZE_MAX);
    p->at = close + 1;
    return 0;
}

static int parse_hex(struct parsing *p, uint32_t digits, uint32_t *ret)
{
    bool braces = take(p, SLICE("{"));
    uint32_t code = 0, n = 0;
    for (int d; n < (braces ? 6u : digits) && p->at < p->s.len && (d = slice_hex(p->s.ptr[p->at])) >= 0;
         n++) {
        code = code << 4 | (uint32_t)d;
        p->at++;
    }
    if (n == 0 || (!braces && n < digits) || (braces && !take(p, SLICE("}"))) || code > 0x10FFFF)
        return refuse(p, "this number");
    *ret = code;
    return 0;
}

/* After a backslash. *single: one character, else a class. */
static int parse_escape(struct parsing *p, struct regex_part *ret, bool *single)
{
    static const struct {
        char letter;
        struct regex_part part;
    } classes[] = {{'s', {.kind = PART_SPACE}},
                   {'S', {.kind = PART_SPACE, .negated = true}},
                   {'w', {.kind = PART_WORD}},
                   {'W', {.kind = PART_WORD, .negated = true}}};
    static const char plain[] = "nrtfv", means[] = "\n\r\t\f\v";
    if (at_end(p))
        return refuse(p, "a backslash at the end");
    uint32_t code = take_char(p);
    *single = false;
    for (size_t i = 0; i < COUNT_OF(classes); i++) {
        if (code == (unsigned char)classes[i].letter) {
            *ret = classes[i].part;
            return 0;
        }
    }
    if (code == 'p' || code == 'P') {
        int r = parse_property(p, ret);
        if (r == 0)
            ret->negated ^= code == 'P';
        return r;
    }
    if (code == 'd' || code == 'D') {
        *ret = (struct regex_part){.kind = PART_CATEGORIES,
                                   .categories = unicode_categories_named(SLICE("Nd")),
                                   .negated = code == 'D'};
        return 0;
    }
    *single = true;
    int r = 0;
    const char *known = code < 0x80 && code ? strchr(plain, (int)code) : NULL;
    if (known)
        code = (unsigned char)means[known - plain];
    else if (code == 'x' || code == 'u')
        r = parse_hex(p, code == 'x' ? 2 : 4, &code);
    else if (code >= 0x80 || unicode_class(code) == UNICODE_LETTER || unicode_class(code) == UNICODE_NUMBER)
        return refuse(p, "this escape");
    *ret = range(code, code);
    return r;
}

static int parse_class(struct parsing *p, uint32_t *ret);

/* One member of a class: a character, a range, an escape, a class. */
static int parse_member(struct parsing *p, struct regex_part *ret)
{
    bool single = true;
    int r = 0;
    if (ahead(p, SLICE("[:")) || ahead(p, SLICE("&&")))
        return refuse(p, "[: or && in a class");
    if (take(p, SLICE("["))) {
        *ret = (struct regex_part){.kind = PART_SET};
        return parse_class(p, &ret->first);
    }
    if (take(p, SLICE("\\")))
        r = parse_escape(p, ret, &single);
    else
        *ret = range(take_char(p), 0), ret->last = ret->first;
    if (r < 0 || !single || !ahead(p, SLICE("-")) || slice_starts(slice_sub(p->s, p->at + 1, 1), SLICE("]")))
        return r;
    struct regex_part to;
    p->at++;
    if (at_end(p))
        return refuse(p, "a class without an end");
    if (take(p, SLICE("\\")))
        r = parse_escape(p, &to, &single);
    else
        to = range(take_char(p), 0);
    if (r == 0 && (!single || to.first < ret->first))
        return refuse(p, "this range");
    ret->last = to.first;
    return r;
}

/* The other case of each ASCII letter of a class within (?i:. */
static int fold_class(struct parsing *p, struct regex_part parts[CLASS_PARTS], uint32_t *count)
{
    for (uint32_t i = 0, n = *count; i < n; i++) {
        uint32_t code = parts[i].first;
        bool single = parts[i].kind == PART_RANGE && code == parts[i].last && code < 0x80;
        if (!single || *count + 2 > CLASS_PARTS)
            return refuse(p, "this class within (?i:");
        if (unicode_class(code) != UNICODE_LETTER)
            continue;
        parts[(*count)++] = range(code ^ 0x20, code ^ 0x20);
        if ((code | 0x20) == 's' || (code | 0x20) == 'k')
            parts[(*count)++] = folded_sign(code);
    }
    return 0;
}

/* The members up to "&&" or the end of the class, which a "]" at its start is not. */
static int parse_members(struct parsing *p, bool start, struct regex_part parts[CLASS_PARTS], uint32_t *count)
{
    int r = 0;
    *count = 0;
    while (r == 0 && !at_end(p) && !ahead(p, SLICE("&&")) &&
           (!ahead(p, SLICE("]")) || (start && *count == 0))) {
        if (*count == CLASS_PARTS)
            return refuse(p, "so long a class");
        r = parse_member(p, &parts[(*count)++]);
    }
    if (r == 0 && *count == 0)
        r = refuse(p, at_end(p) ? "a class without an end" : "an empty class");
    return r == 0 && p->any_case ? fold_class(p, parts, count) : r;
}

/* After "[". Characters that all operands of && have are those that are not without any of them. */
static int parse_class(struct parsing *p, uint32_t *ret)
{
    struct regex_part parts[CLASS_PARTS], without[OPERANDS];
    uint32_t count = 0, operands = 0;
    if (p->depth++ == REGEX_DEPTH_MAX)
        return refuse(p, "deeper nesting");
    bool negated = take(p, SLICE("^"));
    int r = parse_members(p, true, parts, &count);
    while (r == 0 && (operands || ahead(p, SLICE("&&")))) {
        if (operands == OPERANDS)
            return refuse(p, "so many &&");
        struct regex_part *o = &without[operands++];
        *o = (struct regex_part){.kind = PART_SET, .negated = true};
        r = new_set(p, parts, count, false, &o->first);
        if (r < 0 || !take(p, SLICE("&&")))
            break;
        r = parse_members(p, false, parts, &count);
    }
    if (r == 0 && !take(p, SLICE("]")))
        r = refuse(p, "a class without an end");
    p->depth--;
    if (r < 0)
        return r;
    return operands ? new_set(p, without, operands, !negated, ret) : new_set(p, parts, count, negated, ret);
}

/* A character that stands for itself; within (?i: also its other case. */
static int char_set(struct parsing *p, uint32_t code, uint32_t *ret)
{
    struct regex_part parts[3] = {range(code, code)};
    uint32_t count = 1;
    if (p->any_case && code >= 0x80)
        return refuse(p, "a character beyond ASCII within (?i:");
    if (p->any_case && unicode_class(code) == UNICODE_LETTER) {
        parts[count++] = range(code ^ 0x20, code ^ 0x20);
        if ((code | 0x20) == 's' || (code | 0x20) == 'k')
            parts[count++] = folded_sign(code);
    }
    return new_set(p, parts, count, false, ret);
}

/* ---- items ---- */

static int parse_number(struct parsing *p, uint32_t *ret)
{
    uint32_t n = 0, digits = 0;
    for (; p->at < p->s.len && p->s.ptr[p->at] >= '0' && p->s.ptr[p->at] <= '9' && digits < 5; digits++)
        n = n * 10 + (uint32_t)(p->s.ptr[p->at++] - '0');
    *ret = n;
    return digits ? 0 : refuse(p, "this quantifier");
}

/* After "{". */
static int parse_braces(struct parsing *p, struct regex_item *i)
{
    int r = parse_number(p, &i->min);
    i->max = i->min;
    if (r == 0 && take(p, SLICE(","))) {
        i->max = UINT32_MAX;
        if (!ahead(p, SLICE("}")))
            r = parse_number(p, &i->max);
    }
    if (r == 0 && (!take(p, SLICE("}")) || i->max < i->min || i->max == 0))
        r = refuse(p, "this quantifier");
    if (r == 0 && (ahead(p, SLICE("+")) || ahead(p, SLICE("?")) || ahead(p, SLICE("*"))))
        r = refuse(p, "a second quantifier");
    return r;
}

static int parse_quantifier(struct parsing *p, struct regex_item *i)
{
    int r = 0;
    bool quantified = true;
    if (take(p, SLICE("?")))
        i->min = 0;
    else if (take(p, SLICE("*")))
        i->min = 0, i->max = UINT32_MAX;
    else if (take(p, SLICE("+")))
        i->max = UINT32_MAX;
    else if (take(p, SLICE("{")))
        return i->kind == ITEM_SET || i->kind == ITEM_GROUP ? parse_braces(p, i)
                                                            : refuse(p, "this quantifier");
    else
        quantified = false;
    if (quantified && (ahead(p, SLICE("?")) || ahead(p, SLICE("*"))))
        r = refuse(p, "a quantifier that is not greedy");
    else if (quantified && i->kind != ITEM_SET && i->kind != ITEM_GROUP)
        r = refuse(p, "a quantifier of $, \\b, (?= or (?!");
    else if (quantified && take(p, SLICE("+"))) {
        i->possessive = true;
        if (i->kind == ITEM_GROUP)
            r = refuse(p, "a possessive group");
    }
    return r;
}

static int parse_alts(struct parsing *p, uint32_t *ret, uint32_t *count);

/* After "(". */
static int parse_group(struct parsing *p, struct regex_item *ret)
{
    bool any_case = p->any_case;
    *ret = (struct regex_item){.kind = ITEM_GROUP, .min = 1, .max = 1};
    if (take(p, SLICE("?i:")))
        p->any_case = true;
    else if (take(p, SLICE("?=")))
        ret->kind = ITEM_AHEAD;
    else if (take(p, SLICE("?!")))
        ret->kind = ITEM_AHEAD, ret->negated = true;
    else if (!take(p, SLICE("?:")) && ahead(p, SLICE("?")))
        return refuse(p, "this kind of group");
    int r = parse_alts(p, &ret->alt, &ret->alt_count);
    if (r == 0 && !take(p, SLICE(")")))
        r = refuse(p, "a group without an end");
    p->any_case = any_case;
    return r;
}

static int parse_item(struct parsing *p, struct regex_item *ret)
{
    ASSERT(!at_end(p));
    int r = 0;
    if (take(p, SLICE("("))) {
        r = parse_group(p, ret);
        return r < 0 ? r : parse_quantifier(p, ret);
    }
    *ret = (struct regex_item){.kind = ITEM_SET, .min = 1, .max = 1};
    if (take(p, SLICE("["))) {
        r = parse_class(p, &ret->set);
    } else if (take(p, SLICE("\\b"))) {
        *ret = (struct regex_item){.kind = ITEM_BOUNDARY};
    } else if (take(p, SLICE("\\"))) {
        struct regex_part part;
        bool single;
        r = parse_escape(p, &part, &single);
        if (r == 0)
            r = single ? char_set(p, part.first, &ret->set) : new_set(p, &part, 1, false, &ret->set);
    } else if (take(p, SLICE("$"))) {
        *ret = (struct regex_item){.kind = ITEM_END};
    } else if (strchr("*+?{}.^])", p->s.ptr[p->at])) {
        r = refuse(p, "this character");
    } else {
        r = char_set(p, take_char(p), &ret->set);
    }
    return r < 0 ? r : parse_quantifier(p, ret);
}

static int parse_alt(struct parsing *p, struct regex_alt *ret)
{
    struct regex_item items[ITEMS_IN_ALT];
    uint32_t count = 0;
    int r = 0;
    while (r == 0 && !at_end(p) && !ahead(p, SLICE("|")) && !ahead(p, SLICE(")"))) {
        if (count == COUNT_OF(items))
            return refuse(p, "so long an alternative");
        r = parse_item(p, &items[count++]);
    }
    if (r < 0)
        return r;
    if (p->r->item_count + count > REGEX_ITEMS_MAX)
        return refuse(p, "so long a pattern");
    *ret = (struct regex_alt){p->r->item_count, count};
    if (count)
        memcpy(p->r->items + p->r->item_count, items, count * sizeof(items[0]));
    p->r->item_count += count;
    return 0;
}

static int parse_alts(struct parsing *p, uint32_t *ret, uint32_t *count)
{
    struct regex_alt alts[ALTS_IN_GROUP];
    uint32_t n = 0;
    int r = 0;
    if (p->depth++ == REGEX_DEPTH_MAX)
        return refuse(p, "deeper nesting");
    do {
        if (n == COUNT_OF(alts))
            return refuse(p, "so many alternatives");
        r = parse_alt(p, &alts[n++]);
    } while (r == 0 && take(p, SLICE("|")));
    p->depth--;
    if (r == 0 && p->r->alt_count + n > REGEX_ALTS_MAX)
        r = refuse(p, "so many alternatives");
    if (r < 0)
        return r;
    memcpy(p->r->alts + p->r->alt_count, alts, n * sizeof(alts[0]));
    *ret = p->r->alt_count;
    *count = n;
    p->r->alt_count += n;
    return 0;
}

/* ---- the whole ---- */

static bool alts_match_nothing(const struct split_regex *r, uint32_t alt, uint32_t count);

static bool item_matches_nothing(const struct split_regex *r, const struct regex_item *i)
{
    return i->min == 0 || i->kind == ITEM_AHEAD || i->kind == ITEM_END || i->kind == ITEM_BOUNDARY ||
           (i->kind == ITEM_GROUP && alts_match_nothing(r, i->alt, i->alt_count));
}

static bool alts_match_nothing(const struct split_regex *r, uint32_t alt, uint32_t count)
{
    ASSERT(alt + count <= r->alt_count);
    for (uint32_t k = alt; k < alt + count; k++) {
        bool nothing = true;
        for (uint32_t i = 0; i < r->alts[k].item_count; i++)
            nothing = nothing && item_matches_nothing(r, &r->items[r->alts[k].item + i]);
        if (nothing)
            return true;
    }
    return false;
}

/* Characters of each alternative; 0: they differ. */
static uint32_t chars_of(const struct split_regex *r, const struct regex_item *group)
{
    uint32_t chars = 0;
    for (uint32_t k = 0; k < group->alt_count; k++) {
        const struct regex_alt *alt = &r->alts[group->alt + k];
        uint32_t own = 0;
        for (uint32_t n = 0; n < alt->item_count; n++) {
            const struct regex_item *i = &r->items[alt->item + n];
            if (i->kind != ITEM_SET || i->min != i->max || i->max > SPLIT_REGEX_BYTES_MAX)
                return 0;
            own += i->max;
        }
        if (own == 0 || (k > 0 && own != chars))
            return 0;
        chars = own;
    }
    return chars;
}

/* `last`: nothing follows the alternatives. A round of a group that repeats is matched by itself. */
static int check_repeats(struct parsing *p, uint32_t alt, uint32_t count, bool last)
{
    int r = 0;
    ASSERT(alt + count <= p->r->alt_count);
    for (uint32_t k = alt; r == 0 && k < alt + count; k++) {
        const struct regex_alt *a = &p->r->alts[k];
        for (uint32_t n = 0; r == 0 && n < a->item_count; n++) {
            struct regex_item *i = &p->r->items[a->item + n];
            const bool ends = last && n + 1 == a->item_count, repeats = i->kind == ITEM_GROUP && i->max > 1;
            if (i->kind != ITEM_GROUP && i->kind != ITEM_AHEAD)
                continue;
            p->r->repeats |= repeats;
            i->chars = repeats ? chars_of(p->r, i) : 0;
            if (repeats && i->chars == 0 && (!ends || i->min > 1))
                return refuse(p, "a group that repeats, with rounds of several lengths in front of others,");
            r = check_repeats(p, i->alt, i->alt_count, repeats || i->kind == ITEM_AHEAD || ends);
        }
    }
    return r;
}

static void find_starts(struct split_regex *r, uint32_t alt, uint32_t count)
{
    ASSERT(alt + count <= r->alt_count);
    for (uint32_t k = alt; k < alt + count; k++) {
        for (uint32_t n = 0; n < r->alts[k].item_count; n++) {
            const struct regex_item *i = &r->items[r->alts[k].item + n];
            if (i->kind == ITEM_SET) {
                r->starts[0] |= r->sets[i->set].ascii[0];
                r->starts[1] |= r->sets[i->set].ascii[1];
            } else if (i->kind == ITEM_GROUP) {
                find_starts(r, i->alt, i->alt_count);
            }
            if (!item_matches_nothing(r, i))
                break;
        }
    }
}

static struct split_regex *new_regex(struct arena *a)
{
    struct split_regex *r = ARENA_NEW(a, struct split_regex);
    if (!r)
        return NULL;
    *r = (struct split_regex){.items = ARENA_ARRAY(a, struct regex_item, REGEX_ITEMS_MAX),
                              .sets = ARENA_ARRAY(a, struct regex_set, REGEX_SETS_MAX),
                              .parts = ARENA_ARRAY(a, struct regex_part, REGEX_PARTS_MAX),
                              .alts = ARENA_ARRAY(a, struct regex_alt, REGEX_ALTS_MAX)};
    return r->items && r->sets && r->parts && r->alts ? r : NULL;
}

static int finish(struct parsing *p, struct split_regex **ret)
{
    if (!at_end(p))
        return refuse(p, "this parenthesis");
    if (alts_match_nothing(p->r, p->r->top, p->r->top_count))
        return refuse(p, "a pattern that can match nothing");
    int r = check_repeats(p, p->r->top, p->r->top_count, true);
    if (r < 0)
        return r;
    find_starts(p->r, p->r->top, p->r->top_count);
    *ret = p->r;
    return 0;
}

static int begin(struct parsing *p, struct arena *a)
{
    if (p->s.len == 0 || p->s.len > SPLIT_REGEX_BYTES_MAX || !utf8_valid(p->s))
        return err_set(p->e, -EINVAL, "a regex has %zu bytes; 1 to %d of UTF-8 can be used", p->s.len,
                       SPLIT_REGEX_BYTES_MAX);
    p->r = new_regex(a);
    struct slice source = slice_sub(p->s, 0, 200);
    source.len = utf8_valid_bytes(source);
    char *copy = p->r ? arena_strndup(a, source.ptr, source.len) : NULL;
    if (!copy)
        return err_set(p->e, -ENOMEM, "no memory for a regex");
    p->r->source = (struct slice){copy, source.len};
    return 0;
}

int split_regex_compile(struct arena *a, struct slice pattern, struct split_regex **ret, struct err *e)
{
    struct parsing p = {.s = pattern, .e = e};
    int r = begin(&p, a);
    if (r == 0)
        r = parse_alts(&p, &p.r->top, &p.r->top_count);
    ASSERT(r < 0 || p.depth == 0);
    return r < 0 ? r : finish(&p, ret);
}

int split_regex_literal(struct arena *a, struct slice text, struct split_regex **ret, struct err *e)
{
    struct parsing p = {.s = text, .e = e};
    int r = begin(&p, a);
    while (r == 0 && !at_end(&p)) {
        struct regex_item item = {.kind = ITEM_SET, .min = 1, .max = 1};
        if (p.r->item_count == REGEX_SETS_MAX)
            return refuse(&p, "so long a text");
        r = char_set(&p, take_char(&p), &item.set);
        p.r->items[p.r->item_count++] = item;
    }
    if (r < 0)
        return r;
    p.r->alts[0] = (struct regex_alt){0, p.r->item_count};
    p.r->alt_count = p.r->top_count = 1;
    return finish(&p, ret);
}
