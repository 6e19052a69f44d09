/* line_limit.c - a table that is searched from end to end: a refusal is rare, or it is one of many that are
 * only counted. */
#include "api/access/line_limit.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

static struct line_limit_client *find(struct line_limit *l, uint64_t client, const char *name)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->clients[i].client == client)
            return &l->clients[i];
    if (l->count == LINE_LIMIT_CLIENTS)
        return NULL;
    struct line_limit_client *c = &l->clients[l->count++];
    *c = (struct line_limit_client){.client = client};
    snprintf(c->name, sizeof(c->name), "%s", name);
    return c;
}

bool line_limit_take(struct line_limit *l, uint64_t client, const char *name)
{
    struct line_limit_client *c = find(l, client, name);
    ASSERT(l->count <= LINE_LIMIT_CLIENTS && l->told <= LINE_LIMIT_ALL);
    bool told = c && c->told < LINE_LIMIT_OWN && l->told < LINE_LIMIT_ALL;
    if (told) {
        c->told++;
        l->told++;
    } else if (c) {
        c->untold++;
    } else {
        l->untold++;
    }
    return told;
}

uint32_t line_limit_untold(const struct line_limit *l, uint64_t client, bool *others)
{
    uint32_t i = 0;
    while (i < l->count && l->clients[i].client != client)
        i++;
    *others = i == l->count;
    return *others ? l->untold : l->clients[i].untold;
}

void line_limit_end(struct line_limit *l, line_limit_fn *tell, void *arg)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->clients[i].untold > 0)
            tell(arg, l->clients[i].name, l->clients[i].untold);
    if (l->untold > 0)
        tell(arg, NULL, l->untold);
    l->told = l->untold = l->count = 0;
}
