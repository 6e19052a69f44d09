/* shares.c - the table, and three questions about two tenants: places, a place to yield, prompts.
 *
 * A look-up searches the whole table: 256 entries, once per request. A plan looks at the tenants that are
 * present only. Weights are compared crosswise (a/wa < b/wb as a*wb < b*wa), so no question rounds. */
#include "sched/shares.h"

#include "base/arena.h"
#include "base/check.h"

#include <errno.h>

#define SHARE(it) LIST_ENTRY(it, struct share, link)

size_t shares_arena_bytes(void)
{
    return SHARES_MAX * sizeof(struct share) + 64;
}

static void reset(struct share *x, uint64_t id)
{
    ASSERT(!x->link.next || list_empty(&x->link));
    *x = (struct share){.id = id, .weight = 1};
    list_init(&x->link);
}

int shares_create(struct arena *a, struct shares *ret)
{
    *ret = (struct shares){.table = ARENA_ARRAY(a, struct share, SHARES_MAX)};
    if (!ret->table)
        return -ENOMEM;
    list_init(&ret->present);
    for (uint32_t i = 0; i < SHARES_MAX; i++)
        reset(&ret->table[i], 0);
    return 0;
}

/* Its own entry, else the one without sequences that was active longest ago, else the one that it shares. */
static struct share *find(struct shares *t, uint64_t id)
{
    struct share *oldest = NULL;
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        struct share *x = &t->table[i];
        if (x->id == id && (x->seqs > 0 || x->active > 0))
            return x;
        if (x->seqs == 0 && (!oldest || x->active < oldest->active))
            oldest = x;
    }
    ASSERT(!oldest || (oldest->seqs == 0 && oldest->running == 0));
    if (!oldest)
        return &t->table[id % SHARES_MAX];
    reset(oldest, id);
    return oldest;
}

struct share *shares_take(struct shares *t, uint64_t id, uint32_t weight)
{
    struct share *x = find(t, id);
    x->weight = MIN_OF(MAX_OF(weight, 1u), (uint32_t)SHARE_WEIGHT_MAX);
    if (x->seqs++ == 0)
        list_push_back(&t->present, &x->link);
    ASSERT(x->seqs >= x->running && !list_empty(&x->link));
    return x;
}

void shares_give(struct share *x)
{
    ASSERT(x->seqs > 0);
    if (--x->seqs > 0)
        return;
    ASSERT(x->running == 0);
    list_remove(&x->link);
}

void shares_level(struct shares *t, uint64_t plan_number)
{
    uint64_t least = UINT64_MAX;
    LIST_EACH(it, &t->present)
        if (SHARE(it)->active == plan_number && !SHARE(it)->rested)
            least = MIN_OF(least, SHARE(it)->served);
    if (least != UINT64_MAX)
        t->served_least = MAX_OF(t->served_least, least);
    LIST_EACH(it, &t->present) {
        struct share *x = SHARE(it);
        if (x->active != plan_number)
            continue;
        if (x->rested)
            x->served = MAX_OF(x->served, t->served_least);
        x->served = MIN_OF(x->served, t->served_least + (uint64_t)SHARE_DEBT_TOKENS * SHARE_UNIT);
    }
}

void share_note_active(struct share *x, uint64_t plan_number)
{
    if (x->active == plan_number)
        return;
    ASSERT(plan_number > x->active);
    ASSERT(x->seqs > 0);
    x->rested = x->active == 0 || x->active + 1 != plan_number;
    x->active = plan_number;
}

void share_charge(struct share *x, uint32_t tokens)
{
    ASSERT(x->weight >= 1 && x->weight <= SHARE_WEIGHT_MAX);
    x->served += (uint64_t)tokens * SHARE_UNIT / x->weight;
}

bool share_goes_before(const struct share *a, const struct share *b)
{
    ASSERT(a->weight > 0 && b->weight > 0);
    uint64_t a_places = (uint64_t)a->running * b->weight, b_places = (uint64_t)b->running * a->weight;
    return a_places != b_places ? a_places < b_places : a->served < b->served;
}

static bool is_a_turn_ahead(const struct share *a, const struct share *b)
{
    return a->served >= b->served + (uint64_t)SHARE_TURN_TOKENS * SHARE_UNIT;
}

bool share_yields(const struct share *from, const struct share *to)
{
    ASSERT(from->running <= from->seqs && to->running <= to->seqs);
    uint64_t from_weight = from->weight, to_weight = to->weight;
    if (from == to || from->running == 0)
        return false;
    if (to->running == 0)
        return from->running >= 2 || is_a_turn_ahead(from, to);
    bool evener = (from->running - 1) * to_weight >= (to->running + 1) * from_weight;
    bool level = from->running >= 2 && from->running * to_weight >= (to->running + 1) * from_weight;
    return evener || (level && is_a_turn_ahead(from, to));
}

int share_compare_prompts(const struct share *a, const struct share *b)
{
    uint64_t turns = (uint64_t)SHARE_PROMPT_TURNS * SHARE_TURN_TOKENS * SHARE_UNIT;
    uint64_t x = a->served / turns, y = b->served / turns;
    return (x > y) - (x < y);
}

/* ---- invariants ---- */

void shares_check(const struct shares *t)
{
    uint32_t with_seqs = 0, present = 0;
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        const struct share *x = &t->table[i];
        with_seqs += x->seqs > 0;
        ASSERT_OF(x->running <= x->seqs, "tenant %llx: %u sequences, %u of them with a place",
                  (unsigned long long)x->id, x->seqs, x->running);
        ASSERT_OF(x->weight >= 1 && x->weight <= SHARE_WEIGHT_MAX, "tenant %llx: weight %u",
                  (unsigned long long)x->id, x->weight);
        ASSERT_OF(x->seqs > 0 || list_empty(&x->link), "tenant %llx: present without sequences",
                  (unsigned long long)x->id);
    }
    for (const struct list *it = t->present.next; it != &t->present; it = it->next, present++) {
        const struct share *x = SHARE(it);
        ASSERT(x >= t->table && x < t->table + SHARES_MAX && present < SHARES_MAX);
        ASSERT_OF(x->seqs > 0, "tenant %llx: present without sequences", (unsigned long long)x->id);
    }
    ASSERT_OF(present == with_seqs, "%u tenants are present, %u have sequences", present, with_seqs);
}
