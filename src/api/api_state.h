/* api_state.h - what the files of api/ share: the api itself. Not for others. */
#ifndef PLATEAU_API_API_STATE_H
#define PLATEAU_API_API_STATE_H

#include "api/api.h"
#include "api/audit.h"
#include "api/metrics.h"
#include "api/reject.h"
#include "api/request.h"
#include "api/watch.h"

#include "base/list.h"
#include "base/mailbox.h"
#include "base/thread_stack.h"

#include <pthread.h>
#include <stdatomic.h>

#define API_PREP_THREADS_MAX 8
#define API_JOBS_SHOWN_MAX   1024
#define API_ACCOUNTS_MAX     256
#define API_REASON_BYTES     200
#define API_REPORT_BYTES     65536 /* what a connection takes without more memory */

struct api {
    /* Set by create, then constant. */
    struct api_opts opts;
    struct request_limits limits;
    struct charge text; /* of opts.text: for what outlives a request's own books */
    uint32_t streams_max;
    uint64_t started_ns;
    int64_t started_s;
    size_t own_bytes;          /* charged for this struct and its tables */
    uint64_t text_fixed_bytes; /* of opts.text: what is there however idle the server is */

    /* From prep threads and engines to the network thread: struct exchange *, struct stream *. */
    struct mailbox *prepared, *wakes;
    /* To the prep threads: struct exchange *. */
    struct mailbox *to_prepare;
    pthread_t threads[API_PREP_THREADS_MAX];
    struct thread_stack stacks[API_PREP_THREADS_MAX];
    uint32_t thread_count;
    bool stopped;

    /* Any thread. */
    _Atomic size_t prep_queue_bytes;
    _Atomic uint32_t streams_now, requests_now;
    _Atomic uint32_t max_tokens_default; /* what holds now; of opts at first */
    _Atomic uint64_t progress_done, progress_total;
    _Atomic int state; /* enum api_state */
    _Atomic uint32_t model_count;
    pthread_mutex_t lock; /* of `models` while one is added, and of `reason` */
    struct served_model models[API_MODELS_MAX];
    char reason[API_REASON_BYTES];

    /* Network thread only. */
    struct list exchanges;
    struct list *streams; /* buckets: choices by their stream */
    uint32_t bucket_mask;
    struct metrics metrics[API_MODELS_MAX]; /* beside models[] */
    struct watch watches[API_MODELS_MAX];   /* likewise */
    struct http_server *server;
    struct api_live live; /* what holds now; of opts at first. max_tokens_default: above */
    struct audit_refusals refusals;
    uint64_t footprint_ns;            /* when the system was last asked how much memory it has */
    struct job_numbers *jobs;         /* [API_JOBS_SHOWN_MAX], scratch */
    struct account_numbers *accounts; /* [API_ACCOUNTS_MAX], scratch */
    struct buf report;                /* up to API_REPORT_BYTES, scratch */
};

static inline enum api_state api_state_now(const struct api *a)
{
    return (enum api_state)atomic_load(&a->state);
}

/* NULL when there is none of that name. `id` NULL: the only one, or the first. */
const struct served_model *api_find_model(struct api *a, const char *id);
static inline uint32_t api_model_count(struct api *a)
{
    return atomic_load_explicit(&a->model_count, memory_order_acquire);
}

/* True when requests are taken now; else why not. */
bool api_is_ready(struct api *a, struct reject *why);
void api_copy_reason(struct api *a, char ret[API_REASON_BYTES]);
/* The name of an engine that should have made progress and has not; NULL when all is well. */
const char *api_stuck_model(struct api *a);

#endif
