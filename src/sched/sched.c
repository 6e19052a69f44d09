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
 * Before the second pass rows whose prefix lies in the tier below leave the queue to fetch it, as many as SCHED_FETCHING_MAX, and what has
 * come since the last plan is taken in. They have no place; what they hold goes before any row that runs loses a page.
 * A row with no page for its next token keeps its others instead of being preempted itself: an older row takes them when it
 * needs them, and until then nothing has to be computed again. */
#include "sched/sched.h"

#include "sched/row_cache.h"
#include "sched/row_fetch.h"
#include "sched/sched_state.h"

#include "base/check.h"

#include <errno.h>

/* For so long nothing is admitted that needs more memory than is committed: what was preempted because a commit was
 * refused would otherwise come back at once and be preempted again. */
#define REFUSED_NS 1000000000ull

#define FETCH_BYTES_MAX ((size_t)8 << 20) /* that one plan copies while rows run: a millisecond */

#define ROW SCHED_ROW

size_t sched_arena_bytes(const struct sched_opts *opts)
{
    return sizeof(struct sched) + 256 +
           opts->rows_max * (sizeof(struct sched_step_row) + sizeof(struct sched_row *));
}

int sched_create(struct arena *a, const struct sched_opts *opts, struct sched **ret)
{
    if (opts->rows_max == 0 || opts->logits_max < (uint64_t)opts->rows_max + opts->guesses_max ||
        opts->logits_chunk_max == 0 ||
        opts->tokens_max < (uint64_t)opts->rows_max - 1 + PAGE_TOKENS + opts->guesses_max ||
        opts->group_count == 0 || opts->group_count > PAGE_GROUPS_MAX ||
        (opts->tier && (!opts->prefix || opts->group_count != 1)))
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
    list_init(&s->fetching);
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

typedef bool order_fn(const struct sched_row *a, const struct sched_row *b);

/* From the back: most rows come in order. */
static void insert_ordered(struct list *list, struct sched_row *row, order_fn *before)
{
    struct list *at = list->prev;
    while (at != list && before(row, ROW(at)))
        at = at->prev;
    list_insert_between(at, &row->link, at->next);
}

/* ---- places ---- */

static void enqueue(struct sched *s, struct sched_row *row, enum sched_phase phase)
{
    row->phase = phase;
    insert_ordered(&s->queue, row, sched_queued_before);
    s->waiting_count++;
}

/* In the queue, or fetching. */
static void leave_queue(struct sched *s, struct sched_row *row)
{
    list_remove(&row->link);
    s->waiting_count--;
    s->fetching_count -= row->phase == SCHED_FETCHING;
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
    if (sched_has_place(row)) {
        leave_place(s, row);
    } else {
        leave_queue(s, row);
        if (row_fetch_holds(row))
            row_fetch_drop(&s->opts, row);
    }
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
    row->done = row->page_count = row->node_pages = row->preemptions = row->cached = row->fetched = 0;
    row->fetch_tries = row->fetch_pages = row->fetch_open = row->fetch_from = row->fetch_to = 0;
    memset(row->first, 0, sizeof(row->first));
    row->secured = 0;
    list_init(&row->link);
    enqueue(s, row, SCHED_QUEUED);
    return 0;
}

void sched_remove(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned && row->phase != SCHED_NEW);
    if (sched_has_place(row))
        leave_place(s, row);
    else if (sched_waits(row))
        leave_queue(s, row);
    else
        list_remove(&row->link);
    if (row_fetch_holds(row))
        row_fetch_drop(&s->opts, row);
    row->phase = SCHED_NEW;
}

void sched_pause(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned);
    if (!row->paused && sched_has_place(row))
        s->paused_count++;
    row->paused = true;
}

void sched_resume(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned);
    if (row->paused && sched_has_place(row))
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

/* ---- fetching ---- */

/* It waits for a place, with what has come. */
static void end_fetch(struct sched *s, struct sched_row *row)
{
    s->fetches_failed += row->fetch_failed || row->page_count < row->fetch_pages;
    row_fetch_end(&s->opts, row);
    leave_queue(s, row);
    enqueue(s, row, SCHED_QUEUED);
}

static struct sched_row *newest_holder(const struct list *list, const struct sched_row *but)
{
    for (struct list *it = list->prev; it != list; it = it->prev)
        if (ROW(it) != but && row_fetch_holds(ROW(it)))
            return ROW(it);
    return NULL;
}

/* Takes from a row without a place what it has fetched, `but` last; it computes that, then. False: none has anything. */
static bool drop_fetched(struct sched *s, struct sched_row *but)
{
    struct sched_row *row = newest_holder(&s->fetching, but);
    if (!row)
        row = newest_holder(&s->queue, but);
    if (!row && but && row_fetch_holds(but))
        row = but;
    if (!row)
        return false;
    bool fetches = row->phase == SCHED_FETCHING;
    s->fetches_failed += fetches;
    row_fetch_drop(&s->opts, row);
    if (fetches) {
        leave_queue(s, row);
        enqueue(s, row, SCHED_QUEUED);
    }
    return true;
}

static struct sched_row *find_fetching(const struct sched *s, uint64_t tag)
{
    for (struct list *it = s->fetching.next; it != &s->fetching; it = it->next)
        if (ROW(it)->fetch == tag)
            return ROW(it);
    return NULL;
}

/* What has come goes to its row; what nobody wants any more goes back. */
static void take_arrivals(struct sched *s)
{
    const struct tier_io *tier = s->opts.tier;
    struct tier_arrival a;
    size_t bytes = 0;
    while ((s->running_count == 0 || bytes < FETCH_BYTES_MAX) && tier->take(tier->arg, &a)) {
        struct sched_row *row = find_fetching(s, a.tag);
        if (row)
            bytes += row_fetch_arrive(&s->opts, row, &a);
        tier->give(tier->arg, &a);
    }
}

static void go_on_fetching(struct sched *s)
{
    if (s->fetching_count == 0)
        return;
    take_arrivals(s);
    LIST_EACH(it, &s->fetching) {
        struct sched_row *row = ROW(it);
        row_fetch_ask(&s->opts, row);
        if (row_fetch_is_over(&s->opts, row, s->now_ns))
            end_fetch(s, row);
    }
}

/* ---- first pass: pages for those who run ---- */

static bool has_page_for_next(const struct sched_row *row)
{
    return row->done < row->page_count * PAGE_TOKENS;
}

/* Memory was refused. True: some will come, and nobody suffers for it meanwhile. */
static bool ask_for_help(struct sched *s)
{
    if (s->opts.help && s->opts.help(s->opts.help_arg))
        s->helped = s->plan_number;
    return s->helped == s->plan_number;
}

static bool waits_for_help(const struct sched *s)
{
    return s->helped == s->plan_number;
}

static bool add_page(struct sched *s, struct sched_row *row)
{
    int r = row_cache_extend(&s->opts, row);
    if (r == -ENOMEM && !ask_for_help(s)) {
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
        if (drop_fetched(s, NULL))
            continue;
        struct sched_row *victim = waits_for_help(s) ? NULL : find_victim(s, row);
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
        if (row->paused || secure(s, row) || s->running_count > 1 || waits_for_help(s))
            continue;
        end(s, row, SCHED_END_NO_MEMORY);
        return;
    }
}

/* ---- second pass: admission ---- */

static void end_if_late(struct sched *s, struct sched_row *row)
{
    if (row->phase != SCHED_PREEMPTED && s->now_ns >= row->arrival_ns &&
        s->now_ns - row->arrival_ns >= s->opts.queue_timeout_ns)
        end(s, row, SCHED_END_TIMEOUT);
}

static void end_timeouts(struct sched *s)
{
    if (s->opts.queue_timeout_ns == 0)
        return;
    LIST_EACH(it, &s->queue)
        end_if_late(s, ROW(it));
    LIST_EACH(at, &s->fetching)
        end_if_late(s, ROW(at));
}

/* Is somebody reading what this row would have to read too? */
static bool should_wait(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    LIST_EACH(it, &s->running)
        if (row_cache_worth_waiting(&s->opts, row, hit, ROW(it)))
            return true;
    LIST_EACH(at, &s->fetching)
        if (row_fetch_worth_waiting(&s->opts, row, hit, ROW(at)))
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

static uint64_t promised_to(const struct sched *s, const struct sched_row *row, uint32_t group)
{
    uint32_t first = row->first[group], has = row->page_count - first;
    uint32_t wants = page_group_needs(&s->opts.groups[group], sched_pages(row->tokens) - first);
    return wants > has ? wants - has : 0;
}

/* Pages of the group that prompts being read will still take. */
static uint64_t promised(const struct sched *s, uint32_t group)
{
    uint64_t pages = 0;
    LIST_EACH(it, &s->running)
        pages += promised_to(s, ROW(it), group);
    return pages;
}

/* As far as pages go. */
static bool has_pages_for(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    bool tight = s->refused && s->running_count > 0, fits = true;
    for (uint32_t g = 0; fits && g < s->opts.group_count; g++) {
        const struct page_pool *pages = s->opts.groups[g].pages;
        uint64_t has = tight ? page_pool_ready(pages) : page_pool_available(pages);
        uint32_t wants = row_cache_wants(&s->opts, row, hit, g);
        fits = promised(s, g) + s->running_count + wants <= has;
    }
    return fits;
}

static bool fits(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    return s->running_count < s->opts.rows_max && has_pages_for(s, row, hit);
}

/* Pages that those who fetch will take. */
static uint64_t promised_fetching(const struct sched *s)
{
    uint64_t pages = 0;
    LIST_EACH(it, &s->fetching)
        pages += promised_to(s, ROW(it), 0);
    return pages;
}

/* With room for all that is being read besides: who fetches takes nothing that others were promised. */
static bool may_fetch(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    uint64_t has = page_pool_available(s->opts.groups[0].pages);
    return promised(s, 0) + promised_fetching(s) + s->running_count +
               row_cache_wants(&s->opts, row, hit, 0) <=
           has;
}

static void begin_fetch(struct sched *s, struct sched_row *row)
{
    struct prefix_hit hit;
    struct row_fetch_wish wish;
    struct sched_events ev = {.now_ns = s->now_ns, .prompt_token_ns = s->prompt_token_ns};
    if (!row_fetch_may_look(row))
        return;
    row_cache_find(&s->opts, row, &hit);
    if (should_wait(s, row, &hit) || !may_fetch(s, row, &hit))
        return;
    if (!row_fetch_find(&s->opts, row, &hit, &ev, &wish)) {
        row_fetch_look_no_more(row);
        return;
    }
    leave_queue(s, row);
    if (row->fetch_tries == 0)
        row->fetch_from = hit.pages * PAGE_TOKENS;
    row->phase = SCHED_FETCHING;
    s->waiting_count++;
    s->fetching_count++;
    s->fetches++;
    list_push_back(&s->fetching, &row->link);
    row_fetch_begin(&s->opts, row, &wish, s->fetches);
}

/* The first ones in the queue, whether there is a place for them yet or not. */
static void begin_fetches(struct sched *s)
{
    uint32_t looks = 2 * SCHED_FETCHING_MAX;
    LIST_EACH(it, &s->queue) {
        if (s->fetching_count == SCHED_FETCHING_MAX || looks-- == 0)
            return;
        begin_fetch(s, ROW(it));
    }
}

/* False: account or system have no memory for its first page or its slot. */
static bool admit(struct sched *s, struct sched_row *row, const struct prefix_hit *hit)
{
    if (row_fetch_turn_into_place(&s->opts, row, hit) < 0) {
        (void)ask_for_help(s);
        return false;
    }
    if (!add_page(s, row)) {
        row_cache_leave(&s->opts, row);
        return false;
    }
    leave_queue(s, row);
    if (row->phase == SCHED_QUEUED) {
        row->cached = row->done;
        uint32_t to = MIN_OF(row->done, row->fetch_to);
        row->fetched = to > row->fetch_from ? to - row->fetch_from : 0;
        if (s->opts.tier && hit->pages > 0)
            s->opts.tier->used(s->opts.tier->arg, row->keys, hit->pages);
    }
    row->phase = SCHED_PREFILLING;
    row->served_ns = s->now_ns;
    row->secured = s->plan_number;
    insert_ordered(&s->running, row, sched_goes_before);
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
        /* Nobody else will make room. */
        if (s->running_count == s->paused_count && drop_fetched(s, row))
            continue;
        if (waits_for_help(s))
            return;
        if (s->running_count == 0)
            end(s, row, SCHED_END_NO_MEMORY);
        else if (s->running_count == s->paused_count)
            preempt(s, ROW(s->running.prev));
        else
            return;
    }
}

/* ---- third pass: tokens ---- */

static void plan_row(struct sched *s, struct sched_row *row, uint32_t count, uint32_t drafts)
{
    ASSERT(count > 0 && s->row_count < s->opts.rows_max && row->done + count <= row->tokens);
    count += drafts;
    s->rows[s->row_count++] = (struct sched_step_row){.row = row,
                                                      .from = row->done,
                                                      .count = count,
                                                      .drafts = drafts,
                                                      .draws = row->done + count - drafts == row->tokens,
                                                      .slot_in = row->slot_in,
                                                      .slot_out = row->slot};
    s->tokens += count;
}

/* Within the page of the last known token, which the row has, and leaving room for the token that follows them. */
static uint32_t drafts_of(const struct sched_row *row, uint32_t guesses_left)
{
    uint32_t in_page = PAGE_TOKENS - 1 - row->done % PAGE_TOKENS;
    uint32_t in_limit = row->tokens_limit - row->tokens - 1;
    return MIN_OF(MIN_OF(row->drafts, guesses_left), MIN_OF(in_page, in_limit));
}

static void plan_decoding(struct sched *s)
{
    uint32_t guesses_left = s->opts.guesses_max;
    LIST_EACH(it, &s->running) {
        struct sched_row *row = ROW(it);
        if (row->phase != SCHED_DECODING || row->secured != s->plan_number || row->paused ||
            sched_can_go(row) == 0)
            continue;
        uint32_t drafts = drafts_of(row, guesses_left);
        plan_row(s, row, 1, drafts);
        guesses_left -= drafts;
    }
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
    return left(a) != left(b) ? left(a) < left(b) : sched_goes_before(a, b);
}

/* Fills s->prompts in order; returns how many. */
static uint32_t order_prompts(struct sched *s)
{
    uint32_t count = 0;
    LIST_EACH(it, &s->running) {
        struct sched_row *row = ROW(it);
        if (row->phase != SCHED_PREFILLING || row->paused || row->secured != s->plan_number ||
            sched_can_go(row) == 0)
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

/* Up to a page's end, unless it is the rest of what can go or every token takes a row of logits. */
static uint32_t chunk_of(const struct sched *s, const struct sched_row *row, uint32_t tokens_left,
                         uint32_t logits_left)
{
    uint32_t to_cut = row_cache_next_cut(row) - row->done;
    uint32_t can = sched_can_go(row), count = MIN_OF(MIN_OF(can, tokens_left), to_cut);
    if (row->logits_all)
        return MIN_OF(count, MIN_OF(logits_left + 1, s->opts.logits_chunk_max));
    uint32_t end = (row->done + count) / PAGE_TOKENS * PAGE_TOKENS;
    return count == can ? count : end > row->done ? end - row->done : 0;
}

static void plan_prompts(struct sched *s, uint32_t budget)
{
    uint32_t count = order_prompts(s);
    uint32_t most = s->opts.tokens_max - s->tokens;
    uint32_t tokens_left = budget > s->tokens ? budget - s->tokens : 0;
    /* Every row has one row of logits, and every guess; these are for those that want more. */
    uint32_t logits_left = s->opts.logits_max - s->opts.guesses_max - s->row_count - count;
    /* At least one page of the first prompt, whatever the budget says. */
    tokens_left = MIN_OF(MAX_OF(tokens_left, PAGE_TOKENS), most);
    for (uint32_t i = 0; i < count; i++) {
        struct sched_row *row = s->prompts[i];
        uint32_t chunk = chunk_of(s, row, tokens_left, logits_left);
        if (chunk == 0)
            continue;
        chunk = extend(s, row, chunk);
        plan_row(s, row, chunk, 0);
        tokens_left -= chunk;
        if (row->logits_all)
            logits_left -= chunk - 1;
    }
}

struct sched_row *sched_first_waiting(const struct sched *s)
{
    struct sched_row *first = NULL;
    for (struct list *it = s->running.next; it != &s->running; it = it->next) {
        struct sched_row *row = ROW(it);
        bool waits = row->phase == SCHED_PREFILLING && !row->paused && row->ready && row->ready < row->tokens;
        if (waits && (!first || prompt_before(row, first, s->now_ns)))
            first = row;
    }
    return first;
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
    s->prompt_token_ns = ev->prompt_token_ns;
    end_timeouts(s);
    if (s->opts.tier)
        go_on_fetching(s);
    secure_running(s);
    if (s->opts.tier)
        begin_fetches(s);
    admit_queue(s);
    plan_decoding(s);
    plan_prompts(s, is_alone(s) ? ev->tokens_alone : ev->tokens_shared);
    s->planned = s->row_count > 0;
    *ret = (struct sched_plan){s->row_count, s->tokens, s->rows, (uint32_t)(s->preemptions - preemptions)};
}

/* `drawn`: tokens that the row has more. Of its guesses, all but the last of those stand for one. */
static void advance(struct sched *s, const struct sched_step_row *r, uint32_t drawn, uint64_t now_ns)
{
    struct sched_row *row = r->row;
    ASSERT(!r->draws || (drawn >= 1 && drawn <= 1 + r->drafts && drawn <= row->tokens_limit - row->tokens));
    row->done += r->draws ? r->count - r->drafts + drawn - 1 : r->count;
    row_cache_advance(&s->opts, row);
    row->served_ns = now_ns;
    if (!r->draws)
        return;
    row->tokens += drawn;
    row->phase = SCHED_DECODING;
}

void sched_done(struct sched *s, const struct sched_results *results)
{
    ASSERT(s->planned);
    s->planned = false;
    for (uint32_t i = 0; i < s->row_count && results->computed; i++)
        advance(s, &s->rows[i], results->drawn ? results->drawn[i] : 1, results->now_ns);
}

/* ---- looking ---- */

void sched_numbers(const struct sched *s, struct sched_numbers *ret)
{
    *ret = (struct sched_numbers){.running = s->running_count,
                                  .paused = s->paused_count,
                                  .waiting = s->waiting_count,
                                  .fetching = s->fetching_count,
                                  .preemptions = s->preemptions,
                                  .fetches = s->fetches,
                                  .fetches_failed = s->fetches_failed};
}
