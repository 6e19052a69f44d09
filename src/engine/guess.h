/* guess.h - tokens guessed ahead in a step: how many each row may have, who guesses them, and what was right.
 *
 * The sequence's own past guesses before a step is planned, the head behind it, when each row's place and
 * state are known. Where both do, the past's first guess is put to the head: if the head says the same, those
 * behind it stand, else they are not computed. Guesses stand behind a job's known tokens until tokens are
 * drawn in their place. A step computes them all; what it gives is decided token by token as without them
 * (engine_step.c). Parts of the engine, its thread. */
#ifndef PLATEAU_ENGINE_GUESS_H
#define PLATEAU_ENGINE_GUESS_H

#include "engine/benefit.h"
#include "model/model.h"
#include "sched/sched.h"

struct engine;
struct job;

struct guess {
    struct benefit benefit;
    struct benefit_row *rows;      /* [max_num_seqs] */
    struct sched_row **of;         /* [max_num_seqs]: whose they are */
    struct model_draft_row *heads; /* [max_num_seqs] */
    uint32_t *counts;              /* [max_num_seqs]: guesses of each row of the plan that are computed */
    uint32_t *drawn;               /* [max_num_seqs]: tokens that each row of the plan has drawn */
    uint32_t planned, computed;    /* guesses of the step */
};

/* Bytes of arena for so many rows. */
size_t guess_arena_bytes(uint32_t rows_max);
/* Lies in the engine's arena. 0 or -ENOMEM. */
int guess_init(struct engine *en);
/* Before a plan: each row's `drafts`. Returns how many they are together. */
uint32_t guess_allow(struct engine *en);
/* Behind it, within the workers' turn: the guesses of its rows are in place, and counted. 0, or as
 * model_draft(). */
int guess_draft(struct engine *en, const struct sched_plan *plan);
/* Row `index` of the plan was to have `planned` guesses, and the first `right` of them were; `ended` by the
 * last of those. */
void guess_count(struct engine *en, struct job *j, uint32_t index, uint32_t planned, uint32_t right,
                 bool ended);
/* The step took so long, drafting apart; with prompts in it it says nothing. */
void guess_measure(struct engine *en, const struct sched_plan *plan, uint32_t decoding, uint64_t ns);

#endif
