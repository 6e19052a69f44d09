/* gen.h - one generation: from a typed request to its images, its prompt and its jobs.
 *
 * The owner sets the first group of members and calls gen_prepare() on a thread that may compute for seconds.
 * When that returns PREPARE_WAITS the owner waits without a thread, for the images (media_request_poll())
 * or, at GEN_AT_GRAMMAR, until grammar_retry_ns, and calls again: `stage` says where preparation goes on.
 * Afterwards the choices give the parts of the reply (choice.h). gen_done() frees everything, at any stage.
 * One thread at a time. */
#ifndef PLATEAU_GEN_GEN_H
#define PLATEAU_GEN_GEN_H

#include "gen/reject.h"
#include "gen/request_memory.h"

#include "base/arena.h"
#include "base/wanted.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "template/chat_cuts.h"

struct gen;
struct gen_request;
struct media;
struct media_task;
struct served_model;

/* How a call that prepares ended. */
enum prepare {
    PREPARE_DONE,
    PREPARE_WAITS,  /* for a model, for images, or for room among the grammars in use */
    PREPARE_REFUSED /* the reject has the reason */
};

enum gen_stage { GEN_AT_IMAGES, GEN_AT_PROMPT, GEN_AT_GRAMMAR, GEN_AT_JOBS };

/* Decisions of the owner. Each returns false with g->reject filled. */
struct gen_host {
    /* The request's own memory was refused; or, with an account, `bytes` of that. Always false. */
    bool (*refuse_memory)(struct gen *g, struct account *account, uint64_t bytes);
    /* The prompt is tokenized: another engine with the same model may become g->model. NULL: none does. */
    void (*place)(struct gen *g);
    /* The prompt is tokenized, and its grammar is there: what only it needed may go. */
    bool (*prompted)(struct gen *g);
    /* A place for one more stream, and its end. */
    bool (*take_stream)(struct gen *g);
    void (*give_stream)(struct gen *g);
};

struct prompt_ids {
    uint32_t *ids;
    uint32_t count;
    uint32_t second;                         /* second text of a pair: job_spec.second */
    bool in_reasoning;                       /* the rendered prompt ended inside reasoning */
    bool may_reason;                         /* the reply may begin with reasoning of its own accord */
    uint32_t cuts[CHAT_CUTS_MAX], cut_count; /* tokens before which later prompts may begin to differ */
    uint32_t head;                           /* tokens of system and tools; 0: not known */
    struct job_image *images;                /* the media task's; freed with it */
    uint32_t image_count;
};

struct gen {
    /* Set by the owner. */
    const struct gen_host *host;
    struct gen_request *request;
    struct media *media;   /* NULL: no images */
    struct account *text;  /* pays for streams */
    struct mailbox *wakes; /* mailbox of its streams */
    struct request_id id;
    uint64_t tenant;
    bool shares;                           /* see job_spec.announced */
    uint32_t weight;                       /* the tenant's share */
    int32_t priority_first, priority_last; /* the range of its priority */
    int64_t created_s;
    uint32_t max_tokens_default;      /* when the request has none; 0: see resolve_max_tokens() */
    const struct served_model *model; /* under a lease; before gen_prepare() */
    struct wanted wanted;             /* its work polls this */
    struct request_memory memory;

    enum gen_stage stage;
    struct reject reject;
    struct media_task *task;      /* its images; NULL: no images, or the engine has them */
    struct job_thinking thinking; /* but for `inside` */
    struct prompt_ids *prompts;
    uint32_t prompt_count;
    struct grammar_entry *grammar;               /* in use by this request; NULL: none */
    uint64_t grammar_since_ns, grammar_retry_ns; /* at GEN_AT_GRAMMAR: waiting since then; the next try */
    struct logit_bias *bias;
    uint32_t bias_count;
    struct choice *choices;
    uint32_t choice_count;
    uint32_t max_tokens; /* the largest of its choices */
    /* Progress of an output without tokens: choices [0, submitted) have been with the engine, `over` of them
     * ended. */
    uint32_t submitted, over;
};

/* Prepares a request; for GEN_IDS and GEN_TEXT only its images. One that `renders` gets prompts and choices,
 * which are never opened. */
enum prepare gen_prepare(struct gen *g, struct arena *scratch);
/* An output without tokens may have more choices than the queue has places: at most GEN_WINDOW are with the
 * engine at once. Submits further ones after some have ended; on the thread that takes. 0: as many as may be
 * are there; -EAGAIN: the queue is full, call again later; -ECANCELED: g->reject has the reason. */
#define GEN_WINDOW 64
int gen_go_on(struct gen *g);

/* Tokens of all choices until now. Prompt tokens count once per prompt, for any n: each prompt is read
 * once. */
struct gen_usage {
    uint64_t prompt_tokens, completion_tokens, reasoning_tokens;
    uint64_t drafted_tokens, accepted_tokens; /* draft tokens of choices that are over; the accepted ones */
    uint64_t cached_tokens;                   /* cached tokens of the prompts */
    uint64_t pinned_tokens, ssd_tokens;       /* parts of cached_tokens that came from these tiers */
    uint64_t written_tokens; /* other tokens of the prompts that joined the cache, in whole pages */
    bool admitted;           /* all choices are, so that cached_tokens will not change */
};
struct gen_usage gen_usage(const struct gen *g);

/* The engine has its copy of the prompts' ids; their counts stay. */
void gen_drop_ids(struct gen *g);
/* Frees choices (their jobs stop), prompts and images; the memory stays. Twice is fine. */
void gen_done(struct gen *g);

/* The request's memory was refused. Returns false. */
static inline bool gen_refuse_memory(struct gen *g)
{
    return g->host->refuse_memory(g, NULL, 0);
}

#endif
