/* request_memory.h - what one request may hold of the account `text`, from its JSON to its reply.
 *
 * Everything of a request that grows is charged here, and here it is bounded. Bytes are reserved in the
 * account in grains of 16 KiB, so that a JSON value of ten thousand small blocks does not take the ledger's
 * lock ten thousand times. One thread at a time: a request is with a prep thread or with the network thread,
 * never with both. */
#ifndef PLATEAU_API_REQUEST_MEMORY_H
#define PLATEAU_API_REQUEST_MEMORY_H

#include "api/reject.h"
#include "base/buf.h"
#include "base/wanted.h"
#include "memory/ledger.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define REQUEST_MEMORY_GRAIN      ((size_t)16 << 10)
#define REQUEST_MEMORY_SPARE_PART 8

struct request_memory {
    struct account *account; /* NULL: uncounted (tests) */
    size_t bytes_max;
    size_t used, reserved;
    size_t parse_bytes; /* taken in advance for the text being parsed, not yet asked for */
    bool parsing;
    size_t spare;               /* of the account's limit, left to others: see request_memory_newcomer() */
    size_t wanted;              /* the bytes that were refused last */
    const struct wanted *still; /* looked at every 64 KiB of a text that is parsed; NULL: always wanted */
    int unwanted;               /* what it said: then nothing came of the text */
    const char *option;         /* what raises bytes_max */
    bool too_large;             /* the last refusal was for bytes_max, so waiting for others would not help */
    /* Once: what failed since then may have failed for want of memory (jansson does not always say). */
    bool refused;
};

void request_memory_init(struct request_memory *m, struct account *account, size_t bytes_max);
/* Demands that everything was given back. */
void request_memory_done(struct request_memory *m);
/* For buffers, arenas and parsers; `m` outlives them and does not move. */
struct charge request_memory_charge(struct request_memory *m);

/* An eighth of what the account may hold is for requests that are being answered: one that is still being
 * read takes none of it, so that a reply seldom ends for want of memory because others arrived. Until
 * `newcomer` is false again. */
void request_memory_newcomer(struct request_memory *m, bool newcomer);

/* The bytes of `b`, which is charged to `m`, are the account's alone from now on: they outlive the request.
 * Never fails. */
void request_memory_hand_over(struct request_memory *m, struct buf *b);

/* Why the memory was refused, for the client: 413 when the request's own limit said so, else 429: others hold
 * it. Or that the text was not wanted any more. Returns false. */
bool request_memory_reject(const struct request_memory *m, struct reject *why);

/* malloc and calloc that are charged; NULL when the charge or the system said no. `bytes` of free are those
 * of alloc. */
void *request_memory_alloc(struct request_memory *m, size_t bytes);
void request_memory_free(struct request_memory *m, void *block, size_t bytes);

/* Parses a JSON text whose value lives in `m`: every block of it, also those added or dropped later, whoever
 * does it. Duplicate keys are refused; strings may hold zero bytes. The text must not be nested deeper than
 * json_depth_within() found acceptable: jansson recurses. What parsing can take at most (json_parse_bytes())
 * is taken before it begins. NULL with `e` filled, or with `refused` or `unwanted` set and `e` saying so. */
json_t *request_memory_parse(struct request_memory *m, const char *text, size_t len, json_error_t *e);
/* While a thread builds JSON values outside of request_memory_parse(), they belong to `m`: begin, build, end
 * (NULL). */
void request_memory_enter(struct request_memory *m);

#endif
