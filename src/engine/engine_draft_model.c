/* engine_draft_model.c - a smaller model drafts for the engine's sequences.
 *
 * Its K and V lie in the pages of the first group, after the model's own. So they have the same keys, and a
 * page that is found, moved or preempted has both. The draft model reads a sequence's tokens only where
 * drafts pay. A prompt without drafts costs nothing, and a batch in which drafts lose computes as without a
 * draft model. Each page says how many of its tokens the draft model has read (pools.drafted). A sequence
 * lags with more than a page of unread tokens, and has no drafts. The draft model reads them beside several
 * steps, each for a quarter of --step-ms, and a page at least. A page from a lower tier counts as read. Wrong
 * K and V make drafts that are rejected, and change no token.
 *
 * A draft is a chain of passes, one token each; the first pass also reads the tokens since the last one. The
 * rows of logits lie where the step's own will lie. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/none.h"
#include "base/page_tokens.h"
#include "model/model.h"

#include <errno.h>
#include <math.h>

#define READ_PART  4  /* the part of --step-ms that reading takes, at most */
#define READ_LEAST 32 /* tokens that it reads nevertheless */
#define LANES      16

size_t engine_draft_model_bytes(const struct engine_opts *o)
{
    if (o->drafting.by != DRAFTING_MODEL)
        return 0;
    return o->max_num_seqs * (sizeof(struct model_seq) + sizeof(struct job *)) +
           o->tokens_max * sizeof(uint32_t) + 3 * (size_t)64;
}

int engine_draft_model_init(struct engine *en)
{
    struct engine_draft_model *d = &en->draft_model;
    const struct engine_opts *o = &en->opts;
    if (o->drafting.by != DRAFTING_MODEL)
        return 0;
    const struct model_shape *shape = model_shape(o->draft);
    size_t floats = engine_logits_max(o->max_num_seqs, o->drafting.drafts_max) * (size_t)en->shape->vocab;
    d->model = o->draft;
    d->vocab = shape->vocab;
    d->context = shape->context_max;
    d->rows_max = (uint32_t)MIN_OF(floats / shape->vocab, (size_t)o->max_num_seqs);
    d->seqs = ARENA_ARRAY(en->arena, struct model_seq, o->max_num_seqs);
    d->jobs = ARENA_ARRAY(en->arena, struct job *, o->max_num_seqs);
    d->ids = ARENA_ARRAY(en->arena, uint32_t, o->tokens_max);
    return d->seqs && d->jobs && d->ids ? 0 : -ENOMEM;
}

/* ---- tokens that it has read ---- */

static uint8_t *read_of(const struct engine *en, const struct job *j, uint32_t page)
{
    ASSERT(page < j->seq.page_count && j->seq.pages[0][page] != NONE);
    return &en->pools.drafted[j->seq.pages[0][page]];
}

/* The page of the last known token may have K and V of draft tokens that were rejected. */
static void forget_rejected(const struct engine *en, const struct job *j)
{
    uint32_t last = j->seq.tokens - 1, page = last / PAGE_TOKENS;
    if (page >= j->seq.page_count)
        return;
    uint8_t *read = read_of(en, j, page);
    *read = (uint8_t)MIN_OF((uint32_t)*read, last % PAGE_TOKENS);
}

/* Tokens of the sequence that the draft model has read, from the first on. The last known one is not among
 * them. */
static uint32_t tokens_read(const struct engine *en, struct job *j)
{
    const struct sched_seq *s = &j->seq;
    const uint32_t last = s->tokens - 1;
    if (j->read_preemptions != s->preemptions)
        j->read_pages = 0;
    j->read_preemptions = s->preemptions;
    while (j->read_pages < s->page_count && *read_of(en, j, j->read_pages) == PAGE_TOKENS)
        j->read_pages++;
    uint32_t tokens = j->read_pages * PAGE_TOKENS;
    if (j->read_pages < s->page_count)
        tokens += *read_of(en, j, j->read_pages);
    return MIN_OF(tokens, last);
}

static void note_read(const struct engine *en, const struct job *j, uint32_t from, uint32_t until)
{
    ASSERT(from < until);
    for (uint32_t page = from / PAGE_TOKENS; page * PAGE_TOKENS < until; page++)
        *read_of(en, j, page) = (uint8_t)MIN_OF(until - page * PAGE_TOKENS, (uint32_t)PAGE_TOKENS);
}

/* Tokens from `from` on were not read after all. */
static void note_unread(const struct engine *en, struct job *j, uint32_t from)
{
    uint32_t page = from / PAGE_TOKENS;
    *read_of(en, j, page) = (uint8_t)(from % PAGE_TOKENS);
    while (++page < j->seq.page_count && j->seq.pages[0][page] != NONE)
        *read_of(en, j, page) = 0;
    j->read_pages = 0;
}

void engine_draft_model_begin(struct engine *en)
{
    en->draft_model.first_tokens = en->draft_model.first_rows = 0;
}

/* The first pass of all drafts has room for the tokens that it reads. */
void engine_draft_model_see(struct engine *en, struct job *j)
{
    struct engine_draft_model *d = &en->draft_model;
    forget_rejected(en, j);
    uint32_t unread = j->seq.tokens - tokens_read(en, j);
    j->draft.lags = unread > PAGE_TOKENS || d->first_tokens + unread > en->opts.tokens_max ||
                    d->first_rows == d->rows_max;
    if (j->draft.lags)
        return;
    d->first_tokens += unread;
    d->first_rows++;
}

uint32_t engine_draft_model_drafts_max(const struct engine *en, const struct job *j)
{
    return en->draft_model.context - MIN_OF(en->draft_model.context, j->seq.tokens);
}

/* Pages whose first token is in this step had another content before. */
static void begin_pages(const struct engine *en, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        const struct job *j = job_of(r->seq);
        for (uint32_t page = DIV_UP(r->from, PAGE_TOKENS); page * PAGE_TOKENS < r->from + r->count; page++)
            *read_of(en, j, page) = 0;
    }
}

/* ---- a pass ---- */

/* Adds tokens [from, until) of a sequence; `logits`: with a row for the last one. They count as read from now
 * on: a sequence that shares the page reads them no second time, and its queries come after their keys. */
static void add_tokens(struct engine *en, struct job *j, uint32_t from, uint32_t until, bool logits)
{
    struct engine_draft_model *d = &en->draft_model;
    uint32_t count = until - from;
    ASSERT(from < until && d->seq_count < en->opts.max_num_seqs);
    ASSERT(count <= en->opts.tokens_max - d->token_count);
    uint32_t *ids = d->ids + d->token_count;
    for (uint32_t i = 0; i < count; i++)
        ids[i] = j->tokens[from + i] < d->vocab ? j->tokens[from + i] : 0;
    struct model_seq *seq = &d->seqs[d->seq_count];
    *seq = (struct model_seq){.tokens = ids,
                              .token_count = count,
                              .position = from,
                              .state_in = NONE,
                              .state_out = NONE,
                              .logits_from = logits ? count - 1 : count};
    for (uint32_t g = 0; g < PAGE_GROUPS_MAX; g++)
        seq->pages[g] = j->seq.pages[0];
    d->jobs[d->seq_count++] = j;
    d->token_count += count;
    note_read(en, j, from, until);
}

static void clear_pass(struct engine_draft_model *d)
{
    d->seq_count = d->token_count = 0;
}

static int compute_pass(struct engine *en)
{
    struct engine_draft_model *d = &en->draft_model;
    const dev_ptr pages =
        dev_add(en->pools.page_base[0], en->shape->groups[0].page_bytes - en->shape->page_beside);
    struct model_step step = {.seqs = d->seqs,
                              .seq_count = d->seq_count,
                              .logits = en->logits,
                              .stop = &en->closing,
                              .progress_ns = &en->progress_ns};
    for (uint32_t g = 0; g < PAGE_GROUPS_MAX; g++)
        step.pages[g] = pages;
    int r = model_forward(d->model, &step);
    for (uint32_t i = d->seq_count; r < 0 && i > 0; i--)
        note_unread(en, d->jobs[i - 1], d->seqs[i - 1].position);
    return r;
}

/* Returns the first of the largest logits. */
static uint32_t best_of(const float *logits, uint32_t count)
{
    float most[LANES], best = -INFINITY;
    uint32_t whole = count / LANES * LANES, i = 0;
    for (uint32_t k = 0; k < LANES; k++)
        most[k] = -INFINITY;
    for (uint32_t from = 0; from < whole; from += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            most[k] = logits[from + k] > most[k] ? logits[from + k] : most[k];
    for (uint32_t k = 0; k < LANES; k++)
        best = most[k] > best ? most[k] : best;
    for (uint32_t k = whole; k < count; k++)
        best = logits[k] > best ? logits[k] : best;
    while (i < count && logits[i] != best)
        i++;
    return i < count ? i : 0;
}

/* ---- drafts ---- */

/* The token after `depth` draft tokens, of each draft that is longer. */
static int draft_next(struct engine *en, const struct drafting_row *rows, uint32_t count, uint32_t depth)
{
    struct engine_draft_model *d = &en->draft_model;
    uint32_t k = 0;
    clear_pass(d);
    for (uint32_t i = 0; i < count; i++) {
        struct job *j = job_of(en->pass.plan.seqs[i].seq);
        uint32_t last = rows[i].from + depth;
        if (rows[i].passes <= depth)
            continue;
        add_tokens(en, j, depth == 0 ? tokens_read(en, j) : last, last + 1, true);
    }
    ASSERT(d->seq_count <= d->rows_max);
    int r = compute_pass(en);
    for (; r == 0 && k < d->seq_count; k++) {
        uint32_t next = d->seqs[k].position + d->seqs[k].token_count;
        d->jobs[k]->tokens[next] =
            best_of(en->logits + (size_t)k * d->vocab, MIN_OF(d->vocab, en->shape->vocab));
    }
    return r;
}

int engine_draft_model_draft(struct engine *en, const struct drafting_row *rows, uint32_t count)
{
    uint32_t deepest = 0;
    int r = 0;
    for (uint32_t i = 0; i < count; i++)
        deepest = MAX_OF(deepest, rows[i].passes);
    for (uint32_t depth = 0; r == 0 && depth < deepest; depth++)
        r = draft_next(en, rows, count, depth);
    return r;
}

/* ---- reading ---- */

/* Tokens that may be read beside a step. */
static uint32_t read_tokens_max(const struct engine *en)
{
    const struct engine_draft_model *d = &en->draft_model;
    double ns = (double)atomic_load(&en->live->step_ns) / READ_PART;
    if (en->opts.drafting.always || d->token_ns * en->opts.tokens_max <= ns)
        return en->opts.tokens_max;
    return MIN_OF(MAX_OF((uint32_t)(ns / d->token_ns), (uint32_t)READ_LEAST), en->opts.tokens_max);
}

static void measure_reading(struct engine *en, bool trial, uint64_t ns)
{
    struct engine_draft_model *d = &en->draft_model;
    double token_ns = (double)ns / d->token_count;
    d->token_ns = d->token_ns > 0 ? d->token_ns + (token_ns - d->token_ns) / 8 : token_ns;
    drafting_caught_up(&en->drafting, trial, ns);
}

int engine_draft_model_read(struct engine *en, const struct sched_plan *plan)
{
    struct engine_draft_model *d = &en->draft_model;
    bool trial = true;
    begin_pages(en, plan);
    clear_pass(d);
    for (uint32_t i = 0, most = read_tokens_max(en); i < plan->seq_count && d->token_count < most; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        struct job *j = job_of(r->seq);
        if (!j->draft.wanted || r->seq->phase != SCHED_DECODING)
            continue;
        uint32_t from = tokens_read(en, j);
        if (from == r->from)
            continue;
        add_tokens(en, j, from, MIN_OF(r->from, from + most - d->token_count), false);
        trial = trial && j->draft.trial;
    }
    if (d->seq_count == 0)
        return 0;
    uint64_t began_ns = clock_now_ns();
    int r = compute_pass(en);
    if (r == 0)
        measure_reading(en, trial, clock_now_ns() - began_ns);
    return r;
}
