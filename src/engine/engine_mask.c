/* engine_mask.c - constrained decoding: what the jobs' grammars allow next.
 *
 * A mask depends on tokens that are known when a step begins: on the last one, and on draft tokens. So masks
 * are made beside the step's last products, or while a device of its own computes, then by the process's
 * workers where no other engine has its turn. Matchers of one grammar share tables, so rows of one grammar
 * follow each other. Text that a grammar forces is drafted: the rest of a key needs no step of its own.
 *
 * The matcher follows sampled tokens only, and they are never taken back, so it stays right when a sequence
 * is preempted. Draft tokens are tried and rewound. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "compute/row_top.h"
#include "constraint/grammar_cache.h"
#include "grammar/matcher.h"
#include "model/model.h"

#include <errno.h>
#include <stdio.h>

#define MASK_WORK_MAX ((uint64_t)1 << 20) /* steps of automaton and parser */

size_t engine_masks_bytes(const struct engine_opts *o, uint32_t vocab)
{
    return engine_rows_max(o) * (sizeof(struct engine_mask) + DIV_UP(vocab, 64u) * sizeof(uint64_t)) + 128;
}

int engine_masks_init(struct engine *en)
{
    struct engine_masks *k = &en->masks;
    uint32_t rows = engine_rows_max(&en->opts);
    k->words = DIV_UP(en->shape->vocab, 64u);
    k->rows = ARENA_ARRAY(en->arena, struct engine_mask, rows);
    k->bits = arena_alloc_array(en->arena, (size_t)rows * k->words, sizeof(uint64_t));
    return k->rows && k->bits ? 0 : -ENOMEM;
}

static uint64_t *bits_of(const struct engine *en, uint32_t row)
{
    ASSERT(row < en->masks.count);
    return en->masks.bits + (size_t)row * en->masks.words;
}

/* ---- the time of a grammar ---- */

/* The matcher of a job is used between these two. Other threads' use of the same grammar is not part of the
 * job's time. */
static uint64_t match_begin(struct job *j)
{
    ASSERT(j->grammar);
    grammar_entry_lock(j->grammar);
    return clock_thread_ns();
}

static void match_end(struct job *j, uint64_t began_ns)
{
    uint64_t now_ns = clock_thread_ns();
    grammar_entry_unlock(j->grammar);
    j->seq.match_ns += now_ns > began_ns ? now_ns - began_ns : 0;
}

/* ---- making ---- */

static void make_row(struct engine *en, struct job *j, uint32_t row)
{
    struct engine_mask *ret = &en->masks.rows[row];
    struct matcher_mask m = {0};
    uint64_t began_ns = clock_now_ns();
    int r = matcher_mask(j->matcher, MASK_WORK_MAX, (uint32_t *)bits_of(en, row), &m);
    *ret = (struct engine_mask){r, m.count, m.single, clock_now_ns() - began_ns};
}

/* After the known token, and after each draft token. */
static void make_rows(struct engine *en, struct job *j, uint32_t drafts)
{
    const uint32_t *next = j->tokens + j->prompt_count + j->output_count;
    uint32_t made = 0;
    uint64_t began_ns = match_begin(j);
    uint32_t marks = matcher_marks(j->matcher);
    do
        make_row(en, j, j->mask_row + made);
    while (made < drafts && matcher_take(j->matcher, next[made]) == 1 && ++made);
    ASSERT(made <= drafts);
    matcher_rewind(j->matcher, marks);
    match_end(j, began_ns);
    for (uint32_t i = made + 1; i <= drafts; i++)
        en->masks.rows[j->mask_row + i] = (struct engine_mask){.error = -E2BIG};
}

static struct job *bound_job(const struct sched_plan *plan, uint32_t i)
{
    ASSERT(i < plan->seq_count);
    const struct sched_step_seq *r = &plan->seqs[i];
    struct job *j = job_of(r->seq);
    return j->matcher && r->samples ? j : NULL;
}

/* The plan's i-th sequence if it is the first with its grammar, and all others with that grammar. */
static void make_task(void *arg, uint32_t i)
{
    struct engine *en = arg;
    const struct sched_plan *plan = &en->pass.plan;
    ASSERT(i < plan->seq_count);
    const struct job *first = bound_job(plan, i);
    for (uint32_t k = 0; first && k < i; k++)
        if (bound_job(plan, k) && bound_job(plan, k)->grammar == first->grammar)
            return;
    for (uint32_t k = i; first && k < plan->seq_count; k++) {
        struct job *j = bound_job(plan, k);
        if (j && j->grammar == first->grammar)
            make_rows(en, j, en->drafting.rows[k].computed);
    }
}

static void count_masks(struct engine *en, uint32_t rows)
{
    ASSERT(rows <= engine_rows_max(&en->opts));
    for (uint32_t i = 0; i < rows; i++) {
        en->now.mask_ns += en->masks.rows[i].ns;
        en->now.mask_max_ns = MAX_OF(en->now.mask_max_ns, en->masks.rows[i].ns);
    }
    en->now.masks += rows;
}

struct batch_beside *engine_masks_begin(struct engine *en, const struct sched_plan *plan)
{
    struct engine_masks *k = &en->masks;
    k->count = 0;
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        struct job *j = bound_job(plan, i);
        if (!j)
            continue;
        j->mask_row = k->count;
        k->count += 1 + en->drafting.rows[i].computed;
    }
    ASSERT(k->count <= engine_rows_max(&en->opts));
    k->beside = (struct batch_beside){make_task, en, plan->seq_count, k->count == 0};
    return k->count > 0 ? &k->beside : NULL;
}

void engine_masks_end(struct engine *en)
{
    if (!en->masks.beside.done)
        engine_share(en, make_task, en->masks.beside.count);
    count_masks(en, en->masks.count);
}

/* ---- sampling ---- */

static bool end_without(struct job *j, const char *why)
{
    snprintf(j->finish.error, sizeof(j->finish.error), "%s; it ends after %u tokens.", why, j->output_count);
    j->finish.reason = FINISH_ERROR;
    j->ends = true;
    return false;
}

static bool fail(struct job *j, int error)
{
    return end_without(j, error == -E2BIG
                              ? "grammar_too_complex: the grammar has too many ways to read the output"
                              : "no token of the model continues the output as its grammar asks");
}

/* A load checks the scales of quantised weights, but not floats; and large values may overflow. */
static bool fail_without_logits(struct job *j)
{
    if (sampler_params_of(j->sampler)->only_biased)
        return end_without(j, "No id of allowed_token_ids has a logit that is a number");
    return end_without(j, "The model's logits are not numbers (NaN): its weights are damaged, or its values "
                          "are too large for this --compute");
}

static bool is_set(const uint64_t *bits, uint32_t id)
{
    return bits[id / 64] >> (id % 64) & 1;
}

/* The grammar goes before min_tokens: where it allows only tokens that stop, one of them is sampled. */
static uint32_t outputs_of(const struct job *j, uint32_t outputs, const struct engine_mask *m,
                           const uint64_t *bits)
{
    const struct sampler_params *p = sampler_params_of(j->sampler);
    uint32_t stops = 0;
    for (uint32_t i = 0; i < p->stop_count; i++)
        stops += is_set(bits, p->stop_ids[i]);
    return stops >= m->count ? MAX_OF(outputs, j->min_tokens) : outputs;
}

static bool is_stop(const struct sampler_params *p, uint32_t id)
{
    for (uint32_t i = 0; i < p->stop_count; i++)
        if (p->stop_ids[i] == id)
            return true;
    return false;
}

/* End tokens that do not stop the job by themselves are left out where anything else may follow. */
static void ignore_ends(const struct job *j, uint32_t vocab, struct engine_mask *m, uint64_t *bits)
{
    const struct sampler_params *p = sampler_params_of(j->sampler);
    uint32_t count, ignored[SAMPLER_STOP_MAX], ignored_count = 0;
    const uint32_t *ends = grammar_entry_ends(j->grammar, &count);
    for (uint32_t i = 0; i < count && ignored_count < SAMPLER_STOP_MAX; i++)
        if (ends[i] < vocab && is_set(bits, ends[i]) && !is_stop(p, ends[i]))
            ignored[ignored_count++] = ends[i];
    ASSERT(ignored_count <= m->count);
    if (ignored_count == m->count)
        return;
    for (uint32_t i = 0; i < ignored_count; i++)
        bits[ignored[i] / 64] &= ~((uint64_t)1 << ignored[i] % 64);
    m->count -= ignored_count;
}

const uint64_t *engine_mask_bits(struct engine *en, const struct job *j, uint32_t accepted)
{
    if (!j->matcher)
        return NULL;
    struct engine_mask *m = &en->masks.rows[j->mask_row + accepted];
    uint64_t *bits = bits_of(en, j->mask_row + accepted);
    if (m->error < 0 || m->count == 0)
        return NULL;
    ignore_ends(j, en->shape->vocab, m, bits);
    return bits;
}

uint32_t engine_mask_outputs(struct engine *en, const struct job *j, uint32_t accepted)
{
    const uint64_t *bits = engine_mask_bits(en, j, accepted);
    uint32_t outputs = j->output_count + accepted;
    return bits ? outputs_of(j, outputs, &en->masks.rows[j->mask_row + accepted], bits) : outputs;
}

/* The token that the device sampled. */
static void take_sampled(struct engine *en, struct job *j, const struct row_sampled *sampled,
                         uint32_t outputs, struct sampled *ret)
{
    bool taken =
        sampler_take(j->sampler, sampled, &en->samples.tops[sampled - en->samples.sampled], outputs, ret);
    ASSERT(taken);
}

bool engine_mask_sample(struct engine *en, struct job *j, uint32_t accepted, uint32_t row,
                        struct sampled *ret)
{
    ASSERT(row < en->rows.count);
    const struct engine_row *from = &en->rows.list[row];
    uint32_t outputs = j->output_count;
    if (j->matcher) {
        const struct engine_mask *m = &en->masks.rows[j->mask_row + accepted];
        if (m->error < 0 || m->count == 0)
            return fail(j, m->error);
        outputs = outputs_of(j, outputs, m, from->logits.allowed);
    }
    uint32_t position = j->prompt_count + j->output_count;
    sampler_allow(j->sampler, from->logits.allowed);
    if (from->sampled)
        take_sampled(en, j, from->sampled, outputs, ret);
    else
        sampler_sample_ready(j->sampler, en->scratch, &from->logits, &from->blocks, position, outputs, ret);
    return ret->none ? fail_without_logits(j) : true;
}

void engine_mask_take(struct job *j, uint32_t token)
{
    if (!j->matcher)
        return;
    uint64_t began_ns = match_begin(j);
    ASSERT(!j->ends);
    int r = matcher_take(j->matcher, token);
    match_end(j, began_ns);
    if (r != 1) {
        fail(j, r);
    } else if (matcher_has_ended(j->matcher)) {
        j->finish.stop_token = token;
        j->finish.reason = FINISH_STOP;
        j->ends = true;
    }
}

/* ---- draft tokens ---- */

uint32_t engine_mask_forced(struct job *j, uint32_t known, uint32_t room)
{
    if (!j->matcher || room == 0)
        return 0;
    uint64_t began_ns = match_begin(j);
    uint32_t count = matcher_forced(j->matcher, MIN_OF(room, (uint32_t)MODEL_DRAFTS_MAX), j->tokens + known);
    match_end(j, began_ns);
    ASSERT(count <= room);
    return count;
}

uint32_t engine_mask_drafts(struct job *j, const uint32_t *drafts, uint32_t count)
{
    uint32_t accepted = 0;
    if (!j->matcher)
        return count;
    uint64_t began_ns = match_begin(j);
    uint32_t marks = matcher_marks(j->matcher);
    while (accepted < count && matcher_take(j->matcher, drafts[accepted]) == 1)
        accepted++;
    matcher_rewind(j->matcher, marks);
    ASSERT(matcher_marks(j->matcher) == marks);
    match_end(j, began_ns);
    return accepted;
}
