/* room.h - memory of a model's device for a tool's pages, states and features. */
#ifndef PLATEAU_TOOLS_ROOM_H
#define PLATEAU_TOOLS_ROOM_H

#include "base/check.h"
#include "memory/domain.h"
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct room {
    const struct domain *domain;
    dev_ptr at;
    uint64_t bytes; /* that were asked for */
};

static inline uint64_t room_range(const struct room *r)
{
    return ROUND_UP(MAX_OF(r->bytes, (uint64_t)1), (uint64_t)UNIT_BYTES);
}

/* Fine on zeros. */
static inline void room_free(struct room *r)
{
    if (!r->domain)
        return;
    (void)domain_decommit(r->domain, r->at, room_range(r));
    (void)domain_release(r->domain, r->at, room_range(r));
    *r = (struct room){0};
}

/* Every byte is `fill`; 0xff makes NaNs, which expose reads of what was never written. 0 or -ENOMEM. */
static inline int room_make(const struct domain *d, uint64_t bytes, int fill, struct room *ret)
{
    struct room r = {.domain = d, .bytes = bytes};
    char block[4096];
    int result = domain_reserve(d, room_range(&r), false, &r.at);
    if (result < 0)
        return result;
    result = domain_commit(d, r.at, room_range(&r));
    if (result < 0) {
        (void)domain_release(d, r.at, room_range(&r));
        return result;
    }
    memset(block, fill, sizeof(block));
    for (uint64_t at = 0; fill != 0 && at < room_range(&r); at += sizeof(block))
        domain_put(d, dev_add(r.at, at), block, sizeof(block));
    *ret = r;
    return 0;
}

/* Where the pages of each group lie in a room of `pages` * page_bytes bytes: the first group's, then the next
 * one's. */
static inline void room_page_bases(const struct model_shape *s, dev_ptr at, uint64_t pages,
                                   dev_ptr ret[PAGE_GROUPS_MAX])
{
    for (uint32_t g = 0; g < s->group_count; g++) {
        ret[g] = at;
        at = dev_add(at, pages * s->groups[g].page_bytes);
    }
}

/* Each group has its own pages, of the same numbers: one table serves them all. */
static inline void room_tables(const uint32_t *table, const uint32_t *ret[PAGE_GROUPS_MAX])
{
    for (uint32_t g = 0; g < PAGE_GROUPS_MAX; g++)
        ret[g] = table;
}

/* A copy in the heap, to be freed; NULL: no memory, or the device failed. */
static inline void *room_copy(const struct room *r)
{
    void *p = malloc(MAX_OF(r->bytes, (uint64_t)1));
    if (p && domain_get(r->domain, p, r->at, r->bytes) == 0)
        return p;
    free(p);
    return NULL;
}

#endif
