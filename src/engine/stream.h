/* stream.h - tokens on their way from a job (engine thread) to its exchange (network thread).
 *
 * The stream is all that the two halves of a request share. It has room for 256 tokens. When it is full, the
 * engine pauses the sequence and never waits. Each half releases it exactly once (stream_release); the last
 * release frees it, and closes the charge of the request. The job's last message is its finish record, the
 * exchange's is `closed`. */
#ifndef PLATEAU_ENGINE_STREAM_H
#define PLATEAU_ENGINE_STREAM_H

#include "base/charge.h"
#include "base/threads/mailbox.h"
#include "sample/sampler_params.h"

#include <stdatomic.h>

#define STREAM_TOKENS 256

/* 128 random bits: the public request id is the internal one. */
struct request_id {
    uint8_t bytes[16];
};
/* 32 hex digits and a zero. */
void request_id_text(struct request_id id, char ret[33]);
bool request_id_parse(const char *text, size_t len, struct request_id *ret);
struct request_id request_id_new(void);

struct stream_token {
    uint32_t id;
    float logprob; /* with logprobs */
    uint32_t top_count;
    struct sampler_alternative top[SAMPLER_TOP_MAX]; /* only top_max of them are kept in the ring */
};

enum finish_reason {
    FINISH_STOP,          /* an end token, a stop id or a stop string */
    FINISH_LENGTH,        /* max_tokens or the context is full */
    FINISH_REPETITION,    /* the output ended with a loop */
    FINISH_ABORTED,       /* DELETE /v1/requests/{id}, or the client went away */
    FINISH_TOO_SLOW,      /* the client did not read for too long */
    FINISH_QUEUE_TIMEOUT, /* waited too long for a place */
    FINISH_MEMORY_TAKEN,  /* never had a place: other programs have the memory for it; see `error` */
    FINISH_LEASE_REFUSED, /* its session does not fit, or is gone; see `error` */
    FINISH_AGENTS_FULL,   /* all places of agents are taken; see `error` and retry_after_s */
    FINISH_SHUTDOWN,      /* the model is being unloaded or the server stops */
    FINISH_ERROR          /* see `error` */
};
const char *stream_finish_name(enum finish_reason r);

/* The prefix cache's record of the first page that was not found: a struct prefix_loss, whose header few
 * readers of this one need. */
struct stream_lost {
    uint32_t cause; /* enum prefix_loss_cause */
    uint64_t whom, at_ns;
};

struct stream_finish {
    enum finish_reason reason;
    uint32_t prompt_tokens, cached_tokens, pinned_tokens,
        ssd_tokens;          /* the last two: parts of cached_tokens */
    uint32_t written_tokens; /* stream_admission.written_tokens */
    struct stream_lost lost;
    uint32_t completion_tokens;               /* all that were sampled, the end token included */
    uint32_t drafted_tokens, accepted_tokens; /* draft tokens that were computed; those that were accepted */
    bool stopped_by_string;
    uint32_t stop_index; /* which of the job's stop strings */
    uint64_t text_bytes; /* with stopped_by_string: the output text ends at this byte of its decoded tokens */
    uint32_t stop_token; /* with FINISH_STOP and not by string: the token that ended it */
    uint32_t reasoning_loops;                  /* times that a loop ended the reasoning */
    uint64_t queued_ns, prefill_ns, decode_ns; /* for metrics and logs */
    uint64_t leased_bytes;                     /* bytes of it, in the tier of the session */
    uint32_t leased_tokens;                    /* tokens of its prefix that its session holds */
    uint32_t wished_tokens;                    /* tokens of its prefix with a wish */
    uint32_t retry_after_s;                    /* with FINISH_AGENTS_FULL */
    char error[320]; /* with FINISH_ERROR, FINISH_MEMORY_TAKEN, FINISH_LEASE_REFUSED, FINISH_AGENTS_FULL: a
                        sentence for the client */
};

struct stream;

struct stream_opts {
    struct request_id id;
    uint32_t top_max;    /* alternatives per token, <= SAMPLER_TOP_MAX */
    uint32_t values_max; /* floats in the result of a job without tokens */
    /* Gets the `struct stream *` (message_bytes = sizeof(void *)) when there is something to take. At most
     * one message per stream is pending, so the mailbox needs one place per stream. It outlives the stream's
     * job half. NULL: no message is sent (tests poll). */
    struct mailbox *wake;
    void *user;                  /* the exchange */
    const struct charge *charge; /* for the stream's bytes */
};

/* Refcount 2: one for each half. 0 or -ENOMEM. */
int stream_create(const struct stream_opts *opts, struct stream **ret);
void stream_release(struct stream *s);
struct request_id stream_id(const struct stream *s);
void *stream_user(const struct stream *s);
uint32_t stream_top_max(const struct stream *s);

/* --- exchange side (network thread) --- */
/* Before draining: allows the job's next wake. */
void stream_wake_clear(struct stream *s);
bool stream_take(struct stream *s, struct stream_token *ret);
/* True once the job is over, every token has been taken and the last wake has been cleared: no message of
 * this stream is pending. After an earlier release a message may still be in the mailbox; its pointer must
 * not be followed. */
bool stream_finished(struct stream *s, struct stream_finish *ret);
/* The client has gone or needs no more tokens: the job stops within one step. Call engine_wake
 * afterwards. */
void stream_close(struct stream *s);

/* Facts about a job from its admission on. */
struct stream_admission {
    uint32_t cached_tokens;             /* prompt tokens found in the prefix cache */
    uint32_t pinned_tokens, ssd_tokens; /* parts of cached_tokens that came from these tiers */
    uint32_t written_tokens;            /* the prompt's other whole pages, which join the prefix cache */
    struct stream_lost lost;
    uint64_t queued_ns;   /* from its arrival to its admission */
    uint64_t admitted_ns; /* clock time */
};
/* True once the job has been admitted; zeros before. */
bool stream_admitted(const struct stream *s, struct stream_admission *ret);
/* Clock time at which the engine had the job's first token; 0: not yet. */
uint64_t stream_first_token_ns(const struct stream *s);

/* With a job without tokens that ended well: its result, until the release. */
const float *stream_values(const struct stream *s);

/* --- job side (engine thread) --- */
/* [values_max], zeros at first; written before stream_finish(). */
float *stream_result(struct stream *s, uint32_t *values_max);
/* Once. */
void stream_admit(struct stream *s, const struct stream_admission *a);
/* Notes the time of the first token. Once. */
void stream_note_first_token(struct stream *s, uint64_t now_ns);
/* False when full. */
bool stream_put(struct stream *s, const struct stream_token *t);
uint32_t stream_free_tokens(const struct stream *s);
/* The last call but stream_release(); wakes the exchange. */
void stream_finish(struct stream *s, const struct stream_finish *f);
/* Wakes the exchange, unless a wake is pending already. */
void stream_wake(struct stream *s);
bool stream_closed(const struct stream *s);
/* The flag itself, for model_step.cancel. */
atomic_bool *stream_closed_flag(struct stream *s);

#endif
