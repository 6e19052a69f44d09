/* request_memory.c - grains, and jansson's blocks.
 *
 * jansson has one allocator per process and passes it no owner. So each block has its owner in front: the
 * request whose JSON the thread was building when the block was made (a thread-local), or none for a block of
 * the general heap. The value may be dropped later, on any thread: the bytes return to the right owner. A
 * block made before the hook was set would have no owner in front. A constructor sets the hook before any
 * use.
 *
 * jansson's lexer writes past its end when a block is refused in the middle of a token. So none is refused.
 * The parser reserves the maximum that a text can need before the first block, in the account and from the
 * system. Each block comes out of that, and the rest is returned. */
#include "gen/request_memory.h"

#include "gen/reject.h"

#include "base/check.h"
#include "base/json_source.h"
#include "gen/json_depth.h"

#include <errno.h>
#include <stdlib.h>

struct block {
    struct request_memory *owner;
    size_t bytes;
};
_Static_assert(sizeof(struct block) % _Alignof(max_align_t) == 0, "what follows stays aligned");

static _Thread_local struct request_memory *building;

/* Reserves the missing grains in the account. */
static bool reserve(struct request_memory *m, size_t bytes)
{
    if (bytes <= m->reserved)
        return true;
    size_t more = ROUND_UP(bytes - m->reserved, REQUEST_MEMORY_GRAIN);
    if (m->account && account_reserve_sparing(m->account, more, m->spare) < 0)
        return false;
    if (m->account)
        account_use(m->account, more);
    m->reserved += more;
    return true;
}

static int refuse(struct request_memory *m, size_t bytes, bool too_large)
{
    m->refused = true;
    m->too_large = too_large;
    m->wanted = bytes;
    return -ENOMEM;
}

static int take(void *owner, size_t bytes)
{
    struct request_memory *m = owner;
    bool allowed = bytes <= m->bytes_max && m->used <= m->bytes_max - bytes;
    if (!allowed || !reserve(m, m->used + bytes))
        return refuse(m, bytes, !allowed);
    m->used += bytes;
    return 0;
}

static void give(void *owner, size_t bytes)
{
    struct request_memory *m = owner;
    ASSERT(bytes <= m->used);
    m->used -= bytes;
    /* Keeps two spare grains, so that a buffer that is allocated and freed repeatedly does not reserve each
     * time. The last byte frees them as well. */
    size_t keep = m->used ? ROUND_UP(m->used, REQUEST_MEMORY_GRAIN) + 2 * REQUEST_MEMORY_GRAIN : 0;
    if (m->reserved <= keep)
        return;
    if (m->account) {
        account_unuse(m->account, m->reserved - keep);
        account_release(m->account, m->reserved - keep);
    }
    m->reserved = keep;
}

void request_memory_init(struct request_memory *m, struct account *account, size_t bytes_max)
{
    *m = (struct request_memory){.account = account, .bytes_max = bytes_max, .option = "--max-request-bytes"};
}

void request_memory_newcomer(struct request_memory *m, bool newcomer)
{
    uint64_t limit = m->account ? account_numbers(m->account).limit : ACCOUNT_NO_LIMIT;
    m->spare = newcomer && limit != ACCOUNT_NO_LIMIT ? limit / REQUEST_MEMORY_SPARE_PART : 0;
}

void request_memory_done(struct request_memory *m)
{
    ASSERT(m->used == 0 && m->reserved == 0);
}

struct charge request_memory_charge(struct request_memory *m)
{
    return (struct charge){take, give, m};
}

bool request_memory_reject(const struct request_memory *m, struct reject *why)
{
    if (m->unwanted)
        return reject_unwanted(why, m->unwanted);
    if (m->too_large)
        return reject_set(why, REJECT_REQUEST_TOO_LARGE, NULL,
                          "This request and its reply need more than %zu bytes of memory, the limit of one "
                          "request. Send less, ask for less (n, logprobs, max_tokens), or raise %s.",
                          m->bytes_max, m->option);
    why->retry_after_s = MAX_OF(why->retry_after_s, 1u);
    return reject_as(why, REJECT_BUSY);
}

void request_memory_hand_over(struct request_memory *m, struct buf *b)
{
    if (b->capacity == 0)
        return;
    ASSERT(b->charge.owner == m);
    m->used -= b->capacity;
    m->reserved -= b->capacity;
    b->charge = m->account ? account_charge(m->account) : (struct charge){0};
    give(m, 0);
}

void *request_memory_alloc(struct request_memory *m, size_t bytes)
{
    if (take(m, bytes) < 0)
        return NULL;
    void *p = calloc(1, bytes);
    if (!p)
        give(m, bytes);
    return p;
}

void request_memory_free(struct request_memory *m, void *block, size_t bytes)
{
    if (!block)
        return;
    free(block);
    give(m, bytes);
}

/* ---- jansson's blocks ---- */

/* Cannot fail while parsing. */
static int take_block(struct request_memory *m, size_t bytes)
{
    if (!m->parsing)
        return take(m, bytes);
    ASSERT(bytes <= m->parse_bytes);
    m->parse_bytes -= bytes;
    return 0;
}

static void give_block(struct request_memory *m, size_t bytes)
{
    if (m->parsing)
        m->parse_bytes += bytes;
    else
        give(m, bytes);
}

static void *json_alloc(size_t bytes)
{
    struct request_memory *m = building;
    if (bytes > SIZE_MAX / 2 || (m && take_block(m, bytes + sizeof(struct block)) < 0))
        return NULL;
    struct block *b = malloc(sizeof(*b) + bytes);
    ASSERT(b || !m || !m->parsing);
    if (!b) {
        if (m)
            give_block(m, bytes + sizeof(*b));
        return NULL;
    }
    *b = (struct block){m, bytes + sizeof(*b)};
    return b + 1;
}

static void json_free(void *p)
{
    if (!p)
        return;
    struct block b = ((struct block *)p)[-1];
    free((struct block *)p - 1);
    if (b.owner)
        give_block(b.owner, b.bytes);
}

__attribute__((constructor)) static void hook_jansson(void)
{
    json_set_alloc_funcs(json_alloc, json_free);
}

struct request_memory *request_memory_enter(struct request_memory *m)
{
    struct request_memory *before = building;
    building = m;
    wide_integers_enter(m ? &m->wide : NULL);
    return before;
}

/* A text, read in the pieces that jansson requests. */
struct source {
    struct json_source json;
    size_t look;
    struct request_memory *m;
};

static size_t feed(void *into, size_t len, void *arg)
{
    struct source *s = arg;
    s->m->unwanted = wanted_pass(s->m->still, s->json.at, &s->look);
    return s->m->unwanted ? (size_t)-1 : json_source_read(&s->json, into, len);
}

/* Reserves the bytes of a parse. The system is asked for one block of that size, whose addresses the heap
 * keeps for the value's blocks: under a limit of the process it refuses the request, not a block of it. */
static int take_parse(struct request_memory *m, size_t bytes)
{
    int r = take(m, bytes);
    if (r < 0)
        return r;
    void *volatile probe = malloc(bytes);
    bool there = probe != NULL;
    free(probe);
    if (there)
        return 0;
    give(m, bytes);
    return refuse(m, bytes, false);
}

json_t *request_memory_parse(struct request_memory *m, const char *text, size_t len, json_error_t *e)
{
    size_t bytes = json_parse_bytes((struct slice){text, len}, sizeof(struct block));
    if (take_parse(m, bytes) < 0) {
        *e = (json_error_t){.text = "no memory is left for it"};
        return NULL;
    }
    m->parse_bytes = bytes;
    m->parsing = true;
    struct request_memory *before = request_memory_enter(m);
    struct source source = {.m = m};
    json_source_init(&source.json, (struct slice){text, len});
    json_t *value = json_load_callback(feed, &source, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, e);
    request_memory_enter(before);
    m->parsing = false;
    give(m, m->parse_bytes);
    m->parse_bytes = 0;
    return value;
}
