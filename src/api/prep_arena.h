/* prep_arena.h - the scratch memory of one preparation. It is mapped, unlike the buffers of a request: its
 * bytes are counted beside their charge. */
#ifndef PLATEAU_API_PREP_ARENA_H
#define PLATEAU_API_PREP_ARENA_H

#include <stdatomic.h>
#include <stdint.h>

struct arena;
struct request_memory;

struct prep_arena {
    _Atomic uint64_t *bytes;       /* mapped bytes of all of them */
    struct request_memory *memory; /* pays */
    struct arena *arena;           /* NULL: not open */
};

/* `p` does not move while it is open. 0 or -ENOMEM. */
int prep_arena_open(struct prep_arena *p, _Atomic uint64_t *bytes, struct request_memory *memory);
void prep_arena_close(struct prep_arena *p);

#endif
