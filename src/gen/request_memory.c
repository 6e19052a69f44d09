/* request_memory.c - grains, and jansson's blocks.
 *
 * jansson has one allocator per process and passes it no owner. So each block has its owner in front: the
 * request whose JSON the thread was building when the block was made (a thread-local), or none for a block of
 * the general heap. The value may be dropped later, on any thread: the bytes return to the right owner. A
 * block made before the hook was set would have no owner in front. A constructor sets the hook before any
 * use.
 *
 * jansson's lexer writes past its end when a block is refused in the middle of a token. So none is refused.
 * The parser reserves the maximum that a text can need before the first block, in the account and as
 * addresses from the system. Blocks come from the heap until it refuses one, under a limit of the process or
 * with strict overcommit; then from those addresses. The heap cannot keep them: it returns large blocks to
 * the system, and other threads take small ones. */
#include "gen/request_memory.h"

#include "gen/json_depth.h"
#include "gen/reject.h"

#include "base/check.h"
#include "base/json/json_source.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)

struct block {
    struct request_memory *owner;
    size_t bytes : 63;
    size_t is_reserved : 1; /* in one of the owner's reserves */
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
    ASSERT(m->used == 0 && m->reserved == 0 && !m->reserves);
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

/* Addresses of one parse, for the blocks that the heap refuses. The owner's newest one is that of the parse
 * under way. */
struct request_reserve {
    struct request_reserve *next;
    size_t bytes, used; /* mapped; given to blocks, with this structure */
    size_t blocks;      /* not freed yet */
};

/* Twice the bytes that blocks can have at one time, since the place of a freed block is not used again. While
 * jansson parses it frees less than it keeps: a table after it doubled, a key after it was copied. */
static int open_reserve(struct request_memory *m, size_t bytes)
{
    size_t mapped = bytes > SIZE_MAX / 4 ? SIZE_MAX / 2
                                         : ROUND_UP(sizeof(struct request_reserve) + 2 * bytes, PAGE_BYTES);
    struct request_reserve *v =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (v == MAP_FAILED)
        return -ENOMEM;
    *v = (struct request_reserve){.next = m->reserves, .bytes = mapped, .used = sizeof(*v)};
    m->reserves = v;
    return 0;
}

static void close_reserve(struct request_memory *m, struct request_reserve *v)
{
    struct request_reserve **at = &m->reserves;
    ASSERT(v->blocks == 0);
    while (*at != v)
        at = &(*at)->next;
    *at = v->next;
    (void)munmap(v, v->bytes);
}

/* The parse is over: returns what no block has. */
static void trim_reserve(struct request_memory *m)
{
    struct request_reserve *v = m->reserves;
    size_t keep = ROUND_UP(v->used, PAGE_BYTES);
    if (v->blocks == 0) {
        close_reserve(m, v);
    } else if (keep < v->bytes && munmap((char *)v + keep, v->bytes - keep) == 0) {
        v->bytes = keep;
    }
}

static struct block *take_reserved(struct request_memory *m, size_t bytes)
{
    struct request_reserve *v = m->reserves;
    size_t taken = ROUND_UP(bytes, sizeof(struct block));
    ASSERT(m->parsing && taken <= v->bytes - v->used);
    struct block *b = (struct block *)((char *)v + v->used);
    v->used += taken;
    v->blocks++;
    return b;
}

static void give_reserved(struct request_memory *m, const struct block *b)
{
    struct request_reserve *v = m->reserves;
    while ((const char *)b < (const char *)v || (const char *)b >= (const char *)v + v->bytes)
        v = v->next;
    ASSERT(v->blocks > 0);
    if (--v->blocks == 0 && !(m->parsing && v == m->reserves))
        close_reserve(m, v);
}

static void *json_alloc(size_t bytes)
{
    struct request_memory *m = building;
    size_t whole = bytes + sizeof(struct block);
    if (bytes > SIZE_MAX / 4 || (m && take_block(m, whole) < 0))
        return NULL;
    struct block *b = malloc(whole);
    bool is_reserved = !b && m && m->parsing;
    if (is_reserved)
        b = take_reserved(m, whole);
    if (!b) {
        if (m)
            give_block(m, whole);
        return NULL;
    }
    *b = (struct block){m, whole, is_reserved};
    return b + 1;
}

static void json_free(void *p)
{
    if (!p)
        return;
    struct block *at = (struct block *)p - 1, b = *at;
    if (b.is_reserved)
        give_reserved(b.owner, at);
    else
        free(at);
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

/* Reserves the bytes of a parse. */
static int take_parse(struct request_memory *m, size_t bytes)
{
    int r = take(m, bytes);
    if (r < 0 || open_reserve(m, bytes) == 0)
        return r;
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
    trim_reserve(m);
    give(m, m->parse_bytes);
    m->parse_bytes = 0;
    return value;
}
