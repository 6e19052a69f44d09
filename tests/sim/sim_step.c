/* sim_step.c - one step: plan, "compute", done, and the invariants of each.
 *
 * Pages and states hold stamps. A sequence continues from the stamps it reads and from nothing else, so its
 * writes and samples are right only if all its input is. */
#include "base/none.h"
#include "cache/page_pool.h"
#include "cache/tier_io.h"
#include "sim.h"

#define STEP_BASE_NS  1000000ull
#define STEP_TOKEN_NS 30000ull
#define IDLE_NS       5000000ull

static struct request *request_of(struct sched_seq *seq)
{
    return CONTAINER(seq, struct request, seq);
}

static void take_ended(struct world *w)
{
    struct sched_seq *seq;
    while ((seq = sched_take_ended(w->sched)) != NULL) {
        struct request *q = request_of(seq);
        ASSERT(seq->end == SCHED_END_NO_MEMORY || w->now_ns - seq->arrival_ns >= w->opts.queue_timeout_ns);
        finish(w, q, seq->end == SCHED_END_TIMEOUT ? TIMEOUT : NO_MEMORY);
    }
}

/* ---- computing ---- */

/* Reads all pages in the window of a token at `from`; returns the state after the last of them. */
static uint64_t read_pages(struct world *w, const struct request *q, uint32_t group, uint32_t from)
{
    const struct page_group *g = &w->opts.groups[group];
    uint64_t state = q->state[0];
    uint32_t first = page_group_first(g, from);
    /* No token before page `first` is in the window, and some token of that page is. */
    ASSERT(g->window == 0 || first == 0 || first * PAGE_TOKENS + g->window <= from + 1);
    ASSERT(g->window == 0 || (first + 1) * PAGE_TOKENS + g->window > from + 1);
    for (uint32_t i = 0; i < first; i++)
        ASSERT(q->seq.pages[group][i] == NONE);
    for (uint32_t i = first; i < DIV_UP(from, PAGE_TOKENS); i++) {
        const struct stamp s = page_stamp(w, group, q->seq.pages[group][i]);
        uint32_t tokens = MIN_OF((i + 1) * PAGE_TOKENS, from);
        /* A copy of the last page has all of its tokens; the last one is computed again. */
        bool copied = from + 1 == q->seq.tokens && s.tokens == from + 1;
        ASSERT((s.tokens == tokens || copied) && s.state == q->state[s.tokens]);
        state = q->state[tokens];
        sim.copied += copied;
    }
    sim.left_behind += first > 0;
    return state;
}

static void write_page(struct world *w, const struct request *q, uint32_t page_index, struct stamp stamp)
{
    for (uint32_t g = 0; g < w->opts.group_count; g++) {
        uint32_t page = q->seq.pages[g][page_index];
        /* A page with other readers is never written. */
        ASSERT(page_pool_refs(w->opts.groups[g].pages, page) == 1);
        stamp_page(w, g, page, stamp);
    }
}

static uint64_t read_state(struct world *w, const struct request *q, uint32_t state, uint32_t from)
{
    if (state == NONE) {
        ASSERT(from == 0);
        return q->state[0];
    }
    const struct stamp s = state_stamp(w, state);
    ASSERT(s.tokens == from && s.state == q->state[from]);
    return s.state;
}

/* `drafted`: accepted draft tokens; writes of the others are overwritten before any read. Returns the state
 * after the last accepted token. A step that fails writes garbage. */
static uint64_t compute_seq(struct world *w, const struct sched_step_seq *r, uint32_t drafted, bool lost)
{
    struct request *q = request_of(r->seq);
    uint64_t state = read_pages(w, q, 0, r->from), known_state = 0;
    for (uint32_t g = 1; g < w->opts.group_count; g++)
        read_pages(w, q, g, r->from);
    if (w->opts.states)
        state = read_state(w, q, r->state_in, r->from);
    uint32_t known = r->from + r->count - r->drafts, to = known + drafted;
    for (uint32_t i = r->from + 1; i <= to; i++) {
        state = rng_at(state, i <= known ? q->token[i] : output_of(q, state));
        if (i == known)
            known_state = state;
        if (i % PAGE_TOKENS == 0 || i == to)
            write_page(w, q, (i - 1) / PAGE_TOKENS, lost ? (struct stamp){0} : (struct stamp){state, i});
    }
    if (w->opts.states)
        stamp_state(w, r->state_out, lost ? (struct stamp){0} : (struct stamp){state, to});
    sim.boundaries_drafted += drafted > 0 && to % PAGE_TOKENS == 0;
    return known_state;
}

/* ---- invariants of a plan ---- */

static bool waits(const struct sched_seq *seq)
{
    return seq->ready > 0 && seq->done >= seq->ready;
}

/* The sequence that must always make progress. */
static struct request *oldest_active(struct world *w)
{
    struct request *best = NULL;
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *q = &w->requests[i];
        if (!q->live || !is_placed(&q->seq) || q->seq.paused)
            continue;
        if (!best || q->seq.rank < best->seq.rank ||
            (q->seq.rank == best->seq.rank && q->seq.order < best->seq.order))
            best = q;
    }
    return best;
}

/* It keeps its place unless it was alone without memory; and while it decodes, it is in each step. */
static void check_oldest(const struct request *q, const struct sched_plan *plan)
{
    bool planned = false;
    if (!q || (q->seq.phase == SCHED_ENDED && q->seq.end == SCHED_END_NO_MEMORY))
        return;
    for (uint32_t i = 0; i < plan->seq_count; i++)
        planned |= plan->seqs[i].seq == &q->seq;
    ASSERT(is_placed(&q->seq));
    ASSERT(planned || q->seq.phase == SCHED_PREFILLING || waits(&q->seq));
}

static void check_chunk(const struct world *w, const struct sched_step_seq *r, uint32_t tokens_left)
{
    const struct sched_seq *seq = r->seq;
    bool rest = r->from + r->count - r->drafts == seq->tokens;
    ASSERT(r->count > 0 && r->count <= tokens_left && r->samples == rest);
    ASSERT(r->drafts <= seq->drafts && (r->drafts == 0 || seq->phase == SCHED_DECODING));
    ASSERT(r->drafts == 0 || r->from / PAGE_TOKENS == (r->from + r->count - 1) / PAGE_TOKENS);
    ASSERT(seq->tokens + r->drafts < seq->tokens_limit);
    bool all = seq->ready > 0 && r->from + r->count == seq->ready;
    ASSERT(seq->ready == 0 || r->from + r->count <= seq->ready);
    if (seq->phase == SCHED_DECODING)
        ASSERT(r->count == 1 + r->drafts && rest);
    else if (seq->logits_all)
        ASSERT(r->count <= w->opts.logits_chunk_max);
    else
        ASSERT(rest || all || (r->from + r->count) % PAGE_TOKENS == 0);
    sim.ends_ready += all && !rest && seq->ready % PAGE_TOKENS != 0;
    ASSERT(seq->page_count * PAGE_TOKENS >= r->from + r->count);
    ASSERT(!w->opts.states || seq->state != NONE);
}

/* An empty plan means no sequence could run: no busy loop, and no sleep while there is work. */
static void check_empty(const struct world *w)
{
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        const struct sched_seq *seq = &w->requests[i].seq;
        if (w->requests[i].live && is_placed(seq) && !seq->paused)
            ASSERT(waits(seq) || seq->done == seq->page_count * PAGE_TOKENS);
    }
}

static void check_plan(struct world *w, const struct sched_plan *plan, uint32_t budget)
{
    uint32_t tokens = 0, logits = 0, decoding = 0, drafts = 0;
    if (plan->seq_count == 0)
        check_empty(w);
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        check_chunk(w, r, w->opts.tokens_max - tokens);
        tokens += r->count;
        logits += r->seq->logits_all ? r->count : r->samples + r->drafts;
        drafts += r->drafts;
        decoding += r->seq->phase == SCHED_DECODING;
        for (uint32_t k = 0; k < i; k++)
            ASSERT(plan->seqs[k].seq != r->seq);
    }
    ASSERT(tokens == plan->tokens && plan->seq_count <= w->opts.seqs_max && logits <= w->opts.logits_max);
    ASSERT(drafts <= w->opts.drafts_max && tokens <= MAX_OF(budget, decoding + drafts + PAGE_TOKENS));
    sim.drafts += drafts;
}

/* The weights of all tenants in multiples of this tenant's: the only property of other tenants that may
 * lengthen its wait. */
static uint64_t shares_of(const struct world *w, const struct request *q)
{
    uint64_t weights = 0;
    for (uint32_t i = 0; i < w->tenants; i++)
        weights += w->weights[i];
    return DIV_UP(weights, w->weights[q->tenant]);
}

/* With the step's time: the longest time that a sequence with a page may go without a token. */
static void check_waits(struct world *w, const struct sched_plan *plan)
{
    uint64_t step_max = STEP_BASE_NS + w->opts.tokens_max * STEP_TOKEN_NS + IDLE_NS;
    uint64_t gap_max = SCHED_AGE_NS + (w->opts.seqs_max + 1) * step_max;
    uint64_t request_max =
        (w->tokens_limit / PAGE_TOKENS * w->opts.seqs_max + w->tokens_limit) * step_max + gap_max;
    struct sched_numbers n;
    sched_numbers(w->sched, &n);
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *q = &w->requests[i];
        if (!q->live)
            continue;
        uint64_t bound =
            (q->ahead + w->opts.seqs_max + 1) * request_max * shares_of(w, q) + (w->held_ns - q->held_ns);
        uint64_t wait = w->now_ns - q->seq.arrival_ns;
        ASSERT(wait <= bound);
        sim.share_max = MAX_OF(sim.share_max, (double)wait / (double)bound);
        if (!is_placed(&q->seq) || q->was_paused || q->was_waiting || n.preemptions > 0)
            continue;
        ASSERT(w->now_ns - q->seq.served_ns <= gap_max || plan->seq_count == 0);
    }
}

/* ---- the step ---- */

/* How many tokens the sequence samples; it may end before its draft tokens do. */
static uint32_t draws_of(struct world *w, const struct sched_step_seq *r)
{
    const struct request *q = request_of(r->seq);
    uint32_t right = chance(w, 0.5) ? r->drafts : between(w, 0, r->drafts);
    return r->samples ? MIN_OF(1 + right, q->outputs_wanted - q->outputs) : 0;
}

static void end_step(struct world *w, const struct sched_plan *plan, const uint64_t *states,
                     const uint32_t *sampled, bool failed)
{
    for (uint32_t i = 0; i < plan->seq_count && !failed; i++) {
        struct request *q = request_of(plan->seqs[i].seq);
        uint64_t state = states[i];
        for (uint32_t k = 0; k < sampled[i]; k++) {
            draw(q, state);
            state = q->state[q->prompt + q->outputs];
        }
    }
    sched_done(w->sched, &(struct sched_results){w->now_ns, !failed, sampled});
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        struct request *q = request_of(r->seq);
        if (r->samples)
            q->seq.logits_all = false;
        if (!failed && (!r->samples || q->outputs < q->outputs_wanted))
            continue;
        sched_remove(w->sched, &q->seq);
        finish(w, q, failed ? STEP_ERROR : DONE);
    }
}

static void pass_time(struct world *w, const struct sched_plan *plan)
{
    uint64_t ns = plan->seq_count ? STEP_BASE_NS + plan->tokens * STEP_TOKEN_NS : IDLE_NS;
    w->now_ns += ns;
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        if (w->requests[i].live && (w->requests[i].seq.paused || waits(&w->requests[i].seq)))
            w->held_ns += ns;
}

void step(struct world *w)
{
    struct sched_events ev = {.now_ns = w->now_ns,
                              .tokens_shared = between(w, 0, w->opts.tokens_max),
                              .tokens_alone = w->opts.tokens_max,
                              .prompt_token_ns = chance(w, 0.9) ? STEP_TOKEN_NS * w->tier.pace : 0};
    struct request *oldest = oldest_active(w);
    struct sched_numbers n;
    struct sched_plan plan;
    uint64_t states[REQUESTS_MAX];
    uint32_t sampled[REQUESTS_MAX];
    sched_plan(w->sched, &ev, &plan);
    check_oldest(oldest, &plan);
    take_ended(w);
    sched_numbers(w->sched, &n);
    bool alone = n.running - n.paused == 1 && n.waiting == n.waiting_paused;
    check_plan(w, &plan, alone ? ev.tokens_alone : ev.tokens_shared);
    world_check(w);
    bool failed = !w->calm && chance(w, 0.001);
    for (uint32_t i = 0; i < plan.seq_count; i++) {
        sampled[i] = draws_of(w, &plan.seqs[i]);
        states[i] = compute_seq(w, &plan.seqs[i], sampled[i] ? sampled[i] - 1 : 0, failed);
        sim.drafts_accepted += sampled[i] > 1 ? sampled[i] - 1 : 0;
        sim.decode_tokens += plan.seqs[i].seq->phase == SCHED_DECODING;
    }
    sim.tokens += plan.tokens;
    sim.preemptions += plan.preempted;
    sim.parks += n.parked > 0;
    pass_time(w, &plan);
    if (plan.seq_count > 0)
        end_step(w, &plan, states, sampled, failed);
    check_waits(w, &plan);
    world_check(w);
}
