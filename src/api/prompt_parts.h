/* prompt_parts.h - why a turn found less in the prefix cache than the turn before it could have left there.
 *
 * The table has hashes of each conversation's last turn: model, system, each tool, each message, and the
 * prompt's tokens at some places. A turn is compared with them when its prompt is known. Later the engine's
 * count of cached tokens decides whether anything was lost. The table has a fixed size, in the account
 * `conversations`. Shares of tenants lose entries as cache/share_list.h says. Any thread. */
#ifndef PLATEAU_API_PROMPT_PARTS_H
#define PLATEAU_API_PROMPT_PARTS_H

#include "memory/ledger.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct gen_request;
struct prompt_parts;

#define PROMPT_PARTS_MAX    400 /* tools and messages of a turn that have a hash */
#define PROMPT_PLACES_MAX   96  /* places in its tokens */
#define PROMPT_REASON_BYTES 32  /* exchange.cache_miss */

/* A turn: the parts of its prompt. */
struct prompt_turn {
    uint64_t key; /* hash of the tenant and the first message of a user; 0: no such message */
    uint64_t tenant, model, system;
    uint32_t tools, messages; /* how many; messages exclude the system at the start */
    uint32_t skipped;         /* messages of the system before the first one */
    uint32_t tokens, stride;  /* tokens between two places */
    uint64_t part[PROMPT_PARTS_MAX], place[PROMPT_PLACES_MAX];
};

/* A turn against the turn before it. */
struct prompt_loss {
    bool known;                        /* there was one */
    char differs[PROMPT_REASON_BYTES]; /* the first part that differs; empty: none does */
    uint32_t before;                   /* tokens of that turn's prompt */
    uint32_t common;                   /* tokens of the prefix that both have, in whole strides */
    uint32_t stride;
};

/* A turn that is being answered. */
struct prompt_compared {
    struct prompt_turn turn;
    struct prompt_loss loss; /* from its prompt on */
};

/* Fills in all but the tokens. After tools were placed, before the prompt is rendered. */
void prompt_turn_read(const struct gen_request *r, uint64_t tenant, const char *model,
                      struct prompt_turn *ret);
/* Fills in the tokens. */
void prompt_turn_tokens(struct prompt_turn *t, const uint32_t *ids, uint32_t count);

/* Why the turn found no more than `cached` tokens: a part ("model", "system", "tools[2]", "messages[5]"),
 * "rendering" where the parts are the same and the tokens are not, "evicted" where both are. NULL: it found
 * what the turn before it left, but for a few pages, or nothing is known of one. */
const char *prompt_loss_reason(const struct prompt_loss *l, uint32_t cached);

/* Bytes of a table with that number of entries. */
uint64_t prompt_parts_bytes(uint32_t entries);
/* 0 or -ENOMEM. */
int prompt_parts_create(struct account *account, uint32_t entries, struct prompt_parts **ret);
/* NULL is fine. */
void prompt_parts_free(struct prompt_parts *p);
/* Compares the turn with the last one of its conversation, and takes that one's place. `ids`: its tokens. */
void prompt_parts_turn(struct prompt_parts *p, const struct prompt_turn *t, const uint32_t *ids,
                       uint64_t now_ns, struct prompt_loss *ret);

#endif
