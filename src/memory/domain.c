/* domain.c - the machine's memory: base/pages over ranges of mmap.
 *
 * mmap aligns to small pages only. A reserve maps UNIT_BYTES more and unmaps what lies outside the aligned
 * range. */
#include "memory/domain.h"

#include "base/check.h"
#include "base/pages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static int machine_reserve(void *arg, uint64_t bytes, bool small, dev_ptr *ret)
{
    (void)arg;
    ASSERT(bytes > 0 && bytes % UNIT_SMALL_BYTES == 0);
    size_t map_bytes = bytes + UNIT_BYTES;
    char *map = mmap(NULL, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    char *base = (char *)ROUND_UP((uintptr_t)map, UNIT_BYTES), *end = base + bytes;
    ASSERT(end <= map + map_bytes);
    if (base > map)
        munmap(map, (size_t)(base - map));
    if (end < map + map_bytes)
        munmap(end, (size_t)(map + map_bytes - end));
    /* Advice: a kernel without huge pages serves small ones. */
    (void)madvise(base, bytes, small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    *ret = dev_of_host(base);
    return 0;
}

static int machine_release(void *arg, dev_ptr base, uint64_t bytes)
{
    (void)arg;
    ASSERT(base.at % UNIT_BYTES == 0 && bytes > 0);
    return munmap(dev_host(base), bytes) < 0 ? -errno : 0;
}

static int machine_open(void *arg, dev_ptr at, uint64_t bytes)
{
    (void)arg;
    return pages_open(dev_host(at), bytes);
}

static int machine_populate(void *arg, dev_ptr at, uint64_t bytes)
{
    (void)arg;
    return pages_populate(dev_host(at), bytes);
}

static int machine_decommit(void *arg, dev_ptr at, uint64_t bytes)
{
    (void)arg;
    return pages_decommit(dev_host(at), bytes);
}

static void machine_copy(void *arg, dev_ptr to, dev_ptr from, uint64_t bytes)
{
    (void)arg;
    memcpy(dev_host(to), dev_host(from), bytes);
}

static void machine_put(void *arg, dev_ptr to, const void *from, uint64_t bytes)
{
    (void)arg;
    memcpy(dev_host(to), from, bytes);
}

static int machine_get(void *arg, void *to, dev_ptr from, uint64_t bytes)
{
    (void)arg;
    memcpy(to, dev_host(from), bytes);
    return 0;
}

const struct domain *domain_machine(void)
{
    static const struct domain_ops ops = {
        .reserve = machine_reserve,
        .release = machine_release,
        .open = machine_open,
        .populate = machine_populate,
        .decommit = machine_decommit,
        .copy = machine_copy,
        .put = machine_put,
        .get = machine_get,
    };
    static const struct domain machine = {
        .name = "machine", .class = ACCOUNT_ANON, .ops = &ops, .resident = true};
    return &machine;
}

const char *domain_holder(const struct domain *d, char ret[DOMAIN_HOLDER_BYTES])
{
    ASSERT(d->name);
    if (d->class == ACCOUNT_ANON)
        return "the server";
    snprintf(ret, DOMAIN_HOLDER_BYTES, d->class == ACCOUNT_DEVICE ? "device %s" : "%s memory", d->name);
    return ret;
}

const char *domain_limit_option(const struct domain *d)
{
    return d->class == ACCOUNT_DEVICE ? "--device-memory-limit" : "--memory-limit";
}
