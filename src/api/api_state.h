/* api_state.h - the api itself, shared by the files of api/. Private to them. */
#ifndef PLATEAU_API_API_STATE_H
#define PLATEAU_API_API_STATE_H

#include "api/access/audit.h"
#include "api/api.h"
#include "api/prep_queue.h"
#include "api/pulls.h"
#include "api/request/request.h"

#include "base/buf.h"
#include "base/list.h"
#include "base/threads/mailbox.h"
#include "base/threads/thread_stack.h"
#include "registry/registry.h"

#include <pthread.h>
#include <stdatomic.h>

struct account_numbers;
struct conversations;
struct engine_numbers;
struct figures;
struct job_numbers;
struct media;
struct metrics;
struct prompt_parts;
struct tenants;
struct trace;
struct warm;
struct watch;

#define API_PREP_THREADS_MAX 8
#define API_JOBS_SHOWN_MAX   1024
#define API_REASON_BYTES     200

struct api {
    /* Set by create, then constant. */
    struct api_opts opts;
    struct request_limits limits;
    struct charge text;                  /* charge on opts.text: pays for memory that outlives one request's
                                        * account */
    struct media *media;                 /* NULL: no images */
    struct responses_store *responses;   /* NULL: none are stored */
    struct prompt_parts *parts;          /* NULL: without conversations */
    struct conversations *conversations; /* NULL: none are kept */
    uint32_t streams_max;
    uint64_t started_ns;
    int64_t started_s;
    size_t own_bytes;          /* charged for this struct and its tables */
    uint64_t text_fixed_bytes; /* bytes of opts.text when the server is idle */

    /* From prep threads and engines to the network thread: struct exchange *, struct stream *. */
    struct mailbox *prepared, *wakes;
    /* To the prep threads: the entries of exchanges. */
    struct prep_queue to_prepare;
    /* The first ones serve the lanes that take no long requests. */
    pthread_t threads[API_PREP_THREADS_MAX + PREP_LANES - 1];
    struct thread_stack stacks[API_PREP_THREADS_MAX + PREP_LANES - 1];
    uint32_t thread_count;
    bool stopped;

    /* Any thread. */
    _Atomic size_t prep_queue_bytes;
    _Atomic uint64_t prep_arena_bytes; /* mapped by arenas of preparations; part of the account `text` */
    _Atomic uint64_t prep_stopped; /* preparations that ended early: their client had left or their time was
                                    * up */
    _Atomic uint32_t streams_now, requests_now;
    _Atomic uint32_t max_tokens_default; /* current value; starts as in opts */
    _Atomic int state;                   /* enum api_state */
    _Atomic uint64_t drain_ends_ns;      /* state API_DRAINING */
    pthread_mutex_t lock;                /* guards `reason` and `served` */
    char reason[API_REASON_BYTES];
    struct pulls_served served; /* result of serving the last pull's model */
    int models_fd;              /* an eventfd: the state of some model has changed */

    /* Network thread only. */
    struct list exchanges;
    struct list *streams; /* buckets: choices by their stream */
    uint32_t bucket_mask;
    struct metrics *metrics; /* [opts.models_max] */
    struct watch *watches;   /* [opts.models_max] */
    struct figures *figures; /* NULL: without an account for them */
    struct trace *trace;     /* NULL: without an account for it */
    struct tenants *tenants;
    struct http_server *server;
    struct warm *warm;    /* NULL: nothing is to be warmed */
    struct api_live live; /* current values; start as in opts. max_tokens_default: above */
    struct audit_refusals refusals;
    struct pulls pulls;
    uint64_t responses_shrink_ns, responses_check_ns; /* when the store of responses is next looked at */
    struct job_numbers *jobs;                         /* [API_JOBS_SHOWN_MAX], scratch */
    struct account_numbers *accounts;                 /* [accounts_max], scratch */
    uint32_t accounts_max;
    struct buf report; /* up to API_REPORT_BYTES, scratch */
};

static inline enum api_state api_state_now(const struct api *a)
{
    return (enum api_state)atomic_load(&a->state);
}

/* It grows while the server runs. */
static inline uint32_t api_model_count(const struct api *a)
{
    return registry_count(a->opts.registry);
}
const char *api_model_id(const struct api *a, uint32_t index);
/* True if the entry is a replica other than the first: clients do not see its id. */
bool api_is_replica(const struct api *a, uint32_t index);
/* A loaded replica of that model, if there is one; else `index`. */
uint32_t api_loaded_replica(struct api *a, uint32_t index);
/* The numbers that the model's engine published last. False, and zeros, when the model is not loaded. */
bool api_engine_numbers(struct api *a, uint32_t index, struct engine_numbers *ret);
/* Asks all engines to reclaim memory. */
void api_reclaim(struct api *a);
/* Drops the compiled grammars that no request uses, of all models. Returns how many; `bytes`: what they
 * took. */
uint32_t api_clear_grammars(struct api *a, uint64_t *bytes);
/* Progress of the loads of the start; `part` is a fraction of 1. */
struct api_progress {
    uint64_t done, total;
    double part;
};
struct api_progress api_progress(struct api *a);

/* Opens what `history` pays for, if there is such an account. 0 or -ENOMEM. */
int api_history_open(struct api *a);
/* Closes that. Zeroed is fine. */
void api_history_close(struct api *a);

/* True when requests are accepted; otherwise `why` has the refusal. */
bool api_is_ready(struct api *a, struct reject *why);
void api_copy_reason(struct api *a, char ret[API_REASON_BYTES]);
/* Whether the model is stuck now, and for how long no layer has finished. */
bool api_is_stuck(struct api *a, uint32_t model, uint64_t *silent_ns);
/* The name of an engine that has work and makes no progress; NULL when there is no such engine. */
const char *api_stuck_model(struct api *a);

#endif
