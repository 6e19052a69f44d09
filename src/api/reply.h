/* reply.h - the output of one choice, collected from its parts until a dialect writes it, whole or in
 * pieces. */
#ifndef PLATEAU_API_REPLY_H
#define PLATEAU_API_REPLY_H

#include "base/buf.h"

struct choice;
struct exchange;
struct reply_part;

/* How far the reply of an exchange is. Whether a stream's header has been sent is the connection's to know:
 * http_stream_is_begun(). */
enum reply_stage {
    REPLY_PENDING, /* nothing made */
    REPLY_OPEN,    /* a stream: its first chunks are made */
    REPLY_ENDING,  /* a stream: its last chunk is made */
    REPLY_GIVEN    /* the client has its answer, or the connection has its last bytes */
};

/* Kind of the pending piece of a stream. */
enum reply_delta { DELTA_NONE, DELTA_REASONING, DELTA_CONTENT, DELTA_CALL };

#define REPLY_CALL_ID_BYTES 128

struct reply {
    struct exchange *exchange;
    struct choice *choice;
    /* For a stream: since the last chunk. */
    struct buf content, reasoning;
    struct buf items;                  /* whole replies: what is written already; of a chat its calls */
    struct buf arguments;              /* arguments of the call that is open */
    char call_id[REPLY_CALL_ID_BYTES]; /* id of the call that is open */
    struct buf call_name;
    uint32_t call_index;
    bool call_begun;          /* the pending piece begins its call */
    enum reply_delta pending; /* kind of the last collected piece */
    struct buf ids;           /* "1,2,3" */
    struct buf logprobs;      /* chat: entries; completion: of token_logprobs */
    struct buf logprob_tokens, logprob_tops, logprob_offsets; /* completion */
    struct buf prompt_logprobs;
    struct buf echo;  /* Responses: what each reply repeats of its request */
    struct buf block; /* Responses: all of the item that is open; Messages: reasoning that is omitted */
    struct buf block_logprobs, next_logprobs; /* entries of the open item; those of tokens without text so
                                               * far */
    bool finish_told;                         /* streams: its finish_reason is sent */
    void *own;                                /* wire.own_bytes */
};

/* The sink of the choice's parts is the dialect's. */
void reply_init(struct reply *r, struct exchange *x, struct choice *c, void *own);
void reply_done(struct reply *r);
/* 0, -E2BIG or -ENOMEM: the collected output is incomplete. */
int reply_error(const struct reply *r);

/* Streams: writes the collected output, if there is some, as one piece, and clears it. */
void reply_flush(struct reply *r);
/* The collected output is written. */
void reply_clear(struct reply *r);
/* The next part of output is of this kind. In a stream, pending output of another kind is written first;
 * `always`: that of the same kind too. */
void reply_turn(struct reply *r, enum reply_delta kind, bool always);
/* A call begins: its name and its id. With `keeps_id` that is the model's own one, when clients can take it:
 * its template expects it back. */
void reply_begin_call(struct reply *r, const struct reply_part *p, const char *prefix, bool keeps_id);
/* Streams: opens the reply, unless it is open: the dialect writes the events before its first piece. */
void reply_begin(struct exchange *x);
/* The exchange's reply reaches a later stage. */
void reply_turn_to(struct exchange *x, enum reply_stage to);

#endif
