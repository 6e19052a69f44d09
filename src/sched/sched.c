/* sched.c - one order, three passes.
 *
 * Rows that have a place are in `running`, by rank; those that wait in `queue`, preempted ones first, each part by
 * rank. A plan makes three passes:
 *   1. every running row secures a page for its next token, oldest first. Where there is none, a paused row or the
 *      newest row behind it is preempted; a row with nobody behind it waits for the next step. The oldest row that
 *      is not paused has everybody behind it, so it never waits and is never preempted: something always finishes.
 *   2. the head of the queue is admitted while there are pages for all its tokens, for what prompts that are being
 *      read were promised, and one more per running row.
 *   3. tokens: one for each decoding row, the rest to prompts, fewest tokens left first.
 * Only the first pass preempts. In the second it would be a long prompt that throws out short answers; but when every
 * running row is paused, the newest of them makes room for who can run.
 * A row with no page for its next token keeps its others instead of being preempted itself: an older row takes them when it
 * needs them, and until then nothing has to be computed again. */
#include "sched/sched.h"

#include "sched/row_cache.h"

#include "base/check.h"

#include <errno.h>

struct sched {
    /* Constant. */
    struct sched_opts opts;
    /* Engine thread only. */
    struct list running, queue, ended;
    uint32_t running_count, paused_count, waiting_count;
    uint64_t sequence;
    uint64_t plan_number, preemptions;
    bool planned;        /* between plan and done */
    uint64_t now_ns;     /* of the last plan */
    uint64_t refused_ns; /* when account or system last had no memory for a page */
    bool refused;        /* and whether that is less than REFUSED_NS ago */
    /* The plan. */
    struct sched_step_row *rows; /* [rows_max] */
    struct sched_row **prompts;  /* [rows_max] */
    uint32_t row_count, tokens;
};

/* For so long nothing is admitted that needs more memory than is committed: what was preempted because a commit was
 * refused would otherwise come back at once and be preempted again. */
#define REFUSED_NS 1000000000ull

#define ROW(it) LIST_ENTRY(it, struct sched_row, link)

size_t sched_arena_bytes(const struct sched_opts *opts)
{
    return sizeof(struct sched) + 256 +
           opts->rows_max * (sizeof(struct sched_step_row) + sizeof(struct sched_row *));
}

int sched_create(struct arena *a, const struct sched_opts *opts, struct sched **ret)
{
    if (opts->rows_max == 0 || opts->logits_max < opts->rows_max || opts->logits_chunk_max == 0 ||
        opts->tokens_max < (uint64_t)opts->rows_max - 1 + PAGE_TOKENS || opts->group_count == 0 ||
        opts->group_count > PAGE_GROUPS_MAX)
        return -EINVAL;
    struct sched *s = ARENA_NEW(a, struct sched);
    if (!s)
        return -ENOMEM;
    s->opts = *opts;
    s->rows = ARENA_ARRAY(a, struct sched_step_row, opts->rows_max);
    s->prompts = ARENA_ARRAY(a, struct sched_row *, opts->rows_max);
    if (!s->rows || !s->prompts)
        return -ENOMEM;
    list_init(&s->running);
    list_init(&s->queue);
    list_init(&s->ended);
    *ret = s;
    return 0;
}

/* ---- the order ---- */

static int64_t rank_of(const struct sched_row *row)
{
    int64_t p = MIN_OF(MAX_OF(row->priority, -SCHED_PRIORITY_MAX), SCHED_PRIORITY_MAX);
    return (int64_t)row->arrival_ns + p * (int64_t)SCHED_PRIORITY_NS;
}

static bool goes_before(const struct sched_row *a, const struct sched_row *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->sequence < b->sequence;
}

static bool queued_before(const struct sched_row *a, const struct sched_row *b)
{
    if (a->phase != b->phase)
        return a->phase == SCHED_PREEMPTED;
    return goes_before(a, b);
}

typedef bool order_fn(const struct sched_row *a, const struct sched_row *b);

/* From the back: most rows come in order. */
static void insert_ordered(struct list *list, struct sched_row *row, order_fn *before)
{
    struct list *at = list->prev;
    while (at != list && before(row, ROW(at)))
        at = at->prev;
    list_insert_between(at, &row->link, at->next);
}

static bool has_place(const struct sched_row *row)
{
    return row->phase == SCHED_PREFILLING || row->phase == SCHED_DECODING;
}

static bool waits(const struct sched_row *row)
{
    return row->phase == SCHED_QUEUED || row->phase == SCHED_PREEMPTED;
}

/* ---- places ---- */

static void enqueue(struct sched *s, struct sched_row *row, enum sched_phase phase)
{
    row->phase = phase;
    insert_ordered(&s->queue, row, queued_before);
    s->waiting_count++;
}

static void leave_queue(struct sched *s, struct sched_row *row)
{
    list_remove(&row->link);
    s->waiting_count--;
}

/* Gives back place, pages and slots. */
static void leave_place(struct sched *s, struct sched_row *row)
{
    list_remove(&row->link);
    s->running_count--;
    s->paused_count -= row->paused;
    row_cache_leave(&s->opts, row);
}

static void preempt(struct sched *s, struct sched_row *row)
{
    leave_place(s, row);
    enqueue(s, row, SCHED_PREEMPTED);
    row->preemptions++;
    s->preemptions++;
}

static void end(struct sched *s, struct sched_row *row, enum sched_end why)
{
    if (has_place(row))
        leave_place(s, row);
    else
        leave_queue(s, row);
    row->phase = SCHED_ENDED;
    row->end = why;
    list_push_back(&s->ended, &row->link);
}

static bool fits_alone(const struct sched *s, const struct sched_row *row)
{
    bool fits = true;
    for (uint32_t g = 0; g < s->opts.group_count; g++) {
        const struct page_group *group = &s->opts.groups[g];
        fits = fits &&
               page_group_needs(group, sched_pages(row->tokens_limit)) <= page_pool_pages_max(group->pages);
    }
    return fits;
}

int sched_add(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned);
    ASSERT(row->tokens > 0 && row->tokens < row->tokens_limit);
    ASSERT(fits_alone(s, row));
    if (s->running_count + s->waiting_count >= s->opts.rows_max + s->opts.queue_max)
        return -EAGAIN;
    row->rank = rank_of(row);
    row->sequence = s->sequence++;
    row->slot = row->slot_in = row->boundary = SCHED_SLOT_NONE;
    row->node = row->pinned = PREFIX_NONE;
    row->paused = false;
    row->done = row->page_count = row->node_pages = row->preemptions = row->cached = 0;
    memset(row->first, 0, sizeof(row->first));
    row->secured = 0;
    list_init(&row->link);
    enqueue(s, row, SCHED_QUEUED);
    return 0;
}

void sched_remove(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned && row->phase != SCHED_NEW);
    if (has_place(row))
        leave_place(s, row);
    else if (waits(row))
        leave_queue(s, row);
    else
        list_remove(&row->link);
    row->phase = SCHED_NEW;
}

void sched_pause(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned);
    if (!row->paused && has_place(row))
        s->paused_count++;
    row->paused = true;
}

void sched_resume(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned);
    if (row->paused && has_place(row))
        s->paused_count--;
    row->paused = false;
}

struct sched_row *sched_take_ended(struct sched *s)
{
    if (list_empty(&s->ended))
        return NULL;
    struct sched_row *row = LIST_FIRST(&s->ended, struct sched_row, link);
    list_remove(&row->link);
    row->phase = SCHED_NEW;
    return row;
}

/* ---- first pass: pages for those who run ---- */

static bool has_page_for_next(const struct sched_row *row)
{
    return row->done < row->page_count * PAGE_TOKENS;
}

static bool add_page(struct sched *s, struct sched_row *row)
{
    int r = row_cache_extend(&s->opts, row);
    if (r == -ENOMEM) {
        s->refused = true;
        s->refused_ns = s->now_ns;
    }
    return r == 0;
}

/* Who makes room for `row`: the newest paused row, else the newest behind it. NULL: nobody. */
static struct sched_row *find_victim(struct sched *s, const struct sched_row *row)
{
    for (struct list *it = s->running.prev; it != &s->running; it = it->prev)
        if (ROW(it)->paused && ROW(it) != row)
            return ROW(it);
    struct sched_row *newest = ROW(s->running.prev);
    return newest != row ? newest : NULL;
}

/* Gets a page for the row's next token. False: not in this step. */
static bool secure(struct sched *s, struct sched_row *row)
{
    while (!has_page_for_next(row) && !add_page(s, row)) {
        struct sched_row *victim = find_victim(s, row);
        if (!victim)
            return false;
        preempt(s, victim);
    }
    row->secured = s->plan_number;
    return true;
}

static void secure_running(struct sched *s)
{
    /* Whoever is preempted is paused or behind the row, so the row itself stays in the list. */
    for (struct list *it = s->running.next; it != &s->running; it = it->next) {
        struct sched_row *row = ROW(it);
        if (row->paused || secure(s, row) || s->running_count > 1)
            continue;
        end(s, row, SCHED_END_NO_MEMORY);
        return;
    }
}

/* ---- second pass: admission ---- */

static void end_timeouts(struct sched *s)
{
    if (s->opts.queue_timeout_ns == 0)
        return;
    LIST_EACH(it, &s->queue) {
        struct sched_row *row = ROW(it);
        if (row->phase == SCHED_QUEUED && s->now_ns >= row->arrival_ns &&
            s->now_ns - row->arrival_ns >= s->opts.queue_timeout_ns)
            end(s, row, SCHED_END_TIMEOUT);
    }
}

/* Is somebody reading what this row would have to read too? */
static bool should_wait(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    LIST_EACH(it, &s->running)
        if (row_cache_worth_waiting(&s->opts, row, hit, ROW(it)))
            return true;
    return false;
}

/* The first that could run (a preempted row may be paused still), and what it would find in the cache. */
static struct sched_row *queue_head(struct sched *s, struct prefix_hit *hit)
{
    LIST_EACH(it, &s->queue) {
        struct sched_row *row = ROW(it);
        if (row->paused)
            continue;
        row_cache_find(&s->opts, row, hit);
        if (s->running_count == s->opts.rows_max || !should_wait(s, row, hit))
            return row;
    }
    return NULL;
}

/* Pages of the group that prompts being read will still take. */
static uint64_t promised(const struct sched *s, uint32_t group)
{
    uint64_t pages = 0;
    LIST_EACH(it, &s->running) {
        uint32_t first = ROW(it)->first[group], has = ROW(it)->page_count - first;
        uint32_t wants = page_group_needs(&s->opts.groups[group], sched_pages(ROW(it)->tokens) - first);
        pages += wants > has ? wants - has : 0;
    }
    return pages;
}

static bool fits(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    bool tight = s->refused && s->running_count > 0, fits = s->running_count < s->opts.rows_max;
    for (uint32_t g = 0; fits && g < s->opts.group_count; g++) {
        const struct page_pool *pages = s->opts.groups[g].pages;
        uint64_t has = tight ? page_pool_ready(pages) : page_pool_available(pages);
        uint32_t wants = row_cache_wants(&s->opts, row, hit, g);
        fits = promised(s, g) + s->running_count + wants <= has;
    }
    return fits;
}

/* False: account or system have no memory for its first page or its slot. */
static bool admit(struct sched *s, struct sched_row *row, const struct prefix_hit *hit)
{
    if (row_cache_begin(&s->opts, row, hit) < 0)
        return false;
    if (!add_page(s, row)) {
        row_cache_leave(&s->opts, row);
        return false;
    }
    leave_queue(s, row);
    if (row->phase == SCHED_QUEUED)
        row->cached = row->done;
    row->phase = SCHED_PREFILLING;
    row->served_ns = s->now_ns;
    row->secured = s->plan_number;
    insert_ordered(&s->running, row, goes_before);
    s->running_count++;
    return true;
}

static void admit_queue(struct sched *s)
{
    struct sched_row *row;
    struct prefix_hit hit;
    while ((row = queue_head(s, &hit)) != NULL) {
        if (fits(s, row, &hit) && admit(s, row, &hit))
            continue;
        if (s->running_count == 0)
            end(s, row, SCHED_END_NO_MEMORY);
        else if (s->running_count == s->paused_count)
            preempt(s, ROW(s->running.prev));
        else
            return;
    }
}

/* ---- third pass: tokens ---- */

static void plan_row(struct sched *s, struct sched_row *row, uint32_t count)
{
    ASSERT(count > 0 && s->row_count < s->opts.rows_max && row->done + count <= row->tokens);
    s->rows[s->row_count++] = (struct sched_step_row){.row = row,
                                                      .from = row->done,
                                                      .count = count,
                                                      .draws = row->done + count == row->tokens,
                                                      .slot_in = row->slot_in,
                                                      .slot_out = row->slot};
    s->tokens += count;
}

static void plan_decoding(struct sched *s)
{
    LIST_EACH(it, &s->running)
        if (ROW(it)->phase == SCHED_DECODING && ROW(it)->secured == s->plan_number && !ROW(it)->paused)
            plan_row(s, ROW(it), 1);
}

static uint32_t left(const struct sched_row *row)
{
    return row->tokens - row->done;
}

/* Those that waited too long, the longest first; then the fewest tokens left. */
static bool prompt_before(const struct sched_row *a, const struct sched_row *b, uint64_t now_ns)
{
    bool a_old = now_ns - a->served_ns >= SCHED_AGE_NS, b_old = now_ns - b->served_ns >= SCHED_AGE_NS;
    if (a_old != b_old)
        return a_old;
    if (a_old && a->served_ns != b->served_ns)
        return a->served_ns < b->served_ns;
    return left(a) != left(b) ? left(a) < left(b) : goes_before(a, b);
}

/* Fills s->prompts in order; returns how many. */
static uint32_t order_prompts(struct sched *s)
{
    uint32_t count = 0;
    LIST_EACH(it, &s->running) {
        struct sched_row *row = ROW(it);
        if (row->phase != SCHED_PREFILLING || row->paused || row->secured != s->plan_number)
            continue;
        uint32_t at = count++;
        for (; at > 0 && prompt_before(row, s->prompts[at - 1], s->now_ns); at--)
            s->prompts[at] = s->prompts[at - 1];
        s->prompts[at] = row;
    }
    return count;
}

/* Takes pages until `count` tokens have room; returns how many have. */
static uint32_t extend(struct sched *s, struct sched_row *row, uint32_t count)
{
    while (row->page_count * PAGE_TOKENS < row->done + count && add_page(s, row))
        ;
    return MIN_OF(count, row->page_count * PAGE_TOKENS - row->done);
}

/* Whole pages, unless it is the rest of the prompt or every token takes a row of logits. */
static uint32_t chunk_of(const struct sched *s, const struct sched_row *row, uint32_t tokens_left,
                         uint32_t logits_left)
{
    uint32_t to_cut = row_cache_next_cut(row) - row->done;
    uint32_t count = MIN_OF(MIN_OF(left(row), tokens_left), to_cut);
    if (row->logits_all)
        return MIN_OF(count, MIN_OF(logits_left + 1, s->opts.logits_chunk_max));
    return count == left(row) ? count : count / PAGE_TOKENS * PAGE_TOKENS;
}

static void plan_prompts(struct sched *s, uint32_t budget)
{
    uint32_t count = order_prompts(s);
    uint32_t most = s->opts.tokens_max - s->tokens;
    uint32_t tokens_left = budget > s->tokens ? budget - s->tokens : 0;
    /* Every row has one row of logits; these are for those that want more. */
    uint32_t logits_left = s->opts.logits_max - s->row_count - count;
    /* At least one page of the first prompt, whatever the budget says. */
    tokens_left = MIN_OF(MAX_OF(tokens_left, PAGE_TOKENS), most);
    for (uint32_t i = 0; i < count; i++) {
        struct sched_row *row = s->prompts[i];
        uint32_t chunk = chunk_of(s, row, tokens_left, logits_left);
        if (chunk == 0)
            continue;
        chunk = extend(s, row, chunk);
        plan_row(s, row, chunk);
        tokens_left -= chunk;
        if (row->logits_all)
            logits_left -= chunk - 1;
    }
}

static bool is_alone(const struct sched *s)
{
    return s->running_count - s->paused_count == 1 && s->waiting_count == 0;
}

void sched_set_queue_timeout(struct sched *s, uint64_t ns)
{
    s->opts.queue_timeout_ns = ns;
}

void sched_plan(struct sched *s, const struct sched_events *ev, struct sched_plan *ret)
{
    ASSERT(!s->planned);
    uint64_t preemptions = s->preemptions;
    s->plan_number++;
    s->row_count = s->tokens = 0;
    s->now_ns = ev->now_ns;
    s->refused = s->refused && ev->now_ns - s->refused_ns < REFUSED_NS;
    end_timeouts(s);
    secure_running(s);
    admit_queue(s);
    plan_decoding(s);
    plan_prompts(s, is_alone(s) ? ev->tokens_alone : ev->tokens_shared);
    s->planned = s->row_count > 0;
    *ret = (struct sched_plan){s->row_count, s->tokens, s->rows, (uint32_t)(s->preemptions - preemptions)};
}

void sched_done(struct sched *s, const struct sched_results *results)
{
    ASSERT(s->planned);
    s->planned = false;
    for (uint32_t i = 0; i < s->row_count && results->computed; i++) {
        struct sched_row *row = s->rows[i].row;
        row->done += s->rows[i].count;
        row_cache_advance(&s->opts, row);
        row->served_ns = results->now_ns;
        if (s->rows[i].draws) {
            ASSERT(row->tokens < row->tokens_limit);
            row->tokens++;
            row->phase = SCHED_DECODING;
        }
    }
}

/* ---- looking ---- */

void sched_numbers(const struct sched *s, struct sched_numbers *ret)
{
    *ret = (struct sched_numbers){s->running_count, s->paused_count, s->waiting_count, s->preemptions};
}

/* Returns how many pages the row references. */
static uint32_t check_table(const struct sched *s, const struct sched_row *row, uint32_t group)
{
    const struct page_group *g = &s->opts.groups[group];
    const uint32_t *table = row->pages[group];
    ASSERT(row->first[group] == page_group_first(g, row->done));
    for (uint32_t i = 0; i < row->first[group]; i++)
        ASSERT(group == 0 || table[i] == SCHED_PAGE_NONE);
    for (uint32_t i = row->first[group]; i < row->page_count; i++)
        ASSERT(i < row->node_pages ? page_pool_refs(g->pages, table[i]) >= 1
                                   : page_pool_refs(g->pages, table[i]) == 1);
    return row->page_count - row->first[group];
}

static void check_running(const struct sched *s)
{
    uint32_t count = 0, paused = 0, slots_held = 0;
    uint64_t pages[PAGE_GROUPS_MAX] = {0};
    struct prefix_numbers cached = {0};
    if (s->opts.prefix)
        prefix_index_numbers(s->opts.prefix, &cached);
    LIST_EACH(it, &s->running) {
        const struct sched_row *row = ROW(it);
        count++;
        paused += row->paused;
        ASSERT(has_place(row));
        ASSERT(it->next == &s->running || goes_before(row, ROW(it->next)));
        ASSERT(row->tokens <= row->tokens_limit && row->done < row->tokens);
        ASSERT(row->page_count <= sched_pages(row->tokens) && row->page_count >= sched_pages(row->done));
        ASSERT(row->phase == SCHED_PREFILLING || row->done == row->tokens - 1);
        for (uint32_t g = 0; g < s->opts.group_count; g++)
            pages[g] += check_table(s, row, g);
        ASSERT(s->opts.slots ? slot_pool_is_taken(s->opts.slots, row->slot) : row->slot == SCHED_SLOT_NONE);
        slots_held += (row->slot != SCHED_SLOT_NONE) + (row->boundary != SCHED_SLOT_NONE);
    }
    ASSERT(count == s->running_count && count <= s->opts.rows_max && paused == s->paused_count);
    for (uint32_t g = 0; g < s->opts.group_count; g++) {
        struct page_pool_numbers n;
        page_pool_numbers(s->opts.groups[g].pages, &n);
        ASSERT(s->opts.prefix ? n.referenced <= pages[g] : n.referenced == pages[g]);
    }
    if (s->opts.slots) {
        struct pool_numbers slots;
        slot_pool_numbers(s->opts.slots, &slots);
        ASSERT(slots.taken == slots_held + cached.snapshots);
    }
}

static void check_holds_nothing(const struct sched_row *row)
{
    ASSERT(row->page_count == 0 && row->slot == SCHED_SLOT_NONE && row->done == 0);
}

void sched_check(const struct sched *s)
{
    uint32_t waiting = 0;
    check_running(s);
    LIST_EACH(it, &s->queue) {
        ASSERT(waits(ROW(it)));
        ASSERT(it->next == &s->queue || queued_before(ROW(it), ROW(it->next)));
        ASSERT(ROW(it)->phase == SCHED_PREEMPTED || !ROW(it)->paused);
        check_holds_nothing(ROW(it));
        waiting++;
    }
    ASSERT(waiting == s->waiting_count);
    ASSERT(s->running_count + waiting <= s->opts.rows_max + s->opts.queue_max);
    LIST_EACH(it, &s->ended) {
        ASSERT(ROW(it)->phase == SCHED_ENDED);
        check_holds_nothing(ROW(it));
    }
    for (uint32_t i = 0; s->planned && i < s->row_count; i++) {
        const struct sched_step_row *r = &s->rows[i];
        ASSERT(!r->row->paused && r->from == r->row->done && r->count <= left(r->row));
        ASSERT(r->from + r->count <= r->row->page_count * PAGE_TOKENS);
    }
}
