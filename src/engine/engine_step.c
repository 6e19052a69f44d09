/* engine_step.c - one step: plan, forward pass, a token for each row that draws.
 *
 * Nothing here allocates: the plan has taken pages and slots, rows and logits lie in the engine's arena, samplers and
 * tokens in the jobs' blocks. A step that fails ends the rows it had and no others. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static struct job *job_of(struct sched_row *row)
{
    return CONTAINER(row, struct job, row);
}

/* ---- before ---- */

static uint32_t count_decoding(const struct engine *en)
{
    uint32_t n = 0;
    for (const struct list *it = en->jobs.next; it != &en->jobs; it = it->next) {
        const struct job *j = LIST_ENTRY(it, const struct job, link);
        n += j->row.phase == SCHED_DECODING && !j->row.paused;
    }
    return n;
}

/* The first token of the chunk whose logits are wanted. */
static uint32_t logits_from(const struct job *j, const struct sched_step_row *r)
{
    uint32_t last = r->draws ? r->count - 1 : r->count;
    if (!job_wants_prompt_logits(j))
        return last;
    /* Token i's logits are about token i + 1; the first of the prompt is about nothing. */
    uint32_t next = MAX_OF(j->prompt_sent, 1u) - 1;
    return next > r->from ? MIN_OF(next - r->from, last) : 0;
}

static void fill_rows(struct engine *en, const struct sched_plan *plan, uint64_t now_ns)
{
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_step_row *r = &plan->rows[i];
        struct job *j = job_of(r->row);
        if (j->admitted_ns == 0)
            j->admitted_ns = now_ns;
        en->rows[i] = (struct model_row){
            .tokens = j->tokens + r->from,
            .token_count = r->count,
            .position = r->from,
            .pages = r->row->pages[0], /* every model has one group so far */
            .slot_in = r->slot_in,
            .slot_out = r->slot_out,
            .logits_from = logits_from(j, r),
        };
    }
}

static int compute(struct engine *en, const struct sched_plan *plan)
{
    const struct engine_faults *faults = en->opts.faults;
    struct model_step step = {
        .rows = en->rows,
        .row_count = plan->row_count,
        .pages = page_pool_base(en->pools.pages),
        .slots = en->pools.slots ? slot_pool_base(en->pools.slots) : NULL,
        .logits = en->logits,
        /* A step of one row may stop between two layers; with more, the others want it. */
        .cancel = plan->row_count == 1 ? stream_closed_flag(job_of(plan->rows[0].row)->stream) : NULL,
        .stop = &en->closing,
        .progress_ns = &en->progress_ns,
    };
    int r = faults && faults->step ? faults->step(faults->arg) : 0;
    if (r != 0)
        return r;
    workers_turn_begin(en->opts.workers);
    r = model_forward(en->opts.model, &step);
    workers_turn_end(en->opts.workers);
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

/* Logprobs of the prompt's tokens that this chunk's logits are about. */
static void send_prompt(struct engine *en, struct job *j, const struct sched_step_row *r, const float *logits)
{
    uint32_t from = r->from + logits_from(j, r);
    if (j->prompt_sent == 0)
        put_prompt_token(j, 0, NULL);
    for (uint32_t i = from; i < r->from + r->count && i + 1 < j->prompt_count; i++) {
        struct sampled s;
        sampler_logprobs(logits + (size_t)(i - from) * en->shape->vocab, en->shape->vocab, en->exists,
                         j->tokens[i + 1], j->top, &s);
        put_prompt_token(j, i + 1, &s);
    }
    j->row.logits_all = job_wants_prompt_logits(j);
}

static void end_with_token(struct engine *en, struct job *j, const struct sampled *s, bool by_string,
                           const struct stop_hit *hit)
{
    if (s->stop) {
        j->finish.stop_token = s->id;
        engine_end_job(en, j, FINISH_STOP);
    } else if (by_string) {
        j->finish.stopped_by_string = true;
        j->finish.stop_index = hit->index;
        j->finish.text_bytes = hit->text_bytes;
        engine_end_job(en, j, FINISH_STOP);
    } else if (j->output_count == j->max_tokens) {
        engine_end_job(en, j, FINISH_LENGTH);
    }
}

static void draw(struct engine *en, struct job *j, float *logits, uint64_t now_ns)
{
    struct sampled s;
    struct stop_hit hit;
    uint32_t position = j->prompt_count + j->output_count;
    sampler_draw(j->sampler, en->scratch, logits, en->shape->vocab, en->exists, position, j->output_count,
                 &s);
    sampler_see_output(j->sampler, s.id);
    j->tokens[position] = s.id;
    j->output_count++;
    job_add_keys(j, en->hasher, position + 1);
    en->now.completion_tokens++;
    if (j->first_token_ns == 0) {
        j->first_token_ns = now_ns;
        en->now.prompt_tokens += j->prompt_count;
        en->now.cached_tokens += j->row.cached;
        en->now.fetched_tokens += j->row.fetched;
        en->now.fetched_hits += j->row.fetched > 0;
    }
    struct stream_token t = {.id = s.id};
    if (j->logprobs) {
        t.logprob = s.logprob;
        t.top_count = s.top_count;
        memcpy(t.top, s.top, s.top_count * sizeof(t.top[0]));
    }
    bool by_string = job_put(j, &t, s.stop, &en->text, &hit);
    end_with_token(en, j, &s, by_string, &hit);
}

static void take_results(struct engine *en, const struct sched_plan *plan, uint64_t now_ns)
{
    float *logits = en->logits;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_step_row *r = &plan->rows[i];
        struct job *j = job_of(r->row);
        uint32_t count = r->count - en->rows[i].logits_from;
        float *last = logits + (size_t)(count - 1) * en->shape->vocab;
        if (job_wants_prompt_logits(j))
            send_prompt(en, j, r, logits);
        logits += (size_t)count * en->shape->vocab;
        if (r->draws)
            draw(en, j, last, now_ns);
    }
}

static void fail_rows(struct engine *en, const struct sched_plan *plan, int r)
{
    if (r != -ECANCELED) {
        en->now.step_errors++;
        LOG_ERROR("step_failed", "model=%s rows=%u tokens=%u error=\"%s\"", en->name, plan->row_count,
                  plan->tokens, strerrordesc_np(-r) ? strerrordesc_np(-r) : "unknown");
    }
    for (uint32_t i = 0; i < plan->row_count; i++) {
        struct job *j = job_of(plan->rows[i].row);
        if (r == -ECANCELED)
            engine_end_job(en, j, stream_closed(j->stream) ? FINISH_ABORTED : FINISH_SHUTDOWN);
        else
            engine_fail_job(en, j, "The model could not compute this request's next step (error %d).", -r);
    }
}

static void take_ended(struct engine *en)
{
    struct sched_row *row;
    while ((row = sched_take_ended(en->sched)) != NULL) {
        struct job *j = job_of(row);
        if (row->end == SCHED_END_TIMEOUT)
            engine_end_job(en, j, FINISH_QUEUE_TIMEOUT);
        else
            engine_fail_job(en, j,
                            "There is no memory for more than the %u tokens that this request has so far.",
                            row->tokens);
    }
}

static void count_step(struct engine *en, uint64_t began_ns, uint64_t now_ns)
{
    en->now.steps++;
    en->now.last_step_ns = now_ns - began_ns;
    en->now.busy_ns += now_ns - began_ns;
}

bool engine_step(struct engine *en)
{
    uint64_t began_ns = clock_now_ns();
    uint32_t decoding = count_decoding(en);
    struct sched_events ev = {
        .now_ns = began_ns,
        .tokens_shared = budget_tokens(&en->budget, atomic_load(&en->live->step_ns), decoding),
        .tokens_alone = budget_tokens(&en->budget, en->opts.step_alone_ns, decoding),
        .prompt_token_ns = en->budget.prompt_ns,
    };
    struct sched_plan plan;
    pools_clock(&en->pools, began_ns);
    sched_set_queue_timeout(en->sched, atomic_load(&en->live->queue_timeout_ns));
    sched_plan(en->sched, &ev, &plan);
    take_ended(en);
    if (plan.row_count == 0)
        return false;
    trim_call_off(en);
    fill_rows(en, &plan, began_ns);
    engine_publish_step(en, &plan);
    atomic_store(&en->progress_ns, began_ns);
    int r = compute(en, &plan);
    uint64_t now_ns = clock_now_ns();
    decoding = 0;
    for (uint32_t i = 0; i < plan.row_count; i++)
        decoding += plan.rows[i].row->phase == SCHED_DECODING;
    sched_done(en->sched, &(struct sched_results){now_ns, r == 0});
    if (r == 0)
        take_results(en, &plan, now_ns);
    else
        fail_rows(en, &plan, r);
    /* One that was cut short says nothing about what tokens cost. */
    if (r == 0)
        budget_measure(&en->budget, decoding, plan.tokens - decoding, clock_now_ns() - began_ns);
    count_step(en, began_ns, clock_now_ns());
    return true;
}
