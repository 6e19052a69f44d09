/* registry.h - the models that this process knows: their states, leases, loads and unloads.
 *
 *     unloaded ──▶ loading ──▶ ready ──▶ draining ──▶ unloaded
 *        ▲            │
 *        └── failed ◀─┘         (and draining ──▶ loading, when a request already waits for it)
 *
 * Models are added and never removed, and an index names one for the life of the process. A user of a loaded
 * model holds a lease on it; while there is one, nothing of the model is freed. A request for another
 * model counts as a waiter: the first one starts the load, all share it, and it stops when the last one
 * leaves, unless an operator has ordered the load. Each load and each unload runs on a thread of its own, at
 * most REGISTRY_LOADS_MAX of either. The registry's thread watches times and joins them. There is one lock;
 * loading, freeing and waiting happen outside of it.
 *
 * Only loads touch a model's files, and a system call on a dead network drive may never return. Such a load
 * hangs. Its thread cannot be ended: other loads do not wait for it, reports name it, and the process ends
 * without it. All functions may be called from any thread, but none from an engine's. */
#ifndef PLATEAU_REGISTRY_REGISTRY_H
#define PLATEAU_REGISTRY_REGISTRY_H

#include "registry/model_use.h"

#include "base/err.h"
#include "engine/engine.h"
#include "memory/domain.h"
#include "model/config/generation_config.h"
#include "sample/sampler_params.h"
#include "spec/drafting.h"

#include <jansson.h>

struct engine;
struct engine_faults;
struct registry;
struct chat_template;
struct guard;
struct kv_events;
struct model_files;
struct slice;

#define REGISTRY_MODELS_MAX 64
#define REGISTRY_LOADS_MAX  4 /* at once; more wait for a place */
#define REGISTRY_HUNG_MAX   4 /* in addition: hanging loads, which do not delay others */

/* Why a model was unloaded last. */
enum unload_reason {
    UNLOAD_NONE,
    UNLOAD_ADMIN,       /* by order */
    UNLOAD_TTL,         /* idle for its time */
    UNLOAD_MADE_ROOM,   /* for another model */
    UNLOAD_PRESSURE,    /* the machine ran short of memory */
    UNLOAD_DEVICE_LOST, /* or its engine failed */
    UNLOAD_SHUTDOWN
};
const char *registry_unload_name(enum unload_reason why);

enum model_state { MODEL_UNLOADED, MODEL_LOADING, MODEL_READY, MODEL_DRAINING, MODEL_FAILED };
const char *registry_state_name(enum model_state s);

/* A loaded model as its users see it. Lives as long as a lease on it. */
struct served_model {
    const char *id; /* name that clients use */
    struct engine *engine;
    const struct model_shape *shape;
    const struct tokenizer *tokenizer;    /* NULL: token ids only */
    const struct chat_template *template; /* NULL: no chat */
    const json_t *template_kwargs;        /* template_kwargs of its section; NULL: none */
    struct generation_defaults defaults;
    struct repetition_params repetition; /* where the request has none: resolve_repetition() */
    struct model_use use;
    uint32_t max_model_len;           /* without the reserve */
    uint32_t compaction_reserve;      /* tokens of the context that only compactions have */
    uint32_t max_tokens_default;      /* when a request says none; 0: the server's */
    const struct chat_syntax *syntax; /* how it writes reasoning and calls */
    struct grammar_cache *grammars;   /* NULL: no constrained decoding */
    int64_t created_s;                /* since 1970; of the load */
    const char *compute;              /* "f32", "int16", "int8" */
    const char *device;               /* "cpu", "cuda:0" */
    struct drafting_opts drafting;
    bool exact; /* equal tokens in any batch, chunk and cache state, with and without drafts */
};

/* For tests: asked after each step of a load and of an unload, by its name; nonzero: the step counts as
 * failed. */
struct registry_faults {
    int (*step)(void *arg, const char *step);
    void *arg;
};

struct registry_opts {
    struct ledger *ledger;
    struct account *threads; /* pays for stacks */
    struct holders *holders; /* see engine_opts.holders */
    /* Makes room for loads, and unloads idle models when it must; NULL: only loads unload them. */
    struct guard *guard;
    struct device *devices[DOMAINS_MAX]; /* by plan_model.domain; NULL: no model has it */
    struct store *store;                 /* the SSD tier, for all models; NULL: none */
    struct shared_tier *shared;          /* the tier that servers share; NULL: none */
    struct kv_events *events;            /* where prefix caches tell what they hold; NULL: nowhere */
    const struct model_settings *models; /* copied; what they point at is borrowed */
    uint32_t model_count;                /* 1 .. REGISTRY_MODELS_MAX */
    uint32_t models_max;                 /* with those that registry_add() adds; 0: model_count */
    /* Fills plan and shape from the present files of the model; on a loading thread. *ret: these files, open,
     * so that the load reads no others; left as it is: the load opens them. */
    int (*plan)(void *plan_arg, struct model_settings *settings, struct model_files **ret, struct err *e);
    void *plan_arg;
    uint64_t drain_ns;          /* how long an unload waits for open requests before it ends them */
    bool quiet;                 /* a failed load is not an error in the log: its caller shows it */
    uint64_t hang_ns;           /* a load without progress for this time hangs; 0: never */
    void (*changed)(void *arg); /* some model's state is another; called from any thread, must not wait */
    void (*progress)(void *arg, uint32_t index, uint64_t done,
                     uint64_t total); /* on a loading thread; may be NULL */
    void *arg;
    const struct engine_faults *engine_faults; /* NULL but in tests */
    const struct registry_faults *faults;      /* NULL but in tests */
};

/* Returns the most bytes of `threads` that the registry takes. */
uint64_t registry_stack_bytes(uint32_t models_max);
/* Loads nothing. 0, -EEXIST (two models of one name), -ENOMEM. */
int registry_create(const struct registry_opts *opts, struct registry **ret, struct err *e);
/* That no model has the id or an alias of `settings`. 0 or -EEXIST; `e` has both. Any thread. */
int registry_check_names(const struct registry *r, const struct model_settings *settings, struct err *e);
/* Adds a model, unloaded; `models` of the options says what is copied. Its index is the count of before.
 * 0, -EEXIST (another one has a name of it), -ENOSPC (there are models_max), -ESHUTDOWN; `e` says which. */
int registry_add(struct registry *r, const struct model_settings *settings, struct err *e);
/* Starts the thread and the loads of the start; earlier requests for models wait for it. 0, -ENOMEM,
 * -EAGAIN. */
int registry_start(struct registry *r, struct err *e);
/* The process drains until ends_ns: until then the ends of engines wait for tiers to take their prefixes. Any
 * thread. */
void registry_end_by(struct registry *r, uint64_t ends_ns);
/* Asks loads to stop and engines to end, and allows no further load; returns at once. NULL is fine. */
void registry_stop(struct registry *r);
/* After registry_stop: waits until all loads have ended. False: some have not within `ns`, which is logged.
 * What they use stays then: the registry and all that its options name; registry_close_others() instead of
 * registry_close(), and the process ends. NULL is fine. */
bool registry_await_loads(struct registry *r, uint64_t ns);
/* Unloads all loaded models; the registry stays. */
void registry_close_others(struct registry *r);
/* registry_stop, then unloads everything: an ordered list of steps, all of which run whatever the ones
 * before returned. There are no leases and no waiters by now. NULL is fine. */
void registry_close(struct registry *r);

/* ---- looking ---- */

/* It grows, at any time: a report that goes through all models twice asks once. */
uint32_t registry_count(const struct registry *r);
/* For tables by index. */
uint32_t registry_models_max(const struct registry *r);
const struct model_settings *registry_settings(const struct registry *r, uint32_t index);
/* By id or alias; a slice without pointer means the first. Returns -1 for an unknown name. */
int registry_find(const struct registry *r, struct slice name);

struct registry_info {
    enum model_state state;
    bool pinned;
    uint32_t leases, waiters;
    uint64_t bytes_done, bytes_total;    /* progress of a load under way */
    uint64_t needed_bytes;               /* bytes that a load reserves before it begins, in all domains */
    uint64_t reserved_bytes, used_bytes; /* sums of its accounts; 0 without one */
    uint64_t idle_ns;                    /* since its last lease ended; 0 while there is one */
    uint64_t load_ns;                    /* how long the last load took; 0: none yet */
    const char *step;                    /* step of a load under way, or NULL */
    uint64_t still_ns;                   /* for how long that has not moved */
    bool waits;                          /* loading, and there is no place for its load */
    uint64_t loads, unloads, failures;
    enum unload_reason unloaded_why; /* reason of the last unload */
    const char *unloaded_for;        /* with UNLOAD_MADE_ROOM: the other model, where it is known; or NULL */
    uint64_t unloaded_ns;            /* since that unload */
    bool lacks_memory;               /* failed, because there was no room */
    char reason[512];                /* why it is `failed`, or troubles of the last unload; else empty */
};
void registry_info(struct registry *r, uint32_t index, struct registry_info *ret);

/* Whether neither idle time nor others' needs nor an order unload it; at first as the options say. */
void registry_pin(struct registry *r, uint32_t index, bool pinned);

/* ---- using ---- */

struct model_lease {
    struct registry *registry; /* NULL: none */
    uint32_t index;
    const struct served_model *model;
};

/* 0; -EAGAIN: it is not loaded, wait for it. */
int registry_lease(struct registry *r, uint32_t index, struct model_lease *ret);
/* As `registry_lease()`, but does not count as use, and works while the model drains: for reports, which
 * release it within a moment. */
int registry_peek(struct registry *r, uint32_t index, struct model_lease *ret);
/* Zeroed is fine; zeroes it. */
void registry_release(struct model_lease *l);
void registry_release_peek(struct model_lease *l);
/* The model's drain is over: its engine ends all requests, and leases should be released now. */
bool registry_is_ending(struct registry *r, uint32_t index);

/* ---- replicas: engines of one model, each on a device of its own ---- */

#define REGISTRY_REPLICAS_MAX 8 /* replicas of one model */

/* Entries [first, first + count). */
struct registry_replicas {
    uint32_t first, count;
};
/* The replicas that the name of the model `index` means: all of them if it is the first, else itself. */
struct registry_replicas registry_replicas(const struct registry *r, uint32_t index);
/* The first replica of the model that `index` is one of. */
uint32_t registry_first_replica(const struct registry *r, uint32_t index);
/* As `registry_lease()`, of the replica with the lowest costs[] and the fewest leases: a lease counts as
 * REGISTRY_LEASE_TOKENS tokens of prompt, which costs[] are in. NULL: zeros. -EAGAIN: none takes requests. */
#define REGISTRY_LEASE_TOKENS 64
int registry_lease_replica(struct registry *r, struct registry_replicas of, const uint64_t *costs,
                           struct model_lease *ret);
/* A lease on the replica that registry_lease_replica() would choose if this lease were none, in its place.
 * Without a replica that takes requests the lease stays. */
void registry_move_lease(struct model_lease *l, struct registry_replicas of, const uint64_t *costs);
/* Begins to load replicas that were never loaded or whose device was lost. Those that were unloaded for
 * another reason come, too, when each that takes requests has more leases than sequences of a step, and one
 * does. One that failed within the last 30 s is left alone. */
void registry_bring_replicas(struct registry *r, struct registry_replicas of);

/* ---- loading ---- */

struct registry_failure {
    int code; /* -ENOMEM: no room, e has the numbers; -ESHUTDOWN; else what loading said */
    struct err e;
    uint32_t retry_after_s; /* before that the same is answered without trying */
};

/* Adds a waiter for the model. 0: wait for `changed` and poll; -ESHUTDOWN: no waiter was added, and `why`
 * has the reason. `operator`: an administrator orders the load. It goes on when its waiters leave, and
 * retries a remembered failure. Otherwise a load that failed within the last 30 s fails again in the same way
 * if its files have not changed. Touches no file. */
int registry_want(struct registry *r, uint32_t index, bool operator, struct registry_failure * why);
/* 0: it is there, and `ret` is a lease on it; -EAGAIN: not yet; else the load has failed. In each case the
 * waiter is still counted. */
int registry_poll(struct registry *r, uint32_t index, struct model_lease *ret, struct registry_failure *why);
/* One fewer. The last one stops the load, unless an operator has ordered it. */
void registry_unwant(struct registry *r, uint32_t index);

/* How the server's start stands: 0, all that are to be loaded at the start are; -EAGAIN; or why the model
 * *index failed. */
int registry_started(struct registry *r, uint32_t *index, struct registry_failure *why);

/* ---- unloading ---- */

struct registry_unloading {
    uint32_t leases;         /* how many requests it waits for */
    uint64_t ticket;         /* for registry_unloaded() */
    struct engine_held ends; /* sessions that end with it */
};
/* Begins to unload, or stops a load, whose waiters then fail. 0: poll registry_unloaded(); -EPERM: pinned;
 * -EBUSY: the server's start loads it; -EALREADY: it is not loaded; -ETXTBSY: without `force`, and it has
 * sessions. `e` has the sentence for the client. */
int registry_unload(struct registry *r, uint32_t index, bool force, struct registry_unloading *ret,
                    struct err *e);
/* Sessions of some model have ended, or have another deadline: its ttl may be over. */
void registry_sessions_changed(struct registry *r);
struct registry_returned {
    uint64_t bytes;         /* by how much the process's own memory fell, measured */
    uint64_t account_bytes; /* bytes that the model's accounts had reserved */
    char trouble[256];      /* steps that reported a failure, by name; empty: none */
};
/* Whether that unload or load is over, and what the last unload gave back. */
bool registry_unloaded(struct registry *r, uint32_t index, uint64_t ticket, struct registry_returned *ret);

/* Returns the bytes of the domain's memory, by the ledger, that unloading every idle unpinned model without
 * sessions would give back. */
uint64_t registry_idle_bytes(struct registry *r, const struct domain *domain);
/* About the same of unpinned models that requests use, or that load for them (`loads`). */
uint64_t registry_busy_bytes(struct registry *r, const struct domain *domain, bool *loads);
/* Unloads idle unpinned models without sessions and agents, those whose reload is cheapest, until the
 * domain's root has room for `bytes` more by the ledger and by the driver's figures, and waits for it. None
 * goes when all of them together would not do. Busy, pinned and leased ones are never touched. `name` is the
 * model that the room is for; NULL: the machine runs short, and models with sessions or agents go, too, if
 * the others do not suffice. Returns by how much the root's reserved bytes fell. Not under a lease that the
 * caller has on an idle model, and from one thread at a time (a load's, as a rule). */
uint64_t registry_free_idle(struct registry *r, const struct domain *domain, uint64_t bytes,
                            const char *name);

#endif
