/* split_regex.c - runs a compiled expression: alternatives in their order, backtracking within one class.
 *
 * A hand-written rule is faster (pretok.c has the commonest models' rules). This file runs all others.
 * The items after a group are a chain of continuations on the stack. Its depth is bounded by the
 * expression, since rounds of a group that repeats are a loop. That is exact for two kinds of groups, and
 * the parser refuses the others. Rounds of one length can be given back one by one. A group that nothing
 * follows never gives one back: the expression has matched after any round. */
#include "tokenizer/split_regex.h"

#include "tokenizer/split_regex_program.h"
#include "tokenizer/vocab.h"

#include "base/check.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

#include <errno.h>

#define NO_MATCH SIZE_MAX
#define STOPPED  (SIZE_MAX - 1)

#define STEPS_PER_LOOK ((uint32_t)1 << 16)
/* A short text may need the square of its length. */
#define STEPS_BASE ((uint64_t)1 << 16)
/* A group that repeats within (?= reads a run of digits to its end from each third one. Pieces add to one
 * budget, so a piece adds in proportion to its length. */
#define REPEATS_PER_BYTE 2048
#define REPEATS_MAX      ((uint64_t)1 << 20)
/* A pattern whose alternatives all start with the same repetition, and go back over it, takes about two steps
 * of each item for a byte. */
#define STEPS_PER_ITEM     4
#define STEPS_PER_BYTE_MAX 256

/* ---- classes ---- */

static bool part_has(const struct split_regex *r, const struct regex_part *p, uint32_t code)
{
    switch (p->kind) {
    case PART_RANGE:
        return code >= p->first && code <= p->last;
    case PART_CATEGORIES:
        return (p->categories >> unicode_general_category(code)) & 1;
    case PART_SCRIPT:
        return unicode_script_has(p->script, code);
    case PART_SPACE:
        return unicode_class(code) == UNICODE_SPACE;
    case PART_WORD:
        return unicode_is_word(code);
    case PART_SET:
        return regex_set_has_slow(r, p->first, code);
    }
    return false;
}

bool regex_set_has_slow(const struct split_regex *r, uint32_t set, uint32_t code)
{
    const struct regex_set *s = &r->sets[set];
    for (uint32_t i = 0; i < s->part_count; i++) {
        const struct regex_part *p = &r->parts[s->part + i];
        if (part_has(r, p, code) != p->negated)
            return !s->negated;
    }
    return s->negated;
}

static bool set_has(const struct split_regex *r, uint32_t set, uint32_t code)
{
    if (code < 0x80)
        return (r->sets[set].ascii[code / 64] >> code % 64) & 1;
    return regex_set_has_slow(r, set, code);
}

/* ---- the budget ---- */

void split_budget_init(struct split_budget *b, const struct wanted *wanted)
{
    *b = (struct split_budget){.wanted = wanted, .steps = STEPS_BASE};
}

void split_budget_add(struct split_budget *b, const struct split_regex *r, size_t bytes)
{
    uint64_t per_byte = (uint64_t)STEPS_PER_ITEM * (r->item_count + r->alt_count);
    uint64_t repeats = r->repeats ? MIN_OF((uint64_t)REPEATS_PER_BYTE * bytes, REPEATS_MAX) : 0;
    b->steps += MIN_OF(per_byte, (uint64_t)STEPS_PER_BYTE_MAX) * bytes + repeats;
}

struct slice split_regex_source(const struct split_regex *r)
{
    return r->source;
}

/* ---- matching ---- */

struct matching {
    const struct split_regex *r;
    const struct split_text *in;
    struct split_budget *budget;
    int error;
};

/* Takes the steps until the next look from the budget. False: m->error. */
static bool look(struct matching *m)
{
    ASSERT(m->budget->look == 0);
    struct split_budget *b = m->budget;
    m->error = wanted_check(b->wanted);
    if (m->error == 0 && b->steps == 0) {
        b->over = m->r;
        m->error = -ELOOP;
    }
    if (m->error)
        return false;
    b->look = (uint32_t)MIN_OF(b->steps, (uint64_t)STEPS_PER_LOOK);
    b->steps -= b->look;
    return true;
}

static inline bool step(struct matching *m)
{
    if (m->budget->look == 0 && !look(m))
        return false;
    m->budget->look--;
    return true;
}

/* The items that follow a group. */
struct rest {
    const struct regex_alt *alt;
    uint32_t item;
    const struct rest *next;
};

unsigned split_text_next(const struct split_text *in, size_t at, uint32_t *ret)
{
    if (in->mapped) {
        *ret = vocab_code_of_byte((unsigned char)in->text.ptr[at]);
        return 1;
    }
    return utf8_next(in->text.ptr + at, ret);
}

static size_t char_back(const struct split_text *in, size_t at)
{
    ASSERT(at > 0);
    uint32_t code;
    return in->mapped ? at - 1 : at - utf8_previous(in->text.ptr, at, &code);
}

static size_t match(struct matching *m, const struct regex_alt *alt, uint32_t item, size_t at,
                    const struct rest *rest);

/* One item that repeats a class, and the items after it. */
static size_t match_set(struct matching *m, const struct regex_alt *alt, uint32_t item, size_t at,
                        const struct rest *rest)
{
    const struct regex_item *i = &m->r->items[alt->item + item];
    uint32_t count = 0, code;
    size_t end = at;
    for (unsigned bytes; count < i->max && end < m->in->text.len; count++, end += bytes) {
        bytes = split_text_next(m->in, end, &code);
        if (!set_has(m->r, i->set, code))
            break;
        if (!step(m))
            return STOPPED;
    }
    if (count < i->min)
        return NO_MATCH;
    for (;; count--, end = char_back(m->in, end)) {
        size_t found = match(m, alt, item + 1, end, rest);
        if (found != NO_MATCH || count == i->min || i->possessive)
            return found;
    }
}

static size_t match_alts(struct matching *m, const struct regex_item *i, size_t at, const struct rest *rest)
{
    size_t found = NO_MATCH;
    for (uint32_t k = 0; k < i->alt_count && found == NO_MATCH; k++)
        found = match(m, &m->r->alts[i->alt + k], 0, at, rest);
    return found;
}

/* A group that repeats, and the items after it. */
static size_t match_rounds(struct matching *m, const struct regex_alt *alt, uint32_t item, size_t at,
                           const struct rest *rest)
{
    const struct regex_item *i = &m->r->items[alt->item + item];
    uint32_t count = 0;
    size_t end = at;
    for (size_t next; count < i->max; count++, end = next) {
        next = match_alts(m, i, end, NULL);
        if (next == STOPPED)
            return STOPPED;
        if (next == NO_MATCH || (next == end && count >= i->min))
            break;
    }
    if (count < i->min)
        return NO_MATCH;
    for (;; count--) {
        size_t found = match(m, alt, item + 1, end, rest);
        if (found != NO_MATCH || count == i->min || i->chars == 0)
            return found;
        for (uint32_t k = 0; k < i->chars; k++)
            end = char_back(m->in, end);
    }
}

static bool is_word_at(const struct split_text *in, size_t at)
{
    uint32_t code;
    split_text_next(in, at, &code);
    return unicode_is_word(code);
}

static bool is_boundary(const struct split_text *in, size_t at)
{
    const bool before = at > 0 && is_word_at(in, char_back(in, at)),
               after = at < in->text.len && is_word_at(in, at);
    return before != after;
}

/* The end of a match of the items from `item` on and of `rest`; NO_MATCH, STOPPED. */
static size_t match(struct matching *m, const struct regex_alt *alt, uint32_t item, size_t at,
                    const struct rest *rest)
{
    if (item == alt->item_count)
        return rest ? match(m, rest->alt, rest->item, at, rest->next) : at;
    if (!step(m))
        return STOPPED;
    const struct regex_item *i = &m->r->items[alt->item + item];
    if (i->kind == ITEM_SET)
        return match_set(m, alt, item, at, rest);
    if (i->kind == ITEM_AHEAD) {
        size_t ahead = match_alts(m, i, at, NULL);
        if (ahead == STOPPED || (ahead == NO_MATCH) != i->negated)
            return ahead == STOPPED ? STOPPED : NO_MATCH;
        return match(m, alt, item + 1, at, rest);
    }
    if (i->kind == ITEM_END) {
        bool ends = at == m->in->text.len || m->in->text.ptr[at] == '\n';
        return ends ? match(m, alt, item + 1, at, rest) : NO_MATCH;
    }
    if (i->kind == ITEM_BOUNDARY)
        return is_boundary(m->in, at) ? match(m, alt, item + 1, at, rest) : NO_MATCH;
    if (i->max > 1)
        return match_rounds(m, alt, item, at, rest);
    struct rest behind = {alt, item + 1, rest};
    size_t found = match_alts(m, i, at, &behind);
    return found == NO_MATCH && i->min == 0 ? match(m, alt, item + 1, at, rest) : found;
}

struct split_match split_regex_find(const struct split_regex *r, const struct split_text *in, size_t from)
{
    ASSERT(from <= in->text.len);
    struct matching m = {.r = r, .in = in, .budget = in->budget};
    const struct regex_item whole = {.alt = r->top, .alt_count = r->top_count};
    uint32_t code;
    for (unsigned bytes; from < in->text.len; from += bytes) {
        bytes = split_text_next(in, from, &code);
        if (!step(&m))
            return (struct split_match){.error = m.error};
        if (code < 0x80 && !((r->starts[code / 64] >> code % 64) & 1))
            continue;
        size_t end = match_alts(&m, &whole, from, NULL);
        if (end == STOPPED)
            return (struct split_match){.error = m.error};
        if (end != NO_MATCH && end > from)
            return (struct split_match){from, end, 0};
    }
    return (struct split_match){in->text.len, in->text.len, 0};
}
