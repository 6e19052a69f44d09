/* grammar_cache.c - a list in the order of last use, under one lock. Compiling and matching run outside it.
 *
 * Entries are few (one takes half a megabyte or more), so a search goes through all of them. */
#include "constraint/grammar_cache.h"

#include "constraint/grammar_source.h"

#include "base/charge.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/wanted.h"
#include "grammar/grammar.h"
#include "grammar/grammar_vocab.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define TABLES_PART      8 /* bytes_max divided by this is for the tables of one entry */
#define TABLES_BYTES_MIN ((size_t)256 << 10)
#define WAIT_NS          (20 * NS_PER_MS) /* between two looks at `wanted` */

enum state { COMPILING, READY, FAILED };

struct grammar_entry {
    struct grammar_cache *cache;
    struct list link; /* in the cache's list; in none once it has failed */
    uint8_t key[GRAMMAR_SOURCE_KEY_BYTES];
    enum state state;
    uint32_t users;
    uint64_t tenant;
    struct charge charge;   /* charge of its grammar and tables: evicts entries where the account has no
                             * room */
    _Atomic uint64_t bytes; /* bytes of the entry, taken of the cache's account */
    bool refused;           /* its charge had no room */
    struct grammar *grammar;
    struct matcher_tables *tables;
    pthread_mutex_t tables_lock;
    /* FAILED. */
    int error;
    struct err why;
};

/* A source that exceeded a limit. */
struct failure {
    uint8_t key[GRAMMAR_SOURCE_KEY_BYTES];
    struct err why;
};

struct grammar_cache {
    const struct grammar_vocab *vocab;
    uint64_t bytes_max;
    size_t tables_bytes;
    struct charge account;
    pthread_mutex_t lock;
    pthread_cond_t changed;                      /* an entry is no longer compiling */
    struct list entries;                         /* the least recently used first */
    struct failure failures[GRAMMAR_FAILED_MAX]; /* a ring */
    uint32_t failed;                             /* how many were put into it */
    struct grammar_cache_numbers numbers;
    _Atomic uint64_t bytes; /* taken of `account` for entries */
};

/* ---- Entries ---- */

static void give_room(void *owner, size_t bytes)
{
    struct grammar_cache *c = owner;
    charge_give(&c->account, bytes);
    atomic_fetch_sub(&c->bytes, bytes);
}

static void give_entry(void *owner, size_t bytes)
{
    struct grammar_entry *g = owner;
    atomic_fetch_sub(&g->bytes, bytes);
    give_room(g->cache, bytes);
}

static void entry_free(struct grammar_cache *c, struct grammar_entry *g)
{
    ASSERT(g->users == 0);
    list_remove(&g->link);
    matcher_tables_free(g->tables);
    grammar_free(g->grammar);
    pthread_mutex_destroy(&g->tables_lock);
    ASSERT(atomic_load(&g->bytes) == sizeof(*g));
    free(g);
    give_room(c, sizeof(*g));
}

/* Under the lock. */
static bool evict(struct grammar_cache *c)
{
    LIST_EACH(it, &c->entries) {
        struct grammar_entry *g = CONTAINER(it, struct grammar_entry, link);
        if (g->users > 0)
            continue;
        entry_free(c, g);
        c->numbers.entries--;
        c->numbers.evicted++;
        return true;
    }
    return false;
}

bool grammar_cache_evict(struct grammar_cache *c)
{
    pthread_mutex_lock(&c->lock);
    bool some = evict(c);
    pthread_mutex_unlock(&c->lock);
    return some;
}

uint32_t grammar_cache_clear(struct grammar_cache *c, uint64_t *bytes)
{
    uint32_t count = 0;
    pthread_mutex_lock(&c->lock);
    uint64_t before = atomic_load(&c->bytes);
    while (evict(c))
        count++;
    c->failed = 0;
    uint64_t after = atomic_load(&c->bytes);
    pthread_mutex_unlock(&c->lock);
    *bytes = before > after ? before - after : 0; /* others may have begun to compile */
    return count;
}

/* Under the lock. */
static int take_room(struct grammar_cache *c, size_t bytes)
{
    int r;
    while ((r = charge_take(&c->account, bytes)) < 0 && evict(c))
        continue;
    if (r == 0)
        atomic_fetch_add(&c->bytes, bytes);
    return r;
}

/* The entry may have that many bytes more beside those in use. Under the lock. */
static bool has_share(struct grammar_cache *c, const struct grammar_entry *g, size_t bytes)
{
    uint64_t all = 0, own = 0;
    LIST_EACH(it, &c->entries) {
        const struct grammar_entry *e = CONTAINER(it, struct grammar_entry, link);
        uint64_t taken = e->users > 0 ? atomic_load(&e->bytes) : 0;
        all += taken;
        own += e != g && e->tenant == g->tenant ? taken : 0;
    }
    uint64_t rest = c->bytes_max - MIN_OF(all, c->bytes_max);
    return own == 0 || own + atomic_load(&g->bytes) + bytes <= GRAMMAR_SHARE_OF_FREE * rest;
}

/* Under the lock. */
static int take_entry(struct grammar_entry *g, size_t bytes)
{
    int r = has_share(g->cache, g, bytes) ? take_room(g->cache, bytes) : -ENOMEM;
    if (r == 0)
        atomic_fetch_add(&g->bytes, bytes);
    else
        g->refused = true;
    return r;
}

static int charge_entry(void *owner, size_t bytes)
{
    struct grammar_entry *g = owner;
    pthread_mutex_lock(&g->cache->lock);
    int r = take_entry(g, bytes);
    pthread_mutex_unlock(&g->cache->lock);
    return r;
}

/* A new entry, compiling, with one user. Under the lock. */
static struct grammar_entry *entry_new(struct grammar_cache *c, const uint8_t *key, uint64_t tenant)
{
    if (take_room(c, sizeof(struct grammar_entry)) < 0)
        return NULL;
    struct grammar_entry *g = calloc(1, sizeof(*g));
    if (!g) {
        give_room(c, sizeof(*g));
        return NULL;
    }
    g->cache = c;
    g->tenant = tenant;
    g->charge = (struct charge){charge_entry, give_entry, g};
    atomic_init(&g->bytes, sizeof(*g));
    memcpy(g->key, key, sizeof(g->key));
    list_init(&g->link);
    pthread_mutex_init(&g->tables_lock, NULL);
    g->users = 1;
    list_push_back(&c->entries, &g->link);
    c->numbers.entries++;
    return g;
}

static struct grammar_entry *find(struct grammar_cache *c, const uint8_t *key)
{
    LIST_EACH(it, &c->entries) {
        struct grammar_entry *g = CONTAINER(it, struct grammar_entry, link);
        if (memcmp(g->key, key, sizeof(g->key)) == 0)
            return g;
    }
    return NULL;
}

/* ---- The cache ---- */

int grammar_cache_create(const struct grammar_cache_opts *opts, struct grammar_cache **ret)
{
    if (charge_take(opts->charge, sizeof(struct grammar_cache)) < 0)
        return -ENOMEM;
    struct grammar_cache *c = calloc(1, sizeof(*c));
    if (!c) {
        charge_give(opts->charge, sizeof(*c));
        return -ENOMEM;
    }
    c->vocab = opts->vocab;
    c->account = *opts->charge;
    c->bytes_max = opts->bytes_max;
    c->tables_bytes =
        (size_t)MIN_OF(MAX_OF(opts->bytes_max / TABLES_PART, TABLES_BYTES_MIN), MATCHER_TABLES_BYTES);
    pthread_mutex_init(&c->lock, NULL);
    clock_cond_init(&c->changed);
    list_init(&c->entries);
    *ret = c;
    return 0;
}

void grammar_cache_free(struct grammar_cache *c)
{
    if (!c)
        return;
    while (evict(c))
        continue;
    ASSERT(list_empty(&c->entries) && atomic_load(&c->bytes) == 0);
    struct charge account = c->account;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    charge_give(&account, sizeof(*c));
}

void grammar_cache_numbers(struct grammar_cache *c, struct grammar_cache_numbers *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = c->numbers;
    LIST_EACH(it, &c->entries)
        ret->used += CONTAINER(it, struct grammar_entry, link)->users > 0;
    pthread_mutex_unlock(&c->lock);
}

/* ---- Getting ---- */

/* Under the lock: unused entries have been evicted. */
static int no_room(const struct grammar_cache *c, const struct grammar_entry *g,
                   const struct grammar_source *s, struct err *e)
{
    bool alone = true;
    LIST_EACH(it, &c->entries)
        alone = alone && g && it == &g->link;
    if (alone)
        return err_set(e, -E2BIG, "the %s needs more than the %llu bytes of the cache for grammars",
                       grammar_kind_name(s->kind), (unsigned long long)c->bytes_max);
    return err_set(e, -ENOMEM, "there is no memory for the %s beside the grammars in use",
                   grammar_kind_name(s->kind));
}

/* Set aside for the tables while the grammar is compiled: without room there is no compilation. */
static size_t tables_room(const struct grammar_cache *c)
{
    return c->tables_bytes + TABLES_BYTES_MIN;
}

/* Outside the lock. */
static int fill(struct grammar_cache *c, struct grammar_entry *g, const struct grammar_source *s,
                const struct grammar_source_opts *opts, struct err *e)
{
    struct grammar_source_opts own = *opts;
    own.charge = &g->charge;
    int r = grammar_source_compile(s, &own, &g->grammar, e);
    give_entry(g, tables_room(c));
    if (r < 0)
        return r;
    struct matcher_tables_opts tables = {
        .grammar = g->grammar, .vocab = c->vocab, .bytes_max = c->tables_bytes, .charge = &g->charge};
    return matcher_tables_create(&tables, &g->tables);
}

/* Under the lock. */
static void drop(struct grammar_cache *c, struct grammar_entry *g)
{
    ASSERT(g->users > 0);
    g->users--;
    if (g->users == 0 && g->state == FAILED)
        entry_free(c, g);
}

/* Under the lock. */
static const struct failure *known_failure(const struct grammar_cache *c, const uint8_t *key)
{
    for (uint32_t i = 0; i < MIN_OF(c->failed, (uint32_t)GRAMMAR_FAILED_MAX); i++)
        if (memcmp(c->failures[i].key, key, sizeof(c->failures[i].key)) == 0)
            return &c->failures[i];
    return NULL;
}

static void keep_failure(struct grammar_cache *c, const struct grammar_entry *g, const struct err *e)
{
    struct failure *f = &c->failures[c->failed % GRAMMAR_FAILED_MAX];
    memcpy(f->key, g->key, sizeof(f->key));
    f->why = *e;
    c->failed = c->failed + 1 == 2 * GRAMMAR_FAILED_MAX ? GRAMMAR_FAILED_MAX : c->failed + 1;
}

static void finish_entry(struct grammar_cache *c, struct grammar_entry *g, int r, const struct err *e)
{
    g->state = r == 0 ? READY : FAILED;
    if (r < 0) {
        g->error = r;
        g->why = *e;
        list_remove(&g->link);
        c->numbers.entries--;
    }
    if (r == -E2BIG)
        keep_failure(c, g, e);
    c->numbers.compiled += r == 0;
    c->numbers.refused += r == -EINVAL || r == -ENOTSUP || r == -E2BIG;
    pthread_cond_broadcast(&c->changed);
}

/* The first thread that requests it. Under the lock, which is released in between. */
static int compile(struct grammar_cache *c, const struct grammar_source *s,
                   const struct grammar_source_opts *opts, struct grammar_entry *g, struct err *e)
{
    int r = take_entry(g, tables_room(c));
    if (r == 0) {
        pthread_mutex_unlock(&c->lock);
        r = fill(c, g, s, opts, e);
        pthread_mutex_lock(&c->lock);
    }
    if (r == -ENOMEM && g->refused)
        r = no_room(c, g, s, e);
    finish_entry(c, g, r, e);
    if (r < 0)
        drop(c, g);
    return r;
}

/* Until it is compiled. 0, or why the caller no longer waits. Under the lock. */
static int wait_for(struct grammar_cache *c, const struct grammar_entry *g, const struct wanted *wanted)
{
    int r = 0;
    while (g->state == COMPILING && (r = wanted_check(wanted)) == 0) {
        struct timespec until = clock_deadline(WAIT_NS);
        pthread_cond_timedwait(&c->changed, &c->lock, &until);
    }
    return r;
}

/* An entry that was there. -EAGAIN: the one who compiled it stopped for reasons of its own. */
static int join(struct grammar_cache *c, const struct grammar_source_opts *opts, struct grammar_entry *g,
                struct err *e)
{
    g->users++;
    list_remove(&g->link);
    list_push_back(&c->entries, &g->link);
    int r = wait_for(c, g, opts->wanted);
    if (r < 0) {
        drop(c, g);
        return err_set(e, r, "the grammar is no longer needed");
    }
    if (g->state == READY) {
        c->numbers.hits++;
        return 0;
    }
    r = g->error;
    *e = g->why;
    drop(c, g);
    return r == -ECANCELED || r == -ETIME || r == -ENOMEM ? -EAGAIN : r;
}

int grammar_cache_get(struct grammar_cache *c, const struct grammar_source *s,
                      const struct grammar_source_opts *opts, struct grammar_entry **ret, struct err *e)
{
    uint8_t key[GRAMMAR_SOURCE_KEY_BYTES];
    struct grammar_entry *g;
    int r = -EAGAIN;
    grammar_source_key(s, key);
    pthread_mutex_lock(&c->lock);
    while (r == -EAGAIN) {
        const struct failure *f = known_failure(c, key);
        if (f) {
            *e = f->why;
            c->numbers.recalled++;
            r = -E2BIG;
        } else if ((g = find(c, key)))
            r = join(c, opts, g, e);
        else if ((g = entry_new(c, key, s->scope.tenant)))
            r = compile(c, s, opts, g, e);
        else
            r = no_room(c, NULL, s, e);
    }
    pthread_mutex_unlock(&c->lock);
    if (r == 0)
        *ret = g;
    return r;
}

void grammar_cache_put(struct grammar_cache *c, struct grammar_entry *g)
{
    pthread_mutex_lock(&c->lock);
    drop(c, g);
    pthread_mutex_unlock(&c->lock);
}

/* ---- Using ---- */

void grammar_entry_lock(struct grammar_entry *g)
{
    pthread_mutex_lock(&g->tables_lock);
}

void grammar_entry_unlock(struct grammar_entry *g)
{
    pthread_mutex_unlock(&g->tables_lock);
}

const uint32_t *grammar_entry_ends(const struct grammar_entry *g, uint32_t *count)
{
    *count = g->cache->vocab->end_count;
    return g->cache->vocab->ends;
}

void grammar_entry_ref(struct grammar_entry *g)
{
    pthread_mutex_lock(&g->cache->lock);
    ASSERT(g->users > 0);
    g->users++;
    pthread_mutex_unlock(&g->cache->lock);
}

void grammar_entry_unref(struct grammar_entry *g)
{
    grammar_cache_put(g->cache, g);
}

int grammar_entry_matcher(struct grammar_entry *g, size_t bytes_max, const struct charge *charge,
                          struct matcher **ret)
{
    struct matcher_opts opts = {.tables = g->tables, .bytes_max = bytes_max, .charge = charge};
    grammar_entry_lock(g);
    int r = matcher_create(&opts, ret);
    grammar_entry_unlock(g);
    return r;
}
