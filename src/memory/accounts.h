/* accounts.h - the accounts that a process opens: name, class and parent of each, in one table.
 *
 * Code names them by enum. The names are for people: reports, metrics, plans and documents. */
#ifndef PLATEAU_MEMORY_ACCOUNTS_H
#define PLATEAU_MEMORY_ACCOUNTS_H

#include "memory/ledger.h"

enum account_id {
    ACCOUNT_PROCESS, /* the root */
    ACCOUNT_HEAP,
    ACCOUNT_THREADS,
    ACCOUNT_NETWORK,
    ACCOUNT_TEXT,
    ACCOUNT_RESPONSES,
    ACCOUNT_CONVERSATIONS,
    ACCOUNT_HISTORY,
    ACCOUNT_PULL,
    ACCOUNT_MEDIA,
    ACCOUNT_VIDEO,
    ACCOUNT_SHARED_CACHE,
    ACCOUNT_SSD_STAGING,
    ACCOUNT_SSD_TABLE,
    ACCOUNT_ORPHANS,
    ACCOUNT_CONTEXT, /* on a device: the driver's context, with the kernels */
    ACCOUNT_MODEL,   /* one for each loaded model, by its id */
    ACCOUNT_WEIGHTS,
    ACCOUNT_EXPERTS, /* in the machine, of a model on a device */
    ACCOUNT_LOADING,
    ACCOUNT_WORKSPACE,
    ACCOUNT_RECORDED_STEPS,
    ACCOUNT_VISION,
    ACCOUNT_IMAGES,
    ACCOUNT_MTP,
    ACCOUNT_DRAFT, /* the draft model's, with children as a model has them */
    ACCOUNT_TABLES,
    ACCOUNT_TOKENIZER,
    ACCOUNT_GRAMMARS,
    ACCOUNT_ENGINE,
    ACCOUNT_REQUESTS,
    ACCOUNT_PINNED_CACHE, /* only a model on a device has one */
    ACCOUNT_POOLS,
    ACCOUNT_KV,
    ACCOUNT_STATE,
    ACCOUNT_SNAPSHOTS,
    ACCOUNT_PREFIX_CACHE,
    ACCOUNT_LEASES,
    ACCOUNT_ID_COUNT
};

struct accounts_row {
    const char *name; /* "" for ACCOUNT_MODEL */
    enum account_class class;
    enum account_id parent; /* whose children have this one among them */
};
const struct accounts_row *accounts_row(enum account_id id);
/* The account of that name; ACCOUNT_MODEL: none is called so. */
enum account_id accounts_of(const char *name);

/* account_open() with the table's name and class; not for ACCOUNT_PROCESS and ACCOUNT_MODEL. 0 or -ENOMEM. */
int accounts_open(struct account *parent, enum account_id id, uint64_t limit_bytes, struct account **ret);
/* As `account_find()`, but by id. */
struct account *accounts_find(struct account *parent, enum account_id id);

#endif
