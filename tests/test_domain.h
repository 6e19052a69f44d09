/* test_domain.h - a memory domain for tests: plain memory under a name of its own, with seeded faults.
 *
 * Its class is ACCOUNT_DEVICE. `hidden`: the host cannot follow its addresses, only its copies can. `empty`:
 * its addresses have no memory, so that a test may commit any number of units. */
#ifndef PLATEAU_TESTS_TEST_DOMAIN_H
#define PLATEAU_TESTS_TEST_DOMAIN_H

#include "test_rng.h"
#include "base/check.h"
#include "memory/domain.h"

#include <errno.h>
#include <stdatomic.h>

#define TEST_DOMAIN_HIDDEN (1ull << 60)

struct test_domain {
    struct domain domain;
    bool hidden, empty;
    struct rng rng;
    double no_memory;   /* how likely an open fails */
    double stuck;       /* how likely a decommit fails */
    uint64_t failed;    /* address of the last open that failed: its decommit does not fail */
    uint64_t next;      /* address of the next range of an empty domain */
    atomic_ullong open; /* committed bytes */
    atomic_uint ranges;
};

static inline dev_ptr test_domain_real(const struct test_domain *t, dev_ptr p)
{
    ASSERT(!t->empty);
    return (dev_ptr){p.at - (t->hidden ? TEST_DOMAIN_HIDDEN : 0)};
}

static inline int test_domain_reserve(void *arg, uint64_t bytes, bool small, dev_ptr *ret)
{
    struct test_domain *t = arg;
    int r = 0;
    if (t->empty) {
        *ret = (dev_ptr){TEST_DOMAIN_HIDDEN + t->next};
        t->next += ROUND_UP(bytes, (uint64_t)UNIT_BYTES);
    } else {
        r = domain_reserve(domain_machine(), bytes, small, ret);
    }
    if (r == 0 && t->hidden && !t->empty)
        ret->at += TEST_DOMAIN_HIDDEN;
    t->ranges += r == 0;
    return r;
}

static inline int test_domain_release(void *arg, dev_ptr base, uint64_t bytes)
{
    struct test_domain *t = arg;
    ASSERT(t->ranges > 0);
    t->ranges--;
    return t->empty ? 0 : domain_release(domain_machine(), test_domain_real(t, base), bytes);
}

static inline int test_domain_open(void *arg, dev_ptr at, uint64_t bytes)
{
    struct test_domain *t = arg;
    bool fails = t->no_memory > 0 && rng_uniform(&t->rng) < t->no_memory;
    /* A failure leaves bytes that are the caller's to decommit. */
    t->open += bytes;
    t->failed = fails ? at.at : 0;
    if (fails)
        return -ENOMEM;
    return t->empty ? 0 : domain_open(domain_machine(), test_domain_real(t, at), bytes);
}

static inline int test_domain_populate(void *arg, dev_ptr at, uint64_t bytes)
{
    struct test_domain *t = arg;
    return t->empty ? 0 : domain_populate(domain_machine(), test_domain_real(t, at), bytes);
}

static inline int test_domain_decommit(void *arg, dev_ptr at, uint64_t bytes)
{
    struct test_domain *t = arg;
    if (t->stuck > 0 && at.at != t->failed && rng_uniform(&t->rng) < t->stuck)
        return -EINVAL;
    ASSERT(t->open >= bytes);
    t->open -= bytes;
    return t->empty ? 0 : domain_decommit(domain_machine(), test_domain_real(t, at), bytes);
}

static inline void test_domain_copy(void *arg, dev_ptr to, dev_ptr from, uint64_t bytes)
{
    struct test_domain *t = arg;
    domain_copy(domain_machine(), test_domain_real(t, to), test_domain_real(t, from), bytes);
}

static inline void test_domain_put(void *arg, dev_ptr to, const void *from, uint64_t bytes)
{
    domain_put(domain_machine(), test_domain_real(arg, to), from, bytes);
}

static inline int test_domain_get(void *arg, void *to, dev_ptr from, uint64_t bytes)
{
    return domain_get(domain_machine(), to, test_domain_real(arg, from), bytes);
}

static inline const struct domain *test_domain_init(struct test_domain *t, const char *name)
{
    static const struct domain_ops ops = {
        .reserve = test_domain_reserve,
        .release = test_domain_release,
        .open = test_domain_open,
        .populate = test_domain_populate,
        .decommit = test_domain_decommit,
        .copy = test_domain_copy,
        .put = test_domain_put,
        .get = test_domain_get,
    };
    t->domain = (struct domain){.name = name, .class = ACCOUNT_DEVICE, .ops = &ops, .arg = t};
    t->rng = (struct rng){1, 0};
    return &t->domain;
}

#endif
