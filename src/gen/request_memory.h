/* request_memory.h - the bytes of one request in the account `text`, from its JSON to its reply.
 *
 * Everything of a request that grows is charged and bounded here. Bytes are reserved in the account in grains
 * of 16 KiB, so that a JSON value of ten thousand small blocks does not take the ledger's lock ten thousand
 * times. One thread at a time: either a prep thread or the network thread owns a request. */
#ifndef PLATEAU_GEN_REQUEST_MEMORY_H
#define PLATEAU_GEN_REQUEST_MEMORY_H
#include "base/buf.h"
#include "base/wanted.h"
#include "base/wide_integer.h"
#include "memory/ledger.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct reject;
struct request_reserve;

#define REQUEST_MEMORY_GRAIN      ((size_t)16 << 10)
#define REQUEST_MEMORY_SPARE_PART 8

struct request_memory {
    struct account *account; /* NULL: uncounted (tests) */
    size_t bytes_max;
    size_t used, reserved;
    size_t parse_bytes; /* reserved for the text being parsed, not yet used by a block */
    bool parsing;
    struct request_reserve *reserves; /* addresses for the blocks of parsed values that the heap refused */
    size_t spare;                     /* part of the account's limit that is reserved for others: see
                                 * request_memory_newcomer() */
    size_t wanted;                    /* bytes of the last refusal */
    const struct wanted *still; /* polled every 64 KiB of a text that is parsed; NULL: never cancelled */
    int unwanted;               /* its result when it cancelled the parsing */
    const char *option;         /* the option that raises bytes_max */
    bool too_large;             /* the last refusal was for bytes_max, so waiting for other requests would not
                                 * help */
    /* Set once: later failures may be due to this refusal (jansson does not always report it). */
    bool refused;
    struct wide_integers wide; /* wide integers of all texts that were parsed */
};

void request_memory_init(struct request_memory *m, struct account *account, size_t bytes_max);
/* Asserts that all bytes were returned. */
void request_memory_done(struct request_memory *m);
/* For buffers, arenas and parsers; `m` outlives them and does not move. */
struct charge request_memory_charge(struct request_memory *m);

/* An eighth of the account's limit is reserved for requests that are being answered: with `newcomer`, `m`
 * takes none of it. So newly arrived requests seldom end a reply by taking its memory. Lasts until a call
 * with false. */
void request_memory_newcomer(struct request_memory *m, bool newcomer);

/* Moves the bytes of `b`, charged to `m`, to the account alone: they outlive the request. Never fails. */
void request_memory_hand_over(struct request_memory *m, struct buf *b);

/* The refusal for the client: 413 when the request's own limit was reached, else 429: other requests hold the
 * memory. After a cancelled parse, the error of that. Returns false. */
bool request_memory_reject(const struct request_memory *m, struct reject *why);

/* malloc and calloc with a charge; NULL when the charge or the system refused. free takes the same `bytes` as
 * alloc. */
void *request_memory_alloc(struct request_memory *m, size_t bytes);
void request_memory_free(struct request_memory *m, void *block, size_t bytes);

/* Parses a JSON text whose value lives in `m`: every block of it, also those added or dropped later by any
 * thread. Duplicate keys are refused; strings may hold zero bytes. Precondition: json_depth_within() accepted
 * the text, since jansson recurses. The maximum that parsing can take (json_parse_bytes()) is reserved first,
 * and twice as many addresses.
 * NULL with `e` filled, or with `refused` or `unwanted` set and `e` explaining it. */
json_t *request_memory_parse(struct request_memory *m, const char *text, size_t len, json_error_t *e);
/* JSON values that a thread builds outside of request_memory_parse() belong to `m` until the next call, and
 * `m->wide` is the thread's table; NULL: to none. Returns the owner until now. */
struct request_memory *request_memory_enter(struct request_memory *m);

#endif
