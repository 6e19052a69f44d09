/* charge.h - where bytes are charged.
 *
 * base/ knows no ledger. A growing structure takes a charge and reserves bytes before it allocates;
 * memory/ledger hands out charges that end at an account. With a NULL charge bytes are not counted: tests
 * and tools only. */
#ifndef PLATEAU_BASE_CHARGE_H
#define PLATEAU_BASE_CHARGE_H

#include <stddef.h>

struct charge {
    int (*take)(void *owner, size_t bytes); /* 0, or -ENOMEM and nothing has moved */
    void (*give)(void *owner, size_t bytes);
    void *owner;
};

static inline int charge_take(const struct charge *c, size_t bytes)
{
    return c ? c->take(c->owner, bytes) : 0;
}

static inline void charge_give(const struct charge *c, size_t bytes)
{
    if (c)
        c->give(c->owner, bytes);
}

/* 0, or -ENOMEM and nothing has moved in either. */
static inline int charge_take_both(const struct charge *a, size_t a_bytes, const struct charge *b,
                                   size_t b_bytes)
{
    int r = charge_take(a, a_bytes);
    if (r < 0)
        return r;
    r = charge_take(b, b_bytes);
    if (r < 0)
        charge_give(a, a_bytes);
    return r;
}

#endif
