/* engine_numbers.h - what an engine publishes after each step, and reads of it. Any thread. */
#ifndef PLATEAU_ENGINE_ENGINE_NUMBERS_H
#define PLATEAU_ENGINE_ENGINE_NUMBERS_H

#include "engine/stream.h"

#include "base/page_tokens.h"
#include "cache/pinned_tier.h"
#include "spec/draft_length.h"

struct domain;
struct engine;
struct lease_id;
struct lease_info;

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
const char *engine_phase_name(enum job_phase p);

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
    uint64_t prompt_left; /* tokens of prompts of its jobs that are not computed yet */
    /* By group of attention layers; 0 past the last one: pages of sequences, and pages that only the prefix
     * cache holds. */
    uint32_t group_used[PAGE_GROUPS_MAX], group_cached[PAGE_GROUPS_MAX];
    double usage;                          /* used share of the first group's pool, from 0 to 1 */
    uint32_t cache_pages, cache_snapshots; /* pages and snapshots of prefixes, those in use included */
    uint64_t cache_bytes, cache_bytes_max; /* prefixes that no request uses */
    uint64_t cache_pages_evicted, cache_snapshots_evicted;
    /* Leases: bytes that sessions hold, that are promised to them, their limit; bytes of prefixes with a
     * wish. */
    uint32_t sessions, wishes;
    uint64_t leased_bytes, promised_bytes, lease_bytes_max, wished_bytes;
    uint32_t unstored; /* pages and snapshots that the SSD tier is yet to get */
    uint64_t sessions_opened, sessions_refused, leases_expired, wishes_dropped;
    /* Places of agents; running: with a request; zeros without --agents. */
    uint32_t agents, agents_running, agents_max, agent_tokens_max;
    uint64_t agent_tokens, agents_taken, agents_refused, agents_expired;
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
    uint64_t drafts, draft_tokens, accepted_tokens, accepted_at[DRAFT_LENGTH_DEPTH_MAX];
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

/* Bytes of a prefix of so many tokens, in whole pages, with its recurrent state. Any thread. */
uint64_t engine_prefix_bytes(const struct engine *en, uint32_t tokens);
/* The tenant's session. False: there is none. */
bool engine_session(struct engine *en, const struct lease_id *id, uint64_t tenant, struct lease_info *ret);
/* Whether the tenant's agent has a place (--agents); if not, whether one is left. Without places all fit. */
enum engine_agent { ENGINE_AGENT_FITS, ENGINE_AGENT_HAS, ENGINE_AGENT_FULL };
enum engine_agent engine_agent(struct engine *en, uint64_t tenant, uint64_t key);
/* From now on it has this deadline; 0: it ends. Returns at once. False: as above. */
bool engine_session_set(struct engine *en, const struct lease_id *id, uint64_t tenant, uint64_t deadline_ns);

#endif
