/* rx_list.c - unions and intersections as sorted lists without repeats; and repetitions, which need unions,
 * and which unions add up.
 *
 * A list is gathered on the store's stack, simplified there, and built from its smallest id upwards. A long
 * union that is made one literal at a time takes each in constant time, because the newest node has the
 * largest id. */
#include "rx/rx_store.h"

#include "base/check.h"

enum {
    MERGE_MAX = 24, /* longer lists are not searched for repetitions that add up */
    SHORT = 16,     /* shorter lists are sorted by insertion */
    SWAPS_PER_STEP = 32
};

static void sift(rx_id *ids, uint32_t at, uint32_t count)
{
    for (uint32_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
        if (child + 1 < count && ids[child + 1] > ids[child])
            child++;
        if (ids[at] >= ids[child])
            return;
        rx_id x = ids[at];
        ids[at] = ids[child], ids[child] = x;
    }
}

static void sort_short(rx_id *ids, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        rx_id x = ids[i];
        uint32_t at = i;
        for (; at > 0 && ids[at - 1] > x; at--)
            ids[at] = ids[at - 1];
        ids[at] = x;
    }
}

/* Heapsort swaps each element log2(count) times. Some swaps take the time of one step elsewhere. */
static uint64_t sort_steps(uint32_t count)
{
    return count < SHORT ? 0 : count * (uint64_t)(31 - __builtin_clz(count)) / SWAPS_PER_STEP;
}

uint32_t rx_sort(rx_id *ids, uint32_t count, uint64_t *work)
{
    *work += sort_steps(count);
    if (count < SHORT)
        sort_short(ids, count);
    else {
        for (uint32_t i = count / 2; i-- > 0;)
            sift(ids, i, count);
        for (uint32_t i = count; i-- > 1;) {
            rx_id x = ids[0];
            ids[0] = ids[i], ids[i] = x;
            sift(ids, 0, i);
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || ids[kept - 1] != ids[i])
            ids[kept++] = ids[i];
    return kept;
}

static bool listed(const rx_id *ids, uint32_t count, rx_id x)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (ids[mid] < x)
            low = mid + 1;
        else
            high = mid;
    }
    return low < count && ids[low] == x;
}

/* An expression and its complement together match everything, and both nothing. */
static bool has_complement(const struct rx_store *s, const rx_id *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (rx_at(s, ids[i])->kind == RX_K_NOT && listed(ids, count, rx_at(s, ids[i])->a))
            return true;
    return false;
}

/* Sets of bytes become one; their places are taken off the list and the new set is at its end. */
static uint32_t melt_sets(struct rx_store *s, rx_id *ids, uint32_t count, bool all)
{
    struct rx_bytes set = {{0}};
    uint32_t kept = 0, sets = 0;
    for (uint32_t i = 0; i < count; i++)
        sets += rx_at(s, ids[i])->kind == RX_K_BYTES;
    if (sets < 2)
        return count;
    if (all)
        memset(&set, 0xFF, sizeof(set));
    for (uint32_t i = 0; i < count; i++) {
        const struct rx_item *n = rx_at(s, ids[i]);
        if (n->kind != RX_K_BYTES) {
            ids[kept++] = ids[i];
            continue;
        }
        const struct rx_bytes *one = rx_set_at(s, n->a);
        for (int k = 0; k < 4; k++)
            set.bits[k] = all ? set.bits[k] & one->bits[k] : set.bits[k] | one->bits[k];
    }
    ids[kept++] = rx_bytes(s, &set);
    return kept;
}

/* `x` as a repetition, one node before it (or nothing) and the rest after it. */
struct run {
    rx_id before, body, rest;
    uint32_t min, max;
};

static bool run_of(const struct rx_store *s, rx_id x, struct run *ret)
{
    const struct rx_item *n = rx_at(s, x);
    rx_id before = RX_EMPTY, rest = RX_EMPTY;
    if (n->kind == RX_K_CAT && rx_at(s, n->a)->kind != RX_K_REPEAT) {
        before = n->a;
        n = rx_at(s, n->b);
    }
    if (n->kind == RX_K_CAT) {
        rest = n->b;
        n = rx_at(s, n->a);
    }
    if (n->kind != RX_K_REPEAT)
        return false;
    *ret = (struct run){before, n->a, rest, n->min, n->max};
    return true;
}

/* a{2,5}x | a{3,9}x is a{2,9}x: without that, counters of a body with several ways to match multiply. */
static bool merge_runs(struct rx_store *s, rx_id *one, rx_id other)
{
    struct run a, b;
    if (!run_of(s, *one, &a) || !run_of(s, other, &b) || a.before != b.before || a.body != b.body ||
        a.rest != b.rest)
        return false;
    if ((uint64_t)a.max + 1 < b.min || (uint64_t)b.max + 1 < a.min)
        return false;
    rx_id both = rx_repeat(s, a.body, MIN_OF(a.min, b.min), MAX_OF(a.max, b.max));
    *one = rx_cat(s, a.before, rx_cat(s, both, a.rest));
    return true;
}

static uint32_t merge_all_runs(struct rx_store *s, uint32_t from, uint32_t count)
{
    ASSERT(s->list_count == from + count);
    for (uint32_t i = 0; count <= MERGE_MAX && i < count && !s->failed; i++)
        for (uint32_t k = i + 1; k < count; k++) {
            rx_id one = s->list[from + i];
            if (!merge_runs(s, &one, s->list[from + k]))
                continue;
            s->list[from + i] = one;
            s->list[from + k] = s->list[from + --count];
            k = i;
        }
    return count;
}

static rx_id build(struct rx_store *s, enum rx_kind kind, const rx_id *ids, uint32_t count)
{
    ASSERT(count > 0);
    rx_id made = ids[0];
    for (uint32_t i = 1; i < count; i++)
        made = rx_intern(s, kind, ids[i], made, 0, 0);
    return s->failed ? (rx_id)RX_NONE : made;
}

/* Drops the empty text where another one of the list matches it. */
static uint32_t drop_empty(const struct rx_store *s, rx_id *ids, uint32_t count)
{
    ASSERT(count > 0);
    if (ids[0] != RX_EMPTY)
        return count;
    bool other = false;
    for (uint32_t i = 1; i < count && !other; i++)
        other = rx_nullable(s, ids[i]);
    if (!other)
        return count;
    memmove(ids, ids + 1, (count - 1) * sizeof(*ids));
    return count - 1;
}

static rx_id or_sorted(struct rx_store *s, uint32_t from)
{
    uint32_t count = rx_sort(s->list + from, s->list_count - from, &s->work);
    if (count > 0 && s->list[from] == RX_NONE) {
        count--;
        memmove(s->list + from, s->list + from + 1, count * sizeof(rx_id));
    }
    if (count < 2)
        return count ? s->list[from] : (rx_id)RX_NONE;
    if (listed(s->list + from, count, RX_ALL) || has_complement(s, s->list + from, count))
        return RX_ALL;
    uint32_t before = count;
    count = melt_sets(s, s->list + from, count, false);
    /* Further lists are built above this one. */
    s->list_count = from + count;
    count = merge_all_runs(s, from, count);
    if (s->failed)
        return RX_NONE;
    /* A merged run may be nullable or a list itself. */
    if (count != before) {
        s->list_count = from + count;
        count = rx_sort(s->list + from, count, &s->work);
    }
    count = drop_empty(s, s->list + from, count);
    if (count == 2 && s->list[from] == RX_EMPTY) {
        const struct rx_item *n = rx_at(s, s->list[from + 1]);
        if (n->kind == RX_K_REPEAT && n->min == 1)
            return rx_intern(s, RX_K_REPEAT, n->a, 0, 0, n->max);
    }
    return build(s, RX_K_OR, s->list + from, count);
}

rx_id rx_or_list(struct rx_store *s, uint32_t from)
{
    ASSERT(from <= s->list_count);
    bool none = s->failed || s->list_count == from;
    rx_id made = none ? (rx_id)RX_NONE : or_sorted(s, from);
    s->list_count = from;
    return made;
}

rx_id rx_or(struct rx_store *s, rx_id a, rx_id b)
{
    if (s->failed)
        return RX_NONE;
    if (a == b || b == RX_NONE)
        return a;
    if (a == RX_NONE)
        return b;
    rx_id high = MAX_OF(a, b), low = MIN_OF(a, b);
    const struct rx_item *h = rx_at(s, high), *l = rx_at(s, low);
    bool literal = h->kind == RX_K_CAT && rx_at(s, h->a)->kind == RX_K_BYTES && !(h->flags & RX_F_NULLABLE);
    if (literal && low != RX_ALL && l->kind == RX_K_OR && l->a < high)
        return rx_intern(s, RX_K_OR, high, low, 0, 0);
    uint32_t from = s->list_count;
    if (!rx_push_list(s, RX_K_OR, a) || !rx_push_list(s, RX_K_OR, b))
        return RX_NONE;
    return rx_or_list(s, from);
}

rx_id rx_any(struct rx_store *s, const rx_id *list, uint32_t count)
{
    uint32_t from = s->list_count;
    for (uint32_t i = 0; i < count && !s->failed; i++)
        if (!rx_push_list(s, RX_K_OR, list[i]))
            return RX_NONE;
    return rx_or_list(s, from);
}

static rx_id and_sorted(struct rx_store *s, uint32_t from)
{
    rx_id *ids = s->list + from;
    uint32_t count = rx_sort(ids, s->list_count - from, &s->work), kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] != RX_ALL)
            ids[kept++] = ids[i];
    count = kept;
    if (count == 0)
        return RX_ALL;
    if (ids[0] == RX_NONE || has_complement(s, ids, count))
        return RX_NONE;
    if (ids[0] == RX_EMPTY) {
        for (uint32_t i = 0; i < count; i++)
            if (!rx_nullable(s, ids[i]))
                return RX_NONE;
        return RX_EMPTY;
    }
    count = melt_sets(s, ids, count, true);
    count = rx_sort(ids, count, &s->work);
    if (ids[0] == RX_NONE)
        return RX_NONE;
    return build(s, RX_K_AND, ids, count);
}

rx_id rx_and_list(struct rx_store *s, uint32_t from)
{
    ASSERT(from <= s->list_count);
    if (!s->failed && s->list_count == from)
        return RX_ALL;
    rx_id made = s->failed ? (rx_id)RX_NONE : and_sorted(s, from);
    s->list_count = from;
    return made;
}

rx_id rx_and(struct rx_store *s, rx_id a, rx_id b)
{
    if (s->failed || a == RX_NONE || b == RX_NONE)
        return RX_NONE;
    if (a == b || b == RX_ALL)
        return a;
    if (a == RX_ALL)
        return b;
    uint32_t from = s->list_count;
    if (!rx_push_list(s, RX_K_AND, a) || !rx_push_list(s, RX_K_AND, b))
        return RX_NONE;
    return rx_and_list(s, from);
}

/* ---- Repetitions ---- */

/* Returns the body of a repetition of `a`: a? and a* and a+ lose their own counts where that is exact. */
static rx_id repeat_body(struct rx_store *s, rx_id a, uint32_t *min, uint32_t *max)
{
    ASSERT(*min <= *max);
    const struct rx_item *n = rx_at(s, a);
    if (n->kind == RX_K_REPEAT && n->max == RX_UNBOUNDED && n->min <= 1) {
        if (n->min == 0)
            *min = 0;
        *max = RX_UNBOUNDED;
        return n->a;
    }
    if (n->kind == RX_K_REPEAT && n->min == 0 && *max == RX_UNBOUNDED) {
        *min = 0;
        return n->a;
    }
    if (n->kind == RX_K_OR && n->flags & RX_F_NULLABLE) {
        uint32_t from = s->list_count, kept = from;
        if (!rx_push_list(s, RX_K_OR, a))
            return RX_NONE;
        for (uint32_t i = from; i < s->list_count; i++)
            if (s->list[i] != RX_EMPTY)
                s->list[kept++] = s->list[i];
        s->list_count = kept;
        *min = 0;
        return rx_or_list(s, from);
    }
    if (n->flags & RX_F_NULLABLE)
        *min = 0;
    return a;
}

rx_id rx_repeat(struct rx_store *s, rx_id a, uint32_t min, uint32_t max)
{
    ASSERT(min <= max && min < RX_UNBOUNDED);
    if (s->failed)
        return RX_NONE;
    if (max == 0 || a == RX_EMPTY)
        return RX_EMPTY;
    if (a == RX_NONE)
        return min == 0 ? RX_EMPTY : RX_NONE;
    if (a == RX_ALL)
        return RX_ALL;
    if (min == 1 && max == 1)
        return a;
    a = repeat_body(s, a, &min, &max);
    if (s->failed)
        return RX_NONE;
    const struct rx_item *n = rx_at(s, a);
    if (min == 0 && max == 1)
        return rx_or(s, RX_EMPTY, a);
    if (n->kind == RX_K_BYTES && min == 0 && max == RX_UNBOUNDED) {
        const uint64_t *bits = rx_set_at(s, n->a)->bits;
        if ((bits[0] & bits[1] & bits[2] & bits[3]) == UINT64_MAX)
            return RX_ALL;
    }
    return rx_intern(s, RX_K_REPEAT, a, 0, min, max);
}
