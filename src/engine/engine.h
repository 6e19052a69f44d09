/* engine.h - one loaded model's thread: inbox, step, outbox.
 *
 * The engine thread owns scheduler, pages, states, samplers and the model's workspace: no locks inside.
 * Other threads send it messages (engine_submit, engine_wake) and read what it publishes after each step
 * (engine_numbers). Once started it calls no malloc: jobs live in blocks charged to `requests` that
 * engine_submit (a prep thread) allocates. */
#ifndef PLATEAU_ENGINE_ENGINE_H
#define PLATEAU_ENGINE_ENGINE_H

#include "base/check.h"
#include "base/err.h"
#include "cache/pinned_tier.h"
#include "engine/stream.h"
#include "model/model.h"
#include "spec/drafting.h"
#include "store/store_file.h"

struct engine;
struct job_spec;
struct store;
struct tokenizer;

/* Rows of logits that a prompt chunk may take with prompt_logprobs, in addition to one per sequence. */
#define ENGINE_PROMPT_LOGITS 15
/* Draft tokens of one step, of all sequences together: each takes a row of logits and a token's place. */
#define ENGINE_DRAFTS_MAX 32
static inline uint32_t engine_drafts_max(uint32_t max_num_seqs, uint32_t drafts_max)
{
    return MIN_OF(max_num_seqs * drafts_max, (uint32_t)ENGINE_DRAFTS_MAX);
}
/* model_opts.logits_max for an engine of this many sequences, each with this many draft tokens. */
static inline uint32_t engine_logits_max(uint32_t max_num_seqs, uint32_t drafts_max)
{
    return max_num_seqs + engine_drafts_max(max_num_seqs, drafts_max) + ENGINE_PROMPT_LOGITS;
}
/* The least tokens_max for this many sequences: each decodes and drafts, and a prompt chunk is a page at
 * least. */
static inline uint32_t engine_tokens_min(uint32_t max_num_seqs, uint32_t drafts_max)
{
    return max_num_seqs - 1 + engine_drafts_max(max_num_seqs, drafts_max) + PAGE_TOKENS;
}

/* Faults for tests. */
struct engine_faults {
    int (*step)(
        void *arg); /* called on the engine thread before a forward pass; nonzero: the step fails with it */
    int (*step_end)(void *arg); /* after it; nonzero: the device has failed with it */
    void *arg;
    /* Replaces the drafter of `by`, which is not the head. Drafts at most the requested number of tokens
     * after the first `count` tokens; returns the number of draft tokens. */
    uint32_t (*draft)(void *arg, const uint32_t *tokens, uint32_t count, uint32_t wanted, uint32_t *ret);
    void (*slice)(void *arg);                   /* called likewise before a slice of encoding an image */
    void (*walk)(void *arg, struct engine *en); /* and before a walk of its invariants */
};

/* Settings that may change while engines run. Each is read where it is used, so a change takes effect with
 * the next request or step, also for waiting ones. */
struct engine_live {
    _Atomic uint64_t queue_timeout_ns, slow_client_ns, step_ns; /* see engine_opts */
    _Atomic uint32_t max_queue; /* a value above engine_opts.max_queue changes nothing */
};

struct engine_opts {
    const char *name;                  /* the model's name, for logs and the thread's name; copied */
    struct model *model;               /* borrowed; outlives the engine */
    const struct tokenizer *tokenizer; /* borrowed; NULL: no stop strings, every id exists */
    struct device *device;             /* the model's */
    /* Below it open `pools` (with `kv`, `state`, `snapshots`, `prefix cache`), `requests`, `engine`
     * (tables, logits, stack) and, if the model sees, `images` (features). */
    struct account *parent;
    /* `pools` and `images` open below it instead: an account in the memory of the model's device. NULL:
     * parent. */
    struct account *device_parent;
    uint32_t max_num_seqs;  /* sequences of a step */
    uint32_t max_model_len; /* tokens of one sequence; <= the model's own */
    uint32_t max_queue;     /* requests that wait; shared by tenants (admission.h) */
    uint32_t tokens_max;    /* tokens of one step, as the model was loaded; >= engine_tokens_min() */
    struct drafting_opts drafting;
    uint64_t kv_bytes_max;       /* limit of the page pool's pages; at least one sequence of max_model_len */
    uint64_t pools_bytes_max;    /* limit of K, V, states and the prefix cache together; 0: no limit of its
                                  * own */
    uint64_t requests_bytes_max; /* limit of all jobs' blocks; 0: no limit of its own */
    bool keep_units;             /* free units stay until memory is short: to measure the cost of trims */
    /* Size of the prefix cache: bytes of pages and states that no request uses. They stay in the pools
     * until their memory is needed. 0: no prefix cache. */
    uint64_t prefix_cache_bytes;
    /* Size of the tier below it in the machine's memory (cache/pinned_tier.h), for a model on a device; 0, or
     * no prefix cache: none. */
    uint64_t pinned_cache_bytes;
    /* Size of the cache for image embeddings that no request needs now. Embeddings in use may take more,
     * but not more than this or the largest image. */
    uint64_t image_cache_bytes;
    /* Other holders of memory. The engine is listed there from before its first page. It keeps its caches
     * within the common budget and gives memory to others; when the process refuses it a unit, the others
     * are asked to give. Borrowed; NULL: it is alone. */
    struct holders *holders;
    /* The SSD tier for evicted prefixes; NULL, or no prefix cache: none. Outlives the engine. */
    struct store *store;
    struct store_identity identity; /* with a store: the model's */
    uint64_t queue_timeout_ns;      /* 0 = never */
    uint64_t slow_client_ns;        /* a full stream ends after this time: FINISH_TOO_SLOW; 0 = never */
    uint64_t step_ns;               /* target time of a step that others wait for */
    uint64_t step_alone_ns;         /* longest step while no request waits, of any model: 1 s */
    /* Used instead of queue_timeout_ns, slow_client_ns, step_ns and max_queue; shared by engines, outlives
     * them. NULL: the values above are used for good. */
    const struct engine_live *live;
    const struct engine_faults *faults; /* NULL but in tests */
    /* The device failed and the engine has ended all its requests: it is only to be closed. Called on its
     * thread, once, with what engine_failure() returns. Short; does not close it. May be NULL. */
    void (*failed)(void *arg, int error);
    void *failed_arg;
};

static inline struct account *engine_device_parent(const struct engine_opts *o)
{
    return o->device_parent ? o->device_parent : o->parent;
}

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

/* Bytes of a job in the account `requests`, the limit of all jobs together, and the limit on running and
 * queued jobs. A submitter of several jobs checks whether they can ever fit. Any thread. */
struct engine_room {
    uint64_t job_bytes, requests_bytes_max;
    uint32_t jobs_max;
};
void engine_room(const struct engine *en, const struct job_spec *job, struct engine_room *ret);
/* Retry-After in seconds, from queue length and recent throughput; at least 1. Any thread. */
uint32_t engine_retry_after_s(struct engine *en);

/* Memory is short: drops the least recently used eighth of the cached prefixes, image embeddings and all
 * free units, now or after the step. Any thread; returns at once. */
void engine_reclaim(struct engine *en);
/* After stream_close: wakes the engine. Any thread. */
void engine_wake(struct engine *en);

enum job_phase {
    JOB_QUEUED,
    JOB_FETCHING,
    JOB_ENCODING, /* its next token needs an image that is not encoded yet */
    JOB_PREFILLING,
    JOB_DECODING,
    JOB_PAUSED,
    JOB_PREEMPTED,
    JOB_PARKED /* lost its place, keeps pages and state */
};
const char *job_phase_name(enum job_phase p);

struct job_numbers {
    struct request_id id;
    enum job_phase phase;
    uint32_t prompt_tokens, prompt_done, completion_tokens, cached_tokens, max_tokens;
    uint32_t images, images_done;             /* done: need no more encoding */
    uint64_t image_bytes;                     /* bytes of their pixels, which jobs of one request share */
    uint32_t drafted_tokens, accepted_tokens; /* draft tokens that were verified, and the accepted ones */
    uint64_t age_ns, bytes;                   /* bytes: pages, states and the job's block */
};

/* A pool's units: bytes of blocks in use or in the prefix cache, and free bytes. */
struct engine_pool_numbers {
    uint64_t active_bytes, cached_bytes, peak_bytes, limit_bytes; /* peak: of active */
};

/* Trims. A trim begins when nothing runs (or too much is free). It ends when nothing is left to give back
 * or a request comes. A slice is the work between two looks at the inbox. */
struct trim_numbers {
    uint64_t trims, units, bytes, moves, slices, slice_ns, slice_max_ns, reclaims;
};

/* Counters grow; gauges are from the last step. */
struct engine_numbers {
    const struct domain *domain; /* the memory of its pools and images */
    uint32_t running, waiting, pages_used, pages_committed, pages_max, states_used; /* pages: of all groups */
    /* By group of attention layers; 0 past the last one: pages of sequences, and pages that only the prefix
     * cache holds. */
    uint32_t group_used[PAGE_GROUPS_MAX], group_cached[PAGE_GROUPS_MAX];
    double usage;                          /* used share of the first group's pool, from 0 to 1 */
    uint32_t cache_pages, cache_snapshots; /* pages and snapshots of prefixes, those in use included */
    uint64_t cache_bytes, cache_bytes_max; /* prefixes that no request uses */
    uint64_t cache_pages_evicted, cache_snapshots_evicted;
    struct engine_pool_numbers kv, state;   /* state: zeros without recurrent layers */
    uint64_t cached_tokens;                 /* prompt tokens in the prefix cache when they were first read */
    uint64_t fetched_hits, pinned_hits;     /* requests with a prefix from the SSD tier, from pinned memory */
    uint64_t fetched_tokens, pinned_tokens; /* parts of cached_tokens that came from there */
    struct pinned_numbers pinned;           /* zeros without pinned memory */
    uint32_t fetching;                      /* waiting requests that wait for a lower tier */
    bool memory_taken;                      /* requests wait for memory that other programs have */
    uint64_t fetches, fetches_failed;       /* failed: less arrived than was requested */
    uint64_t pending_trim_bytes;            /* at most, of the trim that is due */
    struct trim_numbers trim;
    uint64_t units_recommitted; /* given back and committed again within a second */
    uint64_t reclaims;          /* times that caches gave memory because some was short */
    /* Images: encoded ones, and those with embeddings in the cache when their sequence needed them. A
     * slice is the encoding work between two steps. */
    uint64_t images_encoded, images_found, images_evicted;
    uint64_t encode_slices, encode_ns, encode_slice_max_ns;
    uint32_t images_kept;                    /* entries of features, those in use included */
    uint64_t images_bytes, images_bytes_max; /* bytes of these entries */
    uint64_t encoding_bytes;                 /* memory of the encoder */
    uint64_t steps, prompt_tokens, completion_tokens, preemptions, step_errors;
    /* Speculative decoding: drafts, draft tokens, and accepted tokens by position in the draft. */
    uint64_t drafts, draft_tokens, accepted_tokens, accepted_at[MODEL_DRAFTS_MAX];
    /* Constrained decoding: masks made, the time for all of them, and for the longest. */
    uint64_t masks, mask_ns, mask_max_ns;
    uint64_t finished[FINISH_ERROR + 1];
    uint64_t walks, walk_ns;        /* walks over its invariants, at rest; walk_ns: duration of the last
                                     * one */
    uint64_t last_step_ns, busy_ns; /* last_step_ns: duration */
    uint64_t progress_ns; /* clock time when a layer last finished, or work came; 0: nothing can be computed
                             now. A watchdog compares */
    bool idle;
};
/* Any thread: a copy of what the engine published last. */
void engine_numbers(struct engine *en, struct engine_numbers *ret);
/* Up to `max` jobs, running first; returns how many there are. */
uint32_t engine_jobs(struct engine *en, struct job_numbers *ret, uint32_t max);
/* Up to `max` requests of the step that was computed last, or is being computed; returns how many it had. */
uint32_t engine_step_ids(struct engine *en, struct request_id *ret, uint32_t max);

#endif
