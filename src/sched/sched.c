/* sched.c - one order, three passes.
 *
 * Sequences with a place are in `running`, by rank. Waiting sequences are in `queue`: preempted and parked
 * ones first, each part by rank. A plan makes three passes:
 *   1. every running sequence secures a page for its next token, oldest first (secure.h).
 *   2. sequences of the queue get places: tenants in turn, each one's sequences in order (admit.h, shares.h).
 *   3. tokens: one for each decoding sequence, the rest to prompts (tokens.h).
 *
 * Fetching stands between them (fetching.h). Before the first pass, arrivals from the SSD tier are taken in.
 * Before the second pass, sequences whose prefix is in the tier leave the queue to fetch it. Fetched pages
 * go before any running sequence loses a page. A sequence with no page for its next token keeps its others
 * instead of being preempted itself: an older sequence takes them when it needs them, and until then nothing
 * has to be computed again. */
#include "sched/sched.h"

#include "sched/admit.h"
#include "sched/fetching.h"
#include "sched/matching.h"
#include "sched/places.h"
#include "sched/seq_cache.h"
#include "sched/secure.h"
#include "sched/tokens.h"

#include "base/check.h"
#include "base/none.h"
#include "cache/page_pool.h"

#include <errno.h>
#include <string.h>

/* After a refused commit, no sequence that needs more memory than is committed is admitted for this long.
 * Otherwise a sequence that was preempted because of the refusal would come back at once and be preempted
 * again. */
#define REFUSED_NS 1000000000ull
/* After a step for which the device had no memory, nothing is computed for this long. */
#define REST_NS 100000000ull

#define SEQ SCHED_SEQ

size_t sched_arena_bytes(const struct sched_opts *opts)
{
    return sizeof(struct sched) + 256 +
           opts->seqs_max * (sizeof(struct sched_step_seq) + sizeof(struct sched_seq *)) +
           shares_arena_bytes();
}

int sched_create(struct arena *a, const struct sched_opts *opts, struct sched **ret)
{
    if (opts->seqs_max == 0 || opts->logits_max < (uint64_t)opts->seqs_max + opts->drafts_max ||
        opts->logits_chunk_max == 0 ||
        opts->tokens_max < (uint64_t)opts->seqs_max - 1 + PAGE_TOKENS + opts->drafts_max ||
        opts->group_count == 0 || opts->group_count > PAGE_GROUPS_MAX ||
        (opts->tier && (!opts->prefix || !opts->arrived)))
        return -EINVAL;
    struct sched *s = ARENA_NEW(a, struct sched);
    if (!s)
        return -ENOMEM;
    s->opts = *opts;
    s->seqs = ARENA_ARRAY(a, struct sched_step_seq, opts->seqs_max);
    s->prompts = ARENA_ARRAY(a, struct sched_seq *, opts->seqs_max);
    if (!s->seqs || !s->prompts || shares_create(a, &s->shares) < 0)
        return -ENOMEM;
    list_init(&s->running);
    list_init(&s->queue);
    list_init(&s->fetching);
    list_init(&s->ended);
    *ret = s;
    return 0;
}

/* ---- sequences ---- */

static bool fits_alone(const struct sched *s, const struct sched_seq *seq)
{
    bool fits = true;
    for (uint32_t g = 0; g < s->opts.group_count; g++) {
        const struct page_group *group = &s->opts.groups[g];
        fits = fits &&
               page_group_needs(group, sched_pages(seq->tokens_limit)) <= page_pool_pages_max(group->pages);
    }
    return fits;
}

int sched_add(struct sched *s, struct sched_seq *seq)
{
    ASSERT(seq->phase == SCHED_NEW);
    ASSERT(seq->key_count <= seq->tokens / PAGE_TOKENS);
    ASSERT(!s->planned);
    ASSERT(seq->tokens > 0 && seq->tokens <= seq->tokens_limit - !seq->prompt_only);
    ASSERT(!seq->at_once || (seq->prompt_only && !seq->keys && seq->tokens <= s->opts.tokens_max));
    ASSERT(fits_alone(s, seq));
    if (s->running_count + s->waiting_count >= s->opts.seqs_max + s->opts.queue_max)
        return -EAGAIN;
    places_rank(s, seq, seq->arrival_ns);
    seq->state = seq->state_in = seq->boundary = NONE;
    seq->node = seq->pinned = NONE;
    seq->paused = false;
    seq->done = seq->page_count = seq->node_pages = seq->preemptions = seq->cached = seq->fetched = 0;
    seq->fetch_tries = seq->fetch_pages = seq->fetch_open = seq->fetch_left = 0;
    seq->fetch_queried_ns = 0;
    seq->fetch_queries = false;
    seq->fetch_from = seq->fetch_to = seq->fetch_pinned = seq->fetched_pinned = 0;
    memset(seq->first, 0, sizeof(seq->first));
    seq->secured = seq->examined = seq->blocked_ns = 0;
    seq->match_ns = seq->match_last_ns = seq->held = 0;
    seq->returns = seq->takes = false;
    seq->share = shares_take(&s->shares, seq->tenant_id, seq->weight);
    list_init(&seq->link);
    places_enqueue(s, seq, SCHED_QUEUED);
    return 0;
}

void sched_remove(struct sched *s, struct sched_seq *seq)
{
    ASSERT(!s->planned && seq->phase != SCHED_NEW);
    if (seq->phase == SCHED_ENDED) {
        list_remove(&seq->link);
    } else {
        places_leave(s, seq);
        matching_charge(seq);
        shares_give(seq->share);
    }
    ASSERT(list_empty(&seq->link));
    seq->phase = SCHED_NEW;
}

void sched_pause(struct sched *s, struct sched_seq *seq)
{
    ASSERT(!s->planned);
    if (seq->paused)
        return;
    seq->paused = true;
    s->paused_count += sched_has_place(seq);
    s->waiting_paused += sched_waits(seq);
}

void sched_resume(struct sched *s, struct sched_seq *seq)
{
    ASSERT(!s->planned);
    if (!seq->paused)
        return;
    bool queued = sched_waits(seq) && seq->phase != SCHED_FETCHING;
    s->paused_count -= sched_has_place(seq);
    if (queued)
        places_leave_queue(s, seq);
    else
        s->waiting_paused -= sched_waits(seq);
    seq->paused = false;
    if (queued)
        places_enqueue_last(s, seq);
}

struct sched_seq *sched_take_ended(struct sched *s)
{
    if (list_empty(&s->ended))
        return NULL;
    struct sched_seq *seq = LIST_FIRST(&s->ended, struct sched_seq, link);
    ASSERT(seq->phase == SCHED_ENDED);
    list_remove(&seq->link);
    seq->phase = SCHED_NEW;
    return seq;
}

struct sched_seq *sched_first_waiting(const struct sched *s)
{
    struct sched_seq *first = NULL;
    for (struct list *it = s->running.next; it != &s->running; it = it->next) {
        struct sched_seq *seq = SEQ(it);
        bool waits = seq->phase == SCHED_PREFILLING && !seq->paused && seq->ready && seq->ready < seq->tokens;
        if (waits && (!first || tokens_prompt_before(seq, first, s->now_ns)))
            first = seq;
    }
    ASSERT(!first || first->ready < first->tokens);
    return first;
}

static void add_load(const struct list *list, struct sched_load *load)
{
    for (const struct list *it = list->next; it != list; it = it->next) {
        const struct sched_seq *seq = SEQ(it);
        if (seq->paused || (seq->ready && seq->ready <= seq->done))
            continue;
        ASSERT(seq->share->seqs > 0 && seq->done <= seq->tokens);
        bool decodes = seq->phase == SCHED_DECODING;
        load->decoding += decodes;
        load->prompts += !decodes;
        seq->share->works = true;
        seq->share->reads |= !decodes;
    }
}

void sched_load(struct sched *s, struct sched_load *ret)
{
    *ret = (struct sched_load){0};
    LIST_EACH(it, &s->shares.present) {
        struct share *x = LIST_ENTRY(it, struct share, link);
        x->works = x->reads = false;
    }
    add_load(&s->running, ret);
    add_load(&s->queue, ret);
    uint32_t work = 0, read = 0;
    LIST_EACH(at, &s->shares.present) {
        const struct share *x = LIST_ENTRY(at, const struct share, link);
        work += x->works;
        read += x->reads;
    }
    ASSERT(read <= work && read <= ret->prompts && work <= ret->decoding + ret->prompts);
    if (work > 1)
        ret->prompts = read;
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

static bool has_waited(const struct sched *s, uint64_t since_ns, uint64_t ns)
{
    return s->now_ns >= since_ns && s->now_ns - since_ns >= ns;
}

static void end_if_late(struct sched *s, struct sched_seq *seq)
{
    ASSERT(sched_waits(seq));
    if (seq->phase == SCHED_PREEMPTED || seq->phase == SCHED_PARKED)
        return;
    if (s->opts.queue_timeout_ns > 0 && has_waited(s, seq->arrival_ns, s->opts.queue_timeout_ns))
        places_end(s, seq, SCHED_END_TIMEOUT);
    else if (s->taken_ns > 0 && has_waited(s, MAX_OF(seq->arrival_ns, s->taken_ns), SCHED_PATIENCE_NS))
        places_end(s, seq, SCHED_END_TAKEN);
}

static void end_timeouts(struct sched *s)
{
    if (s->opts.queue_timeout_ns == 0 && s->taken_ns == 0)
        return;
    LIST_EACH(it, &s->queue)
        end_if_late(s, SEQ(it));
    LIST_EACH(at, &s->fetching)
        end_if_late(s, SEQ(at));
}

static void note_active(struct sched *s, struct list *list)
{
    LIST_EACH(it, list)
        if (!SEQ(it)->paused)
            share_note_active(SEQ(it)->share, s->plan_number);
}

static void level_tenants(struct sched *s)
{
    note_active(s, &s->running);
    note_active(s, &s->queue);
    note_active(s, &s->fetching);
    shares_level(&s->shares, s->plan_number);
}

/* Pages, places, and tokens. since_ns: time since the plan before. */
static void choose(struct sched *s, const struct sched_events *ev, uint64_t since_ns)
{
    secure_running(s);
    if (s->opts.tier)
        fetching_begin(s);
    admit_queue(s);
    matching_plan(s, since_ns, ev->match_ns_max);
    tokens_plan(s, is_alone(s) ? ev->tokens_alone : ev->tokens_shared);
}

void sched_plan(struct sched *s, const struct sched_events *ev, struct sched_plan *ret)
{
    ASSERT(s->now_ns <= ev->now_ns);
    ASSERT(!s->planned);
    uint64_t preemptions = s->preemptions, since_ns = ev->now_ns - s->now_ns;
    s->plan_number++;
    s->seq_count = s->tokens = 0;
    s->now_ns = ev->now_ns;
    s->refused = s->refused && ev->now_ns - s->refused_ns < REFUSED_NS;
    s->prompt_token_ns = ev->prompt_token_ns;
    s->oldest = places_oldest(s);
    level_tenants(s);
    end_timeouts(s);
    if (s->opts.tier)
        fetching_go_on(s);
    if (s->now_ns >= s->rest_ns)
        choose(s, ev, since_ns);
    if (!s->refused)
        s->taken_ns = 0;
    ASSERT(s->taken_ns <= s->now_ns + (s->now_ns == 0));
    ASSERT(s->seq_count <= s->running_count);
    ASSERT(s->tokens <= s->opts.tokens_max);
    s->planned = s->seq_count > 0;
    *ret = (struct sched_plan){s->seq_count, s->tokens, s->seqs, (uint32_t)(s->preemptions - preemptions)};
}

/* `sampled`: tokens that the sequence gains; all but the last of them are accepted draft tokens and
 * computed. */
static void advance(struct sched *s, const struct sched_step_seq *r, uint32_t sampled, uint64_t now_ns)
{
    ASSERT(r->from == r->seq->done);
    struct sched_seq *seq = r->seq;
    uint32_t before = seq->done;
    bool samples = r->samples && !seq->prompt_only;
    ASSERT(!samples ||
           (sampled >= 1 && sampled <= 1 + r->drafts && sampled <= seq->tokens_limit - seq->tokens));
    seq->done += samples ? r->count - r->drafts + sampled - 1 : r->count;
    ASSERT(seq->done <= seq->tokens - !seq->prompt_only + (samples ? sampled : 0));
    ASSERT(seq->done <= seq->page_count * PAGE_TOKENS);
    share_charge(seq->share, seq->done - before);
    seq_cache_advance(&s->opts, seq);
    seq->served_ns = now_ns;
    if (!samples)
        return;
    seq->tokens += sampled;
    seq->phase = SCHED_DECODING;
}

/* The device had no memory for the step. */
static void take_back(struct sched *s, uint64_t now_ns)
{
    ASSERT(s->seq_count > 0 && !s->planned);
    s->now_ns = MAX_OF(s->now_ns, now_ns);
    s->refused = true;
    s->refused_ns = s->now_ns;
    s->rest_ns = s->now_ns + REST_NS;
    if (s->taken_ns == 0)
        s->taken_ns = MAX_OF(s->now_ns, 1u);
    for (uint32_t i = 0; i < s->seq_count; i++) {
        ASSERT(sched_has_place(s->seqs[i].seq));
        if (sched_waits_for_memory(s))
            places_preempt(s, s->seqs[i].seq);
        else
            places_end(s, s->seqs[i].seq, SCHED_END_NO_MEMORY);
    }
}

void sched_done(struct sched *s, const struct sched_results *results)
{
    ASSERT(s->planned);
    s->planned = false;
    for (uint32_t i = 0; i < s->seq_count && results->computed; i++)
        advance(s, &s->seqs[i], results->sampled ? results->sampled[i] : 1, results->now_ns);
    if (!results->computed && results->no_memory)
        take_back(s, results->now_ns);
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
                                  .fetches_failed = s->fetches_failed,
                                  .taken_ns = s->running_count + s->waiting_count > 0 ? s->taken_ns : 0};
    ASSERT(ret->fetching + ret->parked <= ret->waiting);
    ASSERT(ret->fetches_failed <= ret->fetches);
}
