/* sim_memory STEPS SEED - ledger, holders and guard over two domains: the machine's memory with 1 GiB, a
 * device's with 64 MiB.
 *
 * Made-up models load and unload, take units for requests, cache them, and give them back on request. Half of
 * them have their pools on the device. Some of its commits fail, and some of its units stay committed. Idle
 * models are unloaded for others. After every step the invariants of ledger and holders hold, no domain is
 * above its ceiling, and its accounts equal the committed bytes. A wish for one domain asks no holder of the
 * other one. */
#include "../test_domain.h"
#include "base/list.h"
#include "memory/units.h"
#include "reclaim/guard.h"
#include "reclaim/holders.h"
#include "reclaim/victims.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MACHINE_BYTES ((uint64_t)1 << 30)
#define DEVICE_BYTES  ((uint64_t)64 << 20)
#define MODELS        8
#define MACHINE_UNITS 300 /* units of one pool */
#define DEVICE_UNITS  20

enum { MACHINE, DEVICE, DOMAINS };

struct model {
    const struct domain *domain;
    uint32_t units_max;
    bool loaded;
    struct account *account, *pool_parent, *pool; /* pool_parent: the model's in the domain of its pools */
    struct units *units;                          /* on the device; the machine's are only counted */
    struct holder *holder;
    uint32_t used, cached, spare; /* units */
    uint64_t oldest_ns;
    struct list asks;
};

static struct {
    struct rng rng;
    struct ledger *ledger;
    struct account *roots[DOMAINS], *threads;
    struct test_domain device;
    struct holders *holders;
    struct guard *guard;
    struct model models[MODELS];
    uint64_t now_ns;
    /* The only domain whose holders may be asked to give; NULL: any, since engines want memory meanwhile. */
    const struct domain *wish;
    /* The main thread, the guard's and the one that answers. */
    pthread_mutex_t owners;
    /* Guards the lists of open asks. Taken under the lock of the list of holders. */
    pthread_mutex_t queue;
    pthread_cond_t asked;
    bool ends;
    /* Counts. */
    uint64_t loads, refused[DOMAINS], unloads, victims, orphans, asks, evicted, wants;
} sim = {.owners = PTHREAD_MUTEX_INITIALIZER,
         .queue = PTHREAD_MUTEX_INITIALIZER,
         .asked = PTHREAD_COND_INITIALIZER};

typedef unsigned long long ull;

static uint64_t below(uint64_t n)
{
    return rng_below(&sim.rng, n);
}

static int domain_index(const struct domain *d)
{
    return d == domain_machine() ? MACHINE : DEVICE;
}

/* ---- a model's pool; under `owners` ---- */

static uint32_t held(const struct model *m)
{
    return m->used + m->cached + m->spare;
}

static int commit(struct model *m)
{
    if (held(m) == m->units_max)
        return -ENOSPC;
    for (uint32_t i = 0; m->units && i < m->units_max; i++)
        if (!unit_is_committed(m->units, i))
            return unit_commit(m->units, i);
    if (account_reserve(m->pool, UNIT_BYTES) < 0)
        return -ENOMEM;
    account_use(m->pool, UNIT_BYTES);
    return 0;
}

/* False: the device keeps it. */
static bool decommit(struct model *m)
{
    for (uint32_t i = 0; m->units && i < m->units_max; i++)
        if (unit_is_committed(m->units, i))
            return unit_decommit(m->units, i) == 0;
    account_unuse(m->pool, UNIT_BYTES);
    account_release(m->pool, UNIT_BYTES);
    return true;
}

static uint32_t give_spare(struct model *m, uint32_t units)
{
    uint32_t given = 0;
    while (m->spare > 0 && given < units && decommit(m)) {
        m->spare--;
        given++;
    }
    return given;
}

static void evict(struct model *m, uint32_t units)
{
    uint32_t count = MIN_OF(units, m->cached);
    m->cached -= count;
    m->spare += count;
    m->oldest_ns = m->cached ? m->oldest_ns + 1 : 0;
    sim.evicted += count;
}

static void publish(struct model *m)
{
    struct holder_numbers n = {.held_bytes = held(m) * UNIT_BYTES,
                               .free_bytes = m->spare * UNIT_BYTES,
                               .cached_bytes = m->cached * UNIT_BYTES,
                               .reach_bytes =
                                   account_would_free(m->pool, (m->cached + m->spare) * UNIT_BYTES),
                               .wanted_bytes = m->cached * UNIT_BYTES,
                               .oldest_ns = m->oldest_ns,
                               .entries = m->cached};
    struct holder_share s = holder_publish(m->holder, &n, sim.now_ns);
    if (s.asked_bytes == 0)
        return;
    evict(m, (uint32_t)DIV_UP(s.asked_bytes, UNIT_BYTES));
    n.cached_bytes = n.wanted_bytes = m->cached * UNIT_BYTES;
    n.free_bytes = m->spare * UNIT_BYTES;
    n.oldest_ns = m->oldest_ns;
    holder_publish(m->holder, &n, sim.now_ns);
}

/* ---- asks ---- */

static int take_ask(void *arg, struct holder_ask *a)
{
    struct model *m = arg;
    pthread_mutex_lock(&sim.queue);
    list_push_back(&m->asks, &a->link);
    pthread_cond_signal(&sim.asked);
    pthread_mutex_unlock(&sim.queue);
    return 0;
}

static void take_poke(void *arg)
{
    (void)arg;
}

static const struct holder_ops ops = {take_ask, take_poke};

static void answer(struct model *m, struct holder_ask *a)
{
    uint32_t units = a->kind == HOLDER_GIVE ? (uint32_t)DIV_UP(a->bytes, UNIT_BYTES) : UINT32_MAX;
    uint32_t cached = m->cached;
    ASSERT(a->kind != HOLDER_GIVE || !sim.wish || sim.wish == m->domain);
    uint32_t given = give_spare(m, units);
    if (a->kind == HOLDER_CLEAR || (a->kind == HOLDER_GIVE && m->oldest_ns < a->before_ns))
        evict(m, units - given);
    given += give_spare(m, units - given);
    a->answer = (struct holder_answer){cached - m->cached, given * UNIT_BYTES};
    publish(m);
    sim.asks++;
}

/* An ask of some model; NULL: none. */
static struct holder_ask *next_ask(struct model **ret)
{
    for (uint32_t i = 0; i < MODELS; i++) {
        struct model *m = &sim.models[i];
        if (list_empty(&m->asks))
            continue;
        struct holder_ask *a = LIST_FIRST(&m->asks, struct holder_ask, link);
        list_remove(&a->link);
        *ret = m;
        return a;
    }
    return NULL;
}

static void *answer_asks(void *arg)
{
    (void)arg;
    for (bool goes_on = true; goes_on;) {
        struct model *m;
        pthread_mutex_lock(&sim.queue);
        struct holder_ask *a = next_ask(&m);
        while (!a && !sim.ends) {
            pthread_cond_wait(&sim.asked, &sim.queue);
            a = next_ask(&m);
        }
        pthread_mutex_unlock(&sim.queue);
        goes_on = a != NULL;
        if (!a)
            continue;
        pthread_mutex_lock(&sim.owners);
        if (m->loaded)
            answer(m, a);
        pthread_mutex_unlock(&sim.owners);
        holder_ask_done(a);
    }
    return NULL;
}

/* ---- loading and unloading ---- */

static struct account *open_account(struct account *parent, const char *name)
{
    struct account *a;
    ASSERT(account_open(parent, name, ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &a) == 0);
    return a;
}

struct load {
    struct account *account;
    uint64_t bytes;
};

static int take_floor(void *arg)
{
    const struct load *l = arg;
    return account_set_floor(l->account, l->bytes);
}

/* Gives up `owners` meanwhile: others answer. */
static bool make_room(struct account *account, uint64_t bytes)
{
    struct load l = {account, bytes};
    struct guard_wish w = {.name = "new", .bytes = bytes, .account = account, .take = take_floor, .arg = &l};
    struct guard_refusal why;
    sim.wish = sim.wants ? NULL : account_domain(account);
    pthread_mutex_unlock(&sim.owners);
    int r = guard_reclaim(sim.guard, &w, &why);
    pthread_mutex_lock(&sim.owners);
    sim.wish = NULL;
    ASSERT(r == 0 || r == -ENOMEM);
    if (r == 0)
        return true;
    ASSERT(why.domain == account_domain(account) && why.wanted_bytes == bytes);
    ASSERT(why.projected_bytes > why.ceiling_bytes || sim.wants);
    sim.refused[domain_index(why.domain)]++;
    return false;
}

static void close_accounts(struct model *m)
{
    account_close(m->pool);
    if (m->pool_parent != m->account)
        account_close(m->pool_parent);
    account_close(m->account);
    m->account = m->pool_parent = m->pool = NULL;
}

/* A request's need of the machine's memory, and of the pools where they are. */
static void load(struct model *m)
{
    bool device = m->domain != domain_machine();
    m->account = open_account(sim.roots[MACHINE], "model");
    m->pool_parent = device ? open_account(sim.roots[DEVICE], "model") : m->account;
    m->pool = open_account(m->pool_parent, "pool");
    uint64_t floor = (1 + below(device ? 10 : 200)) * UNIT_BYTES;
    bool fits = make_room(m->account, device ? 1 + below(3 << 20) : floor);
    if (fits && device)
        fits = make_room(m->pool_parent, floor);
    if (!fits) {
        close_accounts(m);
        return;
    }
    m->units = NULL;
    if (device)
        ASSERT(units_create(m->pool, UNIT_BYTES, m->units_max, &m->units) == 0);
    ASSERT(holder_add(sim.holders, m->domain, "model", &m->holder) == 0);
    m->used = m->cached = m->spare = 0;
    m->oldest_ns = 0;
    m->loaded = true;
    holder_open(m->holder, &ops, m);
    publish(m);
    sim.loads++;
}

/* Units that the device keeps are an orphan's. */
static void unload(struct model *m)
{
    ASSERT(m->loaded && m->used == 0);
    holder_close(m->holder);
    m->loaded = false;
    evict(m, m->cached);
    while (!m->units && m->spare > 0)
        m->spare -= decommit(m);
    struct units *left = m->units && units_free(m->units) < 0 ? m->units : NULL;
    sim.orphans += left != NULL;
    holder_remove(m->holder, &left, left != NULL);
    m->units = NULL;
    close_accounts(m);
    sim.unloads++;
}

/* ---- unloading for the guard ---- */

/* Under `owners`. */
static uint32_t list_idle(const struct domain *domain, struct victim *ret)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODELS; i++) {
        const struct model *m = &sim.models[i];
        bool here = domain == domain_machine() || m->domain == domain;
        if (!m->loaded || m->used > 0 || !here)
            continue;
        struct account *a = domain == domain_machine() ? m->account : m->pool_parent;
        ret[count++] = (struct victim){i, account_numbers(a).reserved, 1 + i, i};
    }
    return count;
}

static uint64_t idle_bytes(void *arg, const struct domain *domain)
{
    struct victim v[VICTIMS_MAX];
    uint64_t bytes = 0;
    (void)arg;
    pthread_mutex_lock(&sim.owners);
    uint32_t count = list_idle(domain, v);
    for (uint32_t i = 0; i < count; i++)
        bytes += v[i].bytes;
    pthread_mutex_unlock(&sim.owners);
    return bytes;
}

static uint64_t free_idle(void *arg, const struct domain *domain, uint64_t bytes, const char *name)
{
    (void)name;
    struct victim v[VICTIMS_MAX];
    struct account *root = sim.roots[domain_index(domain)];
    (void)arg;
    pthread_mutex_lock(&sim.owners);
    struct account_numbers n = account_numbers(root);
    uint64_t room = n.limit - MIN_OF(n.reserved, n.limit);
    uint32_t count = victims_choose(v, list_idle(domain, v), bytes > room ? bytes - room : 0);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(domain == domain_machine() || sim.models[v[i].index].domain == domain);
        unload(&sim.models[v[i].index]);
        sim.victims++;
    }
    uint64_t after = account_numbers(root).reserved;
    pthread_mutex_unlock(&sim.owners);
    return n.reserved > after ? n.reserved - after : 0;
}

/* ---- steps ---- */

/* One more unit for a request: an unused one, a new one, or one of its own cache. */
static void grow(struct model *m, bool wants)
{
    int r = m->spare > 0 ? 0 : commit(m);
    if (m->spare > 0)
        m->spare--;
    else if (r == -ENOMEM && wants && holder_want(m->holder, UNIT_BYTES, sim.now_ns))
        sim.wants++;
    if (r == 0) {
        m->used++;
    } else if (m->cached > 0) {
        evict(m, 1);
        m->spare--;
        m->used++;
    }
}

static void finish(struct model *m)
{
    uint32_t units = (uint32_t)below(m->used + 1);
    uint64_t allowed = holder_allow(m->holder, (m->cached + units) * UNIT_BYTES, sim.now_ns);
    uint32_t keep = (uint32_t)MIN_OF(allowed / UNIT_BYTES - MIN_OF(allowed / UNIT_BYTES, m->cached), units);
    m->used -= units;
    m->cached += keep;
    m->spare += units - keep;
    if (m->cached > 0 && m->oldest_ns == 0)
        m->oldest_ns = sim.now_ns;
}

static void use(struct model *m, bool wants)
{
    switch (below(8)) {
    case 0:
        finish(m);
        break;
    case 1:
        give_spare(m, (uint32_t)below(4));
        break;
    case 2:
        evict(m, (uint32_t)below(3));
        break;
    case 3:
        /* All requests end. */
        if (below(10) == 0) {
            m->spare += m->used;
            m->used = 0;
        }
        if (m->used == 0 && below(10) == 0) {
            unload(m);
            return;
        }
        break;
    default:
        for (uint64_t i = 1 + below(8); i > 0; i--)
            grow(m, wants);
    }
    publish(m);
}

/* The guard's thread frees orphans without `owners`: bytes first, then the account. */
static void check_device(void)
{
    struct holders_numbers n;
    holders_numbers(sim.holders, &sim.device.domain, &n);
    uint64_t used = account_numbers(sim.roots[DEVICE]).used;
    uint64_t open = sim.device.open;
    ASSERT(open <= used && (n.orphans > 0 || open == used));
}

static void check(void)
{
    ledger_check(sim.ledger);
    holders_check(sim.holders);
    for (int i = 0; i < DOMAINS; i++) {
        struct account_numbers n = account_numbers(sim.roots[i]);
        ASSERT(n.reserved <= n.limit && n.used <= n.reserved);
    }
    check_device();
}

/* Sometimes all holders of one domain, or of both, are asked. */
static void clear(void)
{
    struct holders_reclaimed r;
    const struct domain *of[] = {NULL, domain_machine(), &sim.device.domain};
    enum holder_ask_kind kind = below(2) ? HOLDER_CLEAR : HOLDER_TRIM;
    pthread_mutex_unlock(&sim.owners);
    holders_reclaim(sim.holders, of[below(3)], kind, 60000000000ull, &r);
    pthread_mutex_lock(&sim.owners);
}

static void step(bool wants)
{
    struct model *m = &sim.models[below(MODELS)];
    pthread_mutex_lock(&sim.owners);
    sim.now_ns += 1 + below(20000000);
    if (m->loaded)
        use(m, wants);
    else if (below(20) == 0)
        load(m);
    if (below(5000) == 0)
        clear();
    check();
    pthread_mutex_unlock(&sim.owners);
}

/* ---- the run ---- */

static void open_all(uint64_t seed)
{
    sim.rng = (struct rng){seed, 0};
    sim.now_ns = 1;
    ASSERT(ledger_create(MACHINE_BYTES, &sim.ledger) == 0);
    const struct domain *device = test_domain_init(&sim.device, "device");
    sim.device.empty = true;
    sim.device.rng = (struct rng){seed, 1};
    sim.roots[MACHINE] = ledger_root(sim.ledger);
    ASSERT(ledger_open_root(sim.ledger, device, DEVICE_BYTES, &sim.roots[DEVICE]) == 0);
    sim.threads = open_account(sim.roots[MACHINE], "threads");
    struct holders_opts holders = {sim.ledger, MACHINE_BYTES / 4};
    ASSERT(holders_create(&holders, &sim.holders) == 0);
    holders_add_domain(sim.holders, device, DEVICE_BYTES / 2);
    struct guard_opts guard = {.ledger = sim.ledger, .holders = sim.holders, .threads = sim.threads};
    ASSERT(guard_create(&guard, &sim.guard) == 0);
    guard_set_models(sim.guard, &(struct guard_models){idle_bytes, free_idle, NULL});
    for (uint32_t i = 0; i < MODELS; i++) {
        bool on_device = i % 2 == 1;
        sim.models[i] = (struct model){.domain = on_device ? device : domain_machine(),
                                       .units_max = on_device ? DEVICE_UNITS : MACHINE_UNITS};
        list_init(&sim.models[i].asks);
    }
}

static void close_all(void)
{
    guard_set_models(sim.guard, NULL);
    guard_free(sim.guard);
    sim.device.stuck = 0;
    pthread_mutex_lock(&sim.owners);
    for (uint32_t i = 0; i < MODELS; i++) {
        struct model *m = &sim.models[i];
        m->spare += m->used;
        m->used = 0;
        if (m->loaded)
            unload(m);
    }
    pthread_mutex_unlock(&sim.owners);
    holders_free(sim.holders);
    ASSERT(sim.device.open == 0 && sim.device.ranges == 0);
    account_close(sim.threads);
    account_close(sim.roots[DEVICE]);
    ledger_free(sim.ledger);
}

int main(int argc, char **argv)
{
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    pthread_t thread;
    open_all(seed);
    ASSERT(pthread_create(&thread, NULL, answer_asks, NULL) == 0);
    sim.device.no_memory = sim.device.stuck = 0.01;
    /* In the second half engines want memory, and the guard's thread asks others meanwhile. */
    for (uint64_t i = 0; i < steps; i++)
        step(i >= steps / 2);
    close_all();
    pthread_mutex_lock(&sim.queue);
    sim.ends = true;
    pthread_cond_signal(&sim.asked);
    pthread_mutex_unlock(&sim.queue);
    pthread_join(thread, NULL);
    printf(
        "steps=%llu seed=%llu loads=%llu refused_machine=%llu refused_device=%llu unloads=%llu victims=%llu "
        "orphans=%llu asks=%llu evicted=%llu wants=%llu\n",
        (ull)steps, (ull)seed, (ull)sim.loads, (ull)sim.refused[MACHINE], (ull)sim.refused[DEVICE],
        (ull)sim.unloads, (ull)sim.victims, (ull)sim.orphans, (ull)sim.asks, (ull)sim.evicted,
        (ull)sim.wants);
    bool covered = sim.loads && sim.refused[MACHINE] && sim.refused[DEVICE] && sim.victims && sim.orphans &&
                   sim.asks && sim.evicted && sim.wants;
    if (steps >= 100000 && !covered) {
        fprintf(stderr, "something above is 0: this run does not try what it should\n");
        return 1;
    }
    return 0;
}
