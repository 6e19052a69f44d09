/* engine_state.h - the engine's state. Only files of the engine include it. */
#ifndef PLATEAU_ENGINE_ENGINE_STATE_H
#define PLATEAU_ENGINE_ENGINE_STATE_H

#include "engine/admission.h"
#include "engine/budget.h"
#include "engine/engine.h"
#include "engine/engine_opts.h"
#include "engine/image_sched.h"
#include "engine/invariants.h"
#include "engine/job.h"
#include "engine/pools.h"
#include "engine/publish.h"
#include "engine/stream.h"
#include "engine/trim.h"
#include "engine/write_behind.h"

#include "base/buf.h"
#include "base/threads/thread_stack.h"
#include "cache/leases.h"
#include "cache/tier_pair.h"
#include "compute/batch.h"
#include "compute/device.h"
#include "compute/row_sample.h"
#include "sample/sampler.h"
#include "sched/sched.h"

#include <pthread.h>

struct model_draft_seq;
struct model_seq;
struct model_step;
struct sampled;
struct units_crew;

/* A message in the inbox: a job, an order, or neither for "look now". */
struct engine_message {
    struct job *job;
    struct holder_ask *order;
    bool pinned; /* the order is for the tier in pinned memory */
};

/* A step between its begin and its end. */
struct engine_pass {
    struct sched_plan plan;
    uint64_t began_ns, drafted_ns; /* began_ns: as if there were no wait for a turn; end of drafting */
    bool begun;                    /* the model computes it */
    int error;                     /* with `begun` false: why */
};

/* Tokens that a grammar allows after the known token of a sequence, or after a draft token of it. */
struct engine_mask {
    int error; /* result of matcher_mask() */
    uint32_t count, single;
    uint64_t ns; /* to make it */
};

/* Masks of the step under way: a sequence with a grammar has a row for each row of logits that it samples
 * from. */
struct engine_masks {
    struct engine_mask *rows; /* [engine_rows_max] */
    uint64_t *bits;           /* [engine_rows_max][words]: bit per id */
    uint32_t words, count;
    struct batch_beside beside; /* makes them */
};

/* Rows of logits that the step under way samples from. */
struct engine_row {
    struct job *job;
    struct sampler_row logits; /* `allowed` by the job's grammar */
    struct sampler_blocks blocks;
    const struct row_sampled *sampled; /* NULL: the row is there; else its token is, and nothing is ready */
};
struct engine_rows {
    struct engine_row *list; /* [engine_rows_max]: those of a sequence side by side */
    uint32_t count, blocks;
    uint32_t whole;  /* rows of the list whose blocks are all there */
    float *most;     /* [engine_rows_max][blocks], as the two below for sampler_blocks */
    double *weights; /* [engine_rows_max][blocks] */
    uint32_t *bins;  /* [engine_rows_max][SAMPLER_BINS] */
    uint32_t *first; /* [max_num_seqs]: the index of a sequence's first one */
    float **begin;   /* [max_num_seqs]: all of a sequence's logits */
};

/* Rows of logits of the step under way, and what the device samples from them. */
struct engine_samples {
    void *pinned;            /* has the next four; NULL: the device samples nothing */
    struct row_sample *rows; /* [logit rows], as the next two */
    struct row_sampled
        *sampled; /* [logit rows]: of the device from a step's begin to its end, as the next one */
    struct row_top *tops;
    struct row_edit *edits; /* edits of all rows together */
    struct row_samples step;
    uint32_t count; /* 0: none is sampled from */
};

/* The draft model, and its pass under way. */
struct engine_draft_model {
    struct model *model; /* NULL: none */
    uint32_t vocab, context, rows_max;
    struct model_seq *seqs; /* [max_num_seqs] */
    struct job **jobs;      /* [max_num_seqs]: jobs of `seqs` */
    uint32_t *ids;          /* [tokens_max]: tokens of the pass */
    uint32_t seq_count, token_count;
    uint32_t first_tokens, first_rows; /* in the first pass of drafts */
    double token_ns;                   /* to read one token, moving average; 0: not measured */
};

/* Below the pools. Engine thread only. */
struct engine_tiers {
    struct tier_io ssd, shared; /* arg NULL: there is none */
    struct tier_io below, top;  /* both in one, and all that the pools have below them; arg NULL: none */
    struct tier_pair pair;
    struct pinned_tier *pinned; /* above the SSD tier; NULL: none */
    struct account *account;    /* the pinned tier's */
    struct holder *holder;      /* the pinned tier's; NULL: no list */
};

/* A session, as the engine published it last and other threads changed it since. */
struct engine_session {
    struct lease_info is;
    bool extended, ended; /* orders that the engine has not obeyed yet */
};

/* The sessions as other threads see them, and what those ask for. */
struct engine_leases {
    pthread_mutex_t lock;
    struct engine_session *list; /* [POOLS_LEASES_MAX]; NULL: none was made */
    uint32_t count;
    uint64_t bytes;             /* held by all of them, and promised; with those on SSD */
    bool edited;                /* an entry of the list has an order */
    uint32_t agents;            /* with a place */
    struct agent_id *agent_ids; /* [agents] of [opts.agents]; NULL: there are no places */
    uint64_t agents_until_ns;   /* the last idle place is free then */
    /* Engine thread only: when sessions on SSD are looked at next, and the pause before that. */
    uint64_t write_at_ns, pause_ns;
};

struct engine {
    /* Set by engine_create, then constant. */
    struct engine_opts opts;
    char name[48];
    const struct model_shape *shape;
    struct account *requests, *own;
    struct arena *arena; /* arena on `own`: has everything below, unless said otherwise */
    struct pools pools;
    struct holder *holder; /* in opts.holders; NULL: no list */
    struct engine_tiers tiers;
    struct sched *sched;
    struct mailbox *inbox;
    uint64_t *valid_ids;            /* bit per id; NULL without a tokenizer */
    const struct engine_live *live; /* opts.live, or own_live */
    struct engine_live own_live;    /* copy of opts; does not change */
    uint32_t places_max;            /* jobs that may be here at once */

    /* Any thread. */
    struct admission admission; /* jobs, from submit to end */
    atomic_bool wake_posted;    /* a wake is in the inbox */
    atomic_bool reclaim;        /* memory is short somewhere */
    atomic_bool closing;
    atomic_int failure;           /* engine_failure() */
    _Atomic uint64_t progress_ns; /* engine_numbers.progress_ns */
    _Atomic uint64_t service_ns;  /* moving average: a job from its place to its end */
    _Atomic uint64_t taken_ns;    /* sched_numbers.taken_ns of the last plan */

    /* The thread that creates, starts and closes the engine. */
    struct thread_stack stack;
    pthread_t thread;
    bool started;

    /* Engine thread only. */
    bool crowded;           /* sequences wait for a place */
    struct list jobs, over; /* over: they have ended; tokens or the finish record are still to go out */
    struct budget budget;
    struct drafting drafting;
    struct engine_draft_model draft_model;
    struct sampler_scratch *scratch;
    struct engine_masks masks;
    struct engine_rows rows;
    struct engine_samples samples;
    float *logits;                 /* [engine_logits_max][vocab]; one row where all jobs make vectors */
    float *values;                 /* [engine_logits_max][hidden]; [tokens_max] where a text is one step */
    struct model_seq *seqs;        /* [max_num_seqs] */
    struct model_draft_seq *heads; /* [max_num_seqs] */
    uint32_t *sampled;             /* [max_num_seqs]: tokens that each sequence of the plan has sampled */
    struct engine_pass pass;
    struct buf text;      /* room for one token's text, grown at creation */
    uint64_t last_end_ns; /* when the last job ended */
    uint64_t steps_ns;    /* time of all steps */
    struct image_sched image_sched;
    struct trim trim;
    struct write_behind write_behind;
    struct invariants invariants;
    struct engine_numbers now;   /* counters; gauges are filled when published */
    struct publish publish;      /* any thread reads from it */
    struct engine_leases leases; /* any thread */
};

/* engine_end.c. A job ends: its sequence goes now, its last tokens and its finish record when they have
 * room. */
void engine_end_job(struct engine *en, struct job *j, enum finish_reason why);
void engine_fail_job(struct engine *en, struct job *j, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The device failed, with -EIO or -ENODEV: the engine stops after the step that is under way. Pages, states
 * and features cannot be trusted; nothing of them is stored. */
void engine_fail(struct engine *en, int error);
/* A job ends because of that. */
void engine_fail_with_device(struct engine *en, struct job *j);
/* Says that other programs have the memory for new requests; any thread. */
void engine_say_taken(const struct engine *en, char *ret, size_t bytes_max);
/* A job ends because of that. */
void engine_end_taken(struct engine *en, struct job *j);

/* engine_loop.c */
void *engine_thread(void *arg);
/* Ends all jobs here and in the closed inbox. On the engine thread, or the closing thread of an engine
 * that was never started. */
void engine_end_all(struct engine *en);
/* engine_step.c: plans a step, drafts, and begins its forward pass. False: nothing can run now. The device
 * may compute until engine_step_end(); meanwhile no sequence is removed, and no page or state moves. */
bool engine_step_begin(struct engine *en);
/* Waits for the step, samples its tokens and ends sequences. */
void engine_step_end(struct engine *en);

/* task(en, i) for each i < count, by the process's workers where no other engine has its turn, else here.
 * Returns when all are done. */
static inline void engine_share(struct engine *en, void (*task)(void *arg, uint32_t i), uint32_t count)
{
    const struct units_crew *crew = &en->opts.device->crew;
    if (crew->run && crew->run(crew->arg, task, en, count))
        return;
    for (uint32_t i = 0; i < count; i++)
        task(en, i);
}

/* engine_draft.c: room and order of the drafts. 0 or -ENOMEM. */
int engine_draft_init(struct engine *en);
/* Before a plan: each sequence's `drafts`. Returns how many they are together. */
uint32_t engine_draft_allow(struct engine *en);
/* After the plan, within the workers' turn: drafts are in place. 0, or as model_draft(). */
int engine_draft(struct engine *en, const struct sched_plan *plan);

/* engine_draft_model.c: room for its passes; zeros without a draft model. 0 or -ENOMEM. */
size_t engine_draft_model_bytes(const struct engine_opts *o);
int engine_draft_model_init(struct engine *en);
/* Before a plan; then each sequence that decodes: whether it lags. */
void engine_draft_model_begin(struct engine *en);
void engine_draft_model_see(struct engine *en, struct job *j);
/* The longest draft that its context has room for. */
uint32_t engine_draft_model_drafts_max(const struct engine *en, const struct job *j);
/* After the plan: reads tokens of sequences that lag. 0, or as model_step_end(). */
int engine_draft_model_read(struct engine *en, const struct sched_plan *plan);
/* Drafts rows[i].passes tokens of the plan's i-th sequence. As `engine_draft_model_read()`. */
int engine_draft_model_draft(struct engine *en, const struct drafting_row *rows, uint32_t count);

/* engine_mask.c: room for the masks of a step. 0 or -ENOMEM. */
int engine_masks_init(struct engine *en);
size_t engine_masks_bytes(const struct engine_opts *o, uint32_t vocab);
/* Before a step: what makes the masks of all its rows, those of several grammars on several threads. NULL:
 * there are none. */
struct batch_beside *engine_masks_begin(struct engine *en, const struct sched_plan *plan);
/* Between a step's begin and its end: they are made. */
void engine_masks_end(struct engine *en);
/* Returns the mask for the sample after the first `accepted` draft tokens; NULL: anything, or there is no
 * mask. */
const uint64_t *engine_mask_bits(struct engine *en, const struct job *j, uint32_t accepted);
/* The number of outputs that a sample after `accepted` draft tokens counts for min_tokens. */
uint32_t engine_mask_outputs(struct engine *en, const struct job *j, uint32_t accepted);
/* Samples the token after the first `accepted` draft tokens from this row of engine_rows; the job's grammar
 * decides what from. False: the job ends instead, and its finish says why. */
bool engine_mask_sample(struct engine *en, struct job *j, uint32_t accepted, uint32_t row,
                        struct sampled *ret);
/* The job, which has not ended, has this token. */
void engine_mask_take(struct job *j, uint32_t token);
/* Draft tokens that the job's grammar forces after `known` tokens: in place, at most `room` of them. */
uint32_t engine_mask_forced(struct job *j, uint32_t known, uint32_t room);
/* How many of the draft tokens the grammar allows. */
uint32_t engine_mask_drafts(struct job *j, const uint32_t *drafts, uint32_t count);

/* engine_samples.c: room for orders and results. 0 or -ENOMEM; done in either case. */
int engine_samples_init(struct engine *en);
void engine_samples_done(struct engine *en);
size_t engine_samples_bytes(const struct engine_opts *o, const struct model_shape *s);
/* Before a step, of which the plan's sequences are known: which rows may be sampled from. */
void engine_samples_begin(struct engine *en, const struct sched_plan *plan, struct model_step *step);
/* Before its end, and after engine_masks_end(): what each sample needs. */
void engine_samples_order(struct engine *en, const struct sched_plan *plan);
/* After it: rows that the host samples from come. As model_step_end(). */
int engine_samples_end(struct engine *en);
/* Returns the device's sample from the row that begins there; NULL: the row is there. */
const struct row_sampled *engine_sampled_of(const struct engine *en, const float *logits);

/* engine_rows.c: room for the rows of a step. 0 or -ENOMEM. */
int engine_rows_init(struct engine *en);
size_t engine_rows_bytes(const struct engine_opts *o, uint32_t vocab);
/* After a step: all rows that its sequences sample from, ready for their samples. */
void engine_rows_ready(struct engine *en, const struct sched_plan *plan);
/* Rows of a step that are sampled from. */
static inline uint32_t engine_rows_max(const struct engine_opts *o)
{
    return o->max_num_seqs + engine_drafts_max(o->max_num_seqs, o->drafting.drafts_max);
}

/* engine_tiers.c: between the creation of the pools and that of the scheduler. 0 or -ENOMEM; done in either
 * case, when no job is left. */
int engine_tiers_create(struct engine *en);
void engine_tiers_done(struct engine *en);
size_t engine_tiers_bytes(const struct engine_opts *o, const struct model_shape *s);
/* True while pinned memory grows: the next piece is there. Beside a step, and while nothing runs. */
bool engine_tiers_grow(struct engine *en);
void engine_tiers_tend(struct engine *en);
/* Serves an order for pinned memory, and answers it. */
void engine_tiers_take_order(struct engine *en, struct holder_ask *order);
/* Updates the list of holders, and gives up what other caches need more. */
void engine_tiers_share(struct engine *en);
/* The engine ends: the SSD tier gets what it lacks. */
void engine_tiers_end(struct engine *en);

/* engine_leases.c: room for the list of sessions. 0 or -ENOMEM; done in either case. */
size_t engine_leases_bytes(uint32_t agents_max);
int engine_leases_init(struct engine *en);
void engine_leases_done(struct engine *en);
/* A job has come, perhaps with a session. False: that does not fit, and finish.error says why. */
bool engine_leases_enter(struct engine *en, struct job *j);
/* A job ends: before its sequence goes, and after that. */
void engine_leases_hold(struct engine *en, struct job *j, enum finish_reason why);
void engine_leases_end(struct engine *en, struct job *j);
/* Ends one lease and one agent's place whose time has come. Beside requests. */
void engine_leases_tend(struct engine *en);
/* Time until engine_leases_tend() has something to do; UINT64_MAX: nothing. */
uint64_t engine_leases_wait_ns(const struct engine *en, uint64_t now_ns);
/* Other threads see the sessions as they are. */
void engine_leases_publish(struct engine *en);

/* engine_agents.c. A job has come, perhaps of an agent. False: all places are taken, and finish.error says
 * it. */
bool engine_agents_enter(struct engine *en, struct job *j);
/* A job ends: before its sequence goes, and after that. */
void engine_agents_hold(struct engine *en, struct job *j);
void engine_agents_leave(struct engine *en, struct job *j);
/* A session has ended, or has another deadline, and so has its agent's place. */
void engine_agents_obey(struct engine *en, const struct engine_session *s);
/* Other threads see how many agents have a place. */
void engine_agents_publish(struct engine *en);

/* engine_parts.c: connects the parts with the engine. No part has run before. */
void engine_parts_init(struct engine *en);
/* 0 or -ENOMEM; image_sched_done() in either case. */
int engine_parts_create_images(struct engine *en);

/* engine_numbers.c: after a step, and when nothing runs. */
void engine_publish(struct engine *en, bool idle);

#endif
