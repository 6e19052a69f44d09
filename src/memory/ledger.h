/* ledger.h - which account owns which bytes, and the limit of each.
 *
 * A tree of accounts: process / model / weights, kv, state, ... Each memory domain has a root account of its
 * own, whose limit is the domain's ceiling: "process" for the machine, "cuda:0". Pinned memory is memory of
 * the machine, so the root of its domain lies below "process". Bytes are reserved BEFORE they are allocated.
 * A reservation walks from its account to the root. It fails, and changes nothing, if any account on the way
 * would pass its limit. `used` is the part of the reserved bytes that exists already. Every account counts
 * its children's bytes, so sum(children) <= parent always, with equality where an account has no bytes of its
 * own.
 *
 * Any thread; one lock (a reservation moves 64 KiB or more, or one request: it is rare). An account lives
 * until account_close(), which asserts that it is empty and has no children: a leak stops the program where
 * it is found, with the account's name. */
#ifndef PLATEAU_MEMORY_LEDGER_H
#define PLATEAU_MEMORY_LEDGER_H

#include "base/charge.h"

#include <stdbool.h>
#include <stdint.h>

enum account_class {
    ACCOUNT_ANON,   /* resident by construction: commits are populated */
    ACCOUNT_FILE,   /* mapped files: counted against the ceiling, not in RssAnon */
    ACCOUNT_DEVICE, /* a GPU's memory */
    ACCOUNT_PINNED, /* host memory pinned for a device */
    ACCOUNT_DISK,   /* blocks of the SSD tier; never counted against the memory ceiling */
    ACCOUNT_CLASS_COUNT
};
const char *account_class_name(enum account_class c);

struct ledger;
struct account;
struct domain;

#define ACCOUNT_NO_LIMIT UINT64_MAX
#define ACCOUNT_NAME_MAX 64

/* A ledger with its root account "process", of the machine's memory. 0 or -ENOMEM. */
int ledger_create(uint64_t limit_bytes, struct ledger **ret);
/* Asserts that nothing is reserved and only that root is open. NULL is fine. */
void ledger_free(struct ledger *l);
struct account *ledger_root(struct ledger *l);
/* Opens the root account of another domain, which has none yet and outlives it; account_close() closes it.
 * 0 or -ENOMEM. */
int ledger_open_root(struct ledger *l, const struct domain *domain, uint64_t limit_bytes,
                     struct account **ret);
/* NULL: the domain has no root account. */
struct account *ledger_root_of(struct ledger *l, const struct domain *domain);
/* The root account of the account's domain. Constant. */
struct account *account_root(struct account *a);
/* The memory that the account's bytes are of. Constant. */
const struct domain *account_domain(const struct account *a);

/* For tests: called before each reservation, on its thread; nonzero refuses it, as a limit would. */
struct ledger_faults {
    int (*reserve)(void *arg);
    void *arg;
};
/* Before other threads know the ledger. */
void ledger_set_faults(struct ledger *l, const struct ledger_faults *f);

/* `name` is copied (at most ACCOUNT_NAME_MAX - 1 bytes). The account is of the parent's domain. On a device
 * its class is ACCOUNT_DEVICE, whatever `class` says, in pinned memory ACCOUNT_PINNED. 0 or -ENOMEM. */
int account_open(struct account *parent, const char *name, enum account_class class, uint64_t limit_bytes,
                 struct account **ret);
/* Asserts reserved == 0 and no children. NULL is fine. */
void account_close(struct account *a);

/* The account of that name below `parent`, at any depth; the one opened first. NULL: not found. Its opener
 * may close it: call this only while that cannot happen. */
struct account *account_find(struct account *parent, const char *name);

/* The plan's limit of this account; for reports. */
void account_set_planned(struct account *a, uint64_t bytes);
void account_set_limit(struct account *a, uint64_t limit_bytes);
/* Guarantees `bytes` to the account and those below it. To all accounts above, it counts as holding at least
 * `bytes` from now on; reservations within the floor change nothing there. So a load reserves the minimum of
 * its model in one go, and is never refused half-way. A lower floor, or 0, gives up the difference;
 * account_close() gives up all of it. 0, or -ENOMEM and nothing has changed. */
int account_set_floor(struct account *a, uint64_t bytes);

struct account_numbers {
    char name[ACCOUNT_NAME_MAX];
    enum account_class class;
    bool is_root;      /* its limit is the ceiling of its domain */
    uint8_t depth;     /* 0: a root; the root of pinned memory has 1 */
    uint16_t children; /* at most 65535 */
    const struct domain *domain;
    uint64_t planned, reserved, used, peak, limit; /* bytes; peak is of used; reserved: at least the floor */
    uint64_t floor;
};

/* 0, or -ENOMEM and nothing has changed. */
int account_reserve(struct account *a, uint64_t bytes);
/* As `account_reserve()`, but leaves `spare` bytes of the account's own limit to others. */
int account_reserve_sparing(struct account *a, uint64_t bytes, uint64_t spare);
/* After a refusal: the lowest account from `a` up to the root whose limit has no room for `bytes` more, with
 * its present figures. False: all of them have room now. */
bool account_refuses(struct account *a, uint64_t bytes, struct account_numbers *ret);
/* bytes <= reserved - used. */
void account_release(struct account *a, uint64_t bytes);
/* By how much the domain's root would shrink if `bytes` of `a` were released: bytes within a floor on the way
 * stay reserved. */
uint64_t account_would_free(struct account *a, uint64_t bytes);
/* Marks reserved bytes as existing, or as no longer existing (still reserved). */
void account_use(struct account *a, uint64_t bytes);
void account_unuse(struct account *a, uint64_t bytes);
/* Used bytes change their account only: `to` has the same parent and class. Never fails, because the sum
 * stays the same; the owner of `to` keeps its limit. bytes <= used of `from`. */
void account_shift(struct account *from, struct account *to, uint64_t bytes);

/* As `account_shift()`, but between any two accounts of one class and domain. Limits on the way are not
 * checked, because the bytes exist already. */
void account_move(struct account *from, struct account *to, uint64_t bytes);

/* A charge that reserves and uses in one call, for arenas, buffers and mailboxes. */
struct charge account_charge(struct account *a);

struct account_numbers account_numbers(struct account *a);

/* Calls `visit` for every account, parents before children, under the lock: a consistent image. The machine's
 * accounts come first, then those of each other root.
 * `visit` must not call the ledger. */
void ledger_walk(struct ledger *l, void (*visit)(void *arg, const struct account_numbers *n), void *arg);

/* Asserts that every account holds at least the sum of its children, and used <= reserved. A failure names
 * the account with its path. */
void ledger_check(struct ledger *l);
/* As `ledger_check()`, but of an account and those below it. */
void account_check(struct account *a);

#endif
