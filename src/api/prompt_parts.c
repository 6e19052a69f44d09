/* prompt_parts.c - entries of one size under one lock.
 *
 * Places of a turn's tokens are further apart in a longer prompt. The next turn computes its own hashes at
 * the places of the turn before. A list of parts that is too long is compared as far as it goes. */
#include "api/prompt_parts.h"

#include "api/request/json_digest.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/page_tokens.h"
#include "cache/share_list.h"
#include "chat/chat_history.h"
#include "gen/gen_request.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALE_NS    (1800 * NS_PER_S)
#define SLACK_PAGES 2 /* the next turn never finds the generation prompt and the last page */

struct entry {
    struct prompt_turn turn; /* key 0: unused */
    uint64_t used_ns;
    uint32_t share, prev, next;
};

struct prompt_parts {
    struct account *account;
    pthread_mutex_t lock;
    uint64_t now_ns;
    uint32_t count, used;                   /* entries; entries from `used` on were never used */
    struct share_list shares[CACHE_SHARES]; /* amounts: entries */
    struct entry entries[];
};

/* ---- a turn ---- */

static void add_part(struct prompt_turn *t, uint64_t hash)
{
    uint32_t at = t->tools + t->messages;
    if (at < PROMPT_PARTS_MAX)
        t->part[at] = hash;
}

void prompt_turn_read(const struct gen_request *r, uint64_t tenant, const char *model,
                      struct prompt_turn *ret)
{
    const json_t *each;
    size_t i;
    *ret = (struct prompt_turn){.tenant = tenant, .model = hash_bytes(model, strlen(model))};
    json_array_foreach(gen_head_tools(r), i, each) {
        add_part(ret, json_digest(each));
        ret->tools++;
    }
    json_array_foreach(r->messages, i, each) {
        uint64_t hash = json_digest(each);
        if (ret->messages == 0 && chat_history_has_role(each, "system")) {
            ret->system = json_digest_chain(ret->system, hash);
            ret->skipped++;
            continue;
        }
        if (ret->key == 0 && chat_history_has_role(each, "user"))
            ret->key = json_digest_chain(tenant, hash) | 1;
        add_part(ret, hash);
        ret->messages++;
    }
}

static uint64_t hash_tokens(uint64_t before, const uint32_t *ids, uint32_t count)
{
    return json_digest_chain(before, hash_bytes(ids, count * sizeof(*ids)));
}

void prompt_turn_tokens(struct prompt_turn *t, const uint32_t *ids, uint32_t count)
{
    uint64_t hash = 0;
    t->tokens = count;
    t->stride = PAGE_TOKENS;
    while (count / t->stride > PROMPT_PLACES_MAX)
        t->stride *= 2;
    for (uint32_t i = 0; i < count / t->stride; i++)
        t->place[i] = hash = hash_tokens(hash, ids + i * t->stride, t->stride);
}

/* ---- two turns ---- */

static uint32_t common_of(const struct prompt_turn *before, const uint32_t *ids, uint32_t count)
{
    uint64_t hash = 0;
    uint32_t places = MIN_OF(before->tokens, count) / before->stride, i = 0;
    for (; i < places; i++) {
        hash = hash_tokens(hash, ids + i * before->stride, before->stride);
        if (hash != before->place[i])
            break;
    }
    return i * before->stride;
}

static const char *name_of(const char *list, uint32_t index, char ret[PROMPT_REASON_BYTES])
{
    snprintf(ret, PROMPT_REASON_BYTES, "%s[%u]", list, index);
    return ret;
}

/* Empty: all parts of the turn before are there. */
static void first_difference(const struct prompt_turn *a, const struct prompt_turn *b,
                             char ret[PROMPT_REASON_BYTES])
{
    ret[0] = 0;
    if (a->model != b->model || a->system != b->system) {
        snprintf(ret, PROMPT_REASON_BYTES, "%s", a->model != b->model ? "model" : "system");
        return;
    }
    for (uint32_t i = 0; i < MAX_OF(a->tools, b->tools) && i < PROMPT_PARTS_MAX; i++)
        if (i >= a->tools || i >= b->tools || a->part[i] != b->part[i]) {
            name_of("tools", i, ret);
            return;
        }
    for (uint32_t i = 0; i < MIN_OF(a->messages, b->messages) && a->tools + i < PROMPT_PARTS_MAX; i++)
        if (a->part[a->tools + i] != b->part[b->tools + i]) {
            name_of("messages", a->skipped + i, ret);
            return;
        }
}

const char *prompt_loss_reason(const struct prompt_loss *l, uint32_t cached)
{
    uint32_t slack = SLACK_PAGES * PAGE_TOKENS + (l->stride > PAGE_TOKENS ? l->stride : 0);
    if (!l->known || cached + slack >= l->before)
        return NULL;
    if (l->differs[0])
        return l->differs;
    return l->common + slack < l->before ? "rendering" : "evicted";
}

/* ---- the table ---- */

static void share_age(const void *cache, uint32_t index, struct share_claim *ret)
{
    const struct prompt_parts *p = cache;
    uint64_t used_ns = p->entries[index].used_ns;
    ret->age = p->now_ns > used_ns ? p->now_ns - used_ns : 0;
    ret->stale = ret->age >= STALE_NS;
}

static void unlink_entry(struct prompt_parts *p, uint32_t index)
{
    struct entry *e = &p->entries[index];
    struct share_list *s = &p->shares[e->share];
    ASSERT(s->amount > 0);
    *(e->prev == NONE ? &s->oldest : &p->entries[e->prev].next) = e->next;
    *(e->next == NONE ? &s->newest : &p->entries[e->next].prev) = e->prev;
    s->amount--;
}

static void link_entry(struct prompt_parts *p, uint32_t index)
{
    struct entry *e = &p->entries[index];
    e->share = share_list_of(e->turn.tenant);
    struct share_list *s = &p->shares[e->share];
    e->used_ns = p->now_ns;
    e->prev = s->newest;
    e->next = NONE;
    *(s->newest == NONE ? &s->oldest : &p->entries[s->newest].next) = index;
    s->newest = index;
    s->amount++;
}

/* NONE: it is not there. */
static uint32_t find(const struct prompt_parts *p, const struct prompt_turn *t)
{
    for (uint32_t i = 0; i < p->used; i++)
        if (p->entries[i].turn.key == t->key && p->entries[i].turn.tenant == t->tenant)
            return i;
    return NONE;
}

void prompt_parts_turn(struct prompt_parts *p, const struct prompt_turn *t, const uint32_t *ids,
                       uint64_t now_ns, struct prompt_loss *ret)
{
    *ret = (struct prompt_loss){.known = false};
    if (t->key == 0)
        return;
    pthread_mutex_lock(&p->lock);
    p->now_ns = MAX_OF(p->now_ns, now_ns);
    uint32_t index = find(p, t);
    if (index != NONE) {
        const struct prompt_turn *before = &p->entries[index].turn;
        *ret = (struct prompt_loss){.known = true,
                                    .before = MIN_OF(before->tokens, t->tokens),
                                    .common = common_of(before, ids, t->tokens),
                                    .stride = before->stride};
        first_difference(before, t, ret->differs);
    } else if (p->used < p->count) {
        index = p->used++;
        p->entries[index].turn.key = 0;
    } else {
        index = share_list_victim(p->shares, CACHE_SHARES, share_age, p);
    }
    if (p->entries[index].turn.key)
        unlink_entry(p, index);
    p->entries[index].turn = *t;
    link_entry(p, index);
    pthread_mutex_unlock(&p->lock);
}

uint64_t prompt_parts_bytes(uint32_t entries)
{
    return sizeof(struct prompt_parts) + (uint64_t)entries * sizeof(struct entry);
}

int prompt_parts_create(struct account *account, uint32_t entries, struct prompt_parts **ret)
{
    struct charge charge = {0};
    size_t bytes = prompt_parts_bytes(entries);
    ASSERT(entries > 0);
    if (account)
        charge = account_charge(account);
    if (charge_take(account ? &charge : NULL, bytes) < 0)
        return -ENOMEM;
    struct prompt_parts *p = calloc(1, bytes);
    if (!p) {
        charge_give(account ? &charge : NULL, bytes);
        return -ENOMEM;
    }
    p->account = account;
    p->count = entries;
    pthread_mutex_init(&p->lock, NULL);
    share_list_init(p->shares, CACHE_SHARES);
    *ret = p;
    return 0;
}

void prompt_parts_free(struct prompt_parts *p)
{
    struct charge charge = {0};
    if (!p)
        return;
    struct account *account = p->account;
    size_t bytes = prompt_parts_bytes(p->count);
    if (account)
        charge = account_charge(account);
    pthread_mutex_destroy(&p->lock);
    free(p);
    charge_give(account ? &charge : NULL, bytes);
}
