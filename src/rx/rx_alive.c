/* rx_alive.c - whether an expression matches any text, what bytes it tells apart, and its size.
 *
 * Without complement and intersection the structure shows it. Otherwise a search follows derivatives until
 * one is nullable: always the one that lacks the fewest bytes, by a lower bound, and of equal ones the
 * newest. A search that ends without one has seen every derivative, so none matches. A string of at least a
 * thousand characters without its end mark would take a thousand derivatives and more: a text of one byte, as
 * often as needed, is tried first. */
#include "rx/rx_store.h"

#include "base/check.h"

#include <errno.h>

enum { RUN_LEAST = 16 }; /* shorter repetitions are searched soon enough */

/* ---- Classes of bytes ---- */

void rx_refine(struct rx_store *s)
{
    uint32_t sets = s->sets_first + s->sets_count;
    for (; s->classes_sets < sets && s->class_count < 256; s->classes_sets++) {
        const struct rx_bytes *set = rx_set_at(s, s->classes_sets);
        uint16_t split[256][2]; /* 1 + the class that bytes out of and in the set go to */
        memset(split, 0, sizeof(split));
        uint32_t count = 0;
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint16_t *to = &split[s->classes[byte]][rx_has(set, (uint8_t)byte)];
            if (*to == 0)
                *to = (uint16_t)++count;
            s->classes[byte] = (uint8_t)(*to - 1);
        }
        ASSERT(count >= s->class_count && count <= 256);
        s->class_count = count;
    }
    s->classes_sets = sets;
}

/* ---- The search ---- */

static uint32_t seen_place(const struct rx_search *q, rx_id id)
{
    ASSERT(id != RX_NONE); /* an empty slot */
    uint32_t at = (id * 2654435761u) >> (32 - RX_SEEN_LOG2);
    while (q->seen[at].id != 0 && q->seen[at].id != id)
        at = (at + 1) % RX_SEEN;
    return at;
}

static void remember(struct rx_store *s, rx_id id, bool alive)
{
    ASSERT(id != RX_NONE);
    s->alive_memo[id % RX_MEMO] = id * 2 + alive;
}

/* 1, 0, or -1: not known without a search. */
static int known(const struct rx_store *s, rx_id id)
{
    if (id == RX_NONE)
        return 0;
    if (rx_at(s, id)->flags & (RX_F_NULLABLE | RX_F_EVIDENT))
        return 1;
    uint32_t memo = s->alive_memo[id % RX_MEMO];
    return memo / 2 == id ? (int)(memo & 1) : -1;
}

/* ---- Texts of one byte ---- */

static bool is_long_repeat(const struct rx_item *n)
{
    return n->kind == RX_K_REPEAT && n->min > RUN_LEAST;
}

/* Limits how often `byte` may stand in a text of the element. False: the element shows no such text. */
static bool limit_run(struct rx_store *s, rx_id element, uint8_t byte, uint32_t *min, uint32_t *max)
{
    const struct rx_item n = *rx_at(s, element);
    if (n.kind == RX_K_REPEAT && rx_nullable(s, rx_derive(s, n.a, byte))) {
        *min = MAX_OF(*min, n.min);
        *max = MIN_OF(*max, n.max);
        return true;
    }
    return n.flags & RX_F_NULLABLE && rx_derive(s, element, byte) == element;
}

static bool matches_run(struct rx_store *s, rx_id x, uint8_t byte)
{
    uint32_t min = 0, max = RX_UNBOUNDED;
    for (; rx_at(s, x)->kind == RX_K_AND; x = rx_at(s, x)->b)
        if (!limit_run(s, rx_at(s, x)->a, byte, &min, &max))
            return false;
    return limit_run(s, x, byte, &min, &max) && min <= max;
}

/* The only element of a concatenation that may match nothing; otherwise `x` itself. */
static rx_id doubtful(const struct rx_store *s, rx_id x)
{
    rx_id at = x;
    while (rx_at(s, at)->kind == RX_K_CAT) {
        const struct rx_item *n = rx_at(s, at);
        if (!((rx_at(s, n->a)->flags | rx_at(s, n->b)->flags) & RX_F_EVIDENT))
            return x;
        at = rx_at(s, n->a)->flags & RX_F_EVIDENT ? n->b : n->a;
    }
    return at;
}

static bool has_long_repeat(const struct rx_store *s, rx_id x)
{
    for (; rx_at(s, x)->kind == RX_K_AND; x = rx_at(s, x)->b)
        if (is_long_repeat(rx_at(s, rx_at(s, x)->a)))
            return true;
    return is_long_repeat(rx_at(s, x));
}

/* True if an intersection with a long repetition matches a text of one byte alone. */
static bool has_run(struct rx_search *q, rx_id x)
{
    struct rx_store *s = q->store;
    x = doubtful(s, x);
    bool tries = rx_at(s, x)->kind == RX_K_AND && has_long_repeat(s, x);
    for (uint32_t c = 0; tries && c < s->class_count && !s->failed; c++, q->steps++)
        if (matches_run(s, x, q->bytes[c]))
            return true;
    return false;
}

/* ---- Derivatives ---- */

static int found(struct rx_search *q, uint32_t place)
{
    ASSERT(place < RX_SEEN);
    for (uint32_t at = place + 1; at > 0; at = q->seen[at - 1].parent)
        remember(q->store, q->seen[at - 1].id, true);
    return 1;
}

static uint32_t heap_take(struct rx_search *q)
{
    ASSERT(q->count > 0);
    uint32_t place = (uint32_t)q->heap[0] & (RX_SEEN - 1), at = 0;
    uint64_t last = q->heap[--q->count];
    for (uint32_t child = 1; child < q->count; child = 2 * at + 1) {
        child += child + 1 < q->count && q->heap[child + 1] < q->heap[child];
        if (last <= q->heap[child])
            break;
        q->heap[at] = q->heap[child];
        at = child;
    }
    q->heap[at] = last;
    return place;
}

/* A derivative that is not seen yet, at its place. */
static void heap_put(struct rx_search *q, rx_id id, uint32_t parent, uint32_t place)
{
    ASSERT(q->seen_count < RX_SEEN && q->seen[place].id == 0);
    uint64_t lacks = rx_at(q->store, id)->least, age = RX_SEEN - q->seen_count++;
    uint64_t key = lacks << 32 | age << RX_SEEN_LOG2 | place;
    uint32_t at = q->count++;
    q->seen[place] = (struct rx_seen){id, parent};
    for (; at > 0 && key < q->heap[(at - 1) / 2]; at = (at - 1) / 2)
        q->heap[at] = q->heap[(at - 1) / 2];
    q->heap[at] = key;
}

/* Derivatives of the one at `place`. 1: one of them is alive. 0: all that are new have been noted. */
static int expand(struct rx_search *q, uint32_t place)
{
    struct rx_store *s = q->store;
    rx_id id = q->seen[place].id;
    ASSERT(id > RX_ALL);
    for (uint32_t c = 0; c < s->class_count; c++) {
        rx_id next = rx_derive(s, id, q->bytes[c]);
        q->steps++;
        if (s->failed)
            return -1;
        int alive = known(s, next);
        if (alive < 0 && has_run(q, next)) {
            remember(s, next, true);
            alive = 1;
        }
        if (alive == 1)
            return found(q, place);
        if (alive == 0)
            continue;
        uint32_t at = seen_place(q, next);
        if (q->seen[at].id == next)
            continue;
        if (q->seen_count >= RX_SEEN * 3 / 4)
            return -1;
        heap_put(q, next, place + 1, at);
    }
    return 0;
}

static int search(struct rx_search *q, uint32_t steps)
{
    int r = 0;
    while (r == 0 && q->count > 0 && q->steps < steps)
        r = expand(q, heap_take(q));
    return r == 0 && q->count > 0 ? -1 : r;
}

static void forget_all(struct rx_search *q)
{
    for (uint32_t i = 0; i < RX_SEEN; i++)
        if (q->seen[i].id)
            remember(q->store, q->seen[i].id, false);
}

static void search_begin(struct rx_search *q, struct rx_store *s, rx_id x)
{
    ASSERT(x != RX_NONE);
    memset(q->seen, 0, sizeof(q->seen));
    q->store = s;
    q->steps = 0;
    for (uint32_t byte = 256; byte-- > 0;)
        q->bytes[s->classes[byte]] = (uint8_t)byte;
    q->count = q->seen_count = 0;
    heap_put(q, x, 0, seen_place(q, x));
}

int rx_alive(struct rx_store *s, rx_id x, uint32_t steps)
{
    int r = known(s, x);
    if (r >= 0)
        return r;
    if (!rx_search_create(s)) {
        rx_fail(s);
        return -E2BIG;
    }
    rx_refine(s);
    search_begin(s->search, s, x);
    if (has_run(s->search, x)) {
        remember(s, x, true);
        return 1;
    }
    r = search(s->search, steps);
    if (r == 0)
        forget_all(s->search);
    return r < 0 ? -E2BIG : r;
}

enum { PROVED_MAX = 64, PROVED_SIZE = 200, PROVED_STEPS = 500 };

void rx_prove(struct rx_store *s)
{
    uint32_t looks = 0;
    rx_id end = s->count;
    for (rx_id id = RX_ALL + 1; id < end && !s->failed; id++) {
        uint8_t flags = rx_flags_of(s, rx_at(s, id));
        if (rx_at(s, id)->kind == RX_K_AND && !(flags & RX_F_EVIDENT) && looks < PROVED_MAX &&
            s->count < s->nodes_max / 2 && rx_size(s, id, PROVED_SIZE) < PROVED_SIZE) {
            looks++;
            flags |= rx_alive(s, id, PROVED_STEPS) == 1 ? RX_F_EVIDENT : 0;
        }
        rx_at(s, id)->flags |= flags & RX_F_EVIDENT;
    }
}

/* ---- Sizes ---- */

enum { SLOTS = 2 * RX_SIZE_MAX };

/* False when it is there already. */
static bool add_slot(rx_id *slots, rx_id id)
{
    uint32_t at = id * 2654435761u % SLOTS;
    for (; slots[at]; at = (at + 1) % SLOTS)
        if (slots[at] == id + 1)
            return false;
    slots[at] = id + 1;
    return true;
}

uint32_t rx_size(struct rx_store *s, rx_id x, uint32_t most)
{
    ASSERT(most < RX_SIZE_MAX);
    rx_id slots[SLOTS] = {0};
    uint32_t from = s->list_count, count = 0;
    bool pushed = rx_push(s, x);
    while (pushed && s->list_count > from && count < most) {
        rx_id id = s->list[--s->list_count];
        const struct rx_item *n = rx_at(s, id);
        if (!add_slot(slots, id))
            continue;
        count++;
        if (n->kind >= RX_K_CAT)
            pushed = rx_push(s, n->a);
        if (n->kind >= RX_K_CAT && n->kind <= RX_K_AND)
            pushed = pushed && rx_push(s, n->b);
    }
    s->list_count = from;
    return pushed ? count : most;
}

bool rx_has_loop(struct rx_store *s, rx_id x)
{
    rx_id slots[SLOTS] = {0};
    uint32_t from = s->list_count, count = 0;
    bool found = !rx_push(s, x);
    while (!found && s->list_count > from) {
        rx_id id = s->list[--s->list_count];
        const struct rx_item *n = rx_at(s, id);
        if (!add_slot(slots, id))
            continue;
        found = ++count == RX_SIZE_MAX ||
                (n->kind == RX_K_REPEAT && n->max > 8 && rx_at(s, n->a)->kind != RX_K_BYTES);
        if (n->kind >= RX_K_CAT)
            found = found || !rx_push(s, n->a);
        if (n->kind >= RX_K_CAT && n->kind <= RX_K_AND)
            found = found || !rx_push(s, n->b);
    }
    s->list_count = from;
    return found;
}
