/* drafting.h - speculative decoding in a step: the draft length of each sequence, its drafter, and the
 * accepted tokens.
 *
 * The n-gram drafter runs before a step is planned, the MTP head after it, when each sequence's place and
 * state are known. Where both draft, the first n-gram token is compared with the head's: if they agree, the
 * other n-gram tokens stay, else they are not computed. Draft tokens stand after a job's known tokens until
 * sampled tokens replace them. A step computes them all; its result is decided token by token as in plain
 * decoding (engine_step.c). Part of the engine, on its thread. */
#ifndef PLATEAU_ENGINE_DRAFTING_H
#define PLATEAU_ENGINE_DRAFTING_H

#include "engine/draft_length.h"
#include "model/model.h"
#include "sched/sched.h"

struct engine;
struct job;

struct drafting {
    struct draft_length draft_length;
    struct draft_length_seq *seqs; /* [max_num_seqs] */
    struct sched_seq **of;         /* [max_num_seqs]: whose they are */
    struct model_draft_seq *heads; /* [max_num_seqs] */
    uint32_t *counts;  /* [max_num_seqs]: draft tokens of each sequence of the plan that are computed */
    uint32_t *sampled; /* [max_num_seqs]: tokens that each sequence of the plan has sampled */
    uint32_t planned, computed; /* draft tokens of the step */
};

/* Bytes of arena for this many sequences. */
size_t drafting_arena_bytes(uint32_t seqs_max);
/* Lies in the engine's arena. 0 or -ENOMEM. */
int drafting_init(struct engine *en);
/* Before a plan: each sequence's `drafts`. Returns how many they are together. */
uint32_t drafting_allow(struct engine *en);
/* After the plan, within the workers' turn: drafts are in place, and counted. 0, or as model_draft(). */
int drafting_draft(struct engine *en, const struct sched_plan *plan);
/* Sequence `index` of the plan had `planned` draft tokens, and the first `right` of them were accepted;
 * `ended`: the last of those ended the answer. */
void drafting_count(struct engine *en, struct job *j, uint32_t index, uint32_t planned, uint32_t right,
                    bool ended);
/* Records the time of the step without drafting; ignored for steps with prompts. */
void drafting_measure(struct engine *en, const struct sched_plan *plan, uint32_t decoding, uint64_t ns);

#endif
