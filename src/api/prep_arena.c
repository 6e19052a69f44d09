/* prep_arena.c - each preparation has an arena of its own: the memory of a long prompt is freed with it. */
#include "api/prep_arena.h"

#include "base/arena.h"
#include "base/check.h"
#include "gen/request_memory.h"

static int take(void *owner, size_t bytes)
{
    struct prep_arena *p = owner;
    struct charge memory = request_memory_charge(p->memory);
    int r = charge_take(&memory, bytes);
    if (r == 0)
        atomic_fetch_add(p->bytes, bytes);
    return r;
}

static void give(void *owner, size_t bytes)
{
    struct prep_arena *p = owner;
    struct charge memory = request_memory_charge(p->memory);
    ASSERT(atomic_load(p->bytes) >= bytes);
    atomic_fetch_sub(p->bytes, bytes);
    charge_give(&memory, bytes);
}

int prep_arena_open(struct prep_arena *p, _Atomic uint64_t *bytes, struct request_memory *memory)
{
    *p = (struct prep_arena){.bytes = bytes, .memory = memory};
    struct charge charge = {take, give, p};
    struct arena_opts opts = {.bytes_max = memory->bytes_max, .charge = &charge};
    return arena_create(&opts, &p->arena);
}

void prep_arena_close(struct prep_arena *p)
{
    arena_free(p->arena);
    p->arena = NULL;
}
