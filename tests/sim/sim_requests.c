/* sim_requests.c - requests, and the behaviour of clients.
 *
 * A text's state after each token follows from the state before and the token; the next output follows from
 * the state. So the states of a request computed alone are known, and computing it in a batch must give the
 * same. */
#include "cache/tier_io.h"
#include "sim.h"

#include <string.h>

#define PRIORITIES 3

void finish(struct world *w, struct request *q, enum outcome how)
{
    ASSERT(q->live);
    q->live = false;
    double wait = (double)(w->now_ns - q->seq.arrival_ns) * 1e-9;
    sim.outcomes[how]++;
    sim.cached_tokens += q->seq.cached;
    sim.fetched_tokens += q->seq.fetched;
    sim.fetched_windows += w->opts.group_count > 1 ? q->seq.fetched : 0;
    ASSERT(q->seq.fetched <= q->seq.cached);
    if (how == DONE && wait > sim.wait_max_s)
        sim.wait_max_s = wait;
}

bool is_placed(const struct sched_seq *seq)
{
    return seq->phase == SCHED_PREFILLING || seq->phase == SCHED_DECODING;
}

/* ---- text ---- */

uint64_t output_of(const struct request *q, uint64_t state)
{
    return rng_at(state, q->id);
}

/* Token `at` exists: so do the state after it and, with the last token of a page, that page's key. */
static void append(struct request *q, uint32_t at, uint64_t token)
{
    q->token[at] = token;
    q->state[at] = rng_at(q->state[at - 1], token);
    if (at % PAGE_TOKENS == 0) {
        ASSERT(q->seq.key_count == at / PAGE_TOKENS - 1);
        memcpy(q->keys[q->seq.key_count++].bytes, &q->state[at], sizeof(uint64_t));
    }
}

void draw(struct request *q, uint64_t state)
{
    uint32_t at = q->prompt + q->outputs + 1;
    /* All outputs until now equal those of the request alone. */
    append(q, at, output_of(q, state));
    ASSERT(q->token[at] == output_of(q, q->state[at - 1]));
    q->outputs++;
    q->unread++;
}

static void draw_text(struct world *w, struct request *q)
{
    q->state[0] = 1;
    q->seq.keys = chance(w, 0.9) ? q->keys : NULL;
    q->seq.cuts = q->cuts;
    for (uint32_t i = 1; i <= q->prompt; i++)
        append(q, i, i <= q->alike ? rng_at(q->family, i) : rng_at(~q->text, i));
    uint32_t wanted = between(w, 0, CUTS_MAX), at = 0;
    for (uint32_t i = 0; i < wanted; i++) {
        /* Some where the common text ends, as a renderer finds them. */
        uint32_t cut = (chance(w, 0.5) ? q->alike : between(w, 1, q->prompt)) / PAGE_TOKENS * PAGE_TOKENS;
        if (cut > at && cut < q->prompt)
            at = q->cuts[q->seq.cut_count++] = cut;
    }
}

/* ---- arrival ---- */

static uint32_t tokens_wanted(struct world *w)
{
    /* Mostly short, some of the maximum length. */
    uint32_t most = chance(w, 0.2) ? w->tokens_limit - 1 : MAX_OF(w->tokens_limit / 8, 2u);
    return between(w, 1, most);
}

static struct request *free_request(struct world *w)
{
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        if (!w->requests[i].live)
            return &w->requests[i];
    return NULL;
}

static void count_ahead(struct world *w, struct request *q)
{
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *other = &w->requests[i];
        if (!other->live || other == q || other->tenant != q->tenant)
            continue;
        q->ahead++;
        other->ahead += q->seq.rank < other->seq.rank || q->seq.tokens_limit < other->seq.tokens_limit;
    }
}

static double draw_reader(struct world *w)
{
    static const double reads[] = {1, 1, 1, 0.3, 0.01, 0};
    return reads[between(w, 0, COUNT_OF(reads) - 1)];
}

/* One sequence: a request, or one of its choices, which differ only in their samples. */
static void add(struct world *w, uint32_t tenant, uint64_t text, uint64_t family, uint32_t alike,
                uint32_t prompt)
{
    struct request *q = free_request(w);
    if (!q)
        return;
    memset(q, 0, offsetof(struct request, token));
    q->id = ++w->next_id;
    q->tenant = tenant;
    q->text = text;
    q->family = family;
    q->alike = alike;
    q->prompt = prompt;
    q->reads = draw_reader(w);
    q->sees = chance(w, 0.2);
    uint32_t wanted = tokens_wanted(w);
    q->outputs_wanted = MIN_OF(wanted, w->tokens_limit - prompt);
    q->seq = (struct sched_seq){.tokens = prompt,
                                .tokens_limit = prompt + q->outputs_wanted,
                                .priority = (int32_t)between(w, 0, PRIORITIES - 1) - 1,
                                .arrival_ns = w->now_ns,
                                .tenant_id = tenant,
                                .weight = w->weights[tenant],
                                .logits_all = chance(w, 0.1),
                                .ready = q->sees ? between(w, 0, prompt) : 0};
    for (uint32_t g = 0; g < PAGE_GROUPS_MAX; g++)
        q->seq.pages[g] = q->tables[g];
    if (chance(w, 0.5))
        q->outputs_wanted = between(w, 1, q->outputs_wanted);
    draw_text(w, q);
    if (sched_add(w->sched, &q->seq) < 0) {
        struct sched_numbers n;
        sched_numbers(w->sched, &n);
        ASSERT(n.running + n.waiting == w->opts.seqs_max + w->opts.queue_max);
        sim.outcomes[REFUSED]++;
        return;
    }
    q->live = true;
    q->held_ns = w->held_ns;
    count_ahead(w, q);
}

void arrive(struct world *w)
{
    uint64_t family = between(w, 0, FAMILIES - 1), text = ++w->next_id;
    uint32_t prompt = tokens_wanted(w), alike = 0;
    if (chance(w, 0.5)) {
        alike = w->family_tokens[family];
        prompt = MIN_OF(alike + prompt / 4 + 1, w->tokens_limit - 1);
    }
    /* Whole pages: of such a prompt that comes again a copy of the last page is used. */
    if (prompt > PAGE_TOKENS && chance(w, 0.2))
        prompt -= prompt % PAGE_TOKENS;
    uint32_t tenant = w->floods && chance(w, 0.8) ? 0 : between(w, 0, w->tenants - 1);
    for (uint32_t choices = chance(w, 0.1) ? between(w, 2, 4) : 1; choices > 0; choices--)
        add(w, tenant, text, family, MIN_OF(alike, prompt), prompt);
}

/* ---- clients ---- */

static void cancel(struct world *w, struct request *q, enum outcome how)
{
    sim.phases_cancelled[q->seq.phase]++;
    sim.paused_cancelled += q->seq.paused;
    sim.parked_cancelled += q->seq.phase == SCHED_PARKED;
    sched_remove(w->sched, &q->seq);
    ASSERT(q->seq.phase == SCHED_NEW && q->seq.page_count == 0);
    finish(w, q, how);
}

/* Reads like the engine's client: a full stream pauses the sequence, and after a time ends it. */
static void read_stream(struct world *w, struct request *q)
{
    if (q->unread > 0 && (w->calm || chance(w, q->reads)))
        q->unread -= between(w, 1, q->unread);
    if (q->unread < STREAM_MAX && q->seq.paused) {
        bool placed = is_placed(&q->seq);
        sched_resume(w->sched, &q->seq);
        if (!placed)
            count_ahead(w, q);
    } else if (q->unread >= STREAM_MAX && !q->seq.paused) {
        sched_pause(w->sched, &q->seq);
        q->full_ns = w->now_ns;
        q->was_paused = true;
    } else if (q->seq.paused && w->now_ns - q->full_ns >= TOO_SLOW_NS) {
        cancel(w, q, TOO_SLOW);
    }
}

/* Data of tokens arrives piece by piece, in any order, and may be evicted again. */
static void draw_ready(struct world *w, struct request *q)
{
    if (w->calm)
        q->seq.ready = 0;
    else if (q->sees && chance(w, 0.1))
        q->seq.ready = chance(w, 0.3) ? 0 : between(w, 1, q->prompt);
    bool waits = is_placed(&q->seq) && q->seq.ready > 0 && q->seq.done >= q->seq.ready;
    q->was_waiting |= waits;
    sim.waits += waits;
}

void clients_act(struct world *w)
{
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *q = &w->requests[i];
        if (q->live)
            read_stream(w, q);
        /* At most the free room of its stream. */
        if (q->live && !q->seq.paused)
            q->seq.drafts = MIN_OF(between(w, 0, DRAFTS_MAX), STREAM_MAX - q->unread - 1);
        if (q->live)
            draw_ready(w, q);
        enum sched_phase phase = q->seq.phase;
        double leaves = phase == SCHED_FETCHING ? 0.1 : phase == SCHED_PREFILLING ? 0.004 : 0.0003;
        if (q->live && !w->calm && chance(w, leaves))
            cancel(w, q, CANCELLED);
    }
}
