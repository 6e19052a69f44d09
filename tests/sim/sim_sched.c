/* sim_sched STEPS SEED - the scheduler and its pools against made-up traffic, in virtual time.
 *
 * A run is a number of worlds, each with its own sizes: rows, queue, page size, pool, slots, limits. Requests arrive in
 * bursts, are cancelled in every state, pause and resume; the account refuses memory; steps fail; units are
 * trimmed; in most worlds prompts begin alike and prefixes are reused. After every step every invariant is checked, and
 * what a step reads must be what its row's own tokens gave: a page that two rows write, or a prefix that is not the
 * row's, is found at once. Every request ends exactly once and within a bound.
 * A failure prints the command that replays it. */
#include "base/check.h"
#include "base/rng.h"
#include "sched/sched.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORLD_STEPS   5000
#define REQUESTS_MAX  64
#define TABLE_MAX     64
#define PRIORITIES    3
#define PAUSES_MAX    3
#define PAUSE_NS      (2 * SCHED_AGE_NS)
#define STEP_BASE_NS  1000000ull
#define STEP_TOKEN_NS 30000ull
#define IDLE_NS       5000000ull
#define TOKENS_MAX    (TABLE_MAX * PAGE_TOKENS)
#define CUTS_MAX      4
#define FAMILIES      3 /* prompts of a family begin alike */

enum outcome { DONE, CANCELLED, TIMEOUT, NO_MEMORY, STEP_ERROR, REFUSED, OUTCOMES };
static const char *const outcome_names[] = {"done",      "cancelled",  "timeout",
                                            "no_memory", "step_error", "refused"};

struct request {
    struct sched_row row;
    bool live;
    uint64_t id;
    uint32_t outputs, outputs_wanted;
    uint32_t pauses;
    uint64_t resume_ns;
    uint32_t ahead; /* requests that may rightly be finished before it */
    uint32_t table[TABLE_MAX];
    uint64_t family;
    uint32_t alike;                 /* tokens that are the family's; the rest are its own */
    uint64_t state[TOKENS_MAX + 1]; /* of all tokens before each */
    struct prefix_key keys[TABLE_MAX];
    uint32_t cuts[CUTS_MAX];
};

struct world {
    struct rng rng;
    struct sched_opts opts;
    size_t page_bytes, slot_bytes;
    uint32_t pages_max, tokens_limit; /* of one request */
    uint32_t family_tokens[FAMILIES]; /* how far the prompts of each go together */
    bool calm;                        /* no more arrivals and no more trouble */
    struct ledger *ledger;
    struct account *kv, *state;
    struct arena *arena;
    struct prefix_index *index;
    struct sched *sched;
    uint64_t now_ns, next_id, arrived;
    struct request requests[REQUESTS_MAX];
};

static struct {
    uint64_t steps, seed, step;
    uint64_t outcomes[OUTCOMES], preemptions, tokens, decode_tokens, cached_tokens;
    uint64_t phases_cancelled[SCHED_ENDED + 1];
    double wait_max_s, share_max; /* share: of the bound */
} sim;

static void print_replay(int sig)
{
    char line[200];
    int n =
        snprintf(line, sizeof(line), "failed in step %llu; again with:  sim_sched %llu %llu\n",
                 (unsigned long long)sim.step, (unsigned long long)sim.steps, (unsigned long long)sim.seed);
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        _exit(1);
    signal(sig, SIG_DFL);
    raise(sig);
}

/* ---- chance ---- */

static uint32_t between(struct world *w, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(&w->rng, (uint64_t)high - low + 1);
}

static bool chance(struct world *w, double p)
{
    return rng_uniform(&w->rng) < p;
}

/* ---- the world ---- */

static void draw_sizes(struct world *w)
{
    /* Smaller than a unit, no divisor of one, larger than one. */
    static const size_t page_sizes[] = {4096, 40960, 65536 + 64, 786432, (3 << 20) + 64};
    w->page_bytes = page_sizes[between(w, 0, COUNT_OF(page_sizes) - 1)];
    uint32_t pages_each = w->page_bytes > UNIT_BYTES ? 6 : TABLE_MAX;
    w->tokens_limit = between(w, 2 * PAGE_TOKENS, pages_each * PAGE_TOKENS);
    w->pages_max = sched_pages(w->tokens_limit) + between(w, 0, 3 * pages_each);
    for (uint32_t i = 0; i < FAMILIES; i++)
        w->family_tokens[i] = between(w, 1, w->tokens_limit / 2);
    w->slot_bytes = chance(w, 0.5) ? 64 * (size_t)between(w, 1, 60000) : 0;
    w->opts.rows_max = between(w, 1, 12);
    w->opts.queue_max = between(w, 0, 30);
    w->opts.tokens_max = w->opts.rows_max - 1 + PAGE_TOKENS + between(w, 0, 500);
    w->opts.logits_max = w->opts.rows_max + between(w, 0, 40);
    w->opts.logits_chunk_max = between(w, 1, 40);
    w->opts.queue_timeout_ns = chance(w, 0.5) ? between(w, 1, 20) * 1000000000ull : 0;
}

static void on_evict(void *arg, uint32_t page)
{
    prefix_index_evict_page(((struct world *)arg)->index, 0, page);
}

static void create_pools(struct world *w)
{
    bool reuse = chance(w, 0.7);
    struct page_pool_opts pages = {.pages_max = w->pages_max,
                                   .page_bytes = w->page_bytes,
                                   .kv = w->kv,
                                   .evict = reuse ? on_evict : NULL,
                                   .arg = w};
    uint32_t slots_max = reuse ? 2 * w->opts.rows_max + between(w, 0, 6) : w->opts.rows_max;
    struct slot_pool_opts slots = {.slots_max = slots_max, .slot_bytes = w->slot_bytes, .state = w->state};
    struct arena_opts arena = {.bytes_max = (size_t)1 << 20};
    ASSERT(arena_create(&arena, &w->arena) == 0);
    ASSERT(page_pool_create(w->arena, &pages, &w->opts.groups[0].pages) == 0);
    if (w->slot_bytes)
        ASSERT(slot_pool_create(w->arena, &slots, &w->opts.slots) == 0);
    w->opts.group_count = 1;
    w->opts.groups[0].page_bytes = w->page_bytes;
    struct prefix_index_opts index = {{w->opts.groups[0]},
                                      1,
                                      w->opts.slots,
                                      w->slot_bytes,
                                      chance(w, 0.5) ? UINT64_MAX
                                                     : between(w, 0, 40) * (uint64_t)w->page_bytes};
    if (reuse)
        ASSERT(prefix_index_create(w->arena, &index, &w->index) == 0);
    w->opts.prefix = w->index;
    ASSERT(sched_create(w->arena, &w->opts, &w->sched) == 0);
}

static void world_open(struct world *w, uint64_t seed)
{
    *w = (struct world){.rng = {seed, 0}, .now_ns = 1};
    ASSERT(ledger_create(ACCOUNT_NO_LIMIT, &w->ledger) == 0);
    ASSERT(account_open(ledger_root(w->ledger), "kv", ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &w->kv) == 0);
    ASSERT(account_open(ledger_root(w->ledger), "state", ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &w->state) == 0);
    draw_sizes(w);
    create_pools(w);
}

static void world_check(struct world *w)
{
    sched_check(w->sched);
    page_pool_check(w->opts.groups[0].pages);
    if (w->opts.slots)
        slot_pool_check(w->opts.slots);
    if (w->index)
        prefix_index_check(w->index);
    ledger_check(w->ledger);
}

/* Everything that was taken is back, to the byte. */
static void world_close(struct world *w)
{
    prefix_index_done(w->index);
    page_pool_trim(w->opts.groups[0].pages, UINT32_MAX, UINT64_MAX);
    if (w->opts.slots)
        slot_pool_trim(w->opts.slots, UINT32_MAX, UINT64_MAX);
    ASSERT(account_numbers(w->kv).reserved == 0 && account_numbers(w->state).reserved == 0);
    world_check(w);
    page_pool_done(w->opts.groups[0].pages);
    slot_pool_done(w->opts.slots);
    arena_free(w->arena);
    account_close(w->kv);
    account_close(w->state);
    ledger_free(w->ledger);
}

/* ---- requests ---- */

static void finish(struct world *w, struct request *q, enum outcome how)
{
    ASSERT(q->live);
    q->live = false;
    double wait = (double)(w->now_ns - q->row.arrival_ns) * 1e-9;
    sim.outcomes[how]++;
    sim.cached_tokens += q->row.cached;
    if (how == DONE && wait > sim.wait_max_s)
        sim.wait_max_s = wait;
}

static uint32_t tokens_wanted(struct world *w)
{
    /* Mostly short, some as long as they can be. */
    uint32_t most = chance(w, 0.2) ? w->tokens_limit - 1 : MAX_OF(w->tokens_limit / 8, 2u);
    return between(w, 1, most);
}

/* ---- what its tokens are ---- */

static uint64_t state_after(const struct request *q, uint32_t tokens)
{
    uint64_t token = tokens <= q->alike ? rng_at(q->family, tokens) : rng_at(~q->id, tokens);
    return rng_at(q->state[tokens - 1], token);
}

/* Its tokens are known up to row.tokens: so are their states and the keys of whole pages. */
static void know(struct request *q, uint32_t from)
{
    for (uint32_t i = from + 1; i <= q->row.tokens; i++)
        q->state[i] = state_after(q, i);
    for (; q->row.key_count < q->row.tokens / PAGE_TOKENS; q->row.key_count++)
        memcpy(q->keys[q->row.key_count].bytes, &q->state[(q->row.key_count + 1) * PAGE_TOKENS],
               sizeof(uint64_t));
}

static void draw_text(struct world *w, struct request *q)
{
    q->state[0] = 1;
    q->row.keys = chance(w, 0.9) ? q->keys : NULL;
    q->row.cuts = q->cuts;
    uint32_t wanted = between(w, 0, CUTS_MAX), at = 0;
    for (uint32_t i = 0; i < wanted; i++) {
        /* Some where the text stops being alike, as a renderer finds them. */
        uint32_t cut = (chance(w, 0.5) ? q->alike : between(w, 1, q->row.tokens)) / PAGE_TOKENS * PAGE_TOKENS;
        if (cut > at && cut < q->row.tokens)
            at = q->cuts[q->row.cut_count++] = cut;
    }
    know(q, 0);
}

static void arrive(struct world *w)
{
    struct request *q = NULL;
    for (size_t i = 0; i < REQUESTS_MAX && !q; i++)
        q = w->requests[i].live ? NULL : &w->requests[i];
    if (!q)
        return;
    *q = (struct request){.id = ++w->next_id, .family = between(w, 0, FAMILIES - 1)};
    uint32_t prompt = tokens_wanted(w);
    if (chance(w, 0.5)) {
        q->alike = w->family_tokens[q->family];
        prompt = MIN_OF(q->alike + prompt / 4 + 1, w->tokens_limit - 1);
    }
    q->outputs_wanted = between(w, 1, w->tokens_limit - prompt);
    q->row = (struct sched_row){.pages = {q->table},
                                .tokens = prompt,
                                .tokens_limit = prompt + q->outputs_wanted,
                                .priority = (int32_t)between(w, 0, PRIORITIES - 1) - 1,
                                .arrival_ns = w->now_ns,
                                .logits_all = chance(w, 0.1)};
    if (chance(w, 0.5))
        q->outputs_wanted = between(w, 1, q->outputs_wanted);
    draw_text(w, q);
    if (sched_add(w->sched, &q->row) < 0) {
        struct sched_numbers n;
        sched_numbers(w->sched, &n);
        ASSERT(n.running + n.waiting == w->opts.rows_max + w->opts.queue_max);
        sim.outcomes[REFUSED]++;
        return;
    }
    q->live = true;
    w->arrived++;
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *other = &w->requests[i];
        if (!other->live || other == q)
            continue;
        q->ahead++;
        other->ahead += q->row.rank < other->row.rank;
    }
}

static void cancel(struct world *w, struct request *q)
{
    sim.phases_cancelled[q->row.phase]++;
    sched_remove(w->sched, &q->row);
    ASSERT(q->row.phase == SCHED_NEW && q->row.page_count == 0);
    finish(w, q, CANCELLED);
}

static void trouble_request(struct world *w, struct request *q)
{
    /* As the engine does: only who has drawn something can have a full stream. */
    bool can_pause = q->outputs > 0 && q->pauses < PAUSES_MAX && !q->row.paused;
    if (q->row.paused && (w->calm || w->now_ns >= q->resume_ns)) {
        sched_resume(w->sched, &q->row);
    } else if (!w->calm && can_pause && chance(w, 0.003)) {
        sched_pause(w->sched, &q->row);
        q->pauses++;
        q->resume_ns = w->now_ns + (uint64_t)(rng_uniform(&w->rng) * (double)PAUSE_NS);
    }
    if (!w->calm && chance(w, q->row.phase == SCHED_PREFILLING ? 0.002 : 0.0002))
        cancel(w, q);
}

static void trouble(struct world *w)
{
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        if (w->requests[i].live)
            trouble_request(w, &w->requests[i]);
    if (w->calm)
        account_set_limit(w->kv, ACCOUNT_NO_LIMIT);
    else if (chance(w, 0.005))
        account_set_limit(w->kv, account_numbers(w->kv).reserved + between(w, 0, 2) * UNIT_BYTES);
    else if (chance(w, 0.005))
        account_set_limit(w->kv, ACCOUNT_NO_LIMIT);
    if (w->calm || chance(w, 0.02))
        account_set_limit(w->state, ACCOUNT_NO_LIMIT);
    else if (chance(w, 0.002))
        account_set_limit(w->state, account_numbers(w->state).reserved);
    if (chance(w, 0.01)) {
        page_pool_trim(w->opts.groups[0].pages, between(w, 1, 3), UINT64_MAX);
        if (w->opts.slots)
            slot_pool_trim(w->opts.slots, 1, UINT64_MAX);
        if (w->index && chance(w, 0.2))
            prefix_index_clear(w->index);
    }
}

static void take_ended(struct world *w)
{
    struct sched_row *row;
    while ((row = sched_take_ended(w->sched)) != NULL) {
        struct request *q = CONTAINER(row, struct request, row);
        ASSERT(row->end == SCHED_END_NO_MEMORY || w->now_ns - row->arrival_ns >= w->opts.queue_timeout_ns);
        finish(w, q, row->end == SCHED_END_TIMEOUT ? TIMEOUT : NO_MEMORY);
    }
}

/* ---- one step ---- */

/* What a page or slot holds: how many tokens of a text, and which. */
struct stamp {
    uint64_t state;
    uint32_t tokens;
};

static struct stamp *page_stamp(struct world *w, uint32_t page)
{
    return (struct stamp *)(page_pool_base(w->opts.groups[0].pages) + page * w->page_bytes);
}

static struct stamp *slot_stamp(struct world *w, uint32_t slot)
{
    return (struct stamp *)(slot_pool_base(w->opts.slots) + slot * w->slot_bytes);
}

static void compute_pages(struct world *w, struct request *q, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < DIV_UP(from, PAGE_TOKENS); i++) {
        const struct stamp *s = page_stamp(w, q->table[i]);
        uint32_t tokens = MIN_OF((i + 1) * PAGE_TOKENS, from);
        ASSERT(s->tokens == tokens && s->state == q->state[tokens]);
    }
    for (uint32_t i = from / PAGE_TOKENS; i < sched_pages(to); i++) {
        uint32_t tokens = MIN_OF((i + 1) * PAGE_TOKENS, to);
        /* Nobody writes into a page that others read. */
        ASSERT(page_pool_refs(w->opts.groups[0].pages, q->table[i]) == 1);
        *page_stamp(w, q->table[i]) = (struct stamp){q->state[tokens], tokens};
    }
}

static void compute_row(struct world *w, const struct sched_step_row *r, bool lost)
{
    struct request *q = CONTAINER(r->row, struct request, row);
    uint32_t to = r->from + r->count;
    compute_pages(w, q, r->from, to);
    if (!w->opts.slots)
        return;
    if (r->slot_in == SCHED_SLOT_NONE) {
        ASSERT(r->from == 0);
    } else {
        const struct stamp *s = slot_stamp(w, r->slot_in);
        ASSERT(s->tokens == r->from && s->state == q->state[r->from]);
    }
    *slot_stamp(w, r->slot_out) = lost ? (struct stamp){0} : (struct stamp){q->state[to], to};
}

static bool is_placed(const struct sched_row *row)
{
    return row->phase == SCHED_PREFILLING || row->phase == SCHED_DECODING;
}

/* The row that must always get on. */
static struct request *oldest_active(struct world *w)
{
    struct request *best = NULL;
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *q = &w->requests[i];
        if (!q->live || !is_placed(&q->row) || q->row.paused)
            continue;
        if (!best || q->row.rank < best->row.rank ||
            (q->row.rank == best->row.rank && q->row.sequence < best->row.sequence))
            best = q;
    }
    return best;
}

static void check_chunk(const struct world *w, const struct sched_step_row *r, uint32_t tokens_left)
{
    const struct sched_row *row = r->row;
    bool rest = r->from + r->count == row->tokens;
    ASSERT(r->count > 0 && r->count <= tokens_left && r->draws == rest);
    if (row->phase == SCHED_DECODING)
        ASSERT(r->count == 1 && rest);
    else if (row->logits_all)
        ASSERT(r->count <= w->opts.logits_chunk_max);
    else
        ASSERT(rest || r->count % PAGE_TOKENS == 0);
    ASSERT(row->page_count * PAGE_TOKENS >= r->from + r->count);
    ASSERT(!w->opts.slots || row->slot != SCHED_SLOT_NONE);
}

static void check_plan(struct world *w, const struct sched_plan *plan, uint32_t budget)
{
    uint32_t tokens = 0, logits = 0, decoding = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_step_row *r = &plan->rows[i];
        check_chunk(w, r, w->opts.tokens_max - tokens);
        tokens += r->count;
        logits += r->row->logits_all ? r->count : r->draws;
        decoding += r->row->phase == SCHED_DECODING;
        for (uint32_t k = 0; k < i; k++)
            ASSERT(plan->rows[k].row != r->row);
    }
    ASSERT(tokens == plan->tokens && plan->row_count <= w->opts.rows_max && logits <= w->opts.logits_max);
    ASSERT(tokens <= MAX_OF(budget, decoding + PAGE_TOKENS));
}

/* With the step's time: longest a row with a page may go without a token. */
static void check_waits(struct world *w, const struct sched_plan *plan)
{
    uint64_t step_max = STEP_BASE_NS + w->opts.tokens_max * STEP_TOKEN_NS + IDLE_NS;
    uint64_t gap_max = SCHED_AGE_NS + (w->opts.rows_max + 1) * step_max;
    uint64_t request_max = (w->tokens_limit / PAGE_TOKENS * w->opts.rows_max + w->tokens_limit) * step_max +
                           PAUSES_MAX * PAUSE_NS + gap_max;
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        struct request *q = &w->requests[i];
        if (!q->live)
            continue;
        uint64_t bound = (q->ahead + w->opts.rows_max + 1) * request_max;
        uint64_t wait = w->now_ns - q->row.arrival_ns;
        ASSERT(wait <= bound);
        sim.share_max = MAX_OF(sim.share_max, (double)wait / (double)bound);
        if (!is_placed(&q->row) || q->row.paused || q->pauses > 0 || q->row.preemptions > 0)
            continue;
        struct sched_numbers n;
        sched_numbers(w->sched, &n);
        if (n.preemptions == 0)
            ASSERT(w->now_ns - q->row.served_ns <= gap_max || plan->row_count == 0);
    }
}

static void end_step(struct world *w, const struct sched_plan *plan, bool failed)
{
    sched_done(w->sched, &(struct sched_results){w->now_ns, !failed});
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct sched_step_row *r = &plan->rows[i];
        struct request *q = CONTAINER(r->row, struct request, row);
        q->outputs += !failed && r->draws;
        if (r->draws)
            q->row.logits_all = false;
        if (r->draws && !failed)
            know(q, q->row.tokens - 1);
        if (!failed && (!r->draws || q->outputs < q->outputs_wanted))
            continue;
        sched_remove(w->sched, &q->row);
        finish(w, q, failed ? STEP_ERROR : DONE);
    }
}

/* It keeps its place unless it was alone without memory; and while it decodes, each step has it. */
static void check_oldest(const struct request *q, const struct sched_plan *plan)
{
    bool planned = false;
    if (!q || (q->row.phase == SCHED_ENDED && q->row.end == SCHED_END_NO_MEMORY))
        return;
    for (uint32_t i = 0; i < plan->row_count; i++)
        planned |= plan->rows[i].row == &q->row;
    ASSERT(is_placed(&q->row));
    ASSERT(planned || q->row.phase == SCHED_PREFILLING);
}

static void step(struct world *w)
{
    struct sched_events ev = {.now_ns = w->now_ns,
                              .tokens_shared = between(w, 0, w->opts.tokens_max),
                              .tokens_alone = w->opts.tokens_max};
    struct request *oldest = oldest_active(w);
    struct sched_numbers n;
    struct sched_plan plan;
    sched_plan(w->sched, &ev, &plan);
    check_oldest(oldest, &plan);
    take_ended(w);
    sched_numbers(w->sched, &n);
    bool alone = n.running - n.paused == 1 && n.waiting == 0;
    check_plan(w, &plan, alone ? ev.tokens_alone : ev.tokens_shared);
    world_check(w);
    bool failed = !w->calm && chance(w, 0.001);
    for (uint32_t i = 0; i < plan.row_count; i++) {
        compute_row(w, &plan.rows[i], failed);
        sim.decode_tokens += plan.rows[i].row->phase == SCHED_DECODING;
    }
    sim.tokens += plan.tokens;
    sim.preemptions += plan.preempted;
    w->now_ns += plan.row_count ? STEP_BASE_NS + plan.tokens * STEP_TOKEN_NS : IDLE_NS;
    if (plan.row_count > 0)
        end_step(w, &plan, failed);
    check_waits(w, &plan);
    world_check(w);
}

static uint32_t live_count(const struct world *w)
{
    uint32_t n = 0;
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        n += w->requests[i].live;
    return n;
}

static void run_world(uint64_t seed, uint64_t steps)
{
    static struct world world;
    struct world *w = &world;
    world_open(w, seed);
    double load = 0.05;
    for (uint64_t i = 0; i < steps; i++, sim.step++) {
        if (chance(w, 0.01))
            load = chance(w, 0.3) ? 0 : rng_uniform(&w->rng) * 0.5;
        while (chance(w, load))
            arrive(w);
        trouble(w);
        step(w);
    }
    w->calm = true;
    for (uint64_t i = 0; live_count(w) > 0; i++) {
        ASSERT(i < 64 * (uint64_t)w->tokens_limit * w->opts.rows_max);
        trouble(w);
        step(w);
    }
    world_close(w);
}

int main(int argc, char **argv)
{
    sim.steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    sim.seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    signal(SIGABRT, print_replay);
    signal(SIGSEGV, print_replay);
    for (uint64_t i = 0; sim.step < sim.steps; i++)
        run_world(rng_at(sim.seed, i), MIN_OF(sim.steps - sim.step, WORLD_STEPS));
    printf("steps=%llu seed=%llu tokens=%llu decoded=%llu cached=%llu preemptions=%llu longest_wait_s=%.1f "
           "share_of_bound=%.3f\n",
           (unsigned long long)sim.step, (unsigned long long)sim.seed, (unsigned long long)sim.tokens,
           (unsigned long long)sim.decode_tokens, (unsigned long long)sim.cached_tokens,
           (unsigned long long)sim.preemptions, sim.wait_max_s, sim.share_max);
    for (size_t i = 0; i < OUTCOMES; i++)
        printf("%s=%llu ", outcome_names[i], (unsigned long long)sim.outcomes[i]);
    printf("cancelled: queued=%llu prefilling=%llu decoding=%llu preempted=%llu\n",
           (unsigned long long)sim.phases_cancelled[SCHED_QUEUED],
           (unsigned long long)sim.phases_cancelled[SCHED_PREFILLING],
           (unsigned long long)sim.phases_cancelled[SCHED_DECODING],
           (unsigned long long)sim.phases_cancelled[SCHED_PREEMPTED]);
    return 0;
}
