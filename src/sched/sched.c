/* sched.c - one order, three passes.
 *
 * Rows that have a place are in `running`, by rank; those that wait in `queue`, preempted and parked ones
 * first, each part by rank. A plan makes three passes:
 *   1. every running row secures a page for its next token, oldest first (secure.h).
 *   2. rows of the queue get places: tenants in turn, each one's rows in order (admit.h, shares.h).
 *   3. tokens: one for each decoding row, the rest to prompts (tokens.h).
 * Before the first pass what has come from the tier below is taken in, before the second one rows whose
 * prefix lies there leave the queue to fetch it (fetching.h). What they hold goes before any row that runs
 * loses a page. A row with no page for its next token keeps its others instead of being preempted itself: an
 * older row takes them when it needs them, and until then nothing has to be computed again. */
#include "sched/sched.h"

#include "sched/admit.h"
#include "sched/fetching.h"
#include "sched/places.h"
#include "sched/row_cache.h"
#include "sched/row_fetch.h"
#include "sched/secure.h"
#include "sched/tokens.h"

#include "base/check.h"

#include <errno.h>

/* For so long nothing is admitted that needs more memory than is committed: what was preempted because a
 * commit was refused would otherwise come back at once and be preempted again. */
#define REFUSED_NS 1000000000ull

#define ROW SCHED_ROW

size_t sched_arena_bytes(const struct sched_opts *opts)
{
    return sizeof(struct sched) + 256 +
           opts->rows_max * (sizeof(struct sched_step_row) + sizeof(struct sched_row *)) +
           shares_arena_bytes();
}

int sched_create(struct arena *a, const struct sched_opts *opts, struct sched **ret)
{
    if (opts->rows_max == 0 || opts->logits_max < (uint64_t)opts->rows_max + opts->drafts_max ||
        opts->logits_chunk_max == 0 ||
        opts->tokens_max < (uint64_t)opts->rows_max - 1 + PAGE_TOKENS + opts->drafts_max ||
        opts->group_count == 0 || opts->group_count > PAGE_GROUPS_MAX ||
        (opts->tier && (!opts->prefix || opts->group_count != 1)))
        return -EINVAL;
    struct sched *s = ARENA_NEW(a, struct sched);
    if (!s)
        return -ENOMEM;
    s->opts = *opts;
    s->rows = ARENA_ARRAY(a, struct sched_step_row, opts->rows_max);
    s->prompts = ARENA_ARRAY(a, struct sched_row *, opts->rows_max);
    if (!s->rows || !s->prompts || shares_create(a, &s->shares) < 0)
        return -ENOMEM;
    list_init(&s->running);
    list_init(&s->queue);
    list_init(&s->fetching);
    list_init(&s->ended);
    *ret = s;
    return 0;
}

/* ---- rows ---- */

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
    ASSERT(row->phase == SCHED_NEW);
    ASSERT(row->key_count <= row->tokens / PAGE_TOKENS);
    ASSERT(!s->planned);
    ASSERT(row->tokens > 0 && row->tokens < row->tokens_limit);
    ASSERT(fits_alone(s, row));
    if (s->running_count + s->waiting_count >= s->opts.rows_max + s->opts.queue_max)
        return -EAGAIN;
    places_rank(s, row, row->arrival_ns);
    row->state = row->state_in = row->boundary = NONE;
    row->node = row->pinned = NONE;
    row->paused = false;
    row->done = row->page_count = row->node_pages = row->preemptions = row->cached = row->fetched = 0;
    row->fetch_tries = row->fetch_pages = row->fetch_open = row->fetch_from = row->fetch_to = 0;
    memset(row->first, 0, sizeof(row->first));
    row->secured = row->examined = row->blocked_ns = 0;
    row->returns = row->takes = false;
    row->share = shares_take(&s->shares, row->tenant_id, row->weight);
    list_init(&row->link);
    places_enqueue(s, row, SCHED_QUEUED);
    return 0;
}

void sched_remove(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned && row->phase != SCHED_NEW);
    if (row->phase == SCHED_ENDED) {
        list_remove(&row->link);
    } else {
        places_leave(s, row);
        shares_give(row->share);
    }
    ASSERT(list_empty(&row->link));
    row->phase = SCHED_NEW;
}

void sched_pause(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned);
    if (row->paused)
        return;
    row->paused = true;
    s->paused_count += sched_has_place(row);
    s->waiting_paused += sched_waits(row);
}

void sched_resume(struct sched *s, struct sched_row *row)
{
    ASSERT(!s->planned);
    if (!row->paused)
        return;
    bool queued = sched_waits(row) && row->phase != SCHED_FETCHING;
    s->paused_count -= sched_has_place(row);
    if (queued)
        places_leave_queue(s, row);
    else
        s->waiting_paused -= sched_waits(row);
    row->paused = false;
    if (queued)
        places_enqueue_last(s, row);
}

struct sched_row *sched_take_ended(struct sched *s)
{
    if (list_empty(&s->ended))
        return NULL;
    struct sched_row *row = LIST_FIRST(&s->ended, struct sched_row, link);
    ASSERT(row->phase == SCHED_ENDED);
    list_remove(&row->link);
    row->phase = SCHED_NEW;
    return row;
}

struct sched_row *sched_first_waiting(const struct sched *s)
{
    struct sched_row *first = NULL;
    for (struct list *it = s->running.next; it != &s->running; it = it->next) {
        struct sched_row *row = ROW(it);
        bool waits = row->phase == SCHED_PREFILLING && !row->paused && row->ready && row->ready < row->tokens;
        if (waits && (!first || tokens_prompt_before(row, first, s->now_ns)))
            first = row;
    }
    ASSERT(!first || first->ready < first->tokens);
    return first;
}

static bool is_alone(const struct sched *s)
{
    ASSERT(s->paused_count <= s->running_count && s->waiting_paused <= s->waiting_count);
    return s->running_count - s->paused_count == 1 && s->waiting_count == s->waiting_paused;
}

void sched_set_queue_timeout(struct sched *s, uint64_t ns)
{
    s->opts.queue_timeout_ns = ns;
}

static void end_if_late(struct sched *s, struct sched_row *row)
{
    ASSERT(sched_waits(row));
    if (row->phase != SCHED_PREEMPTED && row->phase != SCHED_PARKED && s->now_ns >= row->arrival_ns &&
        s->now_ns - row->arrival_ns >= s->opts.queue_timeout_ns)
        places_end(s, row, SCHED_END_TIMEOUT);
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

static void note_active(struct sched *s, struct list *list)
{
    LIST_EACH(it, list)
        if (!ROW(it)->paused)
            share_note_active(ROW(it)->share, s->plan_number);
}

static void level_tenants(struct sched *s)
{
    note_active(s, &s->running);
    note_active(s, &s->queue);
    note_active(s, &s->fetching);
    shares_level(&s->shares, s->plan_number);
}

void sched_plan(struct sched *s, const struct sched_events *ev, struct sched_plan *ret)
{
    ASSERT(s->now_ns <= ev->now_ns);
    ASSERT(!s->planned);
    uint64_t preemptions = s->preemptions;
    s->plan_number++;
    s->row_count = s->tokens = 0;
    s->now_ns = ev->now_ns;
    s->refused = s->refused && ev->now_ns - s->refused_ns < REFUSED_NS;
    s->prompt_token_ns = ev->prompt_token_ns;
    s->oldest = places_oldest(s);
    level_tenants(s);
    end_timeouts(s);
    if (s->opts.tier)
        fetching_go_on(s);
    secure_running(s);
    if (s->opts.tier)
        fetching_begin(s);
    admit_queue(s);
    tokens_plan(s, is_alone(s) ? ev->tokens_alone : ev->tokens_shared);
    ASSERT(s->row_count <= s->running_count);
    ASSERT(s->tokens <= s->opts.tokens_max);
    s->planned = s->row_count > 0;
    *ret = (struct sched_plan){s->row_count, s->tokens, s->rows, (uint32_t)(s->preemptions - preemptions)};
}

/* `sampled`: tokens that the row has more. Of its drafts, all but the last of those stand for one. */
static void advance(struct sched *s, const struct sched_step_row *r, uint32_t sampled, uint64_t now_ns)
{
    ASSERT(r->from == r->row->done);
    struct sched_row *row = r->row;
    uint32_t before = row->done;
    ASSERT(!r->samples ||
           (sampled >= 1 && sampled <= 1 + r->drafts && sampled <= row->tokens_limit - row->tokens));
    row->done += r->samples ? r->count - r->drafts + sampled - 1 : r->count;
    ASSERT(row->done <= row->tokens - 1 + (r->samples ? sampled : 0));
    ASSERT(row->done <= row->page_count * PAGE_TOKENS);
    share_charge(row->share, row->done - before);
    row_cache_advance(&s->opts, row);
    row->served_ns = now_ns;
    if (!r->samples)
        return;
    row->tokens += sampled;
    row->phase = SCHED_DECODING;
}

void sched_done(struct sched *s, const struct sched_results *results)
{
    ASSERT(s->planned);
    s->planned = false;
    for (uint32_t i = 0; i < s->row_count && results->computed; i++)
        advance(s, &s->rows[i], results->sampled ? results->sampled[i] : 1, results->now_ns);
}

/* ---- looking ---- */

void sched_numbers(const struct sched *s, struct sched_numbers *ret)
{
    *ret = (struct sched_numbers){.running = s->running_count,
                                  .paused = s->paused_count,
                                  .waiting_paused = s->waiting_paused,
                                  .parked = s->parked_count,
                                  .waiting = s->waiting_count,
                                  .fetching = s->fetching_count,
                                  .preemptions = s->preemptions,
                                  .fetches = s->fetches,
                                  .fetches_failed = s->fetches_failed};
    ASSERT(ret->fetching + ret->parked <= ret->waiting);
    ASSERT(ret->fetches_failed <= ret->fetches);
}
