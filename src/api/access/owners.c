/* owners.c - which part of a model an account belongs to. */
#include "api/access/owners.h"

#include "api/api_state.h"
#include "api/report/report.h"

#include "base/check.h"
#include "memory/accounts.h"

static void add_part(struct owner *o, const struct account_numbers *n, uint64_t bytes)
{
    switch (accounts_of(n->name)) {
    case ACCOUNT_KV:
    case ACCOUNT_STATE:
    case ACCOUNT_REQUESTS:
    case ACCOUNT_LEASES:
        o->active += bytes;
        break;
    case ACCOUNT_PREFIX_CACHE:
    case ACCOUNT_SNAPSHOTS:
    case ACCOUNT_IMAGES:
    case ACCOUNT_GRAMMARS:
        o->kept += bytes;
        break;
    default:
        o->fixed += bytes;
    }
}

/* The first account of the domain; -1: there are fewer. */
static int64_t find_root(const struct account_numbers *accounts, uint32_t count, uint32_t domain)
{
    for (uint32_t i = 0; i < count; i++)
        if (accounts[i].depth == 0 && domain-- == 0)
            return i;
    return -1;
}

static bool is_model(const struct account_numbers *n)
{
    return n->depth == 1 && !n->is_root && accounts_of(n->name) == ACCOUNT_MODEL;
}

bool owners_read(struct api *a, uint32_t domain, struct owners *ret)
{
    uint32_t count = report_read_accounts(a);
    const struct account_numbers *accounts = a->accounts;
    int64_t root = find_root(accounts, count, domain);
    struct owner *open = NULL;
    if (root < 0)
        return false;
    *ret = (struct owners){.root = &accounts[root]};
    uint64_t models = 0;
    for (uint32_t i = (uint32_t)root + 1; i < count && accounts[i].depth > 0; i++) {
        if (accounts[i].depth == 1)
            open = NULL;
        if (is_model(&accounts[i]) && ret->count < REGISTRY_MODELS_MAX) {
            open = &ret->models[ret->count++];
            *open = (struct owner){.account = &accounts[i]};
            models += accounts[i].used;
        }
        if (open && accounts[i].class != ACCOUNT_DISK)
            add_part(open, &accounts[i], report_own_used(accounts, count, i));
    }
    ret->server = ret->root->used - MIN_OF(models, ret->root->used);
    return true;
}
