/* engine_opts.h - what an engine is created with, and its sizes that follow: plain data. */
#ifndef PLATEAU_ENGINE_ENGINE_OPTS_H
#define PLATEAU_ENGINE_ENGINE_OPTS_H

#include "base/check.h"
#include "base/page_tokens.h"
#include "memory/dev.h"
#include "spec/drafting.h"
#include "store/store_identity.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct account;
struct device;
struct engine;
struct holders;
struct model;
struct prefix_events_opts;
struct shared_tier;
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
    const char *name;    /* the model's name, for logs and the thread's name; copied */
    struct model *model; /* borrowed; outlives the engine */
    /* With DRAFTING_MODEL: the draft model, on the same device, loaded for as many tokens and sequences of a
     * step, with the page_stride of `model`. Borrowed. Else NULL. */
    struct model *draft;
    const struct tokenizer *tokenizer; /* borrowed; NULL: no stop strings, every id exists */
    struct device *device;             /* the model's */
    /* Below it open `pools` (with `kv`, `state`, `snapshots`, `prefix cache`), `requests`, `engine`
     * (tables, logits, stack) and, if the model sees, `images` (features). */
    struct account *parent;
    /* `pools` and `images` open below it instead: an account in the memory of the model's device. NULL:
     * parent. */
    struct account *device_parent;
    /* The other devices of a model that is spread over several: `pools` opens below these accounts, too, with
     * a limit; 0: none of its own. */
    struct engine_beside {
        struct account *parent;
        uint64_t pools_bytes_max;
    } beside[SHARDS_MAX - 1];
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
    bool shows_prefixes; /* for engine_cached_tokens(): a table beside the prefix cache */
    /* Size of the tier below it in the machine's memory (cache/pinned_tier.h), for a model on a device; 0, or
     * no prefix cache: none. */
    uint64_t pinned_cache_bytes;
    /* Places of agents (cache/agents.h), each of agent_tokens; 0, or no prefix cache: none, and no request is
     * refused for one. */
    uint32_t agents, agent_tokens;
    uint64_t agent_idle_ns;
    /* Size of the cache for image embeddings that no request needs now. Embeddings in use may take more,
     * but not more than this or the largest image. */
    uint64_t image_cache_bytes;
    /* Other holders of memory. The engine is listed there from before its first page. It keeps its caches
     * within the common budget and gives memory to others; when the process refuses it a unit, the others
     * are asked to give. Borrowed; NULL: it is alone. */
    struct holders *holders;
    /* The SSD tier for evicted prefixes; NULL, or no prefix cache: none. Outlives the engine. */
    struct store *store;
    struct shared_tier *shared; /* the tier that servers share; NULL: none */
    /* Until when the engine's end waits for tiers to take its prefixes; NULL, or 0: not at all. */
    const _Atomic uint64_t *ends_ns;
    /* The prefix cache tells `events` what it holds (cache/prefix_events.h); NULL: memory is planned for it
     * alone. Copied; its `arg` outlives the engine. */
    bool tells_prefixes;
    const struct prefix_events_opts *events;
    struct store_identity identity; /* with either: the model's */
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

#endif
