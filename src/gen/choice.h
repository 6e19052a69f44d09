/* choice.h - one sequence of a reply: from the tokens of a stream to parts, in order.
 *
 * A generation has prompts x n of them. The thread that prepares fills the members that never change, and
 * submits; from then on the choice belongs to the thread that takes. It hands each part to a sink and keeps
 * none: a dialect collects and writes them. */
#ifndef PLATEAU_GEN_CHOICE_H
#define PLATEAU_GEN_CHOICE_H

#include "gen/reply_part.h"

#include "base/buf.h"
#include "base/list.h"
#include "base/slice.h"
#include "engine/stream.h"
#include "tokenizer/detok.h"

struct chat_parser;
struct gen;

/* A special token of the chat format. The parser gets it as a token, never as text. */
struct choice_mark {
    uint64_t at;      /* in the whole decoded text */
    uint32_t bytes;   /* its bytes in that text; 0: decoding skips it */
    uint32_t special; /* special token of the syntax */
};

struct choice {
    /* Constant once submitted. */
    struct gen *gen;
    uint32_t index, prompt_index;
    struct request_id job_id;
    struct sampler_params sampling; /* its bias is the generation's */
    uint32_t max_tokens;

    struct stream *stream; /* NULL: never submitted, or released */
    struct list by_stream; /* the owner's; unlinked at the end */
    reply_part_fn *sink;   /* set by the owner before choice_take() */
    void *sink_arg;
    struct detok detok;
    struct chat_parser *parser; /* NULL: all text is content */

    struct buf held;      /* decoded text that may still be (part of) a stop string */
    uint64_t held_from;   /* its first byte in the whole decoded text */
    struct buf marks;     /* special tokens of the format in `held`: struct choice_mark, in order */
    uint32_t prompt_left; /* tokens of prompt_logprobs still to come */
    uint32_t tokens;      /* tokens of the output until now */
    uint32_t think_open, think_close; /* ids; UINT32_MAX: the tokenizer has none */
    bool in_reasoning;
    uint32_t reasoning_tokens;
    uint32_t call_count;
    bool call_cut; /* the output was cut inside the last call, whose arguments stay open */

    bool over;
    struct stream_finish finish;
    int error; /* 0, -E2BIG or -ENOMEM: the output is incomplete */
};

void choice_init(struct choice *c, struct gen *g, uint32_t index, uint32_t prompt_index);
/* Before the first choice_take(): detokenizer and parser. 0 or -ENOMEM. */
int choice_open(struct choice *c);
/* For every end. Closes the stream (the job stops within a step) and frees everything. Twice is fine. */
void choice_close(struct choice *c);

/* Takes up to `tokens_max` tokens, hands their parts to the sink, and returns how many. c->over is set when
 * the job has ended and all its tokens are taken. */
uint32_t choice_take(struct choice *c, uint32_t tokens_max);

/* True once its job has been admitted, or has ended; zeros before. */
bool choice_admitted(const struct choice *c, struct stream_admission *ret);
/* Phases of its job as its engine measures them, until `now_ns` or its end; zeros before its admission. */
struct choice_times {
    uint64_t queued_ns;  /* from its arrival to its admission */
    uint64_t prefill_ns; /* to its first token */
    uint64_t decode_ns;  /* to its end */
};
struct choice_times choice_times(const struct choice *c, uint64_t now_ns);

/* Returns the vector of GEN_VECTOR, once it is over and ended well, cut and normalised by the request and the
 * model. Once only; valid until the stream is released. */
const float *choice_vector(struct choice *c, uint32_t *count);
/* Returns the score of GEN_SCORE, once it is over and ended well: the probability of "yes" in a softmax of
 * the logits of "yes" and "no". */
double choice_score(const struct choice *c);

/* Whether the client's own stop string or stop token ended it: the string, or else the token's id. */
bool choice_stopped_by(const struct choice *c, struct slice *string, uint32_t *token);

#endif
