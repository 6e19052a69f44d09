/* rx.c - the store of expressions: nodes by structure, and the constructors of sets, chains and complements.
 *
 * Normal forms make equal languages equal ids often enough that derivatives come back to earlier ones. Chains
 * lean to the right, lists are sorted, sets of bytes melt into one, repetitions of the same body add up. They
 * never change the language, so it costs states and no correctness where two forms of one language differ.
 *
 * No function recurses along a chain or a list, only over nesting, which has a bound. */
#include "rx/rx_store.h"

#include "base/check.h"

#include <errno.h>

const struct wanted *rx_wanted(struct rx_store *s, const struct wanted *wanted)
{
    const struct wanted *before = s->wanted;
    s->wanted = wanted;
    s->next_look = wanted ? s->work : s->work_end;
    return before;
}

void rx_limit(struct rx_store *s, uint64_t work_end)
{
    if (s->failed && rx_is_spent(s)) {
        s->failed = false;
        s->list_count = 0;
    }
    s->work_end = work_end;
    s->next_look = s->wanted ? s->work : work_end;
}

void rx_check_limits(struct rx_store *s)
{
    uint64_t next = s->wanted ? s->work + RX_LOOK_STEPS : UINT64_MAX;
    s->next_look = MIN_OF(next, s->work_end);
    if (rx_is_spent(s))
        rx_fail(s);
    int r = wanted_check(s->wanted);
    if (r < 0 && !s->failed) {
        s->stopped = r;
        rx_fail(s);
    }
}

rx_id rx_fail(struct rx_store *s)
{
    s->failed = true;
    return RX_NONE;
}

bool rx_failed(const struct rx_store *s)
{
    return s->failed;
}

uint32_t rx_count(const struct rx_store *s)
{
    return s->count;
}

/* ---- Nodes ---- */

static uint32_t hash_of(uint32_t kind, uint32_t a, uint32_t b, uint32_t min, uint32_t max)
{
    uint64_t h = (uint64_t)a << 32 | b;
    h = (h ^ kind * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    h = (h ^ h >> 29 ^ ((uint64_t)min << 32 | max)) * 0x94D049BB133111EBull;
    return (uint32_t)(h >> 32);
}

static uint32_t hash_of_set(const struct rx_bytes *set)
{
    uint64_t h = 0;
    for (int i = 0; i < 4; i++)
        h = (h ^ set->bits[i]) * 0xBF58476D1CE4E5B9ull, h ^= h >> 31;
    return (uint32_t)(h >> 16);
}

static uint32_t node_hash(const struct rx_store *s, const struct rx_item *n)
{
    return n->kind == RX_K_BYTES ? hash_of_set(rx_set_at(s, n->a))
                                 : hash_of(n->kind, n->a, n->b, n->min, n->max);
}

static void bucket_add(struct rx_store *s, rx_id id)
{
    ASSERT(id >= s->first);
    struct rx_item *n = rx_at(s, id);
    uint32_t *bucket = &s->buckets[node_hash(s, n) >> (32 - s->buckets_log2)];
    n->next = *bucket;
    *bucket = id;
}

static bool buckets_grow(struct rx_store *s)
{
    ASSERT(s->buckets_log2 < 31);
    uint32_t *more = ARENA_ARRAY(s->arena, uint32_t, (size_t)2 << s->buckets_log2);
    if (!more)
        return false;
    s->buckets = more;
    s->buckets_log2++;
    for (rx_id id = s->first; id < s->count; id++)
        bucket_add(s, id);
    return true;
}

static uint8_t finite_of(const struct rx_store *s, const struct rx_item *n)
{
    switch ((enum rx_kind)n->kind) {
    case RX_K_CAT:
    case RX_K_OR:
        return rx_at(s, n->a)->flags & rx_at(s, n->b)->flags & RX_F_FINITE;
    case RX_K_AND:
        return (rx_at(s, n->a)->flags | rx_at(s, n->b)->flags) & RX_F_FINITE;
    case RX_K_NOT:
        return 0;
    case RX_K_REPEAT:
        return n->max == RX_UNBOUNDED ? 0 : rx_at(s, n->a)->flags & RX_F_FINITE;
    default:
        return RX_F_FINITE;
    }
}

uint8_t rx_flags_of(const struct rx_store *s, const struct rx_item *n)
{
    ASSERT(n->kind <= RX_K_REPEAT);
    const struct rx_item *a = n->kind >= RX_K_CAT ? rx_at(s, n->a) : NULL;
    const struct rx_item *b = n->kind >= RX_K_CAT && n->kind <= RX_K_AND ? rx_at(s, n->b) : NULL;
    uint8_t both = a && b ? a->flags & b->flags : 0;
    switch ((enum rx_kind)n->kind) {
    case RX_K_NONE:
        return 0;
    case RX_K_EMPTY:
        return RX_F_NULLABLE | RX_F_EVIDENT;
    case RX_K_BYTES:
        return RX_F_EVIDENT;
    case RX_K_CAT:
        return both & (RX_F_NULLABLE | RX_F_EVIDENT);
    case RX_K_OR:
        return (a->flags | b->flags) & (RX_F_NULLABLE | RX_F_EVIDENT);
    case RX_K_AND:
        return both & RX_F_NULLABLE ? RX_F_NULLABLE | RX_F_EVIDENT : 0;
    case RX_K_NOT:
        return a->flags & RX_F_NULLABLE ? 0 : RX_F_NULLABLE | RX_F_EVIDENT;
    case RX_K_REPEAT:
        if (n->min == 0)
            return RX_F_NULLABLE | RX_F_EVIDENT;
        return a->flags & (RX_F_NULLABLE | RX_F_EVIDENT);
    }
    return 0;
}

static uint32_t least_of(const struct rx_store *s, const struct rx_item *n)
{
    uint64_t a = n->kind >= RX_K_CAT ? rx_at(s, n->a)->least : 0;
    uint64_t b = n->kind >= RX_K_CAT && n->kind <= RX_K_AND ? rx_at(s, n->b)->least : 0, least = 0;
    switch ((enum rx_kind)n->kind) {
    case RX_K_NONE:
        least = RX_LEAST_MAX;
        break;
    case RX_K_EMPTY:
        break;
    case RX_K_BYTES:
        least = 1;
        break;
    case RX_K_CAT:
        least = a + b;
        break;
    case RX_K_OR:
        least = MIN_OF(a, b);
        break;
    case RX_K_AND:
        least = MAX_OF(a, b);
        break;
    case RX_K_NOT:
        least = a == 0 && rx_at(s, n->a)->flags & RX_F_NULLABLE;
        break;
    case RX_K_REPEAT:
        least = a * n->min;
        break;
    }
    return (uint32_t)MIN_OF(least, (uint64_t)RX_LEAST_MAX);
}

/* The right end of a chain or list does not count: functions loop along it. */
static uint32_t depth_of(const struct rx_store *s, const struct rx_item *n)
{
    if (n->kind < RX_K_CAT)
        return 0;
    uint32_t a = rx_at(s, n->a)->depth + 1;
    if (n->kind > RX_K_AND)
        return a;
    const struct rx_item *b = rx_at(s, n->b);
    uint32_t right = b->kind == n->kind ? b->depth : b->depth + 1u;
    return MAX_OF(a, right);
}

static rx_id node_find(const struct rx_store *s, uint32_t hash, const struct rx_item *n,
                       const struct rx_bytes *set)
{
    for (rx_id id = s->buckets[hash >> (32 - s->buckets_log2)]; id; id = rx_at(s, id)->next) {
        const struct rx_item *at = rx_at(s, id);
        if (at->kind != n->kind)
            continue;
        if (set ? memcmp(rx_set_at(s, at->a), set, sizeof(*set)) == 0
                : at->a == n->a && at->b == n->b && at->min == n->min && at->max == n->max)
            return id;
    }
    return RX_NONE;
}

static rx_id node_add(struct rx_store *s, struct rx_item n)
{
    uint32_t index = s->count - s->first;
    ASSERT(n.kind < RX_K_CAT || (n.a < s->count && (n.kind > RX_K_AND || n.b < s->count)));
    s->too_large |= s->count >= s->nodes_max;
    if (s->too_large)
        return rx_fail(s);
    if (index >= (uint32_t)2 << s->buckets_log2 && !buckets_grow(s))
        return rx_fail(s);
    struct rx_item **chunk = &s->chunks[index >> RX_CHUNK_LOG2];
    if (!*chunk)
        *chunk = ARENA_ARRAY(s->arena, struct rx_item, RX_CHUNK);
    if (!*chunk)
        return rx_fail(s);
    n.flags = rx_flags_of(s, &n) | finite_of(s, &n);
    n.least = least_of(s, &n);
    uint32_t depth = depth_of(s, &n);
    s->too_large |= depth > RX_DEPTH_MAX;
    if (s->too_large)
        return rx_fail(s);
    n.depth = (uint16_t)depth;
    (*chunk)[index & (RX_CHUNK - 1)] = n;
    rx_id id = s->count++;
    if (id > RX_NONE)
        bucket_add(s, id);
    return id;
}

rx_id rx_intern(struct rx_store *s, enum rx_kind kind, uint32_t a, uint32_t b, uint32_t min, uint32_t max)
{
    struct rx_item n = {.kind = (uint8_t)kind, .a = a, .b = b, .min = min, .max = max};
    uint32_t hash = hash_of(kind, a, b, min, max);
    ASSERT(kind != RX_K_REPEAT || min <= max);
    if (s->failed)
        return RX_NONE;
    rx_step(s);
    rx_id id = s->base ? node_find(s->base, hash, &n, NULL) : RX_NONE;
    if (id == RX_NONE)
        id = node_find(s, hash, &n, NULL);
    return id != RX_NONE ? id : node_add(s, n);
}

static bool sets_grow(struct rx_store *s)
{
    ASSERT(s->sets_count == s->sets_room);
    uint32_t room = s->sets_room ? s->sets_room * 2 : 16;
    struct rx_bytes *more = s->base ? NULL : ARENA_ARRAY(s->arena, struct rx_bytes, room);
    if (!more)
        return false;
    if (s->sets_count)
        memcpy(more, s->sets, s->sets_count * sizeof(*more));
    s->sets = more;
    s->sets_room = room;
    return true;
}

rx_id rx_bytes(struct rx_store *s, const struct rx_bytes *set)
{
    struct rx_item n = {.kind = RX_K_BYTES};
    uint32_t hash = hash_of_set(set);
    if (s->failed || !(set->bits[0] | set->bits[1] | set->bits[2] | set->bits[3]))
        return RX_NONE;
    rx_id id = s->base ? node_find(s->base, hash, &n, set) : RX_NONE;
    if (id == RX_NONE)
        id = node_find(s, hash, &n, set);
    if (id != RX_NONE)
        return id;
    if (s->sets_count == s->sets_room && !sets_grow(s))
        return rx_fail(s);
    s->sets[s->sets_count] = *set;
    n.a = s->sets_first + s->sets_count++;
    return node_add(s, n);
}

rx_id rx_byte_range(struct rx_store *s, uint8_t first, uint8_t last)
{
    struct rx_bytes set = {{0}};
    for (uint32_t byte = first; byte <= last; byte++)
        set.bits[byte / 64] |= 1ull << byte % 64;
    return rx_bytes(s, &set);
}

/* ---- The store ---- */

bool rx_search_create(struct rx_store *s)
{
    if (!s->search)
        s->search = ARENA_NEW(s->arena, struct rx_search);
    return s->search;
}

static int store_init(struct rx_store *s, uint32_t nodes, uint32_t buckets_log2)
{
    ASSERT(buckets_log2 > 0 && buckets_log2 < 32);
    s->chunks = ARENA_ARRAY(s->arena, struct rx_item *, nodes / RX_CHUNK + 1);
    s->buckets_log2 = buckets_log2;
    s->buckets = ARENA_ARRAY(s->arena, uint32_t, (size_t)1 << buckets_log2);
    s->memo = ARENA_ARRAY(s->arena, struct rx_memo, RX_MEMO);
    s->alive_memo = ARENA_ARRAY(s->arena, uint32_t, RX_MEMO);
    s->class_count = 1;
    s->work_end = s->next_look = UINT64_MAX;
    return s->chunks && s->buckets && s->memo && s->alive_memo ? 0 : -ENOMEM;
}

int rx_store_create(struct arena *a, uint32_t nodes_max, struct rx_store **ret)
{
    struct rx_store *s = ARENA_NEW(a, struct rx_store);
    if (!s)
        return -ENOMEM;
    s->arena = a;
    s->nodes_max = MAX_OF(nodes_max, 8u);
    if (store_init(s, s->nodes_max, 8) < 0)
        return -ENOMEM;
    node_add(s, (struct rx_item){.kind = RX_K_NONE});
    node_add(s, (struct rx_item){.kind = RX_K_EMPTY});
    node_add(s, (struct rx_item){.kind = RX_K_NOT, .a = RX_NONE});
    if (s->failed)
        return -ENOMEM;
    ASSERT(s->count == RX_ALL + 1);
    *ret = s;
    return 0;
}

int rx_store_over(struct arena *a, const struct rx_store *base, uint32_t nodes_max, struct rx_store **ret)
{
    struct rx_store *s = ARENA_NEW(a, struct rx_store);
    if (!s)
        return -ENOMEM;
    ASSERT(base->count > RX_ALL);
    uint32_t log2 = 6;
    while (((uint32_t)1 << log2) < nodes_max)
        log2++;
    *s = (struct rx_store){.arena = a, .base = base, .first = base->count, .count = base->count};
    s->nodes_max = base->count + nodes_max;
    s->sets_first = base->sets_count;
    s->sets_room = nodes_max / 16 + 16;
    s->list_room = 2 * base->count + nodes_max;
    s->sets = ARENA_ARRAY(a, struct rx_bytes, s->sets_room);
    s->list = ARENA_ARRAY(a, rx_id, s->list_room);
    if (store_init(s, nodes_max, log2) < 0 || !s->sets || !s->list || !rx_search_create(s))
        return -ENOMEM;
    for (uint32_t i = 0; i <= nodes_max / RX_CHUNK; i++)
        if (!(s->chunks[i] = ARENA_ARRAY(a, struct rx_item, RX_CHUNK)))
            return -ENOMEM;
    *ret = s;
    return 0;
}

/* ---- Lists on the stack ---- */

bool rx_push(struct rx_store *s, rx_id x)
{
    s->work++;
    if (s->list_count == s->list_room) {
        uint32_t room = s->list_room ? s->list_room * 2 : 256;
        rx_id *more = s->base ? NULL : ARENA_ARRAY(s->arena, rx_id, room);
        if (!more) {
            rx_fail(s);
            return false;
        }
        if (s->list_count)
            memcpy(more, s->list, s->list_count * sizeof(*more));
        s->list = more;
        s->list_room = room;
    }
    s->list[s->list_count++] = x;
    return true;
}

bool rx_push_list(struct rx_store *s, enum rx_kind kind, rx_id x)
{
    for (; rx_at(s, x)->kind == kind; x = rx_at(s, x)->b)
        if (!rx_push(s, rx_at(s, x)->a))
            return false;
    return rx_push(s, x);
}

/* ---- Chains ---- */

/* x followed by y, where x is not a chain: repetitions of one body add up. */
static rx_id cat_two(struct rx_store *s, rx_id x, rx_id y)
{
    ASSERT(x != RX_NONE && y != RX_NONE);
    const struct rx_item *ny = rx_at(s, y), *nx = rx_at(s, x);
    rx_id head = ny->kind == RX_K_CAT ? ny->a : y, rest = ny->kind == RX_K_CAT ? ny->b : (rx_id)RX_EMPTY;
    const struct rx_item *h = rx_at(s, head);
    if (x == RX_EMPTY)
        return y;
    if (y == RX_EMPTY)
        return x;
    if (x == RX_ALL && head == RX_ALL)
        return y;
    bool same = h->kind == RX_K_REPEAT && (x == h->a || (nx->kind == RX_K_REPEAT && nx->a == h->a));
    if (!same)
        return rx_intern(s, RX_K_CAT, x, y, 0, 0);
    uint64_t min = h->min, max = h->max;
    min += x == h->a ? 1 : nx->min;
    max = h->max == RX_UNBOUNDED || (x != h->a && nx->max == RX_UNBOUNDED) ? RX_UNBOUNDED
                                                                           : max + (x == h->a ? 1 : nx->max);
    if (min >= RX_UNBOUNDED || (max >= RX_UNBOUNDED && max != RX_UNBOUNDED))
        return rx_intern(s, RX_K_CAT, x, y, 0, 0);
    rx_id sum = rx_intern(s, RX_K_REPEAT, h->a, 0, (uint32_t)min, (uint32_t)max);
    return rest == RX_EMPTY ? sum : rx_intern(s, RX_K_CAT, sum, rest, 0, 0);
}

rx_id rx_cat(struct rx_store *s, rx_id a, rx_id b)
{
    if (s->failed || a == RX_NONE || b == RX_NONE)
        return RX_NONE;
    uint32_t from = s->list_count;
    while (rx_at(s, a)->kind == RX_K_CAT) {
        if (!rx_push(s, rx_at(s, a)->a))
            return RX_NONE;
        a = rx_at(s, a)->b;
    }
    rx_id made = cat_two(s, a, b);
    while (s->list_count > from && !s->failed)
        made = cat_two(s, s->list[--s->list_count], made);
    s->list_count = from;
    return s->failed ? (rx_id)RX_NONE : made;
}

rx_id rx_literal(struct rx_store *s, struct slice text)
{
    rx_id made = RX_EMPTY;
    for (size_t i = text.len; i-- > 0 && !s->failed;) {
        uint8_t byte = (uint8_t)text.ptr[i];
        struct rx_bytes set = {{0}};
        set.bits[byte / 64] = 1ull << byte % 64;
        made = made == RX_EMPTY ? rx_bytes(s, &set) : rx_intern(s, RX_K_CAT, rx_bytes(s, &set), made, 0, 0);
    }
    return s->failed ? (rx_id)RX_NONE : made;
}

rx_id rx_not(struct rx_store *s, rx_id a)
{
    if (s->failed)
        return RX_NONE;
    const struct rx_item *n = rx_at(s, a);
    return n->kind == RX_K_NOT ? n->a : rx_intern(s, RX_K_NOT, a, 0, 0, 0);
}

/* ---- Reading ---- */

bool rx_nullable(const struct rx_store *s, rx_id a)
{
    return rx_at(s, a)->flags & RX_F_NULLABLE;
}

struct rx_node rx_node(const struct rx_store *s, rx_id a)
{
    ASSERT(a < s->count);
    const struct rx_item *n = rx_at(s, a);
    struct rx_node made = {.kind = n->kind, .min = n->min, .max = n->max};
    if (n->kind == RX_K_BYTES)
        made.set = *rx_set_at(s, n->a);
    else
        made.a = n->a, made.b = n->b;
    return made;
}

/* ---- Moving ---- */

static void mark_parts(struct rx_store *s, const rx_id *roots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (roots[i] >= s->first)
            rx_at(s, roots[i])->flags |= RX_F_MARK;
    for (rx_id id = s->count; id-- > s->first;) {
        struct rx_item *n = rx_at(s, id);
        if (!(n->flags & RX_F_MARK) || n->kind < RX_K_CAT)
            continue;
        if (n->a >= s->first)
            rx_at(s, n->a)->flags |= RX_F_MARK;
        if (n->kind <= RX_K_AND && n->b >= s->first)
            rx_at(s, n->b)->flags |= RX_F_MARK;
    }
}

/* Nodes move down in their order, so children stay before parents and lists sorted. `next` of an old place
 * holds the new id until then: a new place is never after its old one. */
void rx_compact(struct rx_store *s, rx_id *roots, uint32_t count)
{
    ASSERT(s->base);
    mark_parts(s, roots, count);
    uint32_t kept = s->first, sets = 0;
    for (rx_id id = s->first; id < s->count; id++) {
        struct rx_item *n = rx_at(s, id);
        if (n->flags & RX_F_MARK)
            n->next = kept++;
    }
    for (uint32_t i = 0; i < count; i++)
        if (roots[i] >= s->first)
            roots[i] = rx_at(s, roots[i])->next;
    /* A parent reads the new ids of its children at their old places before those are overwritten. */
    for (rx_id id = s->first; id < s->count; id++) {
        struct rx_item *n = rx_at(s, id);
        if (!(n->flags & RX_F_MARK) || n->kind < RX_K_CAT)
            continue;
        if (n->a >= s->first)
            n->a = rx_at(s, n->a)->next;
        if (n->kind <= RX_K_AND && n->b >= s->first)
            n->b = rx_at(s, n->b)->next;
    }
    memset(s->buckets, 0, sizeof(uint32_t) << s->buckets_log2);
    uint32_t end = s->count;
    s->count = s->first;
    for (rx_id id = s->first; id < end; id++) {
        struct rx_item n = *rx_at(s, id);
        if (!(n.flags & RX_F_MARK))
            continue;
        n.flags &= (uint8_t)~RX_F_MARK;
        if (n.kind == RX_K_BYTES && n.a >= s->sets_first) {
            s->sets[sets] = s->sets[n.a - s->sets_first];
            n.a = s->sets_first + sets++;
        }
        *rx_at(s, s->count) = n;
        bucket_add(s, s->count++);
    }
    s->sets_count = sets;
    s->list_count = 0;
    s->failed = s->too_large = false;
    memset(s->memo, 0, RX_MEMO * sizeof(*s->memo));
    memset(s->alive_memo, 0, RX_MEMO * sizeof(*s->alive_memo));
    ASSERT(s->count == kept);
}

void rx_copy(const struct rx_store *from, struct rx_store *to, struct arena *scratch, rx_id *roots,
             uint32_t count)
{
    ASSERT(to->count == RX_ALL + 1);
    for (uint32_t i = 0; i < count; i++)
        ASSERT(roots[i] < from->count);
    uint32_t *map = ARENA_ARRAY(scratch, uint32_t, from->count); /* 0: not a part; else 1 + the new id */
    if (!map || from->failed) {
        rx_fail(to);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        map[roots[i]] = 1;
    for (rx_id id = from->count; id-- > RX_ALL;) {
        const struct rx_item *n = rx_at(from, id);
        if (!map[id] || n->kind < RX_K_CAT)
            continue;
        map[n->a] = 1;
        if (n->kind <= RX_K_AND)
            map[n->b] = 1;
    }
    map[RX_NONE] = 1 + RX_NONE, map[RX_EMPTY] = 1 + RX_EMPTY, map[RX_ALL] = 1 + RX_ALL;
    for (rx_id id = RX_ALL + 1; id < from->count; id++) {
        const struct rx_item *n = rx_at(from, id);
        if (!map[id])
            continue;
        if (n->kind == RX_K_BYTES)
            map[id] = 1 + rx_bytes(to, rx_set_at(from, n->a));
        else
            map[id] = 1 + rx_intern(to, n->kind, map[n->a] - 1, n->kind <= RX_K_AND ? map[n->b] - 1 : 0,
                                    n->min, n->max);
        if (!to->failed)
            rx_at(to, map[id] - 1)->flags |= n->flags & RX_F_EVIDENT;
    }
    for (uint32_t i = 0; i < count; i++)
        roots[i] = map[roots[i]] - 1;
}
