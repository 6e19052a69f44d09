/* responses_store.c - a hash table and a list by last use, under one lock.
 *
 * Texts are copied outside the lock: items are never written again, and a reference keeps them. The lock is
 * held for a few pointers and, where a reply is read, for its copy. */
#include "api/responses_store.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/list.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024
#define SHARES  256

struct responses_items {
    struct responses_store *store;
    struct responses_items *before; /* a reference; NULL: the conversation begins here */
    uint32_t refs;                  /* under the lock */
    uint32_t depth;                 /* responses before it in the chain */
    size_t bytes;                   /* bytes of this struct and its text */
    size_t input_len;               /* length of the input in the text, without the output */
    struct slice text;
};

struct entry {
    struct list by_key, by_use, by_share;
    struct responses_key key;
    struct responses_items *items; /* a reference */
    uint64_t used_ns;
    size_t bytes; /* bytes of this struct and its reply */
    struct slice reply;
};

/* Entries of the tenants with one hash: nearly always one tenant. */
struct share {
    struct list by_use; /* the least recently used first */
    uint64_t bytes;     /* bytes of entries and their own items */
};

struct responses_store {
    struct responses_store_opts opts;
    struct charge charge;
    pthread_mutex_t lock;
    struct list buckets[BUCKETS];
    struct list by_use; /* the least recently used first */
    struct share shares[SHARES];
    struct responses_store_numbers numbers;
};

/* ---- blocks ---- */

static const struct charge *charge_of(const struct responses_store *s)
{
    return s->opts.account ? &s->charge : NULL;
}

/* A block of `head` bytes and a copy of the text behind it; zero but for that. */
static void *make(struct responses_store *s, size_t head, struct slice text, struct slice *copy)
{
    size_t bytes = head + text.len;
    if (s->numbers.bytes + bytes > s->opts.bytes_max || charge_take(charge_of(s), bytes) < 0)
        return NULL;
    char *block = calloc(1, bytes);
    if (!block) {
        charge_give(charge_of(s), bytes);
        return NULL;
    }
    if (text.len > 0)
        memcpy(block + head, text.ptr, text.len);
    *copy = (struct slice){block + head, text.len};
    s->numbers.bytes += bytes;
    return block;
}

static void drop(struct responses_store *s, void *block, size_t bytes)
{
    ASSERT(s->numbers.bytes >= bytes);
    s->numbers.bytes -= bytes;
    charge_give(charge_of(s), bytes);
    free(block);
}

static void unref(struct responses_items *i)
{
    while (i) {
        struct responses_items *before = i->before;
        ASSERT(i->refs > 0);
        if (--i->refs > 0)
            return;
        drop(i->store, i, i->bytes);
        i = before;
    }
}

/* ---- entries ---- */

static struct list *bucket_of(struct responses_store *s, const struct responses_key *key)
{
    return &s->buckets[hash_bytes(&key->id, sizeof(key->id)) % BUCKETS];
}

static struct entry *find(struct responses_store *s, const struct responses_key *key)
{
    LIST_EACH(it, bucket_of(s, key)) {
        struct entry *e = LIST_ENTRY(it, struct entry, by_key);
        if (e->key.tenant == key->tenant && memcmp(&e->key.id, &key->id, sizeof(key->id)) == 0)
            return e;
    }
    return NULL;
}

static struct share *share_of(struct responses_store *s, uint64_t tenant)
{
    return &s->shares[hash_share(tenant, SHARES)];
}

static void remove_entry(struct responses_store *s, struct entry *e)
{
    struct share *share = share_of(s, e->key.tenant);
    ASSERT(s->numbers.entries > 0 && share->bytes >= e->bytes + e->items->bytes);
    share->bytes -= e->bytes + e->items->bytes;
    list_remove(&e->by_share);
    s->numbers.entries--;
    list_remove(&e->by_key);
    list_remove(&e->by_use);
    unref(e->items);
    drop(s, e, e->bytes);
}

static struct entry *oldest(struct responses_store *s)
{
    return list_empty(&s->by_use) ? NULL : LIST_ENTRY(s->by_use.next, struct entry, by_use);
}

/* The entry to evict for `own`, which loses one rather than another share of its size. NULL: there is
 * none. */
static struct entry *victim(struct responses_store *s, struct share *own)
{
    struct share *most = own;
    for (size_t i = 0; i < SHARES; i++)
        most = s->shares[i].bytes > most->bytes ? &s->shares[i] : most;
    return list_empty(&most->by_use) ? NULL : LIST_ENTRY(most->by_use.next, struct entry, by_share);
}

static void expire(struct responses_store *s, uint64_t now_ns)
{
    for (struct entry *e; (e = oldest(s)) && e->used_ns + s->opts.ttl_ns <= now_ns; s->numbers.expired++)
        remove_entry(s, e);
}

/* The entry, which was used now. */
static struct entry *use(struct responses_store *s, const struct responses_key *key, uint64_t now_ns)
{
    expire(s, now_ns);
    struct entry *e = find(s, key);
    if (!e) {
        s->numbers.missed++;
        return NULL;
    }
    s->numbers.found++;
    e->used_ns = now_ns;
    list_remove(&e->by_use);
    list_push_back(&s->by_use, &e->by_use);
    list_remove(&e->by_share);
    list_push_back(&share_of(s, e->key.tenant)->by_use, &e->by_share);
    return e;
}

/* Evicts until `bytes` more fit for the tenant. */
static void make_room(struct responses_store *s, uint64_t tenant, size_t bytes)
{
    for (struct entry *e;
         s->numbers.bytes + bytes > s->opts.bytes_max && (e = victim(s, share_of(s, tenant)));
         s->numbers.evicted++)
        remove_entry(s, e);
}

static struct responses_items *make_items(struct responses_store *s, const struct responses_put *p)
{
    struct slice copy;
    uint32_t depth = p->before ? p->before->depth + 1 : 0;
    struct responses_items *i = depth < RESPONSES_DEPTH_MAX ? make(s, sizeof(*i), p->items, &copy) : NULL;
    if (!i)
        return NULL;
    *i = (struct responses_items){
        s, p->before, 1, depth, sizeof(*i) + p->items.len, MIN_OF(p->input_len, p->items.len), copy};
    if (p->before)
        p->before->refs++;
    return i;
}

static bool put(struct responses_store *s, const struct responses_key *key, const struct responses_put *p,
                uint64_t now_ns)
{
    struct slice copy;
    make_room(s, key->tenant,
              sizeof(struct responses_items) + p->items.len + sizeof(struct entry) + p->reply.len);
    struct responses_items *own = make_items(s, p);
    struct entry *e = own ? make(s, sizeof(*e), p->reply, &copy) : NULL;
    if (!e) {
        unref(own);
        return false;
    }
    list_init(&e->by_key);
    list_init(&e->by_use);
    list_init(&e->by_share);
    e->key = *key;
    e->items = own;
    e->used_ns = now_ns;
    e->bytes = sizeof(*e) + p->reply.len;
    e->reply = copy;
    list_push_back(bucket_of(s, key), &e->by_key);
    list_push_back(&s->by_use, &e->by_use);
    list_push_back(&share_of(s, key->tenant)->by_use, &e->by_share);
    share_of(s, key->tenant)->bytes += e->bytes + own->bytes;
    s->numbers.entries++;
    return true;
}

/* ---- the interface ---- */

uint64_t responses_store_bytes(void)
{
    return sizeof(struct responses_store);
}

int responses_store_create(const struct responses_store_opts *opts, struct responses_store **ret)
{
    struct charge charge = {0};
    if (opts->account)
        charge = account_charge(opts->account);
    if (opts->account && charge_take(&charge, sizeof(struct responses_store)) < 0)
        return -ENOMEM;
    struct responses_store *s = calloc(1, sizeof(*s));
    if (!s) {
        charge_give(opts->account ? &charge : NULL, sizeof(*s));
        return -ENOMEM;
    }
    s->opts = *opts;
    s->charge = charge;
    pthread_mutex_init(&s->lock, NULL);
    list_init(&s->by_use);
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&s->buckets[i]);
    for (size_t i = 0; i < SHARES; i++)
        list_init(&s->shares[i].by_use);
    *ret = s;
    return 0;
}

void responses_store_free(struct responses_store *s)
{
    if (!s)
        return;
    for (struct entry *e; (e = oldest(s));)
        remove_entry(s, e);
    ASSERT(s->numbers.bytes == 0 && s->numbers.entries == 0);
    struct charge charge = s->charge;
    bool counted = s->opts.account != NULL;
    pthread_mutex_destroy(&s->lock);
    free(s);
    charge_give(counted ? &charge : NULL, sizeof(*s));
}

bool responses_store_put(struct responses_store *s, struct responses_key key, const struct responses_put *p,
                         uint64_t now_ns)
{
    uint64_t part = s->opts.bytes_max / RESPONSES_STORE_PART;
    pthread_mutex_lock(&s->lock);
    expire(s, now_ns);
    bool ok = p->items.len + sizeof(struct responses_items) <= part &&
              p->reply.len + sizeof(struct entry) <= part && !find(s, &key) && put(s, &key, p, now_ns);
    *(ok ? &s->numbers.stored : &s->numbers.refused) += 1;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

struct responses_items *responses_store_take(struct responses_store *s, struct responses_key key,
                                             uint64_t now_ns)
{
    pthread_mutex_lock(&s->lock);
    struct entry *e = use(s, &key, now_ns);
    struct responses_items *items = e ? e->items : NULL;
    if (items)
        items->refs++;
    pthread_mutex_unlock(&s->lock);
    return items;
}

void responses_items_unref(struct responses_items *i)
{
    if (!i)
        return;
    struct responses_store *s = i->store;
    pthread_mutex_lock(&s->lock);
    unref(i);
    pthread_mutex_unlock(&s->lock);
}

/* The list leads back in time: each text is looked up from its end. */
void responses_items_write(const struct responses_items *i, bool output, struct buf *ret)
{
    for (uint32_t steps = i->depth;; steps--) {
        const struct responses_items *at = i;
        for (uint32_t k = 0; k < steps; k++)
            at = at->before;
        buf_put_slice(ret, at == i && !output ? slice_sub(at->text, 0, at->input_len) : at->text);
        if (steps == 0)
            return;
        buf_puts(ret, RESPONSES_BETWEEN);
    }
}

struct slice responses_items_own(const struct responses_items *i)
{
    return i->text;
}

bool responses_store_reply(struct responses_store *s, struct responses_key key, uint64_t now_ns,
                           struct buf *ret)
{
    pthread_mutex_lock(&s->lock);
    const struct entry *e = use(s, &key, now_ns);
    if (e)
        buf_put_slice(ret, e->reply);
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

bool responses_store_delete(struct responses_store *s, struct responses_key key)
{
    pthread_mutex_lock(&s->lock);
    struct entry *e = find(s, &key);
    if (e)
        remove_entry(s, e);
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

void responses_store_expire(struct responses_store *s, uint64_t now_ns)
{
    pthread_mutex_lock(&s->lock);
    expire(s, now_ns);
    pthread_mutex_unlock(&s->lock);
}

struct responses_store_numbers responses_store_numbers(struct responses_store *s)
{
    pthread_mutex_lock(&s->lock);
    struct responses_store_numbers ret = s->numbers;
    ret.bytes_max = s->opts.bytes_max;
    pthread_mutex_unlock(&s->lock);
    return ret;
}

void responses_store_give(struct responses_store *s, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    uint64_t before = s->numbers.bytes;
    for (struct entry *e; before - s->numbers.bytes < bytes && (e = victim(s, &s->shares[0]));
         s->numbers.evicted++)
        remove_entry(s, e);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the check ---- */

static void check_entry(struct responses_store *s, const struct entry *e)
{
    const struct responses_items *i = e->items;
    ASSERT_OF(i && i->store == s && i->refs > 0, "responses: an entry without items of this store");
    ASSERT_OF(e->bytes == sizeof(*e) + e->reply.len, "responses: an entry of %zu bytes with a reply of %zu",
              e->bytes, e->reply.len);
    ASSERT_OF(i->bytes == sizeof(*i) + i->text.len && i->input_len <= i->text.len,
              "responses: items of %zu bytes with a text of %zu, its input %zu", i->bytes, i->text.len,
              i->input_len);
    ASSERT_OF(i->depth == (i->before ? i->before->depth + 1 : 0) && i->depth < RESPONSES_DEPTH_MAX,
              "responses: items at depth %u", i->depth);
    ASSERT_OF(find(s, &e->key) == e, "responses: an entry is not in its bucket");
}

void responses_store_check(struct responses_store *s, struct walk *w)
{
    uint64_t entries = 0, bytes = 0, shares = 0;
    pthread_mutex_lock(&s->lock);
    const struct responses_store_numbers *n = &s->numbers;
    ASSERT_OF(n->bytes <= s->opts.bytes_max, "responses: %llu bytes stored, the limit is %llu", (ull)n->bytes,
              (ull)s->opts.bytes_max);
    LIST_EACH(it, &s->by_use) {
        const struct entry *e = LIST_ENTRY(it, struct entry, by_use);
        if (!walk_on(w))
            break;
        check_entry(s, e);
        entries++;
        bytes += e->bytes + e->items->bytes;
    }
    ASSERT_OF(w->called_off || entries == n->entries, "responses: %llu entries listed, %llu counted",
              (ull)entries, (ull)n->entries);
    for (size_t i = 0; i < SHARES; i++)
        shares += s->shares[i].bytes;
    ASSERT_OF(w->called_off || shares == bytes, "responses: entries of %llu bytes, tenants have %llu",
              (ull)bytes, (ull)shares);
    ASSERT_OF(bytes <= n->bytes, "responses: entries of %llu bytes, %llu counted", (ull)bytes, (ull)n->bytes);
    pthread_mutex_unlock(&s->lock);
}
