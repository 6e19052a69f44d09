/* sched.h - the scheduler: which sequences are in the next step, with how many tokens, on which pages.
 *
 * A pure state machine: time is a number in an event; there is no clock, no I/O and no thread in it. A step
 * is sched_plan() and then, when it has been computed or has failed, sched_done(). The plan takes every page
 * and state the step needs, so the step itself allocates nothing.
 *
 *     queued --> prefilling --> decoding --> (sched_remove)
 *      |  ^ ^ ^       \______________/ |
 *      v  | | |_ preempted (keeps nothing)
 *      |  | |___ parked (keeps pages and state, has no place)
 *    fetching (its prefix is read from the SSD tier)
 *
 * Tenants share places and tokens: a tenant is a client, by API key or address (shares.h). A tenant's wait
 * depends on its own queue and on the number of tenants with requests, not on how many sequences the others
 * have. The sequences of one tenant have one order, the rank: arrival plus SCHED_PRIORITY_NS per step of
 * priority. Among sequences that never had a place, SCHED_TOKEN_NS per token that the sequence may have is
 * added. So a lower priority or a longer request waits longer but is not starved: a sequence that has waited
 * that much longer goes first.
 *
 * A sequence whose client does not read is paused. It is not scheduled, gives up its place as soon as
 * another sequence waits for one, and is the first to be preempted. When it is resumed, it stands after its
 * tenant's other sequences. Sequences are the caller's memory; the scheduler links the sequences it was
 * given and owns their pages and states. Engine thread only.
 *
 * Bound in bytes: sched_arena_bytes(), at most 24 KiB for the scheduler and its shares, and 40 for each of
 * seqs_max. A sequence is 512 at most, in the caller's job, with its tables beside it: 4 for each page of
 * each group, and a key for each page. */
#ifndef PLATEAU_SCHED_SCHED_H
#define PLATEAU_SCHED_SCHED_H

#include "base/list.h"
#include "base/page_tokens.h"
#include "cache/page_group.h"

#include <stdint.h>

struct arena;
struct prefix_index;
struct share;
struct tier_arrival;
struct tier_io;
struct walk;

#define SCHED_PRIORITY_NS  10000000000ull /* 10 s: how much longer one step of priority waits */
#define SCHED_TOKEN_NS     5000000ull    /* 5 ms: added to a request's wait for each token that it may have */
#define SCHED_TOKENS_MAX   2000          /* more tokens count as this: 10 s */
#define SCHED_PRIORITY_MAX 1000000       /* beyond it a priority counts as this */
#define SCHED_AGE_NS       1000000000ull /* a prompt without a token that long goes before shorter ones */
/* While other programs have the memory that sequences need: how long a sequence waits that never had a place,
 * and one that had. */
#define SCHED_PATIENCE_NS 2000000000ull
#define SCHED_TAKEN_NS    300000000000ull

#define SCHED_NAME_BYTES 64

struct sched;
struct sched_seq;

/* Prospects of memory that was refused. */
enum sched_memory {
    SCHED_MEMORY_NONE,      /* none will come: a limit of the server's refused it */
    SCHED_MEMORY_REQUESTED, /* other holders are releasing some */
    SCHED_MEMORY_TAKEN      /* other programs have it, and may give it back */
};

struct sched_opts {
    uint32_t seqs_max;  /* sequences of one step */
    uint32_t queue_max; /* that wait for a place, in addition to seqs_max */
    /* Tokens of one step; >= seqs_max - 1 + PAGE_TOKENS + drafts_max, so that a chunk of a prompt always
     * fits. */
    uint32_t tokens_max;
    uint32_t drafts_max;                       /* draft tokens of one step, of all sequences; 0: none */
    uint32_t logits_max;                       /* rows of logits of one step; >= seqs_max + drafts_max */
    uint32_t logits_chunk_max;                 /* tokens of a chunk with logits_all; >= 1 */
    uint64_t queue_timeout_ns;                 /* limit for sequences that never ran; 0: never */
    struct page_group groups[PAGE_GROUPS_MAX]; /* prefix_index_opts.groups */
    uint32_t group_count;
    /* The pool of recurrent states; NULL: the model has none. At least seqs_max states, twice that with
     * `prefix`. */
    struct block_pool *states;
    size_t state_bytes;          /* bytes of one state */
    struct prefix_index *prefix; /* the prefix cache over these pools; NULL: nothing is reused */
    /* The SSD tier of the prefix cache; NULL: none. Requires `prefix`. */
    const struct tier_io *tier;
    /* With a tier: puts the bytes of an arrival into a page or a state that the scheduler has taken. */
    void (*arrived)(void *arg, const struct tier_arrival *a, uint32_t block);
    void *arrived_arg;
    /* Called when memory was refused. Requested: no sequence is preempted or ended for lack of it; a sequence
     * without a page skips the step. Taken: sequences are preempted, and wait up to SCHED_TAKEN_NS instead of
     * being ended; those that never had a place end after SCHED_PATIENCE_NS. NULL: none will come. */
    enum sched_memory (*memory_refused)(void *arg);
    void *memory_refused_arg;
    /* Names a sequence in which sched_check() finds an error, for the log. NULL: the sequence's number is
     * logged. */
    void (*name)(const struct sched_seq *seq, char ret[SCHED_NAME_BYTES]);
};

enum sched_phase {
    SCHED_NEW, /* before sched_add, or removed */
    SCHED_QUEUED,
    SCHED_FETCHING,
    SCHED_PREFILLING,
    SCHED_DECODING,
    SCHED_PREEMPTED, /* queued again; its tokens are computed again */
    SCHED_PARKED,    /* queued again, with its pages and state */
    SCHED_ENDED      /* by the scheduler; sched_take_ended() returns it */
};

enum sched_end {
    SCHED_END_TIMEOUT,  /* queued for longer than queue_timeout_ns */
    SCHED_END_TAKEN,    /* it never had a place, and other programs have the memory for it */
    SCHED_END_NO_MEMORY /* alone, and still the account or the system had no memory for its next page */
};

/* Tokens [first, end) of a prompt that see each other: no chunk ends inside, and their pages are there before
 * the first of them is computed. */
struct sched_span {
    uint32_t first, end;
};

/* One sequence. */
struct sched_seq {
    /* Set by the caller before sched_add. */
    uint32_t *pages[PAGE_GROUPS_MAX]; /* a table of each group, with room for sched_pages(tokens_limit) */
    uint32_t tokens;                  /* known tokens: the prompt; sched_done adds the sampled ones */
    uint32_t tokens_limit; /* > tokens, or with prompt_only equal to them; the sequence never has more */
    bool prompt_only;      /* no token follows the prompt: after its last chunk the caller removes it */
    bool at_once;          /* with prompt_only: one step computes the prompt, of at most tokens_max tokens.
                              Nothing is reused, no token waits, and its pages are there before */
    int32_t priority;      /* lower goes first */
    uint64_t arrival_ns;
    uint64_t tenant_id;
    uint32_t weight; /* its share, 1 to SHARE_WEIGHT_MAX; 0 counts as 1 */
    /* Keys of its whole pages, with room for all it can have; NULL: it neither reuses a prefix nor leaves
     * one. */
    const struct prefix_key *keys;
    /* The tokens. Whole pages below announced_end may be in events (prefix_events.h). NULL: none. */
    const uint32_t *announced;
    uint32_t announced_end;
    /* Token indices where reuse is likely: whole pages, ascending. A chunk ends at each. */
    const uint32_t *cuts;
    uint32_t cut_count;
    const struct sched_span *spans; /* ascending, each of at most tokens_max less seqs_max less drafts_max
                                     * tokens; none with logits_all */
    uint32_t span_count;
    /* The caller's; may change between steps. */
    /* Every token of its chunks takes a row of logits, not only the last; such a sequence reuses no
     * prefix. */
    bool logits_all;
    uint32_t key_count; /* <= tokens / PAGE_TOKENS */
    /* Tokens before this index can be computed; the others wait (for an image's features). 0: no token
     * waits. A chunk ends there. A sequence whose next token waits is not scheduled and keeps its pages and
     * state. */
    uint32_t ready;
    uint32_t drafts; /* draft tokens that a step may add after the last known token, while it decodes */
    bool matched;    /* its tokens follow a grammar, which takes time of its own: matching.h */
    /* That time since the last plan, in nanoseconds of processors. A plan charges it to the tenant and clears
     * it. */
    uint64_t match_ns;
    /* Written by the scheduler; others may read. */
    enum sched_phase phase;
    enum sched_end end; /* with SCHED_ENDED */
    bool paused;
    uint32_t done;       /* tokens whose K, V and state are computed */
    uint32_t page_count; /* pages of each table */
    /* Entries before it have left the window: NONE. With a fetched prefix entries after it may be NONE. */
    uint32_t first[PAGE_GROUPS_MAX];
    uint32_t cached;         /* tokens of the hit when it first got its place */
    uint32_t fetched;        /* tokens of the hit that came from a lower tier */
    uint32_t fetched_pinned; /* tokens of the hit that came from pinned memory */
    uint32_t state;          /* that its next step writes; NONE: none */
    uint32_t state_in;       /* the state that its next step reads; NONE at position 0 */
    uint32_t boundary, boundary_at, node, node_pages, pinned; /* seq_cache.c's; seq_fetch.c's before that */
    uint32_t head_pages;       /* whole pages of its head (system message, tools), which others may share */
    uint64_t fetch_queried_ns; /* end of what queries and reads may take; 0: none */
    bool fetch_queries;        /* a query of the tier is under way */
    uint64_t fetch, fetch_until_ns; /* seq_fetch.c's; fetch: the tag of its reads */
    uint32_t fetch_pages, fetch_left, fetch_open, fetch_tries; /* left: reads that have not arrived */
    uint32_t fetch_group, fetch_next;                          /* group and page of the next read */
    bool fetch_failed;
    uint32_t fetch_pinned;         /* pages of the first group that came from pinned memory */
    uint32_t fetch_from, fetch_to; /* tokens in the index before the fetch, and after it */
    uint32_t preemptions;
    struct share *share;      /* its tenant's */
    enum sched_phase goes_on; /* parked: its phase before */
    bool returns;             /* had a place, so it stands before sequences that had none */
    uint64_t examined;        /* number of the last plan that has looked at it */
    bool takes;               /* others have made room for it */
    uint64_t blocked_ns;      /* since when only missing pages keep it from a place; 0: they do not */
    uint64_t served_ns;       /* when it last got tokens, or a place */
    int64_t rank;
    uint64_t order;         /* decides between equal ranks */
    uint64_t secured;       /* number of the last plan in which it had a page for its next token */
    uint64_t match_last_ns; /* match_ns of its last step; 0: none yet */
    uint64_t held;          /* number of the last plan that held it back for its grammar's time */
    struct list link;
};

/* Pages of `tokens` tokens. */
static inline uint32_t sched_pages(uint32_t tokens)
{
    return DIV_UP(tokens, PAGE_TOKENS);
}

/* Its tables of pages, for a step. */
static inline void sched_tables(const struct sched_seq *seq, const uint32_t *ret[PAGE_GROUPS_MAX])
{
    for (uint32_t g = 0; g < PAGE_GROUPS_MAX; g++)
        ret[g] = seq->pages[g];
}

/* How many draft tokens a decoding sequence may have. They stay within the page of its last known token,
 * which the sequence has, and leave room for the token that follows them. */
static inline uint32_t sched_drafts_max(const struct sched_seq *seq)
{
    uint32_t in_page = PAGE_TOKENS - 1 - seq->done % PAGE_TOKENS;
    uint32_t in_limit = seq->tokens_limit - seq->tokens - 1;
    return MIN_OF(in_page, in_limit);
}

/* Bytes of arena that sched_create takes at most: the plan and an order of prompts, per sequence. */
size_t sched_arena_bytes(const struct sched_opts *opts);
/* 0, -EINVAL (an option breaks its bound), -ENOMEM (the arena is too small). */
int sched_create(struct arena *a, const struct sched_opts *opts, struct sched **ret);

/* Queues a sequence. tokens_limit must fit into each pool: page_group_needs(sched_pages(tokens_limit)) <=
 * pages_max. 0, or -EAGAIN: there are seqs_max + queue_max sequences already. */
int sched_add(struct sched *s, struct sched_seq *seq);
/* Removes a sequence, in any phase but SCHED_NEW, and releases its pages and states. Not between sched_plan
 * and sched_done. */
void sched_remove(struct sched *s, struct sched_seq *seq);
/* A paused sequence is not scheduled, and is the first to lose its place and to be preempted. Any phase; not
 * between sched_plan and sched_done. */
void sched_pause(struct sched *s, struct sched_seq *seq);
void sched_resume(struct sched *s, struct sched_seq *seq);

/* From the next plan on; see sched_opts. */
void sched_set_queue_timeout(struct sched *s, uint64_t ns);

struct sched_events {
    uint64_t now_ns;
    uint32_t tokens_shared; /* tokens of a step that other sequences wait for, decoding sequences included */
    uint32_t tokens_alone;  /* tokens of a step that no other sequence waits for */
    double prompt_token_ns; /* time to compute a token of a prompt; 0: not measured yet */
    uint64_t match_ns_max;  /* match_ns of one step, of all its sequences; 0: no limit */
};

struct sched_step_seq {
    struct sched_seq *seq;
    uint32_t from, count; /* tokens [from, from + count) of the sequence, draft tokens included */
    /* The last `drafts` of these tokens are draft tokens: they cross no page and no limit. The step may
     * compute fewer. */
    uint32_t drafts;
    bool samples;                 /* the last token's logits give the next token */
    uint32_t state_in, state_out; /* before these tokens, and after them */
};

struct sched_plan {
    uint32_t seq_count, tokens;
    const struct sched_step_seq *seqs; /* valid until the next plan; decoding sequences first */
    uint32_t preempted;                /* sequences that this plan preempted */
};

/* Ends sequences that waited too long, preempts, admits, and gives out tokens. Every decoding sequence gets
 * one token and the draft tokens that it may have, unless its grammar holds it back (matching.h). Prompts
 * get the rest of the budget, at least one page, in chunks of whole pages; a prompt's last chunk may end
 * inside a page. An empty plan: no sequence can run now. */
void sched_plan(struct sched *s, const struct sched_events *ev, struct sched_plan *ret);

struct sched_results {
    uint64_t now_ns;
    bool computed; /* false: the step failed, and nothing has moved; the caller removes its sequences */
    /* [seq_count]: tokens gained by each sequence of the plan that samples: 1, and 1 for each accepted draft
     * token. NULL: 1 each. */
    const uint32_t *sampled;
    /* With `computed` false: the device had no memory for the step. Its sequences are preempted instead, or
     * end after SCHED_TAKEN_NS without memory. */
    bool no_memory;
};
/* Takes the plan's results. Its tokens count as computed, of draft tokens only the accepted ones, and a
 * sequence that samples gains its sampled tokens. The keys of pages that become whole must be there already.
 * The caller removes finished sequences afterwards. */
void sched_done(struct sched *s, const struct sched_results *results);

/* Returns the prefilling sequence whose turn comes first, of the unpaused ones with tokens that wait
 * (sched_seq.ready). NULL: none. */
struct sched_seq *sched_first_waiting(const struct sched *s);

/* Sequences that wait for a step. Paused and fetching ones do not, nor do those that wait for image
 * embeddings. */
struct sched_load {
    uint32_t decoding;
    /* Prompts, the queue's included, where one tenant has all these sequences. Else tenants with a prompt:
     * many prompts of one tenant do not lengthen the steps of another. */
    uint32_t prompts;
};
void sched_load(struct sched *s, struct sched_load *ret);

/* Returns a sequence that the scheduler ended; it is SCHED_NEW again. NULL: none. */
struct sched_seq *sched_take_ended(struct sched *s);

struct sched_numbers {
    uint32_t running, paused;                           /* paused: of those running */
    uint32_t waiting, waiting_paused, fetching, parked; /* the last three: of those waiting */
    uint64_t preemptions;
    uint64_t fetches, fetches_failed; /* begun; ended with less than requested */
    uint64_t taken_ns; /* since when other programs have memory that sequences need; 0: they do not */
};
void sched_numbers(const struct sched *s, struct sched_numbers *ret);

/* Asserts every invariant; tests call it after every step. */
void sched_check(const struct sched *s);
/* As `sched_check()`, but until `w` is called off. It looks about once at each page of the pools and of the
 * sequences. False: it was called off. */
bool sched_walk(const struct sched *s, struct walk *w);

#endif
