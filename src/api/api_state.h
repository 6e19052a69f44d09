/* api_state.h - what the files of api/ share: the api itself. Not for others. */
#ifndef PLATEAU_API_API_STATE_H
#define PLATEAU_API_API_STATE_H

#include "api/api.h"
#include "api/audit.h"
#include "api/media.h"
#include "api/metrics.h"
#include "api/prep_queue.h"
#include "api/reject.h"
#include "api/request.h"
#include "api/tenants.h"
#include "api/watch.h"

#include "base/list.h"
#include "base/mailbox.h"
#include "base/thread_stack.h"

#include <pthread.h>
#include <stdatomic.h>

#define API_PREP_THREADS_MAX 8
#define API_JOBS_SHOWN_MAX   1024
#define API_REASON_BYTES     200
#define API_REPORT_BYTES     65536 /* what a connection takes without more memory */

struct api {
    /* Set by create, then constant. */
    struct api_opts opts;
    struct request_limits limits;
    struct charge text;  /* of opts.text: for what outlives a request's own books */
    struct media *media; /* NULL: no images */
    uint32_t streams_max;
    uint64_t started_ns;
    int64_t started_s;
    size_t own_bytes;          /* charged for this struct and its tables */
    uint64_t text_fixed_bytes; /* of opts.text: what is there however idle the server is */

    /* From prep threads and engines to the network thread: struct exchange *, struct stream *. */
    struct mailbox *prepared, *wakes;
    /* To the prep threads: the entries of exchanges. */
    struct prep_queue to_prepare;
    /* The first: of the lanes that take no long ones. */
    pthread_t threads[API_PREP_THREADS_MAX + PREP_LANES - 1];
    struct thread_stack stacks[API_PREP_THREADS_MAX + PREP_LANES - 1];
    uint32_t thread_count;
    bool stopped;

    /* Any thread. */
    _Atomic size_t prep_queue_bytes;
    _Atomic uint64_t prep_stopped; /* preparations that ended because they were not wanted any more */
    _Atomic uint32_t streams_now, requests_now;
    _Atomic uint32_t max_tokens_default; /* what holds now; of opts at first */
    _Atomic int state;                   /* enum api_state */
    pthread_mutex_t lock;                /* of `reason` */
    char reason[API_REASON_BYTES];
    int models_fd; /* an eventfd: some model's state has changed */

    /* Network thread only. */
    struct list exchanges;
    struct list *streams; /* buckets: choices by their stream */
    uint32_t bucket_mask;
    struct metrics *metrics; /* [opts.model_count] */
    struct watch *watches;   /* likewise */
    struct tenants *tenants;
    struct http_server *server;
    struct api_live live; /* what holds now; of opts at first. max_tokens_default: above */
    struct audit_refusals refusals;
    struct job_numbers *jobs;         /* [API_JOBS_SHOWN_MAX], scratch */
    struct account_numbers *accounts; /* [accounts_max], scratch */
    uint32_t accounts_max;
    struct buf report; /* up to API_REPORT_BYTES, scratch */
};

static inline enum api_state api_state_now(const struct api *a)
{
    return (enum api_state)atomic_load(&a->state);
}

static inline uint32_t api_model_count(const struct api *a)
{
    return a->opts.model_count;
}
static inline const char *api_model_id(const struct api *a, uint32_t index)
{
    return registry_settings(a->opts.registry, index)->id;
}
/* What its engine published last; nothing, and idle, when it is not loaded: false. */
bool api_engine_numbers(struct api *a, uint32_t index, struct engine_numbers *ret);
/* All engines: memory is short. */
void api_reclaim(struct api *a);
/* How far the loads of the start are; part: of 1. */
struct api_progress {
    uint64_t done, total;
    double part;
};
struct api_progress api_progress(struct api *a);

/* True when requests are taken now; else why not. */
bool api_is_ready(struct api *a, struct reject *why);
void api_copy_reason(struct api *a, char ret[API_REASON_BYTES]);
/* The name of an engine that should have made progress and has not; NULL when all is well. */
const char *api_stuck_model(struct api *a);

#endif
