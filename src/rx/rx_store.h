/* rx_store.h - the insides of a store of expressions, for the files of rx.h.
 *
 * Nodes lie in chunks. A node's children have smaller ids than the node, and equal nodes have equal ids.
 *
 *   CAT     a, b: a is no CAT (chains lean to the right)
 *   OR, AND a, b: a is not a node of the same kind, and a > the first of b (lists in falling order)
 *   BYTES   a: index of its set
 *
 * A store may stand over a base: a store that no longer changes and whose ids are valid here too. */
#ifndef PLATEAU_RX_RX_STORE_H
#define PLATEAU_RX_RX_STORE_H

#include "rx/rx.h"

#include "base/wanted.h"

#define RX_DEPTH_MAX 200 /* nested OR, AND, NOT and REPEAT: what functions recurse over */

enum {
    RX_F_NULLABLE = 1,
    RX_F_EVIDENT = 2, /* some text matches, as the structure shows; without it, rx_alive() searches */
    RX_F_MARK = 4,    /* mark of rx_compact() */
    RX_F_FINITE = 8   /* the structure shows that it matches finitely many texts */
};

struct rx_item {
    uint8_t kind, flags;
    uint16_t depth;
    uint32_t a, b, min, max;
    uint32_t least; /* no shorter text matches; at most RX_LEAST_MAX */
    uint32_t next;  /* in its bucket */
};

#define RX_LEAST_MAX (1u << 20) /* bytes */

#define RX_LOOK_STEPS 1024 /* between two looks at `wanted`; less than 2 ms */

enum { RX_CHUNK_LOG2 = 9, RX_CHUNK = 1 << RX_CHUNK_LOG2, RX_MEMO = 1 << 10 };

struct rx_memo {
    rx_id of, rest;
    uint32_t byte;
};

/* Memory of a search of rx_alive(). */
enum { RX_SEEN_LOG2 = 12, RX_SEEN = 1 << RX_SEEN_LOG2 };

struct rx_seen {
    rx_id id;
    uint32_t parent; /* place + 1 of the one that it was derived from */
};

struct rx_search {
    struct rx_store *store;
    struct rx_seen seen[RX_SEEN]; /* a table by id; never more than 3/4 full */
    uint64_t heap[RX_SEEN];       /* the least first: bytes it lacks, age, place in `seen` */
    uint32_t count, seen_count;
    uint8_t bytes[256]; /* one of each class */
    uint32_t steps;
};

struct rx_store {
    struct arena *arena;
    const struct rx_store *base;
    uint32_t first; /* ids from here on lie in this store */
    uint32_t count, nodes_max;
    struct rx_item **chunks;
    struct rx_bytes *sets;
    uint32_t sets_first, sets_count, sets_room;
    uint32_t *buckets;
    uint32_t buckets_log2;
    /* A stack of ids that functions build lists on. */
    rx_id *list;
    uint32_t list_count, list_room;
    struct rx_memo *memo; /* memo of rx_derive() and rx_without_empty() */
    uint32_t *alive_memo; /* memo of rx_alive(): id * 2 + whether some text matches */
    uint8_t classes[256]; /* bytes that no set of the first `classes_sets` tells apart */
    uint32_t class_count, classes_sets;
    struct rx_search *search;    /* NULL until the first */
    uint64_t work;               /* steps since creation */
    uint64_t work_end;           /* at so many steps the store fails; UINT64_MAX: never */
    uint64_t next_look;          /* at `wanted` and at `work_end`, in steps */
    const struct wanted *wanted; /* asked every RX_LOOK_STEPS; NULL: never */
    int stopped;                 /* why `wanted` ended the work, or 0 */
    bool failed, too_large;      /* for a limit of its own */
};

static inline struct rx_item *rx_at(const struct rx_store *s, rx_id id)
{
    if (id < s->first)
        s = s->base;
    id -= s->first;
    return &s->chunks[id >> RX_CHUNK_LOG2][id & (RX_CHUNK - 1)];
}

static inline const struct rx_bytes *rx_set_at(const struct rx_store *s, uint32_t index)
{
    return index < s->sets_first ? &s->base->sets[index] : &s->sets[index - s->sets_first];
}

static inline bool rx_has(const struct rx_bytes *set, uint8_t byte)
{
    return set->bits[byte / 64] >> (byte % 64) & 1;
}

/* The node with these members, new or not. Flags and depth follow. RX_NONE when the store is full. */
rx_id rx_intern(struct rx_store *s, enum rx_kind kind, uint32_t a, uint32_t b, uint32_t min, uint32_t max);
/* The flags of a node that follow from its members and children. */
uint8_t rx_flags_of(const struct rx_store *s, const struct rx_item *n);
rx_id rx_fail(struct rx_store *s);
/* When to give up: the store fails then. NULL: never. Returns what it was before. */
const struct wanted *rx_wanted(struct rx_store *s, const struct wanted *wanted);
/* Sets the count of steps at which the store fails; UINT64_MAX: never. One derivative of nested lists may
 * take any number of steps. A store that failed at its last limit serves again, with its nodes. */
void rx_limit(struct rx_store *s, uint64_t work_end);
static inline bool rx_is_spent(const struct rx_store *s)
{
    return s->work >= s->work_end;
}
/* Looks at the clock and the limit. */
void rx_check_limits(struct rx_store *s);
static inline void rx_step(struct rx_store *s)
{
    if (++s->work >= s->next_look)
        rx_check_limits(s);
}

/* The stack of lists: pushes; elements of a list of `kind` (x itself, if it is no such list). */
bool rx_push(struct rx_store *s, rx_id x);
bool rx_push_list(struct rx_store *s, enum rx_kind kind, rx_id x);
/* Makes OR or AND of the stack's elements from `from` on, and takes them off. */
rx_id rx_or_list(struct rx_store *s, uint32_t from);
rx_id rx_and_list(struct rx_store *s, uint32_t from);
/* Sorts, drops equal ones and adds the steps to *work; returns how many are left. */
uint32_t rx_sort(rx_id *ids, uint32_t count, uint64_t *work);

/* A store over `base`, whose memory is all taken here: `nodes_max` more nodes. 0 or -ENOMEM. */
int rx_store_over(struct arena *a, const struct rx_store *base, uint32_t nodes_max, struct rx_store **ret);
/* Drops all nodes of a store over a base, but for `roots` and their parts; writes the new ids there. */
void rx_compact(struct rx_store *s, rx_id *roots, uint32_t count);

/* Searches small intersections for a text, a bounded number of them. Those that match one are marked with
 * RX_F_EVIDENT, and expressions that follow from them: rx_alive() has its answer without a search. */
void rx_prove(struct rx_store *s);

/* Copies what `roots` consist of to `to`, an empty store, and writes the ids there. */
void rx_copy(const struct rx_store *from, struct rx_store *to, struct arena *scratch, rx_id *roots,
             uint32_t count);

/* Whether any text matches: 1 or 0; -E2BIG: not decided within `steps` derivatives. */
int rx_alive(struct rx_store *s, rx_id x, uint32_t steps);
bool rx_search_create(struct rx_store *s); /* takes its memory now */
/* The classes of bytes that the sets tell apart: classes[byte] < class_count. */
void rx_refine(struct rx_store *s);
/* Adds the bytes that a text of `x` may begin with, or more: to `set`. */
void rx_first(const struct rx_store *s, rx_id x, struct rx_bytes *set);
/* `x` without the empty text. */
rx_id rx_without_empty(struct rx_store *s, rx_id x);
/* How many different nodes `x` consists of, at most `most` (< RX_SIZE_MAX). */
#define RX_SIZE_MAX 512
uint32_t rx_size(struct rx_store *s, rx_id x, uint32_t most);
/* Whether more than a few characters of more than one byte may repeat in it. */
bool rx_has_loop(struct rx_store *s, rx_id x);

#endif
