/* conversations.c - a table of entries of one size, and texts that several entries share, under one lock.
 *
 * Agents send the same tools in all of their conversations: a text is stored once for each share of tenants,
 * and counts in full for each of its entries there. Texts are compared by their bytes, never by hash alone.
 */
#include "api/conversations.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "cache/share_list.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BUCKETS    256
#define BYTES_PER_ENTRY 8192 /* bytes of the store for one entry and its texts */

struct text {
    struct text *next; /* in its bucket */
    uint64_t hash;
    uint32_t refs, share;
    size_t len;
    char bytes[];
};

struct change {
    uint32_t message;
    uint64_t chain; /* hash of the messages up to that one */
    uint64_t tools; /* hash of the set of tools after it */
    struct text *text;
};

struct entry {
    uint64_t key, tenant; /* valid while `head` is set */
    uint32_t share, prev, next, in_bucket;
    uint64_t used_ns;
    uint32_t count; /* messages of the last turn */
    uint64_t chain; /* their hash */
    uint64_t tools; /* hash of the set of tools at the head */
    size_t bytes;   /* amount in its share */
    struct text *head;
    struct change changes[CONVERSATIONS_CHANGES_MAX];
    uint32_t change_count;
};

struct conversations {
    struct conversations_opts opts;
    struct charge charge;
    pthread_mutex_t lock;
    struct text *texts[TEXT_BUCKETS];
    struct share_list shares[CACHE_SHARES]; /* amounts: bytes */
    struct conversations_numbers numbers;
    uint64_t now_ns;
    uint32_t entries_max, unused; /* unused: the first entry of that list, by `next` */
    uint32_t bucket_mask;
    uint32_t *buckets; /* the first entry of each, by `in_bucket` */
    struct entry *entries;
};

const struct charge *conversations_charge(const struct conversations *c)
{
    return c->opts.account ? &c->charge : NULL;
}

/* ---- texts ---- */

static void unref(struct conversations *c, struct text *t)
{
    if (!t)
        return;
    ASSERT(t->refs > 0);
    if (--t->refs > 0)
        return;
    struct text **at = &c->texts[t->hash % TEXT_BUCKETS];
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    size_t bytes = sizeof(*t) + t->len;
    ASSERT(c->numbers.bytes >= bytes);
    c->numbers.bytes -= bytes;
    charge_give(conversations_charge(c), bytes);
    free(t);
}

static struct text *find_text(struct conversations *c, uint32_t share, uint64_t hash, struct slice text)
{
    struct text *t = c->texts[hash % TEXT_BUCKETS];
    while (t && (t->hash != hash || t->share != share || !slice_eq((struct slice){t->bytes, t->len}, text)))
        t = t->next;
    return t;
}

static bool make_room(struct conversations *c, size_t bytes);

/* A reference to the text, which is stored if it is not there yet. NULL: it does not fit. */
static struct text *ref(struct conversations *c, uint32_t share, struct slice text)
{
    uint64_t hash = hash_bytes(text.ptr, text.len);
    struct text *t = find_text(c, share, hash, text);
    if (t) {
        t->refs++;
        return t;
    }
    size_t bytes = sizeof(*t) + text.len;
    if (!make_room(c, bytes) || charge_take(conversations_charge(c), bytes) < 0)
        return NULL;
    t = malloc(bytes);
    if (!t) {
        charge_give(conversations_charge(c), bytes);
        return NULL;
    }
    c->numbers.bytes += bytes;
    struct text **bucket = &c->texts[hash % TEXT_BUCKETS];
    *t = (struct text){*bucket, hash, 1, share, text.len};
    memcpy(t->bytes, text.ptr, text.len);
    *bucket = t;
    return t;
}

/* ---- entries ---- */

static void drop_texts(struct conversations *c, struct entry *e)
{
    unref(c, e->head);
    for (uint32_t i = 0; i < e->change_count; i++)
        unref(c, e->changes[i].text);
    e->head = NULL;
    e->change_count = 0;
}

static void remove_entry(struct conversations *c, uint32_t index)
{
    struct entry *e = &c->entries[index];
    struct share_list *s = &c->shares[e->share];
    ASSERT(e->head && s->amount >= e->bytes && c->numbers.entries > 0);
    *(e->prev == NONE ? &s->oldest : &c->entries[e->prev].next) = e->next;
    *(e->next == NONE ? &s->newest : &c->entries[e->next].prev) = e->prev;
    s->amount -= e->bytes;
    uint32_t *at = &c->buckets[e->key & c->bucket_mask];
    while (*at != index)
        at = &c->entries[*at].in_bucket;
    *at = e->in_bucket;
    drop_texts(c, e);
    e->next = c->unused;
    c->unused = index;
    c->numbers.entries--;
}

static void share_age(const void *cache, uint32_t index, struct share_claim *ret)
{
    const struct conversations *c = cache;
    uint64_t used_ns = c->entries[index].used_ns;
    ret->age = c->now_ns > used_ns ? c->now_ns - used_ns : 0;
    ret->stale = ret->age >= CONVERSATIONS_STALE_SECONDS * NS_PER_S;
}

static bool evict(struct conversations *c)
{
    uint32_t victim = share_list_victim(c->shares, CACHE_SHARES, share_age, c);
    if (victim == NONE)
        return false;
    remove_entry(c, victim);
    c->numbers.evicted++;
    return true;
}

static bool make_room(struct conversations *c, size_t bytes)
{
    while (c->numbers.bytes + bytes > c->opts.bytes_max)
        if (!evict(c))
            return false;
    return true;
}

/* Puts the filled entry into the table. */
static void add_entry(struct conversations *c, uint32_t index)
{
    struct entry *e = &c->entries[index];
    struct share_list *s = &c->shares[e->share];
    e->prev = s->newest;
    e->next = NONE;
    *(s->newest == NONE ? &s->oldest : &c->entries[s->newest].next) = index;
    s->newest = index;
    s->amount += e->bytes;
    e->in_bucket = c->buckets[e->key & c->bucket_mask];
    c->buckets[e->key & c->bucket_mask] = index;
    c->numbers.entries++;
}

/* ---- the conversation of a turn ---- */

/* An entry whose conversation may have begun as the turn's did. The key is a fast hash; tenants are compared
 * by themselves. */
static bool is_alike(const struct entry *e, const struct conversation_turn *turn)
{
    return e->key == turn->key && e->tenant == turn->tenant;
}

/* A turn against an entry. */
struct match {
    uint32_t changes;  /* changes whose messages the turn has */
    uint32_t messages; /* messages that both have for certain */
    bool tools;        /* the set of tools is the same */
    uint64_t used_ns;
};

static struct match match_of(const struct entry *e, const struct conversation_turn *turn)
{
    struct match m = {.used_ns = e->used_ns};
    while (m.changes < e->change_count && e->changes[m.changes].message < turn->count &&
           turn->chain[e->changes[m.changes].message + 1] == e->changes[m.changes].chain)
        m.messages = e->changes[m.changes++].message + 1;
    if (e->count <= turn->count && turn->chain[e->count] == e->chain)
        m.messages = e->count;
    m.tools = turn->tools == (m.changes > 0 ? e->changes[m.changes - 1].tools : e->tools);
    return m;
}

static bool is_better(const struct match *a, const struct match *b)
{
    if (a->messages != b->messages)
        return a->messages > b->messages;
    if (a->tools != b->tools)
        return a->tools;
    return a->used_ns >= b->used_ns;
}

/* NONE: there is no such conversation. */
static uint32_t find(const struct conversations *c, const struct conversation_turn *turn, struct match *ret)
{
    uint32_t found = NONE;
    for (uint32_t i = c->buckets[turn->key & c->bucket_mask]; i != NONE; i = c->entries[i].in_bucket) {
        const struct entry *e = &c->entries[i];
        if (!is_alike(e, turn))
            continue;
        struct match m = match_of(e, turn);
        if (turn->first && (!m.tools || m.changes > 0))
            continue;
        if (found == NONE || is_better(&m, ret)) {
            *ret = m;
            found = i;
        }
    }
    return found;
}

static struct slice text_of(const struct text *t)
{
    return (struct slice){t->bytes, t->len};
}

bool conversations_find(struct conversations *c, const struct conversation_turn *turn, struct buf *texts,
                        struct conversation_past *ret)
{
    struct match m = {0};
    size_t at = 0;
    buf_clear(texts);
    *ret = (struct conversation_past){.change_count = 0};
    pthread_mutex_lock(&c->lock);
    uint32_t found = find(c, turn, &m);
    if (found != NONE) {
        const struct entry *e = &c->entries[found];
        buf_put_slice(texts, text_of(e->head));
        ret->head.len = e->head->len;
        for (; ret->change_count < m.changes; ret->change_count++) {
            const struct change *change = &e->changes[ret->change_count];
            buf_put_slice(texts, text_of(change->text));
            ret->changes[ret->change_count] =
                (struct conversation_change){change->message, change->tools, {NULL, change->text->len}};
        }
        ret->tools = e->tools;
    }
    pthread_mutex_unlock(&c->lock);
    if (found == NONE || texts->error)
        return false;
    ret->head = slice_sub(buf_slice(texts), at, ret->head.len);
    for (uint32_t i = 0; i < ret->change_count; i++) {
        at += i == 0 ? ret->head.len : ret->changes[i - 1].text.len;
        ret->changes[i].text = slice_sub(buf_slice(texts), at, ret->changes[i].text.len);
    }
    return true;
}

/* ---- keeping a turn ---- */

/* True if `past` is what entry `e` has of it, and perhaps one change more. */
static bool continues(const struct entry *e, const struct match *m, const struct conversation_past *past)
{
    if (m->changes != e->change_count || past->change_count < e->change_count ||
        !slice_eq(text_of(e->head), past->head))
        return false;
    for (uint32_t i = 0; i < e->change_count; i++)
        if (e->changes[i].message != past->changes[i].message ||
            !slice_eq(text_of(e->changes[i].text), past->changes[i].text))
            return false;
    return true;
}

/* The entry that the turn replaces. NONE: a new conversation, or one that went on from an earlier message. */
static uint32_t find_replaced(const struct conversations *c, const struct conversation_turn *turn,
                              const struct conversation_past *past)
{
    for (uint32_t i = c->buckets[turn->key & c->bucket_mask]; i != NONE; i = c->entries[i].in_bucket) {
        const struct entry *e = &c->entries[i];
        if (!is_alike(e, turn))
            continue;
        struct match m = match_of(e, turn);
        if (continues(e, &m, past))
            return i;
    }
    return NONE;
}

/* References the texts. False: one does not fit, and the entry has none. */
static bool fill(struct conversations *c, const struct conversation_turn *turn,
                 const struct conversation_past *past, struct entry *e)
{
    e->head = ref(c, e->share, past->head);
    e->bytes = sizeof(*e) + sizeof(struct text) + past->head.len;
    bool ok = e->head != NULL;
    for (uint32_t i = 0; ok && i < past->change_count; i++) {
        const struct conversation_change *from = &past->changes[i];
        ASSERT(from->message < turn->count);
        struct text *text = ref(c, e->share, from->text);
        ok = text != NULL;
        if (!ok)
            break;
        e->changes[e->change_count++] =
            (struct change){from->message, turn->chain[from->message + 1], from->tools, text};
        e->bytes += sizeof(struct text) + from->text.len;
    }
    if (!ok)
        drop_texts(c, e);
    return ok;
}

static size_t bytes_of(const struct conversation_past *past)
{
    size_t ret = past->head.len;
    for (uint32_t i = 0; i < past->change_count; i++)
        ret += past->changes[i].text.len;
    return ret;
}

static bool put(struct conversations *c, const struct conversation_turn *turn,
                const struct conversation_past *past)
{
    struct entry e = {.key = turn->key,
                      .tenant = turn->tenant,
                      .share = share_list_of(turn->tenant),
                      .used_ns = c->now_ns,
                      .count = turn->count,
                      .chain = turn->chain[turn->count],
                      .tools = past->tools};
    if (bytes_of(past) > c->opts.bytes_max / CONVERSATIONS_STORE_PART ||
        turn->count > CONVERSATIONS_MESSAGES_MAX)
        return false;
    if (!fill(c, turn, past, &e))
        return false;
    uint32_t replaced = find_replaced(c, turn, past);
    if (replaced != NONE)
        remove_entry(c, replaced);
    if (c->unused == NONE && !evict(c)) {
        drop_texts(c, &e);
        return false;
    }
    uint32_t index = c->unused;
    c->unused = c->entries[index].next;
    c->entries[index] = e;
    add_entry(c, index);
    return true;
}

void conversations_put(struct conversations *c, const struct conversation_turn *turn,
                       const struct conversation_past *past, uint64_t now_ns)
{
    ASSERT(past->change_count <= CONVERSATIONS_CHANGES_MAX);
    pthread_mutex_lock(&c->lock);
    c->now_ns = MAX_OF(c->now_ns, now_ns);
    bool ok = put(c, turn, past);
    *(ok ? &c->numbers.kept : &c->numbers.refused) += 1;
    pthread_mutex_unlock(&c->lock);
}

void conversations_give(struct conversations *c, uint64_t bytes)
{
    pthread_mutex_lock(&c->lock);
    uint64_t until = c->numbers.bytes > bytes ? c->numbers.bytes - bytes : 0;
    while (c->numbers.bytes > until && evict(c))
        ;
    pthread_mutex_unlock(&c->lock);
}

void conversations_each(struct conversations *c, void (*each)(void *arg, const struct conversation_kept *e),
                        void *arg)
{
    pthread_mutex_lock(&c->lock);
    for (uint32_t share = 0; share < CACHE_SHARES; share++) {
        for (uint32_t i = c->shares[share].oldest; i != NONE; i = c->entries[i].next) {
            const struct entry *e = &c->entries[i];
            struct conversation_kept kept = {
                .key = e->key,
                .tenant = e->tenant,
                .chain = e->chain,
                .count = e->count,
                .past = {.tools = e->tools, .head = text_of(e->head), .change_count = e->change_count}};
            for (uint32_t k = 0; k < e->change_count; k++) {
                const struct change *change = &e->changes[k];
                kept.chains[k] = change->chain;
                kept.past.changes[k] =
                    (struct conversation_change){change->message, change->tools, text_of(change->text)};
            }
            each(arg, &kept);
        }
    }
    pthread_mutex_unlock(&c->lock);
}

struct conversations_numbers conversations_numbers(struct conversations *c)
{
    pthread_mutex_lock(&c->lock);
    struct conversations_numbers ret = c->numbers;
    ret.bytes_max = c->opts.bytes_max;
    pthread_mutex_unlock(&c->lock);
    return ret;
}

/* ---- create, free and check ---- */

int conversations_create(const struct conversations_opts *opts, struct conversations **ret)
{
    uint32_t count = (uint32_t)MIN_OF(opts->bytes_max / BYTES_PER_ENTRY, (uint64_t)1 << 16);
    uint32_t buckets = hash_buckets(16, count);
    size_t bytes = sizeof(struct conversations) + count * sizeof(struct entry) + buckets * sizeof(uint32_t);
    struct charge charge = {0};
    ASSERT(opts->bytes_max >= CONVERSATIONS_BYTES_LEAST && bytes < opts->bytes_max / 2);
    if (opts->account)
        charge = account_charge(opts->account);
    if (charge_take(opts->account ? &charge : NULL, bytes) < 0)
        return -ENOMEM;
    struct conversations *c = calloc(1, bytes);
    if (!c) {
        charge_give(opts->account ? &charge : NULL, bytes);
        return -ENOMEM;
    }
    *c = (struct conversations){.opts = *opts,
                                .charge = charge,
                                .numbers = {.bytes = bytes},
                                .entries_max = count,
                                .unused = 0,
                                .bucket_mask = buckets - 1,
                                .entries = (struct entry *)(c + 1)};
    c->buckets = (uint32_t *)(c->entries + count);
    pthread_mutex_init(&c->lock, NULL);
    share_list_init(c->shares, CACHE_SHARES);
    for (uint32_t i = 0; i < count; i++)
        c->entries[i].next = i + 1 < count ? i + 1 : NONE;
    for (uint32_t i = 0; i < buckets; i++)
        c->buckets[i] = NONE;
    *ret = c;
    return 0;
}

void conversations_free(struct conversations *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->entries_max; i++)
        if (c->entries[i].head)
            remove_entry(c, i);
    struct charge charge = c->charge;
    bool counted = c->opts.account != NULL;
    size_t bytes = c->numbers.bytes;
    ASSERT(c->numbers.entries == 0);
    pthread_mutex_destroy(&c->lock);
    free(c);
    charge_give(counted ? &charge : NULL, bytes);
}

static void check_share(const struct conversations *c, uint32_t share, uint64_t *entries, struct walk *w)
{
    const struct share_list *s = &c->shares[share];
    uint64_t bytes = 0;
    uint32_t before = NONE;
    for (uint32_t i = s->oldest; i != NONE; before = i, i = c->entries[i].next) {
        const struct entry *e = &c->entries[i];
        ASSERT_OF(e->head && e->share == share && e->prev == before,
                  "conversations: entry %u is not of share %u, or its links are wrong", i, share);
        ASSERT_OF(e->change_count <= CONVERSATIONS_CHANGES_MAX, "conversations: %u changes", e->change_count);
        bytes += e->bytes;
        *entries += 1;
        if (!walk_on(w))
            return;
    }
    ASSERT_OF(s->newest == before && s->amount == bytes,
              "conversations: share %u has entries of %llu bytes, %llu counted", share, (ull)bytes,
              (ull)s->amount);
}

/* Each entry refers to its texts once. */
static void check_texts(const struct conversations *c, struct walk *w)
{
    uint64_t refs = 0, referred = 0;
    for (uint32_t i = 0; i < TEXT_BUCKETS; i++)
        for (const struct text *t = c->texts[i]; t; t = t->next) {
            ASSERT_OF(t->refs > 0, "conversations: a text without an entry");
            refs += t->refs;
            if (!walk_on(w))
                return;
        }
    for (uint32_t i = 0; i < c->entries_max; i++)
        referred += c->entries[i].head ? 1 + c->entries[i].change_count : 0;
    ASSERT_OF(refs == referred, "conversations: %llu references of entries, %llu counted", (ull)referred,
              (ull)refs);
}

void conversations_check(struct conversations *c, struct walk *w)
{
    uint64_t entries = 0;
    pthread_mutex_lock(&c->lock);
    const struct conversations_numbers *n = &c->numbers;
    ASSERT_OF(n->bytes <= c->opts.bytes_max, "conversations: %llu bytes, the limit is %llu", (ull)n->bytes,
              (ull)c->opts.bytes_max);
    for (uint32_t i = 0; i < CACHE_SHARES && !w->called_off; i++)
        check_share(c, i, &entries, w);
    ASSERT_OF(w->called_off || entries == n->entries, "conversations: %llu entries listed, %llu counted",
              (ull)entries, (ull)n->entries);
    if (!w->called_off)
        check_texts(c, w);
    pthread_mutex_unlock(&c->lock);
}
