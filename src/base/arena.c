/* arena.c - bump allocation over a reserved range.
 *
 * PROT_NONE until committed: a write past the committed part crashes at the place of the mistake instead
 * of growing memory without a charge. Blocks are zeroed when handed out rather than at reset, so a reset
 * costs nothing and fresh grains (zero from the kernel) are not written twice: `dirty` is the highest byte
 * ever handed out. */
#include "base/arena.h"

#include "base/charge.h"
#include "base/check.h"
#include "base/pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

struct arena {
    size_t bytes_max, grain;
    struct charge charge;
    size_t used, committed, dirty; /* offsets from `base`; the struct itself lies at offset 0 */
    char *base;
    bool overran; /* set once a request exceeds bytes_max */
};

static int commit_to(struct arena *a, size_t end)
{
    size_t want = ROUND_UP(end, a->grain);
    if (want > a->bytes_max) {
        a->overran = true;
        return -ENOMEM;
    }
    if (want <= a->committed)
        return 0;
    size_t more = want - a->committed;
    int r = charge_take(&a->charge, more);
    if (r < 0)
        return r;
    r = pages_commit(a->base + a->committed, more);
    if (r < 0) {
        charge_give(&a->charge, more);
        return r;
    }
    a->committed = want;
    return 0;
}

static int charge_none_take(void *owner, size_t bytes)
{
    (void)owner, (void)bytes;
    return 0;
}

static void charge_none_give(void *owner, size_t bytes)
{
    (void)owner, (void)bytes;
}

int arena_create(const struct arena_opts *opts, struct arena **ret)
{
    size_t grain = opts->grain ? opts->grain : 64 * 1024;
    if (grain < 4096 || (grain & (grain - 1)) || opts->bytes_max == 0 || opts->bytes_max > SIZE_MAX / 2)
        return -EINVAL;
    struct arena a = {.grain = grain, .bytes_max = ROUND_UP(opts->bytes_max + 256, grain)};
    a.charge = opts->charge ? *opts->charge : (struct charge){charge_none_take, charge_none_give, NULL};
    a.base = mmap(NULL, a.bytes_max, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a.base == MAP_FAILED)
        return -ENOMEM;
    int r = commit_to(&a, sizeof(a));
    if (r < 0) {
        munmap(a.base, a.bytes_max);
        return r;
    }
    a.used = a.dirty = sizeof(a);
    struct arena *self = (struct arena *)a.base;
    *self = a;
    *ret = self;
    return 0;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    struct charge charge = a->charge;
    size_t committed = a->committed;
    pages_unmap(a->base, a->bytes_max, a->base, committed);
    charge_give(&charge, committed);
}

void *arena_alloc_align(struct arena *a, size_t bytes, size_t align)
{
    ASSERT(align > 0 && align <= 4096 && (align & (align - 1)) == 0);
    size_t at = ROUND_UP(a->used, align);
    if (bytes > a->bytes_max || at > a->bytes_max - bytes) {
        a->overran = true;
        return NULL;
    }
    if (commit_to(a, at + bytes) < 0)
        return NULL;
    if (at < a->dirty)
        memset(a->base + at, 0, MIN_OF(bytes, a->dirty - at));
    a->used = at + bytes;
    a->dirty = MAX_OF(a->dirty, a->used);
    return a->base + at;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    return arena_alloc_align(a, bytes, 64);
}

void *arena_alloc_array(struct arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return arena_alloc(a, bytes);
}

char *arena_strndup(struct arena *a, const char *ptr, size_t len)
{
    char *s = len < SIZE_MAX ? arena_alloc_align(a, len + 1, 1) : NULL;
    if (s && len)
        memcpy(s, ptr, len);
    return s;
}

void arena_reset(struct arena *a)
{
    a->used = sizeof(*a);
}

size_t arena_mark(const struct arena *a)
{
    return a->used;
}

void arena_rewind(struct arena *a, size_t mark)
{
    ASSERT(mark >= sizeof(*a) && mark <= a->used);
    a->used = mark;
}

int arena_commit(struct arena *a, size_t bytes)
{
    return commit_to(a, sizeof(*a) + bytes);
}

size_t arena_committed_bytes(const struct arena *a)
{
    return a->committed;
}

bool arena_overran(const struct arena *a)
{
    return a->overran;
}
