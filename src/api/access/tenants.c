/* tenants.c - a table that is searched from end to end: a request is counted a few times in its life. */
#include "api/access/tenants.h"

#include "api/report/metrics.h"

#include <errno.h>
#include <stdlib.h>

struct pair {
    uint64_t tenant;
    uint64_t used; /* tenants.uses when it was last counted; 0: free */
    uint32_t model;
    struct metrics_counts counts;
};

_Static_assert(sizeof(struct pair) <= 168, "tenants.h says how many bytes a pair takes");

struct tenants {
    uint64_t uses;
    uint32_t count;
    struct pair pairs[TENANTS_MAX];
};

size_t tenants_bytes(void)
{
    return sizeof(struct tenants);
}

int tenants_create(struct tenants **ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

void tenants_free(struct tenants *t)
{
    free(t);
}

static struct pair *find(const struct tenants *t, uint64_t tenant, uint32_t model)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (t->pairs[i].tenant == tenant && t->pairs[i].model == model)
            return (struct pair *)(uintptr_t)&t->pairs[i];
    return NULL;
}

static struct pair *make(struct tenants *t, uint64_t tenant, uint32_t model)
{
    struct pair *p = &t->pairs[0];
    if (t->count < TENANTS_MAX)
        p = &t->pairs[t->count++];
    else
        for (uint32_t i = 1; i < TENANTS_MAX; i++)
            if (t->pairs[i].used < p->used)
                p = &t->pairs[i];
    *p = (struct pair){.tenant = tenant, .model = model};
    return p;
}

struct metrics_counts *tenants_counts(struct tenants *t, uint64_t tenant, uint32_t model)
{
    struct pair *p = find(t, tenant, model);
    if (!p)
        p = make(t, tenant, model);
    p->used = ++t->uses;
    return &p->counts;
}

const struct metrics_counts *tenants_find_counts(const struct tenants *t, uint64_t tenant, uint32_t model)
{
    const struct pair *p = find(t, tenant, model);
    return p ? &p->counts : NULL;
}
