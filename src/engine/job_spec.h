/* job_spec.h - what a job is to compute: prompt, limits, sampling, constraint, images. The caller fills it,
 * engine_submit() copies it. Plain data. */
#ifndef PLATEAU_ENGINE_JOB_SPEC_H
#define PLATEAU_ENGINE_JOB_SPEC_H

#include "base/slice.h"
#include "model/config/pooling.h"
#include "sample/sampler_params.h"

#include <stdbool.h>
#include <stdint.h>

struct grammar_entry;
struct image;

#define ENGINE_STOP_STRINGS_MAX      16
#define ENGINE_STOP_STRING_BYTES_MAX 256
#define ENGINE_CUTS_MAX              32
#define ENGINE_IMAGES_MAX            512 /* images of one prompt; a pair of frames is one */

/* An image of a prompt. Its placeholders stand in the prompt already, one token per square of
 * model_vision's edge; each is the image's or the video's placeholder. Width and height are multiples of
 * that edge, their product at most pixels_max. */
struct job_image {
    struct image *image; /* the job holds it too until it ends */
    uint32_t first;      /* index of its first placeholder; >= 1 */
};

/* Result of a job. A job without tokens never decodes: its sequence reads the prompt and ends. The prefix
 * cache neither serves nor keeps its pages. Its result is in stream_values(). */
enum job_output {
    JOB_TOKENS,
    JOB_VECTOR, /* the prompt's pooled vector: model_shape.vector_width values, of no particular length, or
                   the scores of model_shape.labels. The stream has vector_room values */
    JOB_LOGITS  /* after the prompt's last token: the logits of logit_ids */
};
#define JOB_LOGIT_IDS 2

/* An end for the reasoning of a reply: after so many tokens, or at a loop, the marker is forced. */
#define JOB_MARKER_MAX 16
struct job_thinking {
    uint32_t budget; /* tokens of all reasoning of the reply; UINT32_MAX: no limit */
    bool inside;     /* the prompt ends within reasoning */
    uint32_t open[JOB_MARKER_MAX],
        open_count; /* the marker that begins it; 0: the reply does not begin any */
    uint32_t close[JOB_MARKER_MAX], close_count; /* the marker that ends it; 0: none is forced */
};

/* The time for which a prefix is to be kept (cache/leases.h). */
#define JOB_WISHES_MAX 4
enum job_session {
    JOB_NO_SESSION,
    JOB_OPENS_SESSION,    /* the session begins with this job, and ends if the job fails */
    JOB_CONTINUES_SESSION /* the session moves to the end of this job */
};
struct job_leases {
    struct job_wish {
        uint32_t tokens; /* tokens of the prompt, ascending; UINT32_MAX: the prompt and the output */
        uint32_t ttl_s;
    } wishes[JOB_WISHES_MAX];
    uint32_t wish_count;
    enum job_session session;
    uint8_t id[16]; /* id of the session, a struct lease_id */
    uint32_t ttl_s;
    bool follows;   /* it moves with any request that continues its end */
    bool below;     /* with JOB_OPENS_SESSION: the SSD tier holds it */
    uint64_t agent; /* key of its agent (cache/agents.h); 0: the job has no agent */
};
/* Key of the agent that is this session. */
uint64_t job_session_agent(const uint8_t id[16]);

struct job_spec {
    enum job_output output;
    enum pooling pooling;              /* pooling of JOB_VECTOR */
    uint32_t logit_ids[JOB_LOGIT_IDS]; /* ids of JOB_LOGITS */
    const uint32_t *prompt;            /* ids < vocab; copied */
    uint32_t prompt_count;             /* >= 1 */
    uint32_t second;                   /* see model_seq.second */
    uint32_t max_tokens;               /* >= 1; 0 of a job without tokens */
    int32_t priority;                  /* lower goes first; 0 is normal */
    struct slice
        cache_salt;  /* only requests with the same salt and tenant share prefixes and encoded images */
    uint64_t tenant; /* a number of the caller's, by API key or client address: sequences, queue and computed
                        tokens are shared by tenants */
    bool announced;  /* events may name its prefixes (engine_opts.events) */
    uint32_t weight; /* the tenant's share, 1 to SHARE_WEIGHT_MAX; 0 counts as 1 */
    /* Token indices of the prompt where a later one may begin to differ, in any order; copied, each moved
     * down to a whole page. The prompt's end is always one. At most ENGINE_CUTS_MAX are looked at. */
    const uint32_t *cuts;
    uint32_t cut_count;
    struct sampler_params sampling;
    /* Copied; <= ENGINE_STOP_STRINGS_MAX, each 1..ENGINE_STOP_STRING_BYTES_MAX bytes. */
    const struct slice *stops;
    uint32_t stop_count;
    /* Constraint of the output, from its first token on; its vocabulary has the model's tokens. An end token
     * is sampled only where the output is complete, and ends the job. End tokens that are not among
     * sampling.stop_ids (ignore_eos) are sampled only where nothing else may follow, and so are stop_ids
     * before min_tokens. The job holds it too until it ends. NULL: anything. */
    struct grammar_entry *grammar;
    struct job_thinking thinking;
    struct repetition_params repetition; /* checked; a loop ends the reply, or its reasoning */
    struct job_leases leases;
    const struct job_image *images; /* ascending, <= ENGINE_IMAGES_MAX; copied */
    uint32_t image_count;
    bool speculative; /* allows drafts; changes no token */
    bool whole;       /* the reply is sent at its end, so its unread tokens say nothing about its client */
    bool prompt_logprobs; /* logprobs of every prompt token come first, as stream tokens (the first has none:
                             logprob NaN) */
};

#endif
