/* reply.h - the output of one choice, collected from its parts until a dialect writes it, whole or in
 * pieces. */
#ifndef PLATEAU_API_REPLY_H
#define PLATEAU_API_REPLY_H

#include "base/buf.h"
#include "gen/choice.h"

struct exchange;

/* Kind of the pending piece of a stream. */
enum piece_kind { PIECE_NONE, PIECE_REASONING, PIECE_CONTENT, PIECE_CALL };

#define REPLY_CALL_ID_BYTES 32

struct reply {
    struct exchange *exchange;
    struct choice *choice;
    /* For a stream: since the last chunk. */
    struct buf content, reasoning, calls;
    struct buf arguments;              /* of the call that is open */
    char call_id[REPLY_CALL_ID_BYTES]; /* likewise */
    struct buf call_name;
    uint32_t call_index;
    bool call_begun;         /* streams: the pending piece begins its call */
    enum piece_kind pending; /* streams */
    struct buf ids;          /* "1,2,3" */
    struct buf logprobs;     /* chat: entries; completion: of token_logprobs */
    struct buf logprob_tokens, logprob_tops, logprob_offsets; /* completion */
    uint64_t characters;                                      /* of text, for text_offset */
    struct buf prompt_logprobs;
    bool finish_told;     /* streams: its finish_reason is sent */
    bool prompt_ids_told; /* streams of completions */
};

/* The sink of the choice's parts is the dialect's. */
void reply_init(struct reply *r, struct exchange *x, struct choice *c);
void reply_done(struct reply *r);
/* 0, -E2BIG or -ENOMEM: the collected output is incomplete. */
int reply_error(const struct reply *r);

/* Streams: writes the collected output, if there is some, as one piece, and clears it. */
void reply_flush(struct reply *r);
/* Streams: what comes before the first piece of any choice, once. */
void reply_begin(struct exchange *x);

#endif
