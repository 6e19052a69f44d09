/* choice.h - one sequence of a reply: from the tokens of a stream to text, reasoning, tool calls and
 * logprobs.
 *
 * An exchange has prompts x n of them. Prep threads fill the members that never change, and submit; from then
 * on the network thread owns the choice. A choice only collects: reply_*.c writes the result, at the end, or
 * piece by piece for streams. */
#ifndef PLATEAU_API_CHOICE_H
#define PLATEAU_API_CHOICE_H

#include "api/request.h"
#include "base/list.h"
#include "engine/stream.h"
#include "text/chat_format.h"
#include "text/detok.h"

struct exchange;

/* Kind of the pending piece of a stream. */
enum piece_kind { PIECE_NONE, PIECE_REASONING, PIECE_CONTENT, PIECE_CALL };

#define CHOICE_CALL_ID_BYTES 32

struct choice {
    /* Set by the prep thread, then constant. */
    struct exchange *exchange;
    void (*flush)(struct choice *c); /* streams: writes what is pending, before a piece of another kind */
    uint32_t index, prompt_index;
    struct request_id job_id;
    struct sampler_params sampling; /* its bias is the exchange's */
    uint32_t max_tokens;

    /* Network thread. */
    struct stream *stream; /* NULL: never submitted, or released */
    struct list by_stream; /* in a bucket of api.streams */
    struct detok detok;
    struct chat_parser *parser; /* NULL: all text is content */

    struct buf held;                  /* decoded text that may still be (part of) a stop string */
    uint64_t held_from;               /* its first byte in the whole decoded text */
    uint32_t prompt_left;             /* tokens of prompt_logprobs still to come */
    uint32_t tokens;                  /* of the output until now */
    uint32_t think_open, think_close; /* ids; UINT32_MAX: the tokenizer has none */
    bool in_reasoning;
    uint32_t reasoning_tokens;
    uint64_t characters; /* of text, for text_offset */

    /* Collected output. For a stream: since the last chunk. */
    struct buf content, reasoning, calls;
    struct buf arguments;               /* of the call that is open */
    char call_id[CHOICE_CALL_ID_BYTES]; /* of the call that is open */
    struct buf call_name;
    uint32_t call_index, call_count;
    bool call_begun;         /* streams: the pending piece begins its call */
    enum piece_kind pending; /* streams */
    struct buf ids;          /* "1,2,3" */
    struct buf logprobs;     /* chat: entries; completion: of token_logprobs */
    struct buf logprob_tokens, logprob_tops, logprob_offsets; /* completion */
    struct buf prompt_logprobs;

    bool over;
    bool finish_told;     /* streams: its finish_reason is sent */
    bool prompt_ids_told; /* streams of completions */
    struct stream_finish finish;
    int error; /* 0, -E2BIG or -ENOMEM: the collected output is incomplete */
};

void choice_init(struct choice *c, struct exchange *x, uint32_t index, uint32_t prompt_index);
/* Before the first choice_take(): detokenizer and parser. 0 or -ENOMEM. */
int choice_open(struct choice *c);
/* For every end. Closes the stream (the job stops within a step) and frees everything. Twice is fine. */
void choice_close(struct choice *c);

/* Takes up to `tokens_max` tokens and returns how many. c->over is set when the job has ended and all its
 * tokens are taken. */
uint32_t choice_take(struct choice *c, uint32_t tokens_max);

/* "stop", "length", "tool_calls"; NULL while it runs, or when it failed. */
const char *choice_finish_reason(const struct choice *c);
/* Writes the stop string or token that ended it, as JSON, or null. */
void choice_write_stop_reason(const struct choice *c, struct buf *ret);
/* Streams: true when a chunk can be written. */
bool choice_has_pending(const struct choice *c);
/* Streams: the collected output has been written. */
void choice_clear_pending(struct choice *c);

#endif
