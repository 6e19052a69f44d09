/* engine.h - one loaded model's thread: inbox, step, outbox.
 *
 * The engine thread owns scheduler, pages, states, samplers and the model's workspace: no locks inside.
 * Other threads send it messages (engine_submit, engine_wake) and read what it publishes after each step
 * (engine_numbers). Once started it calls no malloc: jobs live in blocks charged to `requests` that
 * engine_submit (a prep thread) allocates. */
#ifndef PLATEAU_ENGINE_ENGINE_H
#define PLATEAU_ENGINE_ENGINE_H

#include <stdint.h>

struct engine;
struct engine_live;
struct engine_opts;
struct err;
struct job_spec;
struct model_shape;
struct stream;

/* Takes what may change, of the options that hold now. Any thread. */
void engine_live_set(struct engine_live *l, const struct engine_opts *now);

/* Memory that an engine with these options will take; kv_bytes_max, parent and model are not read. */
struct engine_plan {
    uint64_t fixed_bytes, page_bytes,
        state_bytes;                     /* bytes of `engine`: always, and for each page and state of the
                                          * pools */
    uint64_t job_bytes, job_token_bytes; /* most bytes of a request's block, and per token */
    /* With a grammar, in addition: of its matcher, at most matcher_bytes_max. */
    uint64_t matcher_bytes, matcher_token_bytes, matcher_bytes_max;
};
void engine_plan(const struct engine_opts *opts, const struct model_shape *shape, struct engine_plan *ret);

/* Bytes of the largest image's embeddings; 0: the model has no vision encoder. */
uint64_t engine_image_bytes(const struct model_shape *shape);

/* Reserves address space for the pools and makes all tables; nothing runs yet. When idle, the pools have
 * cached prefixes only: other units are given back within a second after the last request. 0, -EINVAL,
 * -ENOMEM. */
int engine_create(const struct engine_opts *opts, struct engine **ret, struct err *e);
int engine_start(struct engine *en);
/* Stops accepting. When the step under way has finished its layer, every request ends (FINISH_SHUTDOWN) and
 * every order is answered. Returns at once. Any thread; once is enough. NULL is fine. */
void engine_stop(struct engine *en);
/* 0, or the failure of the device that has stopped the engine: -EIO, -ENODEV (the device is lost). Any
 * thread. */
int engine_failure(const struct engine *en);
/* engine_stop, joins the thread, frees everything. An ordered list: each entry runs whatever the ones
 * before it returned; the log names a thread that takes long. NULL is fine. */
void engine_close(struct engine *en);

/* Submits a job; any thread. On 0 the engine owns the job half of `s` and ends it with exactly one finish
 * record. On failure nothing has changed and the caller keeps both halves. e has the sentence for the
 * client. -EINVAL: prompt + max_tokens can never fit, an id is bad, ... (400). -EAGAIN: the queue is full
 * (429). -ENOBUFS: other jobs have the planned memory of jobs (429). -ENOMEM: no job will make room by
 * ending (507). -EBUSY: other programs have the memory that jobs here wait for (503). -EPIPE: the engine is
 * closing (503). With both 429 *retry_after_s comes from the measured queue, with -EBUSY it is
 * ENGINE_RETRY_TAKEN_S. */
#define ENGINE_RETRY_TAKEN_S 5
int engine_submit(struct engine *en, const struct job_spec *job, struct stream *s, uint32_t *retry_after_s,
                  struct err *e);

/* Tokens of the job's prompt that the prefix cache in the pools has now, as far as other threads see it
 * (prefix_shown.h); windows are not looked at. Reads prompt, tenant, cache_salt and images of the job. 0
 * without engine_opts.shows_prefixes. Any thread. */
uint32_t engine_cached_tokens(const struct engine *en, const struct job_spec *job);

/* Bytes of a job in the account `requests`, the limit of all jobs together, and the limit on running and
 * queued jobs. A submitter of several jobs checks whether they can ever fit. Any thread. */
struct engine_job_limits {
    uint64_t job_bytes, requests_bytes_max;
    uint32_t jobs_max;
};
void engine_job_limits(const struct engine *en, const struct job_spec *job, struct engine_job_limits *ret);
/* Retry-After in seconds, from queue length and recent throughput; at least 1. Any thread. */
uint32_t engine_retry_after_s(struct engine *en);

/* Sessions in force, of all tenants: how many hold or are promised so many bytes; tokens of all their
 * prefixes; and the last deadline, 0 without a session. Bytes of the pools count once, bytes on SSD for each
 * session. Agents with a place, and when the last idle place is free. Any thread. */
struct engine_held {
    uint32_t sessions;
    uint64_t bytes, tokens, until_ns;
    uint32_t agents;
    uint64_t agents_until_ns;
};
struct engine_held engine_held(struct engine *en);

/* Memory is short: drops the least recently used eighth of the cached prefixes, image embeddings and all
 * free units, now or after the step. Any thread; returns at once. */
void engine_reclaim(struct engine *en);
/* After stream_close: wakes the engine. Any thread. */
void engine_wake(struct engine *en);

#endif
