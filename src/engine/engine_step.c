/* engine_step.c - one step: plan, drafts, forward pass; samples one token per decoding sequence plus one per
 * accepted draft token.
 *
 * A sequence's draft tokens are computed in the same pass after its known token. Then its tokens are sampled
 * one by one, each from its own logits, with all that plain decoding does before sampling. The logits after a
 * draft token count only if that draft token is the sampled token, so they are the logits of plain decoding.
 * Model and scheduler learn the sampled tokens before sequences end. Nothing here allocates: the plan has
 * taken pages and states, sequences and logits lie in the engine's arena, samplers and tokens in the jobs'
 * blocks. A step that fails ends its sequences and no others; a device that fails ends the engine
 * (engine_fail). Nothing of such a step joins the prefix cache: to the scheduler it was not computed. */
#include "engine/engine_state.h"
#include "engine/stop_match.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/page_tokens.h"
#include "cache/prefix_index.h"
#include "model/model.h"
#include "sched/sched.h"
#include "spec/ngram.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- before ---- */

/* Does more than the logits decide the next token? */
static bool is_bound(const struct job *j)
{
    return j->matcher || engine_think_is_on(&j->think);
}

/* Are drafts accepted without verification? Not where logprobs are requested, or where min_tokens might
 * forbid an end. */
static bool is_blind(const struct engine *en, const struct job *j)
{
    return en->opts.drafting.optimistic && !j->logprobs && !is_bound(j) && j->output_count >= j->min_tokens;
}

/* The first token of the chunk that needs logits. */
static uint32_t logits_from(const struct engine *en, const struct job *j, const struct sched_step_seq *r)
{
    ASSERT(r->count > 0);
    uint32_t last = r->samples ? r->count - 1 : r->count;
    if (r->drafts > 0)
        return is_blind(en, j) ? last : 0;
    if (job_pools_all(j))
        return 0;
    if (!job_wants_prompt_logits(j))
        return last;
    /* Token i's logits predict token i + 1; no logits predict the prompt's first token. */
    uint32_t next = MAX_OF(j->prompt_sent, 1u) - 1;
    return next > r->from ? MIN_OF(next - r->from, last) : 0;
}

/* Returns the cache's record of the first page that was not found. */
static struct stream_lost find_lost(const struct engine *en, const struct job *j)
{
    uint32_t found = j->seq.cached / PAGE_TOKENS, count = j->prompt_count / PAGE_TOKENS;
    if (!j->keys || !en->pools.index || found >= count)
        return (struct stream_lost){.cause = PREFIX_LOSS_NONE};
    struct prefix_loss l = prefix_index_loss(en->pools.index, j->keys + found, count - found);
    return (struct stream_lost){.cause = l.cause, .whom = l.whom, .at_ns = l.at_ns};
}

static void note_admitted(struct engine *en, const struct sched_plan *plan, uint64_t now_ns)
{
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        struct job *j = job_of(plan->seqs[i].seq);
        if (j->admitted_ns > 0)
            continue;
        j->admitted_ns = now_ns;
        j->lost = find_lost(en, j);
        stream_admit(j->stream,
                     &(struct stream_admission){.cached_tokens = j->seq.cached,
                                                .pinned_tokens = j->seq.fetched_pinned,
                                                .ssd_tokens = j->seq.fetched - j->seq.fetched_pinned,
                                                .written_tokens = job_written_tokens(j),
                                                .lost = j->lost,
                                                .queued_ns = now_ns - j->arrival_ns,
                                                .admitted_ns = now_ns});
        stream_wake(j->stream); /* its reply begins before the first token */
    }
}

static void fill_seqs(struct engine *en, const struct sched_plan *plan)
{
    ASSERT(plan->seq_count <= en->opts.max_num_seqs);
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        struct job *j = job_of(r->seq);
        en->seqs[i] = (struct model_seq){
            .tokens = j->tokens + r->from,
            .token_count = r->count,
            .position = r->from,
            .second = j->second,
            .state_in = r->state_in,
            .pending = pools_pending(&en->pools, r->state_in),
            .state_out = r->state_out,
            .logits_from = logits_from(en, j, r),
            .values = j->output == JOB_VECTOR,
            .keep_pending = r->drafts > 0,
            .grids = j->grids,
            .grid_count = j->image_count,
        };
        sched_tables(r->seq, en->seqs[i].pages);
    }
}

static void begin_forward(struct engine *en)
{
    ASSERT(!en->pass.begun);
    const struct sched_plan *plan = &en->pass.plan;
    struct model_step step = {
        .seqs = en->seqs,
        .seq_count = plan->seq_count,
        .states = en->pools.state_base,
        .beside_shards = en->pools.beside_count > 0 ? en->pools.beside_bases : NULL,
        .logits = en->logits,
        .values = en->values,
        /* A step of one sequence may stop between two layers; with more, the other sequences need it. */
        .cancel = plan->seq_count == 1 ? stream_closed_flag(job_of(plan->seqs[0].seq)->stream) : NULL,
        .stop = &en->closing,
        .progress_ns = &en->progress_ns,
        .beside = engine_masks_begin(en, plan),
    };
    memcpy(step.pages, en->pools.page_base, sizeof(step.pages));
    engine_samples_begin(en, plan, &step);
    model_step_begin(en->opts.model, &step);
    en->pass.begun = true;
}

/* After such a failure of a step the next one can be computed. */
static bool can_go_on(int error)
{
    return error == -ECANCELED || error == -ENOMEM;
}

/* The turn is for what the workers of the process compute: on the CPU all of it. A device of its own computes
 * on when the turn has ended. */
static void begin_compute(struct engine *en)
{
    const struct engine_faults *faults = en->opts.faults;
    struct engine_pass *p = &en->pass;
    p->error = faults && faults->step ? faults->step(faults->arg) : 0;
    if (p->error != 0)
        return;
    uint64_t asked_ns = clock_now_ns();
    device_work_begin(en->opts.device);
    device_turn_begin(en->opts.device);
    /* Another model's step is not part of this one: counted, it would make the budget smaller and smaller. */
    p->began_ns += clock_now_ns() - asked_ns;
    p->error = engine_draft(en, &p->plan);
    p->drafted_ns = clock_now_ns();
    if (p->error == 0)
        begin_forward(en);
    device_turn_end(en->opts.device);
    if (!p->begun)
        device_work_end(en->opts.device);
    if (p->error < 0 && !can_go_on(p->error))
        engine_fail(en, p->error);
}

static int end_compute(struct engine *en)
{
    const struct engine_faults *faults = en->opts.faults;
    struct engine_pass *p = &en->pass;
    if (!p->begun)
        return p->error;
    int r = model_step_end(en->opts.model);
    if (r == 0)
        r = engine_samples_end(en);
    device_work_end(en->opts.device);
    if (r == 0 && faults && faults->step_end)
        r = faults->step_end(faults->arg);
    if (r < 0 && !can_go_on(r))
        engine_fail(en, r);
    return r;
}

/* ---- after ---- */

static void put_prompt_token(struct job *j, uint32_t index, const struct sampled *s)
{
    struct stream_token t = {.id = j->tokens[index], .logprob = s ? s->logprob : NAN};
    if (s) {
        t.top_count = s->top_count;
        memcpy(t.top, s->top, s->top_count * sizeof(t.top[0]));
    }
    ASSERT(index == j->prompt_sent);
    job_put_prompt(j, &t);
    j->prompt_sent++;
}

/* Logprobs of the prompt's tokens that this chunk's logits predict. */
static void send_prompt(struct engine *en, struct job *j, const struct sched_step_seq *r, const float *logits)
{
    ASSERT(job_wants_prompt_logits(j));
    uint32_t from = r->from + logits_from(en, j, r);
    if (j->prompt_sent == 0)
        put_prompt_token(j, 0, NULL);
    for (uint32_t i = from; i < r->from + r->count && i + 1 < j->prompt_count; i++) {
        struct sampled s;
        sampler_logprobs(logits + (size_t)(i - from) * en->shape->vocab, en->shape->vocab, en->valid_ids,
                         j->tokens[i + 1], j->top, &s);
        put_prompt_token(j, i + 1, &s);
    }
    j->seq.logits_all = job_wants_prompt_logits(j);
}

/* Marks the end of the job; it ends when the scheduler has taken the step's results. */
static void end_with(struct job *j, enum finish_reason why)
{
    ASSERT(!j->ends);
    j->ends = true;
    j->finish.reason = why;
}

static void end_with_token(struct job *j, const struct sampled *s, bool by_string, const struct stop_hit *hit)
{
    if (s->stop) {
        j->finish.stop_token = s->id;
        end_with(j, FINISH_STOP);
    } else if (by_string) {
        j->finish.stopped_by_string = true;
        j->finish.stop_index = hit->index;
        j->finish.text_bytes = hit->text_bytes;
        end_with(j, FINISH_STOP);
    } else if (j->output_count == j->max_tokens) {
        end_with(j, FINISH_LENGTH);
    }
}

static void note_first_token(struct engine *en, struct job *j, uint64_t now_ns)
{
    if (j->first_token_ns != 0)
        return;
    j->first_token_ns = now_ns;
    stream_note_first_token(j->stream, now_ns);
    ASSERT(j->seq.fetched >= j->seq.fetched_pinned);
    en->now.prompt_tokens += j->prompt_count;
    en->now.cached_tokens += j->seq.cached;
    en->now.fetched_tokens += j->seq.fetched - j->seq.fetched_pinned;
    en->now.fetched_hits += j->seq.fetched > j->seq.fetched_pinned;
    en->now.pinned_tokens += j->seq.fetched_pinned;
    en->now.pinned_hits += j->seq.fetched_pinned > 0;
}

/* A loop at the end of the output ends the reasoning or the reply. */
static void look_for_loop(struct engine *en, struct job *j)
{
    uint32_t count = j->output_count,
             pattern = repetition_see(&j->repetition, j->tokens + j->prompt_count, count);
    if (pattern == 0 || j->ends || count < j->min_tokens)
        return;
    bool reasoning = j->repetition.params.ends_reasoning && engine_think_reasons(&j->think);
    char id[33];
    request_id_text(stream_id(j->stream), id);
    LOG_INFO("repetition_found", "id=%s model=%s pattern_tokens=%u tokens=%u ended=%s", id, en->name, pattern,
             count, reasoning ? "reasoning" : "reply");
    if (!reasoning) {
        end_with(j, FINISH_REPETITION);
        return;
    }
    j->finish.reasoning_loops++;
    engine_think_close(&j->think);
    repetition_restart(&j->repetition, count);
}

/* The sequence's next token is known. */
static void put_token(struct engine *en, struct job *j, const struct sampled *s, uint64_t now_ns)
{
    struct stop_hit hit;
    uint32_t position = j->prompt_count + j->output_count;
    ASSERT(position < j->seq.tokens_limit);
    sampler_see_output(j->sampler, s->id);
    j->tokens[position] = s->id;
    j->output_count++;
    job_add_keys(j, position + 1);
    if (j->draft.ngram)
        ngram_see(j->draft.ngram, j->tokens, position + 1);
    en->now.completion_tokens++;
    note_first_token(en, j, now_ns);
    struct stream_token t = {.id = s->id};
    if (j->logprobs) {
        t.logprob = s->logprob;
        t.top_count = s->top_count;
        memcpy(t.top, s->top, s->top_count * sizeof(t.top[0]));
    }
    bool by_string = job_put(j, &t, s->stop, &en->text, &hit);
    end_with_token(j, s, by_string, &hit);
    engine_think_take(&j->think, s->id);
    if (!j->ends)
        engine_mask_take(j, s->id);
    look_for_loop(en, j);
}

/* A token that the budget of reasoning forces, or one that the grammar allows after `accepted` draft tokens,
 * from this row of engine_rows. False: the job ends without a token. */
static bool sample(struct engine *en, struct job *j, uint32_t accepted, uint32_t row, struct sampled *ret)
{
    uint32_t forced = engine_think_forced(&j->think);
    if (forced == ENGINE_THINK_NONE)
        return engine_mask_sample(en, j, accepted, row, ret);
    sampler_allow(j->sampler, NULL);
    return sampler_keep(j->sampler, en->rows.list[row].logits.logits, en->shape->vocab, en->valid_ids, forced,
                        MAX_OF(j->output_count, j->min_tokens), ret);
}

/* Samples after the known token and after each draft token that equals the token sampled before it. Returns
 * the number of tokens. */
static uint32_t sample_run(struct engine *en, struct job *j, uint32_t index, uint32_t planned,
                           uint64_t now_ns)
{
    uint32_t drafts = en->drafting.rows[index].computed, sampled = 0, accepted = 0;
    const uint32_t *next = j->tokens + j->prompt_count + j->output_count;
    while (!j->ends && sampled == accepted) {
        struct sampled s;
        uint32_t draft = accepted < drafts ? *next++ : UINT32_MAX;
        if (!sample(en, j, sampled, en->rows.first[index] + sampled, &s))
            break;
        put_token(en, j, &s, now_ns);
        sampled++;
        accepted += s.id == draft;
    }
    ASSERT(accepted <= drafts && accepted <= sampled);
    drafting_count(&en->drafting, index, planned, accepted, sampled == accepted,
                   j->seq.phase == SCHED_DECODING);
    /* The scheduler expects a token of each sequence, also of one that goes without. */
    return MAX_OF(sampled, 1u);
}

/* Accepts every valid draft token as the token. If the sequence is_blind(), it has the last row alone. */
static uint32_t keep_run(struct engine *en, struct job *j, uint32_t index, uint64_t now_ns)
{
    uint32_t drafts = en->drafting.rows[index].computed, sampled = 0, accepted = 0;
    bool blind = is_blind(en, j), kept = true;
    for (; !j->ends && kept; sampled++) {
        struct sampled s;
        uint32_t row = en->rows.first[index] + (blind ? 0 : sampled);
        kept = sampled < drafts &&
               sampler_keep(j->sampler, blind ? NULL : en->rows.list[row].logits.logits, en->shape->vocab,
                            en->valid_ids, j->tokens[j->prompt_count + j->output_count], j->output_count, &s);
        accepted += kept;
        if (!kept && !sample(en, j, 0, row, &s))
            break;
        put_token(en, j, &s, now_ns);
    }
    ASSERT(accepted <= drafts && accepted <= sampled);
    drafting_count(&en->drafting, index, drafts, accepted, kept, j->seq.phase == SCHED_DECODING);
    return MAX_OF(sampled, 1u);
}

static void pool_vector(struct engine *en, const struct job *j, float *vector)
{
    ASSERT(j->output == JOB_VECTOR);
    pooling_end(j->pooling, vector, en->shape->hidden, j->prompt_count);
    model_finish_vector(en->opts.model, vector);
}

/* A job without tokens: takes the chunk's rows of values, or the last row of logits. After the prompt's last
 * chunk its result is complete. */
static void take_values(struct engine *en, struct job *j, const struct sched_step_seq *r, const float *rows,
                        uint32_t count, uint64_t now_ns)
{
    uint32_t width = en->shape->hidden, room;
    float *result = stream_result(j->stream, &room);
    ASSERT(room >= (j->output == JOB_VECTOR ? width : JOB_LOGIT_IDS));
    if (j->output == JOB_VECTOR && count > 0)
        pooling_take(j->pooling, result, width, rows, r->from + r->count - count, count);
    if (!r->samples)
        return;
    for (uint32_t i = 0; j->output == JOB_LOGITS && i < JOB_LOGIT_IDS; i++)
        result[i] = rows[j->logit_ids[i]];
    if (j->output == JOB_VECTOR)
        pool_vector(en, j, result);
    note_first_token(en, j, now_ns);
    end_with(j, FINISH_STOP);
}

static void take_results(struct engine *en, const struct sched_plan *plan, uint64_t now_ns)
{
    const float *values = en->values;
    engine_rows_ready(en, plan);
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        struct job *j = job_of(r->seq);
        uint32_t count = en->seqs[i].token_count - en->seqs[i].logits_from;
        bool pools = j->output == JOB_VECTOR;
        en->sampled[i] = 0;
        if (j->output != JOB_TOKENS) {
            take_values(en, j, r, pools ? values : en->rows.begin[i], count, now_ns);
            values += pools ? (size_t)count * en->shape->hidden : 0;
            continue;
        }
        if (job_wants_prompt_logits(j))
            send_prompt(en, j, r, en->rows.begin[i]);
        if (r->samples && r->drafts > 0 && en->opts.drafting.optimistic && !is_bound(j))
            en->sampled[i] = keep_run(en, j, i, now_ns);
        else if (r->samples)
            en->sampled[i] = sample_run(en, j, i, r->drafts, now_ns);
    }
}

/* Marks, among the tokens that a sequence's state keeps pending, the sampled ones as accepted. */
static void accept(struct engine *en, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->seq_count && en->pools.states; i++) {
        const struct model_seq *seq = &en->seqs[i];
        uint32_t count = seq->keep_pending ? en->sampled[i] : 0;
        ASSERT(!seq->keep_pending || (count > 0 && count <= seq->token_count));
        en->pools.pending[seq->state_out] = count;
    }
}

/* Ends the jobs whose last token was sampled in this step. */
static void end_seqs(struct engine *en, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        struct job *j = job_of(plan->seqs[i].seq);
        if (j->ends)
            engine_end_job(en, j, j->finish.reason);
    }
}

static void fail_seqs(struct engine *en, const struct sched_plan *plan, int r)
{
    ASSERT(r < 0);
    if (r != -ECANCELED) {
        en->now.step_errors++;
        LOG_ERROR("step_failed", "model=%s seqs=%u tokens=%u error=\"%s\"", en->name, plan->seq_count,
                  plan->tokens, strerrordesc_np(-r) ? strerrordesc_np(-r) : "unknown");
    }
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        struct job *j = job_of(plan->seqs[i].seq);
        if (r == -ECANCELED)
            engine_end_job(en, j, stream_closed(j->stream) ? FINISH_ABORTED : FINISH_SHUTDOWN);
        else if (engine_failure(en) != 0)
            engine_fail_with_device(en, j);
        else
            engine_fail_job(en, j, "The model could not compute this request's next step (error %d).", -r);
    }
}

/* The device had no memory for the step. The scheduler has preempted its sequences. */
static void count_refused(struct engine *en, const struct sched_plan *plan)
{
    en->now.step_errors++;
    LOG_WARN("step_refused", "model=%s seqs=%u tokens=%u reason=\"no memory on the device\"", en->name,
             plan->seq_count, plan->tokens);
}

static void take_ended(struct engine *en)
{
    struct sched_seq *seq;
    while ((seq = sched_take_ended(en->sched)) != NULL) {
        struct job *j = job_of(seq);
        if (seq->end == SCHED_END_TIMEOUT) {
            engine_end_job(en, j, FINISH_QUEUE_TIMEOUT);
        } else if (seq->end == SCHED_END_TAKEN) {
            engine_end_taken(en, j);
        } else {
            engine_fail_job(en, j,
                            "There is no memory for the KV cache of more than the %u tokens that this "
                            "request has so far.",
                            seq->tokens);
        }
    }
}

static void count_step(struct engine *en, uint64_t began_ns, uint64_t now_ns)
{
    ASSERT(now_ns >= began_ns);
    en->now.steps++;
    en->now.last_step_ns = now_ns - began_ns;
    en->steps_ns += now_ns - began_ns;
}

static uint32_t count_planned_decoding(const struct sched_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->seq_count; i++)
        n += plan->seqs[i].seq->phase == SCHED_DECODING;
    return n;
}

static void measure(struct engine *en, const struct sched_plan *plan, uint32_t decoding, uint64_t began_ns,
                    uint64_t drafted_ns)
{
    uint64_t now_ns = clock_now_ns();
    ASSERT(plan->tokens >= decoding + en->drafting.planned);
    uint32_t prompt_tokens = plan->tokens - decoding - en->drafting.planned;
    budget_measure(&en->budget, decoding + en->drafting.computed, prompt_tokens, now_ns - began_ns);
    drafting_measure(&en->drafting, plan->tokens, decoding, now_ns - drafted_ns);
}

/* The part of --step-ms that the grammars of one step may take. */
#define MATCH_PART 4

static void set_events(struct engine *en, uint64_t now_ns, struct sched_events *ret)
{
    const struct budget *b = &en->budget;
    struct sched_load waiting;
    sched_load(en->sched, &waiting);
    struct budget_load load = {.seq_tokens = waiting.decoding + engine_draft_allow(en),
                               .prompts = waiting.prompts};
    uint64_t shared_ns = budget_shared_ns(b, atomic_load(&en->live->step_ns), &load);
    /* Another model waits for a step as other sequences do. */
    uint64_t alone_ns = device_is_shared(en->opts.device) ? shared_ns : en->opts.step_alone_ns;
    *ret = (struct sched_events){
        .now_ns = now_ns,
        .tokens_shared = budget_tokens(b, shared_ns, load.seq_tokens),
        .tokens_alone = budget_tokens(b, alone_ns, load.seq_tokens),
        .prompt_token_ns = b->prompt_ns,
        .match_ns_max = atomic_load(&en->live->step_ns) / MATCH_PART,
    };
}

/* Memory that other programs have, or have given back. */
static void note_taken(struct engine *en)
{
    struct sched_numbers n;
    sched_numbers(en->sched, &n);
    uint64_t images_ns = en->image_sched.taken_ns;
    uint64_t taken_ns =
        n.taken_ns > 0 && images_ns > 0 ? MIN_OF(n.taken_ns, images_ns) : n.taken_ns + images_ns;
    uint64_t before = atomic_exchange(&en->taken_ns, taken_ns);
    char text[320];
    if (before == 0 && taken_ns > 0) {
        engine_say_taken(en, text, sizeof(text));
        LOG_WARN("memory_taken", "model=%s reason=\"%s\"", en->name, text);
    } else if (before > 0 && taken_ns == 0) {
        LOG_INFO("memory_is_back", "model=%s ms=%llu", en->name,
                 (ull)((clock_now_ns() - before) / NS_PER_MS));
    }
}

bool engine_step_begin(struct engine *en)
{
    struct engine_pass *p = &en->pass;
    uint64_t now_ns = clock_now_ns();
    struct sched_events ev;
    *p = (struct engine_pass){.began_ns = now_ns, .drafted_ns = now_ns};
    set_events(en, now_ns, &ev);
    pools_clock(&en->pools, now_ns);
    sched_set_queue_timeout(en->sched, atomic_load(&en->live->queue_timeout_ns));
    image_sched_update(&en->image_sched);
    sched_plan(en->sched, &ev, &p->plan);
    /* The images of a just admitted sequence may lie before its position, or be encoded already. */
    if (p->plan.seq_count == 0 && image_sched_update(&en->image_sched))
        sched_plan(en->sched, &ev, &p->plan);
    take_ended(en);
    note_taken(en);
    if (p->plan.seq_count == 0)
        return false;
    trim_call_off(&en->trim);
    note_admitted(en, &p->plan, now_ns);
    fill_seqs(en, &p->plan);
    publish_step(&en->publish, &p->plan);
    atomic_store(&en->progress_ns, now_ns);
    begin_compute(en);
    return true;
}

void engine_step_end(struct engine *en)
{
    const struct engine_pass *p = &en->pass;
    const struct sched_plan *plan = &p->plan;
    ASSERT(plan->seq_count > 0);
    if (p->begun) {
        engine_masks_end(en);
        engine_samples_order(en, plan);
    }
    int r = end_compute(en);
    uint64_t now_ns = clock_now_ns();
    uint32_t decoding = count_planned_decoding(plan);
    if (r == 0) {
        take_results(en, plan, now_ns);
        accept(en, plan);
    }
    sched_done(en->sched, &(struct sched_results){now_ns, r == 0, en->sampled, r == -ENOMEM});
    if (r == 0)
        end_seqs(en, plan);
    else if (r == -ENOMEM)
        count_refused(en, plan);
    else
        fail_seqs(en, plan, r);
    /* A step that was cut short does not measure the cost of tokens. */
    if (r == 0) {
        measure(en, plan, decoding, p->began_ns, p->drafted_ns);
        image_sched_note_step(&en->image_sched, plan, clock_now_ns() - p->began_ns);
    }
    count_step(en, p->began_ns, clock_now_ns());
}
