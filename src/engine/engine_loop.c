/* engine_loop.c - the engine's thread: look, step, encode a slice of an image, publish, deliver; sleep
 * without work.
 *
 * A job that ends leaves the scheduler at once and joins `over`. Its last tokens and its finish record go
 * out after the numbers have been published, so a reader of the finish record finds the request counted. Its
 * block is freed before, so the reader finds its bytes given back. A job with stop strings may have decided
 * tokens that a full stream does not take: it stays in `over` until the stream has room, or the client is
 * too slow. A full stream does not notify the engine of new room; the engine looks every POLL_NS while a
 * sequence is paused. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/heap_watch.h"
#include "cache/prefix_events.h"

#define POLL_NS (5 * NS_PER_MS)

/* Tokens: more than the network thread leaves in the stream of a client that reads. */
#define CROWDED_UNREAD 12

#define JOB(it) LIST_ENTRY(it, struct job, link)

/* ---- ends ---- */

/* The job's last message. Its memory is gone by then. */
static void finish(struct engine *en, struct job *j)
{
    ASSERT(j->stream);
    struct stream *s = j->stream;
    struct stream_finish f = j->finish;
    uint64_t tenant = j->seq.tenant_id;
    list_remove(&j->link);
    job_free(j);
    admission_give(&en->admission, tenant);
    stream_finish(s, &f);
    stream_release(s);
}

/* The finish record goes out after all tokens are in the stream, unless the job ended because its client
 * does not read. */
static bool wants_delivery(const struct engine *en, const struct job *j)
{
    bool whole = j->finish.reason == FINISH_STOP || j->finish.reason == FINISH_LENGTH;
    return whole && !stream_closed(j->stream) && !atomic_load(&en->closing);
}

static bool is_too_slow(const struct engine *en, const struct job *j, uint64_t now_ns)
{
    uint64_t slow_ns = atomic_load_explicit(&en->live->slow_client_ns, memory_order_relaxed);
    return slow_ns > 0 && j->full_since_ns > 0 && now_ns - j->full_since_ns >= slow_ns;
}

/* One wake per stream and step. */
static void tell(struct job *j)
{
    if (j->told)
        stream_wake(j->stream);
    j->told = false;
}

static void deliver_over(struct engine *en, struct job *j)
{
    uint64_t now_ns = clock_now_ns();
    bool flushed = job_flush(j);
    if (!flushed && wants_delivery(en, j)) {
        if (j->full_since_ns == 0)
            j->full_since_ns = now_ns;
        if (!is_too_slow(en, j, now_ns)) {
            tell(j);
            return;
        }
        ASSERT(en->now.finished[j->finish.reason] > 0);
        en->now.finished[j->finish.reason]--;
        en->now.finished[FINISH_TOO_SLOW]++;
        j->finish.reason = FINISH_TOO_SLOW;
    }
    finish(en, j);
}

static void deliver(struct engine *en)
{
    LIST_EACH(it, &en->jobs)
        tell(JOB(it));
    LIST_EACH(it, &en->over)
        deliver_over(en, JOB(it));
}

/* ---- messages from outside ---- */

static void take_message(struct engine *en, const struct engine_message *m)
{
    if (m->order && m->pinned) {
        engine_tiers_take_order(en, m->order);
        return;
    }
    if (m->order) {
        trim_take_order(&en->trim, m->order);
        return;
    }
    if (!m->job) {
        atomic_store(&en->wake_posted, false);
        return;
    }
    struct job *j = m->job;
    list_push_back(&en->jobs, &j->link);
    image_sched_enter(&en->image_sched, j);
    int r = sched_add(en->sched, &j->seq);
    ASSERT(r == 0);
    if (!engine_agents_enter(en, j))
        engine_end_job(en, j, FINISH_AGENTS_FULL);
    else if (!engine_leases_enter(en, j))
        engine_end_job(en, j, FINISH_LEASE_REFUSED);
}

static void take_inbox(struct engine *en)
{
    struct engine_message m;
    while (mailbox_take(en->inbox, &m))
        take_message(en, &m);
}

/* While sequences wait for a place, a sequence whose client has this many unread tokens gives up its own
 * sooner. It goes on when its client has read nearly all of them, whether sequences wait then or not. */
static bool has_room(const struct engine *en, struct job *j)
{
    ASSERT(stream_free_tokens(j->stream) <= STREAM_TOKENS);
    uint32_t unread = STREAM_TOKENS - stream_free_tokens(j->stream);
    if (!j->seq.paused)
        j->yields = en->crowded && !j->whole && unread >= CROWDED_UNREAD;
    else if (unread < CROWDED_UNREAD / 4)
        j->yields = false;
    return job_free_tokens(j) > 0 && !j->yields;
}

/* Handles clients that have gone, that do not read, that read again. */
static void look_at(struct engine *en, struct job *j, uint64_t now_ns)
{
    if (stream_closed(j->stream)) {
        engine_end_job(en, j, FINISH_ABORTED);
        return;
    }
    if (j->stops)
        job_flush(j);
    if (has_room(en, j)) {
        if (j->seq.paused)
            sched_resume(en->sched, &j->seq);
        j->full_since_ns = 0;
        return;
    }
    if (!j->seq.paused)
        sched_pause(en->sched, &j->seq);
    if (j->full_since_ns == 0)
        j->full_since_ns = now_ns;
    if (is_too_slow(en, j, now_ns))
        engine_end_job(en, j, FINISH_TOO_SLOW);
}

static uint32_t running_count(const struct engine *en)
{
    struct sched_numbers n;
    sched_numbers(en->sched, &n);
    return n.running;
}

static void look(struct engine *en)
{
    uint64_t now_ns = clock_now_ns();
    struct sched_numbers n;
    sched_numbers(en->sched, &n);
    en->crowded = n.waiting > n.waiting_paused;
    LIST_EACH(it, &en->jobs)
        look_at(en, JOB(it), now_ns);
}

/* Nothing can run, and that is correct: each sequence has all its tokens, or its client does not read, or
 * other programs have the memory. A sequence that could run and does not leaves the time unchanged, for the
 * watchdog. */
static void note_rest(struct engine *en)
{
    LIST_EACH(it, &en->jobs)
        if (!JOB(it)->seq.paused && JOB(it)->seq.phase != SCHED_FETCHING && atomic_load(&en->taken_ns) == 0)
            return;
    atomic_store(&en->progress_ns, 0);
}

/* ---- idle ---- */

/* Sleeps until a message comes. Before that, hands prefixes to the SSD tier, runs a due trim and checks
 * invariants. */
static void idle(struct engine *en)
{
    ASSERT(list_empty(&en->jobs) && list_empty(&en->over));
    struct engine_message m;
    trim_share(&en->trim);
    engine_tiers_share(en);
    engine_tiers_tend(en);
    if (engine_tiers_grow(en))
        return;
    bool untold = en->pools.index && prefix_events_tend(en->pools.index);
    uint64_t now_ns = clock_now_ns();
    uint64_t trim_ns = trim_wait_ns(&en->trim, en->last_end_ns, now_ns),
             write_ns = write_behind_wait_ns(&en->write_behind, en->last_end_ns, now_ns);
    uint64_t walk_ns = invariants_wait_ns(en, now_ns), others_ns = MIN_OF(trim_ns, write_ns);
    uint64_t leases_ns = engine_leases_wait_ns(en, now_ns);
    uint64_t first_ns = MIN_OF(MIN_OF(others_ns, leases_ns), walk_ns);
    engine_publish(en, true);
    if (mailbox_wait(en->inbox, &m, untold ? MIN_OF(first_ns, POLL_NS) : first_ns))
        take_message(en, &m);
    else if (untold && POLL_NS < first_ns)
        return;
    else if (leases_ns < MIN_OF(others_ns, walk_ns))
        engine_leases_tend(en);
    else if (walk_ns < others_ns)
        invariants_run(en);
    else if (write_ns < trim_ns)
        write_behind_run(&en->write_behind);
    else if (trim_ns != UINT64_MAX)
        trim_run(&en->trim);
}

/* ---- the thread ---- */

/* All sequences are paused: their clients do not read. */
static bool rests(const struct engine *en)
{
    for (const struct list *it = en->jobs.next; it != &en->jobs; it = it->next)
        if (!JOB(it)->seq.paused)
            return false;
    return true;
}

static void wait_for_room(struct engine *en)
{
    struct engine_message m;
    if (mailbox_wait(en->inbox, &m, POLL_NS))
        take_message(en, &m);
    else if (rests(en) && invariants_wait_ns(en, clock_now_ns()) == 0)
        invariants_run(en);
}

void *engine_thread(void *arg)
{
    struct engine *en = arg;
    heap_watch_forbid(true);
    while (!atomic_load(&en->closing)) {
        take_inbox(en);
        look(en);
        if (atomic_exchange(&en->reclaim, false))
            trim_reclaim(&en->trim);
        bool stepped = engine_step_begin(en);
        if (stepped) {
            (void)engine_tiers_grow(en);
            engine_step_end(en);
            invariants_after_step(en);
        }
        stepped |= image_sched_run(&en->image_sched, stepped);
        if (!stepped)
            note_rest(en);
        if (list_empty(&en->jobs) && list_empty(&en->over)) {
            idle(en);
            continue;
        }
        trim_share(&en->trim);
        engine_tiers_share(en);
        engine_tiers_tend(en);
        engine_publish(en, false);
        deliver(en);
        engine_leases_tend(en);
        if (en->pools.index)
            (void)prefix_events_tend(en->pools.index);
        trim_between_steps(&en->trim, running_count(en));
        if (!stepped && !(list_empty(&en->jobs) && list_empty(&en->over)))
            wait_for_room(en);
    }
    engine_end_all(en);
    heap_watch_forbid(false);
    if (engine_failure(en) != 0 && en->opts.failed)
        en->opts.failed(en->opts.failed_arg, engine_failure(en));
    return NULL;
}

static void end_at_close(struct engine *en, struct job *j)
{
    if (engine_failure(en) != 0)
        engine_fail_with_device(en, j);
    else
        engine_end_job(en, j, FINISH_SHUTDOWN);
}

void engine_end_all(struct engine *en)
{
    take_inbox(en);
    LIST_EACH(it, &en->jobs)
        end_at_close(en, JOB(it));
    trim_end(&en->trim);
    write_behind_end(&en->write_behind);
    engine_tiers_end(en);
    engine_publish(en, true);
    deliver(en);
    ASSERT(list_empty(&en->jobs) && list_empty(&en->over));
}
