/* prompt_parts.c - entries of one size under one lock.
 *
 * Places of a turn's tokens are further apart in a longer prompt, and so are marks in longer texts. The next
 * turn computes its hashes with the stride of the turn before. A list of parts that is too long is compared
 * as far as it goes. Texts are read after the lock is released: an entry's marks are copied. */
#include "api/turns/prompt_parts.h"

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

#define STALE_NS (1800 * NS_PER_S)

struct entry {
    struct prompt_turn turn; /* key 0: unused */
    uint64_t used_ns;
    uint64_t replaced[PROMPT_REPLACED_MAX]; /* ids of turns whose place it took, the newest first */
    uint32_t share, prev, next;
};

struct prompt_parts {
    struct account *account;
    pthread_mutex_t lock;
    uint64_t now_ns;
    uint64_t since_ns;                      /* turns that are later than this are all there */
    uint64_t compared, evicted;             /* prompt_parts_numbers */
    uint32_t count, used;                   /* entries; entries from `used` on were never used */
    struct share_list shares[CACHE_SHARES]; /* amounts: entries */
    struct entry entries[];
};

/* ---- a turn ---- */

/* The lower bits of a message's hash are of its images, the others of its text. */
#define IMAGE_BITS 24
#define IMAGE_MASK (((uint64_t)1 << IMAGE_BITS) - 1)

static bool is_placeholder(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && (strcmp(type, "image") == 0 || strcmp(type, "video") == 0);
}

/* `*next` is an index into the media of the request. */
static uint64_t message_hash(const struct gen_request *r, const json_t *message, size_t *next)
{
    const json_t *content = json_object_get(message, "content"), *part;
    uint64_t images = 0;
    size_t i;
    json_array_foreach(content, i, part)
        if (is_placeholder(part))
            images = json_digest_chain(
                images, json_digest(json_object_get(json_array_get(r->media, (*next)++), "source")));
    return (json_digest(message) & ~IMAGE_MASK) | (images & IMAGE_MASK);
}

static void add_part(struct prompt_turn *t, uint64_t hash)
{
    uint32_t at = t->tools + t->messages;
    if (at < PROMPT_PARTS_MAX)
        t->part[at] = hash;
}

/* The parts of a prompt in order: part 0 is all messages of the system at the start. */
typedef void part_fn(void *arg, uint32_t part, const json_t *value);

static void each_part(const struct gen_request *r, part_fn *call, void *arg)
{
    uint32_t part = 1;
    bool starts = true;
    const json_t *each;
    size_t i;
    json_array_foreach(gen_head_tools(r), i, each)
        if (part <= PROMPT_PARTS_MAX)
            call(arg, part++, each);
    json_array_foreach(r->messages, i, each) {
        starts = starts && chat_history_has_role(each, "system");
        if (starts)
            call(arg, 0, each);
        else if (part <= PROMPT_PARTS_MAX)
            call(arg, part++, each);
    }
}

static void add_bytes(void *arg, uint32_t part, const json_t *value)
{
    (void)part;
    *(uint64_t *)arg += prompt_text_bytes(value);
}

/* The system's text may stand in several messages, which come before all others but after the tools. */
struct marking {
    struct prompt_turn *turn;
    struct prompt_text text;
    uint32_t part, used;
};

static void end_part(struct marking *m)
{
    m->turn->mark_count[m->part] = (uint16_t)m->text.count;
    m->used += m->text.count;
    ASSERT(m->used <= PROMPT_MARKS_MAX);
}

static void begin_part(struct marking *m, uint32_t part)
{
    ASSERT(m->used <= PROMPT_MARKS_MAX);
    m->part = part;
    m->text = (struct prompt_text){.stride = m->turn->mark_stride,
                                   .marks = m->turn->marks + m->used,
                                   .most = PROMPT_MARKS_MAX - m->used};
}

static void mark_system(void *arg, uint32_t part, const json_t *value)
{
    struct marking *m = arg;
    if (part == 0)
        prompt_text_add(&m->text, value);
}

static void mark_part(void *arg, uint32_t part, const json_t *value)
{
    struct marking *m = arg;
    if (part == 0)
        return;
    begin_part(m, part);
    prompt_text_add(&m->text, value);
    end_part(m);
}

static void mark_texts(const struct gen_request *r, struct prompt_turn *t)
{
    struct marking m = {.turn = t};
    uint64_t bytes = 0;
    each_part(r, add_bytes, &bytes);
    t->mark_stride = PROMPT_STRIDE_LEAST;
    while (bytes / t->mark_stride > PROMPT_MARKS_MAX && t->mark_stride < 1u << 30)
        t->mark_stride *= 2;
    begin_part(&m, 0);
    each_part(r, mark_system, &m);
    end_part(&m);
    each_part(r, mark_part, &m);
}

void prompt_turn_read(const struct gen_request *r, uint64_t tenant, const char *model,
                      struct prompt_turn *ret)
{
    const json_t *each;
    size_t i, media = 0;
    *ret = (struct prompt_turn){.tenant = tenant,
                                .model = hash_bytes(model, strlen(model)),
                                .agent = r->agent,
                                .offered = json_digest(r->tools)};
    json_array_foreach(gen_head_tools(r), i, each) {
        add_part(ret, json_digest(each));
        ret->tools++;
    }
    json_array_foreach(r->messages, i, each) {
        uint64_t hash = message_hash(r, each, &media);
        if (ret->messages == 0 && chat_history_has_role(each, "system")) {
            ret->system = json_digest_chain(ret->system, hash);
            ret->skipped++;
            continue;
        }
        if (ret->key == 0 && chat_history_has_role(each, "user"))
            ret->key = json_digest_chain(tenant, hash & ~IMAGE_MASK) | 1;
        ret->replied |= chat_history_has_role(each, "assistant");
        add_part(ret, hash);
        ret->messages++;
    }
    mark_texts(r, ret);
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
    while (count / t->stride > PROMPT_STRIDES_MAX)
        t->stride *= 2;
    for (uint32_t i = 0; i < count / t->stride; i++)
        t->stride_hash[i] = hash = hash_tokens(hash, ids + i * t->stride, t->stride);
}

/* ---- two turns ---- */

static uint32_t common_of(const struct prompt_turn *before, const uint32_t *ids, uint32_t count)
{
    ASSERT(before->stride > 0);
    uint64_t hash = 0;
    uint32_t strides = MIN_OF(before->tokens, count) / before->stride, i = 0;
    for (; i < strides; i++) {
        hash = hash_tokens(hash, ids + i * before->stride, before->stride);
        if (hash != before->stride_hash[i])
            break;
    }
    return i * before->stride;
}

#define AT_MODEL  (UINT32_MAX - 2)
#define AT_SYSTEM (UINT32_MAX - 1)

/* The number of parts that two turns have in common from the first on: model, system, tools, messages. Tools
 * count only where all of them are the same. `*ret`: index of the first that differs; all parts of the turn
 * before are there: NONE. */
static uint32_t common_parts(const struct prompt_turn *a, const struct prompt_turn *b, uint32_t *ret)
{
    uint32_t i = 0, most = MAX_OF(a->tools, b->tools);
    *ret = NONE;
    if (a->model != b->model || a->system != b->system) {
        *ret = a->model != b->model ? AT_MODEL : AT_SYSTEM;
        return a->model == b->model;
    }
    while (i < MIN_OF(most, (uint32_t)PROMPT_PARTS_MAX) && i < a->tools && i < b->tools &&
           a->part[i] == b->part[i])
        i++;
    if (i < MIN_OF(most, (uint32_t)PROMPT_PARTS_MAX)) {
        *ret = i;
        return 2;
    }
    for (i = 0; i < MIN_OF(a->messages, b->messages) && a->tools + i < PROMPT_PARTS_MAX; i++)
        if (a->part[a->tools + i] != b->part[b->tools + i]) {
            *ret = a->tools + i;
            break;
        }
    return 3 + i;
}

/* Index of the part in mark_count. */
static uint32_t marked(uint32_t at)
{
    return at == AT_SYSTEM ? 0 : at + 1;
}

static void name_part(const struct prompt_turn *before, const struct prompt_turn *t, uint32_t at,
                      struct prompt_loss *ret)
{
    bool tool = at < MAX_OF(before->tools, t->tools);
    if (at == AT_MODEL || at == AT_SYSTEM)
        snprintf(ret->part, sizeof(ret->part), "%s", at == AT_MODEL ? "model" : "system");
    else if (tool)
        snprintf(ret->part, sizeof(ret->part), "tools[%u]", at);
    else
        snprintf(ret->part, sizeof(ret->part), "messages[%u]", t->skipped + at - t->tools);
    ret->side = tool && before->offered == t->offered ? PROMPT_SIDE_SERVER : PROMPT_SIDE_CLIENT;
}

/* ---- the character ---- */

/* Marks of one part of an earlier turn. */
struct marks {
    uint32_t part, stride, count;
    uint16_t marks[PROMPT_MARKS_MAX];
};

static void copy_marks(const struct prompt_turn *before, uint32_t part, struct marks *ret)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < part; i++)
        first += before->mark_count[i];
    ret->part = part;
    ret->stride = before->mark_stride;
    ret->count = before->mark_count[part];
    ASSERT(first + ret->count <= PROMPT_MARKS_MAX);
    memcpy(ret->marks, before->marks + first, ret->count * sizeof(ret->marks[0]));
}

struct placing {
    uint32_t part;
    struct prompt_text text;
};

static void place_part(void *arg, uint32_t part, const json_t *value)
{
    struct placing *p = arg;
    if (part == p->part)
        prompt_text_add(&p->text, value);
}

static void find_difference(const struct gen_request *r, const struct marks *m, struct prompt_difference *ret)
{
    struct placing p = {.part = m->part,
                        .text = {.stride = m->stride, .known = m->marks, .known_count = m->count}};
    each_part(r, place_part, &p);
    *ret = p.text.difference;
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
    ASSERT(index < p->count);
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

/* An unused entry, else the victim's. */
static uint32_t take_entry(struct prompt_parts *p)
{
    ASSERT(p->used <= p->count);
    if (p->used < p->count) {
        p->entries[p->used].turn.key = 0;
        return p->used++;
    }
    uint32_t index = share_list_victim(p->shares, CACHE_SHARES, share_age, p);
    p->since_ns = MAX_OF(p->since_ns, p->entries[index].used_ns);
    p->evicted++;
    return index;
}

/* True for the turn that the client names, or one that continues it. */
static bool is_named(const struct entry *e, const struct prompt_turn *t)
{
    bool ret = e->turn.id == t->previous;
    for (uint32_t i = 0; i < PROMPT_REPLACED_MAX; i++)
        ret |= e->replaced[i] == t->previous;
    return ret && t->previous != 0;
}

/* The entry that the turn continues best, the newest of equals. NONE: the conversation has no entry. `*ret`:
 * as in common_parts(). */
static uint32_t find(const struct prompt_parts *p, const struct prompt_turn *t, uint32_t *ret)
{
    uint32_t found = NONE, most = 0;
    for (uint32_t i = 0; i < p->used; i++) {
        const struct prompt_turn *e = &p->entries[i].turn;
        uint32_t at;
        bool named = is_named(&p->entries[i], t);
        if (e->tenant != t->tenant || (e->key != t->key && !named))
            continue;
        uint32_t common = common_parts(e, t, &at) + (named ? UINT32_MAX / 2 : 0);
        if (found != NONE &&
            (common < most || (common == most && p->entries[i].used_ns < p->entries[found].used_ns)))
            continue;
        found = i;
        most = common;
        *ret = at;
    }
    return found;
}

void prompt_parts_compare(struct prompt_parts *p, const struct prompt_turn *t, const struct gen_request *r,
                          struct prompt_loss *ret)
{
    struct marks marks = {.count = 0};
    uint32_t at = NONE;
    bool marked_too = false;
    *ret = (struct prompt_loss){.known = false};
    if (t->key == 0)
        return;
    pthread_mutex_lock(&p->lock);
    uint32_t index = find(p, t, &at);
    if (index != NONE && at != NONE) {
        const struct prompt_turn *before = &p->entries[index].turn;
        name_part(before, t, at, ret);
        bool there =
            at == AT_SYSTEM || (at < before->tools + before->messages && at < t->tools + t->messages);
        bool same_kind = at == AT_SYSTEM || (at < before->tools) == (at < t->tools);
        bool same_text = there && at < AT_MODEL && at >= before->tools && at >= t->tools &&
                         (before->part[at] ^ t->part[at]) <= IMAGE_MASK;
        marked_too = at != AT_MODEL && there && same_kind && !same_text;
        if (marked_too)
            copy_marks(before, marked(at), &marks);
        if (same_text)
            snprintf(ret->difference.at, sizeof(ret->difference.at), "content");
    }
    pthread_mutex_unlock(&p->lock);
    if (marked_too)
        find_difference(r, &marks, &ret->difference);
}

/* Helpers of an agent have another system and their own conversations. */
static bool has_agent(const struct prompt_parts *p, const struct prompt_turn *t)
{
    for (uint32_t i = 0; t->agent && i < p->used; i++) {
        const struct prompt_turn *e = &p->entries[i].turn;
        if (e->key && e->tenant == t->tenant && e->agent == t->agent && e->model == t->model &&
            e->system == t->system)
            return true;
    }
    return false;
}

void prompt_parts_match(struct prompt_parts *p, const struct prompt_turn *t, const uint32_t *ids,
                        struct prompt_loss *ret)
{
    uint32_t at = NONE;
    pthread_mutex_lock(&p->lock);
    uint32_t index = t->key ? find(p, t, &at) : NONE;
    if (index != NONE) {
        const struct prompt_turn *before = &p->entries[index].turn;
        ret->known = true;
        ret->named = is_named(&p->entries[index], t);
        ret->before = MIN_OF(before->tokens, t->tokens);
        ret->common = common_of(before, ids, t->tokens);
        ret->stride = before->stride;
        ret->before_ns = p->entries[index].used_ns;
        p->compared++;
    }
    ret->begins_anew = index == NONE && has_agent(p, t);
    ret->since_ns = p->since_ns;
    ret->displaced = p->evicted > 0;
    pthread_mutex_unlock(&p->lock);
}

void prompt_parts_keep(struct prompt_parts *p, const struct prompt_turn *t, uint64_t now_ns)
{
    uint32_t at = NONE;
    if (t->key == 0)
        return;
    pthread_mutex_lock(&p->lock);
    p->now_ns = MAX_OF(p->now_ns, now_ns);
    uint32_t index = find(p, t, &at);
    bool beside = index == NONE || at != NONE;
    if (beside)
        index = take_entry(p);
    struct entry *e = &p->entries[index];
    if (e->turn.key)
        unlink_entry(p, index);
    memmove(e->replaced + 1, e->replaced, sizeof(e->replaced) - sizeof(e->replaced[0]));
    e->replaced[0] = e->turn.id;
    if (beside)
        memset(e->replaced, 0, sizeof(e->replaced));
    e->turn = *t;
    link_entry(p, index);
    pthread_mutex_unlock(&p->lock);
}

struct prompt_parts_numbers prompt_parts_numbers(struct prompt_parts *p)
{
    pthread_mutex_lock(&p->lock);
    struct prompt_parts_numbers n = {.entries = p->used,
                                     .entries_max = p->count,
                                     .bytes = prompt_parts_bytes(p->count),
                                     .compared = p->compared,
                                     .evicted = p->evicted};
    pthread_mutex_unlock(&p->lock);
    return n;
}

uint64_t prompt_parts_bytes(uint32_t entries)
{
    return sizeof(struct prompt_parts) + (uint64_t)entries * sizeof(struct entry);
}

int prompt_parts_create(struct account *account, uint32_t entries, uint64_t now_ns, struct prompt_parts **ret)
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
    p->since_ns = now_ns;
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
