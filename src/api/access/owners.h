/* owners.h - the ledger by its owners: each model with three parts, and the process itself. Network
 * thread. */
#ifndef PLATEAU_API_OWNERS_H
#define PLATEAU_API_OWNERS_H

#include "memory/ledger.h"
#include "registry/registry.h"

struct api;

struct owner {
    const struct account_numbers *account; /* in the API's scratch array, until it is read again */
    uint64_t fixed, active, kept;          /* weights, tables, workspace; of requests; caches */
};

/* The accounts of one domain. */
struct owners {
    const struct account_numbers *root;
    uint64_t server; /* used bytes that no model owns */
    struct owner models[REGISTRY_MODELS_MAX];
    uint32_t count;
};

/* Reads the ledger; owners of `domain`, where 0 is the machine. False: there are fewer domains. */
bool owners_read(struct api *a, uint32_t domain, struct owners *ret);

#endif
