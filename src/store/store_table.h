/* store_table.h - the index of the tier's files, in memory: a table by key, and the tenants' shares of it.
 *
 * An entry belongs to the share of the tenant that wrote it. Entries of an earlier process form a share of
 * their own, until their tenants use them. share_list.h says which entry makes room, by the sectors of each
 * share. An entry is stale after a day without use, because prefixes return from one day to the next.
 *
 * A leased entry makes no room, and its sectors still count for its share. Without a file it is reserved: its
 * key is in the table. Entries of one chain link to the entry before them, so a lease needs no
 * list of its own.
 *
 * Bound: 64 bytes for each entry, in blocks that are committed on demand, 4 to 8 more for its place in the
 * table, 8 for each block of 1024, and 24 for each share, 6 KiB. One thread at a time: the holder of the
 * store's lock. */
#ifndef PLATEAU_STORE_STORE_TABLE_H
#define PLATEAU_STORE_STORE_TABLE_H

#include "base/arena.h"
#include "base/clock.h"
#include "cache/prefix_key.h"
#include "cache/share_list.h"
#include "cache/tier_io.h"

#define STORE_SHARE_UNKNOWN CACHE_SHARES /* entries of earlier processes */
#define STORE_STALE_NS      (24 * 3600 * NS_PER_S)

enum store_entry_state {
    STORE_ENTRY_FREE,
    STORE_ENTRY_RESERVED, /* leased, without a file */
    STORE_ENTRY_PENDING,  /* about to be written: not found by reads, and not written again */
    STORE_ENTRY_STORED
};

struct store_entry {
    struct prefix_key key;
    uint64_t used_ns; /* since 1970 */
    uint32_t sectors; /* sectors of 512 bytes, as the file system counts them; of a leased entry without a
                         file: an estimate */
    uint32_t next_same;
    uint32_t newer,
        older; /* neighbours in the list of the share's stored entries; older of a leased entry: the
                              one before it in its chain */
    uint32_t leases;
    uint16_t share;
    uint8_t kind, state;
};

struct store_table;

/* Bytes of arena at most. */
size_t store_table_bytes(uint32_t entries_max);
/* 0 or -ENOMEM. */
int store_table_create(struct arena *a, uint32_t entries_max, struct store_table **ret);

/* NONE: it is not there. */
uint32_t store_table_find(const struct store_table *t, const struct prefix_key *key, enum tier_kind kind);
/* A pending entry; the key is not there yet. NONE: there are entries_max, or no memory for more. */
uint32_t store_table_add(struct store_table *t, const struct prefix_key *key, enum tier_kind kind,
                         uint32_t share);
/* A pending entry has its file now, which was used then. */
void store_table_store(struct store_table *t, uint32_t entry, uint32_t sectors, uint64_t used_ns);
/* A tenant of this share has used the stored entry: it is the last one of the share to go. */
void store_table_touch(struct store_table *t, uint32_t entry, uint32_t share, uint64_t now_ns);
/* The entry has no file any more. If it is leased, its key stays reserved. */
void store_table_remove(struct store_table *t, uint32_t entry);
/* A reserved entry is pending from now on. */
void store_table_begin(struct store_table *t, uint32_t entry);
/* Leases the entry of this key, which is reserved with `sectors` if it is not there. `before`: the one before
 * it in the chain, NONE: unchanged. Returns the entry; NONE: as store_table_add(). */
uint32_t store_table_lease(struct store_table *t, const struct prefix_key *key, enum tier_kind kind,
                           uint32_t share, uint32_t sectors, uint32_t before);
/* Gives one lease back. Without any, a stored entry is the last one of its share to go. */
void store_table_unlease(struct store_table *t, uint32_t entry);
/* The stored entry that makes room, or NONE. */
uint32_t store_table_victim(const struct store_table *t, uint64_t now_ns);
/* Sorts the entries of STORE_SHARE_UNKNOWN by used_ns. Exclusive, because it takes a while. */
void store_table_sort(struct store_table *t);
struct store_entry *store_table_at(const struct store_table *t, uint32_t entry);

struct store_table_numbers {
    uint32_t entries_max, pending, reserved, leased, stored[TIER_KINDS];
    uint64_t sectors;        /* sectors of all that is stored */
    uint64_t leased_sectors; /* with or without a file */
};
/* Sectors of the share that are leased. */
uint64_t store_table_leased_of(const struct store_table *t, uint32_t share);
/* Pages of all groups that are stored. */
static inline uint32_t store_table_pages(const struct store_table_numbers *n)
{
    uint32_t pages = 0;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        pages += kind == TIER_SNAPSHOT ? 0 : n->stored[kind];
    return pages;
}
void store_table_numbers(const struct store_table *t, struct store_table_numbers *ret);

#endif
