/* prompt_parts.h - what a turn has in common with earlier turns of its conversation.
 *
 * The table has hashes of the last turns of conversations: model, system, each tool, each message, marks in
 * their texts, and the prompt's tokens in strides. A turn is compared with the entry that it continues
 * best: conversations may begin with the same message of the user, and a client may fork one. Later the
 * engine's count of cached tokens decides whether anything was lost: cache_miss.h.
 * An entry has 7 KiB. The table has a fixed size, in the account `conversations`. Shares of tenants lose
 * entries as cache/share_list.h says. Any thread. */
#ifndef PLATEAU_API_PROMPT_PARTS_H
#define PLATEAU_API_PROMPT_PARTS_H

#include "api/turns/prompt_text.h"

#include "memory/ledger.h"

struct gen_request;
struct prompt_parts;

#define PROMPT_PARTS_MAX    400  /* tools and messages of a turn that have a hash and marks */
#define PROMPT_MARKS_MAX    1024 /* marks in the texts of these parts, together */
#define PROMPT_STRIDES_MAX  96   /* hashes of its tokens */
#define PROMPT_REPLACED_MAX 4    /* ids of earlier turns that an entry answers to */
#define PROMPT_PART_BYTES   24   /* "messages[400]" */

/* A turn: the parts of its prompt. */
struct prompt_turn {
    uint64_t key; /* hash of the tenant and the first message of a user; 0: no such message */
    uint64_t tenant, model, system;
    uint64_t agent;           /* gen_request.agent; 0: none */
    uint64_t id, previous;    /* hashes of its request's id, and of that which the client names; 0: none */
    uint64_t offered;         /* hash of the list of tools, before later ones were placed */
    uint32_t tools, messages; /* how many; messages exclude the system at the start */
    uint32_t skipped;         /* messages of the system before the first one */
    bool replied;             /* a reply is among them */
    uint32_t tokens, stride;  /* tokens of one hash in stride_hash */
    uint32_t mark_stride;     /* bytes between two marks */
    uint64_t part[PROMPT_PARTS_MAX], stride_hash[PROMPT_STRIDES_MAX];
    uint16_t mark_count[PROMPT_PARTS_MAX + 1]; /* marks of the system, then of each part */
    uint16_t marks[PROMPT_MARKS_MAX];
};

enum prompt_side { PROMPT_SIDE_CLIENT, PROMPT_SIDE_SERVER };

/* A turn against an earlier one. */
struct prompt_loss {
    bool known, named;                   /* there is such a turn; it is the one that the client names */
    bool begins_anew;                    /* not known, and its agent had turns with other first messages */
    char part[PROMPT_PART_BYTES];        /* the first part that differs; empty: none does */
    enum prompt_side side;               /* side that changed the part */
    struct prompt_difference difference; /* in that part; within 0: an image, or not known */
    uint32_t before;                     /* tokens of that turn's prompt */
    uint32_t common;                     /* tokens of the prefix that both have, in whole strides */
    uint32_t stride;
    uint64_t before_ns; /* clock time of that turn */
    uint64_t since_ns;  /* the table knows all turns since then */
    bool displaced;     /* that is not its start: it has lost entries */
};

/* A turn that is being answered. */
struct prompt_compared {
    struct prompt_turn turn;
    struct prompt_loss loss; /* from its prompt on */
    uint32_t earlier_tokens; /* tokens up to the end of its last reply; 0: no reply */
};

/* Fills in all but the tokens. After tools were placed, before the prompt is rendered and the sources of its
 * images are dropped. */
void prompt_turn_read(const struct gen_request *r, uint64_t tenant, const char *model,
                      struct prompt_turn *ret);
/* Fills in the tokens. */
void prompt_turn_tokens(struct prompt_turn *t, const uint32_t *ids, uint32_t count);

/* Bytes of a table with that number of entries. */
uint64_t prompt_parts_bytes(uint32_t entries);
/* 0 or -ENOMEM. */
int prompt_parts_create(struct account *account, uint32_t entries, uint64_t now_ns,
                        struct prompt_parts **ret);
/* NULL is fine. */
void prompt_parts_free(struct prompt_parts *p);
/* Finds the first part that differs from the entry that the turn continues best. `r`: its request, which has
 * the parts still. */
void prompt_parts_compare(struct prompt_parts *p, const struct prompt_turn *t, const struct gen_request *r,
                          struct prompt_loss *ret);
/* Compares the tokens with the tokens of that entry. Changes no part of `ret`. */
void prompt_parts_match(struct prompt_parts *p, const struct prompt_turn *t, const uint32_t *ids,
                        struct prompt_loss *ret);
/* Keeps a turn whose prompt has been computed: in place of the entry that it continues without a difference,
 * else beside it. */
void prompt_parts_keep(struct prompt_parts *p, const struct prompt_turn *t, uint64_t now_ns);

struct prompt_parts_numbers {
    uint64_t entries, entries_max, bytes;
    uint64_t compared, evicted; /* since the start: turns that continued one; entries */
};
struct prompt_parts_numbers prompt_parts_numbers(struct prompt_parts *p);

#endif
