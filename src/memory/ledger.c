/* ledger.c - a tree under one lock.
 *
 * Atomics per account were considered and dropped: a reservation must either move every account up to the
 * root or none, and a reader must see sums that add up. The lock is held for a walk of four or five
 * levels. */
#include "memory/ledger.h"

#include "memory/domain.h"
#include "memory/ledger_state.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *account_class_name(enum account_class c)
{
    static const char *const names[] = {"anon", "file", "device", "pinned", "disk"};
    ASSERT(c < ACCOUNT_CLASS_COUNT);
    return names[c];
}

/* Returns the account's class: the domain's, where that is not the machine's memory. */
static enum account_class class_in(const struct domain *domain, enum account_class class)
{
    ASSERT(class != ACCOUNT_DISK || domain->class == ACCOUNT_ANON);
    return domain->class == ACCOUNT_ANON ? class : domain->class;
}

/* The root account of `domain`, unless the parent is of that domain. */
static void account_init(struct account *a, struct ledger *l, struct account *parent,
                         const struct domain *domain, const char *name, enum account_class class,
                         uint64_t limit_bytes)
{
    ASSERT(!parent || parent->ledger == l);
    ASSERT(class < ACCOUNT_CLASS_COUNT);
    ASSERT(!parent || parent->n.class != ACCOUNT_DISK || class == ACCOUNT_DISK);
    *a = (struct account){.ledger = l, .parent = parent};
    list_init(&a->siblings);
    list_init(&a->children);
    snprintf(a->n.name, sizeof(a->n.name), "%s", name);
    a->n.domain = domain;
    a->n.is_root = !parent || parent->n.domain != domain;
    a->root = a->n.is_root ? a : parent->root;
    a->n.class = class_in(domain, class);
    a->n.limit = limit_bytes;
    ASSERT(!parent || parent->n.depth < UINT8_MAX);
    a->n.depth = parent ? (uint8_t)(parent->n.depth + 1) : 0;
}

int ledger_create(uint64_t limit_bytes, struct ledger **ret)
{
    struct ledger *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    pthread_mutex_init(&l->lock, NULL);
    account_init(&l->root, l, NULL, domain_machine(), "process", ACCOUNT_ANON, limit_bytes);
    list_init(&l->roots);
    *ret = l;
    return 0;
}

/* ---- moving ---- */

/* `taken` of `at` grows by `bytes` (or falls, modulo 2^64). Returns by how much it counts as more above. */
static uint64_t move(struct account *at, uint64_t bytes)
{
    uint64_t before = at->n.reserved;
    at->taken += bytes;
    ASSERT(at->taken <= INT64_MAX);
    ASSERT(at->n.used <= at->taken);
    at->n.reserved = ledger_reserved_with(at, at->taken);
    return at->n.reserved - before;
}

static void move_up(struct account *from, struct account *at, uint64_t bytes)
{
    for (; at && bytes != 0; at = at->parent)
        if (ledger_counts_at(at, from))
            bytes = move(at, bytes);
}

/* From `at` on the way up, the first that has no room for `bytes` more of `from`; `spare` is to be left in
 * `at` itself. */
static struct account *find_refusing_from(const struct account *from, struct account *at, uint64_t bytes,
                                          uint64_t spare)
{
    for (; at && bytes > 0; at = at->parent, spare = 0) {
        if (!ledger_counts_at(at, from))
            continue;
        uint64_t room = at->n.limit - MIN_OF(at->taken, at->n.limit);
        if (bytes > room || spare > room - bytes)
            return at;
        bytes = ledger_reserved_with(at, at->taken + bytes) - at->n.reserved;
    }
    return NULL;
}

/* The lowest account on the way up that has no room. */
static struct account *find_refusing(struct account *a, uint64_t bytes, uint64_t spare)
{
    return find_refusing_from(a, a, bytes, spare);
}

/* Under the lock. */
static int set_floor(struct account *a, uint64_t bytes)
{
    uint64_t want = MAX_OF(a->taken, bytes), more = want > a->n.reserved ? want - a->n.reserved : 0;
    if (bytes > a->n.limit || (a->parent && find_refusing_from(a, a->parent, more, 0)))
        return -ENOMEM;
    a->n.floor = bytes;
    move_up(a, a->parent, move(a, 0));
    ASSERT(a->n.reserved >= a->n.floor);
    return 0;
}

/* ---- opening and closing ---- */

static void demand_empty(const struct account *a)
{
    if (a->n.reserved != 0 || !list_empty(&a->children))
        fprintf(stderr, "plateau: account %s closed with %llu bytes reserved, %llu used, %s\n", a->n.name,
                (unsigned long long)a->n.reserved, (unsigned long long)a->n.used,
                list_empty(&a->children) ? "no children" : "children open");
    ASSERT(a->n.reserved == 0 && a->n.used == 0 && list_empty(&a->children));
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    demand_empty(&l->root);
    ASSERT(list_empty(&l->roots));
    pthread_mutex_destroy(&l->lock);
    free(l);
}

struct account *ledger_root(struct ledger *l)
{
    return &l->root;
}

/* Under the lock, as a root without a parent where that is NULL. */
static void list_account(struct account *a)
{
    list_push_back(a->parent ? &a->parent->children : &a->ledger->roots, &a->siblings);
    ASSERT(!a->parent || a->parent->n.children < UINT16_MAX);
    if (a->parent)
        a->parent->n.children++;
}

static struct account *find_root(struct ledger *l, const struct domain *domain)
{
    LIST_EACH(it, domain->class == ACCOUNT_PINNED ? &l->root.children : &l->roots) {
        struct account *a = LIST_ENTRY(it, struct account, siblings);
        if (a->n.domain == domain)
            return a;
    }
    return domain == l->root.n.domain ? &l->root : NULL;
}

int ledger_open_root(struct ledger *l, const struct domain *domain, uint64_t limit_bytes,
                     struct account **ret)
{
    bool pinned = domain->class == ACCOUNT_PINNED;
    ASSERT(pinned || domain->class == ACCOUNT_DEVICE);
    struct account *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    pthread_mutex_lock(&l->lock);
    ASSERT(!find_root(l, domain));
    account_init(a, l, pinned ? &l->root : NULL, domain, domain->name, domain->class, limit_bytes);
    list_account(a);
    pthread_mutex_unlock(&l->lock);
    ASSERT(a->n.is_root);
    *ret = a;
    return 0;
}

struct account *ledger_root_of(struct ledger *l, const struct domain *domain)
{
    pthread_mutex_lock(&l->lock);
    struct account *a = find_root(l, domain);
    pthread_mutex_unlock(&l->lock);
    return a;
}

struct account *account_root(struct account *a)
{
    ASSERT(a->root->n.is_root);
    return a->root;
}

const struct domain *account_domain(const struct account *a)
{
    ASSERT(a->n.domain == a->root->n.domain);
    return a->n.domain;
}

void ledger_set_faults(struct ledger *l, const struct ledger_faults *f)
{
    l->faults = *f;
}

int account_open(struct account *parent, const char *name, enum account_class class, uint64_t limit_bytes,
                 struct account **ret)
{
    struct account *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    struct ledger *l = parent->ledger;
    pthread_mutex_lock(&l->lock);
    account_init(a, l, parent, parent->n.domain, name, class, limit_bytes);
    list_account(a);
    pthread_mutex_unlock(&l->lock);
    *ret = a;
    return 0;
}

void account_close(struct account *a)
{
    if (!a)
        return;
    struct ledger *l = a->ledger;
    ASSERT(a != &l->root);
    pthread_mutex_lock(&l->lock);
    (void)set_floor(a, 0); /* Less is never refused. */
    demand_empty(a);
    list_remove(&a->siblings);
    ASSERT(!a->parent || a->parent->n.children > 0);
    if (a->parent)
        a->parent->n.children--;
    pthread_mutex_unlock(&l->lock);
    free(a);
}

static struct account *find(struct account *parent, const char *name)
{
    struct account *found = NULL;
    LIST_EACH(it, &parent->children) {
        struct account *child = LIST_ENTRY(it, struct account, siblings);
        if (!found)
            found = strcmp(child->n.name, name) == 0 ? child : find(child, name);
    }
    return found;
}

struct account *account_find(struct account *parent, const char *name)
{
    pthread_mutex_lock(&parent->ledger->lock);
    struct account *found = find(parent, name);
    pthread_mutex_unlock(&parent->ledger->lock);
    return found;
}

void account_set_planned(struct account *a, uint64_t bytes)
{
    pthread_mutex_lock(&a->ledger->lock);
    a->n.planned = bytes;
    pthread_mutex_unlock(&a->ledger->lock);
}

void account_set_limit(struct account *a, uint64_t limit_bytes)
{
    pthread_mutex_lock(&a->ledger->lock);
    a->n.limit = limit_bytes;
    pthread_mutex_unlock(&a->ledger->lock);
}

int account_set_floor(struct account *a, uint64_t bytes)
{
    const struct ledger_faults *f = &a->ledger->faults;
    if (bytes > 0 && f->reserve && f->reserve(f->arg) != 0)
        return -ENOMEM;
    pthread_mutex_lock(&a->ledger->lock);
    int r = set_floor(a, bytes);
    pthread_mutex_unlock(&a->ledger->lock);
    return r;
}

/* ---- bytes ---- */

int account_reserve_sparing(struct account *a, uint64_t bytes, uint64_t spare)
{
    const struct ledger_faults *f = &a->ledger->faults;
    if (f->reserve && f->reserve(f->arg) != 0)
        return -ENOMEM;
    pthread_mutex_lock(&a->ledger->lock);
    int r = find_refusing(a, bytes, spare) ? -ENOMEM : 0;
    if (r == 0)
        move_up(a, a, bytes);
    ASSERT(r < 0 || bytes == 0 || a->taken <= a->n.limit);
    pthread_mutex_unlock(&a->ledger->lock);
    return r;
}

int account_reserve(struct account *a, uint64_t bytes)
{
    return account_reserve_sparing(a, bytes, 0);
}

bool account_refuses(struct account *a, uint64_t bytes, struct account_numbers *ret)
{
    pthread_mutex_lock(&a->ledger->lock);
    const struct account *at = find_refusing(a, bytes, 0);
    if (at)
        *ret = at->n;
    pthread_mutex_unlock(&a->ledger->lock);
    return at != NULL;
}

void account_release(struct account *a, uint64_t bytes)
{
    pthread_mutex_lock(&a->ledger->lock);
    ASSERT(bytes <= a->taken - a->n.used);
    move_up(a, a, -bytes);
    pthread_mutex_unlock(&a->ledger->lock);
}

uint64_t account_would_free(struct account *a, uint64_t bytes)
{
    pthread_mutex_lock(&a->ledger->lock);
    bytes = MIN_OF(bytes, a->taken);
    for (struct account *at = a; at && at->root == a->root; at = at->parent)
        if (ledger_counts_at(at, a)) {
            ASSERT(bytes <= at->taken);
            bytes = at->n.reserved - ledger_reserved_with(at, at->taken - bytes);
        }
    pthread_mutex_unlock(&a->ledger->lock);
    return bytes;
}

void account_use(struct account *a, uint64_t bytes)
{
    pthread_mutex_lock(&a->ledger->lock);
    ASSERT(bytes <= a->taken - a->n.used);
    for (struct account *at = a; at; at = at->parent) {
        if (!ledger_counts_at(at, a))
            continue;
        at->n.used += bytes;
        ASSERT(at->n.used <= at->taken);
        at->n.peak = MAX_OF(at->n.peak, at->n.used);
    }
    pthread_mutex_unlock(&a->ledger->lock);
}

void account_unuse(struct account *a, uint64_t bytes)
{
    pthread_mutex_lock(&a->ledger->lock);
    ASSERT(bytes <= a->n.used);
    for (struct account *at = a; at; at = at->parent)
        if (ledger_counts_at(at, a)) {
            ASSERT(bytes <= at->n.used);
            at->n.used -= bytes;
        }
    pthread_mutex_unlock(&a->ledger->lock);
}

void account_shift(struct account *from, struct account *to, uint64_t bytes)
{
    ASSERT(from != to);
    ASSERT(from->parent == to->parent && from->n.class == to->n.class);
    ASSERT(from->n.floor == 0 && to->n.floor == 0);
    pthread_mutex_lock(&from->ledger->lock);
    ASSERT(bytes <= from->n.used);
    from->n.used -= bytes;
    to->n.used += bytes;
    move(from, -bytes);
    move(to, bytes);
    to->n.peak = MAX_OF(to->n.peak, to->n.used);
    pthread_mutex_unlock(&from->ledger->lock);
}

static void use_up(struct account *at, uint64_t bytes)
{
    for (; at; at = at->parent) {
        at->n.used += bytes;
        ASSERT(at->n.used <= at->taken);
        at->n.peak = MAX_OF(at->n.peak, at->n.used);
    }
}

void account_move(struct account *from, struct account *to, uint64_t bytes)
{
    ASSERT(from->ledger == to->ledger && from->root == to->root);
    ASSERT(from->n.class == to->n.class && from->n.class != ACCOUNT_DISK);
    pthread_mutex_lock(&from->ledger->lock);
    ASSERT(bytes <= from->n.used);
    for (struct account *at = from; at; at = at->parent) {
        ASSERT(bytes <= at->n.used);
        at->n.used -= bytes;
    }
    move_up(from, from, -bytes);
    move_up(to, to, bytes);
    use_up(to, bytes);
    pthread_mutex_unlock(&from->ledger->lock);
}

static int charge_account_take(void *owner, size_t bytes)
{
    int r = account_reserve(owner, bytes);
    if (r == 0)
        account_use(owner, bytes);
    return r;
}

static void charge_account_give(void *owner, size_t bytes)
{
    account_unuse(owner, bytes);
    account_release(owner, bytes);
}

struct charge account_charge(struct account *a)
{
    return (struct charge){charge_account_take, charge_account_give, a};
}

struct account_numbers account_numbers(struct account *a)
{
    pthread_mutex_lock(&a->ledger->lock);
    struct account_numbers n = a->n;
    pthread_mutex_unlock(&a->ledger->lock);
    return n;
}

static void walk(struct account *a, void (*visit)(void *, const struct account_numbers *), void *arg)
{
    visit(arg, &a->n);
    LIST_EACH(it, &a->children)
        walk(LIST_ENTRY(it, struct account, siblings), visit, arg);
}

void ledger_walk(struct ledger *l, void (*visit)(void *arg, const struct account_numbers *n), void *arg)
{
    pthread_mutex_lock(&l->lock);
    walk(&l->root, visit, arg);
    LIST_EACH(it, &l->roots)
        walk(LIST_ENTRY(it, struct account, siblings), visit, arg);
    pthread_mutex_unlock(&l->lock);
}
