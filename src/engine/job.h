/* job.h - the engine's half of a request: one block with all the memory that it will ever need.
 *
 * job_create makes it on the submitting thread, charged to `requests`. From then on it belongs to the engine
 * thread, which frees it when the job ends. Its tokens pass through here, because stop strings delay some: a
 * token that may be a part of a stop string is held, in order, until that is decided. */
#ifndef PLATEAU_ENGINE_JOB_H
#define PLATEAU_ENGINE_JOB_H

#include "engine/engine_think.h"
#include "engine/job_spec.h"
#include "engine/stream.h"

#include "base/page_tokens.h"
#include "cache/prefix_key.h"
#include "model/config/pooling.h"
#include "sample/repetition.h"
#include "sched/sched.h"
#include "spec/drafting.h"
#include "tokenizer/detok.h"

struct stop_hit;
struct stop_match;

/* Tokens that may be held. A stop string has fewer bytes and a token with text at least one, so only tokens
 * without text can fill this. A stop string interrupted by this many of them is not found. */
#define JOB_HELD_MAX 512

struct job {
    struct arena *arena; /* the block; the job lies in it */
    struct stream *stream;
    struct list link; /* engine.jobs, or engine.over */
    struct sched_seq seq;
    uint64_t bytes;
    /* The request's options. */
    enum job_output output;
    enum pooling pooling;
    uint32_t logit_ids[JOB_LOGIT_IDS];
    uint32_t prompt_count, second, max_tokens, min_tokens;
    uint32_t top; /* alternatives per token */
    bool logprobs, prompt_logprobs;
    /* The sequence: prompt, then output, then draft tokens until sampled ones replace them. */
    uint32_t *tokens;
    uint32_t output_count;
    struct sampler *sampler; /* NULL: a job without tokens */
    struct drafting_seq draft;
    /* Pages from the first on that the draft model has read whole, at that number of preemptions. */
    uint32_t read_pages, read_preemptions;
    struct grammar_entry *grammar; /* NULL: any output */
    struct matcher *matcher;       /* has taken the output */
    struct engine_think think;
    struct repetition repetition;
    uint32_t mask_row; /* the first of its masks in the step under way */
    /* Keys under which other requests find its pages; NULL: none. */
    struct prefix_key *keys; /* keys of its whole pages: sequence.key_count are there */
    struct prefix_key root;
    struct stream_lost lost;
    struct job_leases leases;
    bool in_place; /* it has entered its agent's place */
    /* Its images, ascending. */
    uint32_t image_count;
    uint64_t image_bytes;      /* bytes of their pixels; charged to their maker */
    struct prefix_key scope;   /* with images: scope of its image embeddings */
    struct image **images;     /* held until the job ends */
    struct prefix_image *seen; /* their part in the keys */
    struct model_grid *grids;  /* features: while they are needed and there */
    uint32_t *entries;         /* image_sched.c's: their entries in the cache of image embeddings */
    /* sequence.cut_count of them; the last one is the last whole page before the prompt's last token. None
     * without job_opts.cuts: any page is found then. */
    uint32_t *cuts;
    /* Output. */
    uint32_t prompt_sent;     /* tokens of the prompt whose logprobs are out */
    bool whole;               /* see job_spec.whole */
    bool yields;              /* paused for waiting sequences until its client has read */
    bool told;                /* the stream has something that the exchange has not been woken for */
    struct stop_match *stops; /* NULL: none, and nothing is held */
    struct detok detok;
    char *held; /* circle of JOB_HELD_MAX entries of held_bytes */
    uint32_t held_bytes, held_first, held_count, held_ready; /* ready: decided, waiting for room */
    /* Times; 0 = not yet. */
    uint64_t arrival_ns, admitted_ns, first_token_ns, full_since_ns;
    bool ends; /* its last token has been sampled, in the step under way: finish.reason says why */
    /* With over: the finish; held and decided tokens go out first. */
    bool over;
    struct stream_finish finish;
};

/* Sizes of tables that all jobs of an engine have. */
struct job_tables {
    bool keys;       /* prefixes are reused */
    bool ngram;      /* n-gram drafts are allowed */
    uint32_t groups; /* groups of attention layers */
};

struct job_opts {
    const struct job_spec *spec;
    const struct tokenizer *tokenizer; /* NULL without stop strings */
    const struct charge *charge;
    struct stream *stream;
    uint64_t now_ns;
    bool at_once; /* the model sees a text both ways: one step computes the prompt */
    bool cuts;    /* the model has a recurrent state, of which cuts keep a snapshot, or windows */
    const struct model_vision *vision;
    const struct store_identity *identity; /* identity of the model */
    struct job_tables tables;
};

static inline struct job *job_of(struct sched_seq *seq)
{
    return CONTAINER(seq, struct job, seq);
}

/* Bytes that a job with a grammar has in addition: its matcher, which grows with max_tokens up to a bound. */
#define JOB_MATCHER_GRAIN       ((uint64_t)65536)
#define JOB_MATCHER_BYTES       (MATCHER_BYTES + 2 * JOB_MATCHER_GRAIN)
#define JOB_MATCHER_TOKEN_BYTES 256 /* a mark and a row or two */
#define JOB_MATCHER_BYTES_MAX   (((uint64_t)4 << 20) + 2 * JOB_MATCHER_GRAIN)

/* The most that job_create() charges. */
uint64_t job_bytes(const struct job_spec *spec, const struct job_tables *t);
/* The most bytes of a job without a grammar, whatever its options: fixed bytes, and bytes per token. */
void job_bytes_max(bool images, const struct job_tables *t, uint64_t *fixed, uint64_t *token);
/* Everything in spec has been checked. 0, -ENOMEM, or -E2BIG (the grammar is too complex); the job half of
 * the stream is the job's then. */
int job_create(const struct job_opts *opts, struct job **ret);
/* The parent of the keys of a job's pages, and an image as keys have it. */
struct prefix_key job_root_key(const struct store_identity *identity, const struct job_spec *spec);
struct prefix_image job_seen_image(const struct model_grid *g, const struct image *p);
/* Releases its images and frees the block, not the stream. */
void job_free(struct job *j);

/* Every row of its prompt is needed, not only the last. */
static inline bool job_pools_all(const struct job *j)
{
    return j->output == JOB_VECTOR && j->pooling != POOLING_LAST;
}

/* Logprobs of the prompt that are still to be computed. */
static inline bool job_wants_prompt_logits(const struct job *j)
{
    return j->prompt_logprobs && j->prompt_sent < j->prompt_count;
}
/* Tokens that a step may give it: that many have room. 0: the sequence pauses. */
uint32_t job_free_tokens(const struct job *j);

/* Returns the tokens of the prompt's whole pages that were not found: they join the prefix cache. */
static inline uint32_t job_written_tokens(const struct job *j)
{
    uint32_t whole = j->prompt_count / PAGE_TOKENS * PAGE_TOKENS;
    return j->keys && whole > j->seq.cached ? whole - j->seq.cached : 0;
}

/* Adds the keys of pages that are whole now that the sequence has `tokens` tokens. */
void job_add_keys(struct job *j, uint32_t tokens);

/* A token of the prompt with its logprob; there is room. */
void job_put_prompt(struct job *j, const struct stream_token *t);
/* A sampled token. `text`: room for a token's text, rewritten. True: a stop string ends in it. Everything of
 * the output up to here that is not held is in the stream as far as it has room. */
bool job_put(struct job *j, const struct stream_token *t, bool ends, struct buf *text, struct stop_hit *hit);
/* Moves decided tokens into the stream; true when none are left. */
bool job_flush(struct job *j);
/* Nothing will follow: all that is held is decided. */
void job_release_held(struct job *j);

#endif
