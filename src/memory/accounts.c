/* accounts.c - the table. A parent stands above its children. */
#include "memory/accounts.h"

#include "base/check.h"

#include <string.h>

static const struct accounts_row accounts[ACCOUNT_ID_COUNT] = {
    [ACCOUNT_PROCESS] = {"process", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_HEAP] = {"heap", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_THREADS] = {"threads", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_NETWORK] = {"network", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_TEXT] = {"text", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_RESPONSES] = {"responses", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_CONVERSATIONS] = {"conversations", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_HISTORY] = {"history", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_PULL] = {"pull", ACCOUNT_FILE, ACCOUNT_PROCESS},
    [ACCOUNT_MEDIA] = {"media", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_VIDEO] = {"video", ACCOUNT_FILE, ACCOUNT_MEDIA},
    [ACCOUNT_SHARED_CACHE] = {"shared cache", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_SSD_STAGING] = {"ssd staging", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_SSD_TABLE] = {"ssd table", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_ORPHANS] = {"orphans", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_CONTEXT] = {"context", ACCOUNT_DEVICE, ACCOUNT_PROCESS},
    [ACCOUNT_MODEL] = {"", ACCOUNT_ANON, ACCOUNT_PROCESS},
    [ACCOUNT_WEIGHTS] = {"weights", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_EXPERTS] = {"experts", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_LOADING] = {"loading", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_WORKSPACE] = {"workspace", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_RECORDED_STEPS] = {"recorded steps", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_VISION] = {"vision", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_IMAGES] = {"images", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_MTP] = {"mtp", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_DRAFT] = {"draft", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_TABLES] = {"tables", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_TOKENIZER] = {"tokenizer", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_GRAMMARS] = {"grammars", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_ENGINE] = {"engine", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_REQUESTS] = {"requests", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_PINNED_CACHE] = {"pinned cache", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_POOLS] = {"pools", ACCOUNT_ANON, ACCOUNT_MODEL},
    [ACCOUNT_KV] = {"kv", ACCOUNT_ANON, ACCOUNT_POOLS},
    [ACCOUNT_STATE] = {"state", ACCOUNT_ANON, ACCOUNT_POOLS},
    [ACCOUNT_SNAPSHOTS] = {"snapshots", ACCOUNT_ANON, ACCOUNT_POOLS},
    [ACCOUNT_PREFIX_CACHE] = {"prefix cache", ACCOUNT_ANON, ACCOUNT_POOLS},
    [ACCOUNT_LEASES] = {"leases", ACCOUNT_ANON, ACCOUNT_POOLS},
};

const struct accounts_row *accounts_row(enum account_id id)
{
    ASSERT((size_t)id < COUNT_OF(accounts));
    return &accounts[id];
}

enum account_id accounts_of(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(accounts); i++)
        if (i != ACCOUNT_MODEL && strcmp(accounts[i].name, name) == 0)
            return (enum account_id)i;
    return ACCOUNT_MODEL;
}

int accounts_open(struct account *parent, enum account_id id, uint64_t limit_bytes, struct account **ret)
{
    ASSERT(id != ACCOUNT_PROCESS && id != ACCOUNT_MODEL);
    ASSERT(accounts[id].parent != ACCOUNT_POOLS ||
           strcmp(account_numbers(parent).name, accounts[ACCOUNT_POOLS].name) == 0);
    return account_open(parent, accounts[id].name, accounts[id].class, limit_bytes, ret);
}

struct account *accounts_find(struct account *parent, enum account_id id)
{
    ASSERT(id != ACCOUNT_MODEL);
    return account_find(parent, accounts_row(id)->name);
}
