/* media.c - the threads of the media service, its queue, and the end of a task.
 *
 * A thread decodes one image or video of a task, then takes from the queue again (media_queue.h). So a task
 * of many large images gives way to a small one between two of them. A single image can take many seconds, so
 * one more thread decodes only small images.
 *
 * One lock guards the queue and the ownership of tasks. A task that its exchange has left is freed by its
 * present owner: by media_task_leave() while it is queued or done, by the worker otherwise. A video may take
 * a minute, so with several threads one is always left to images. Fetching has a thread of its own, so that a
 * slow remote server occupies no decoding thread. */
#include "media/media_task.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/slice.h"
#include "memory/accounts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)512 << 10) /* libraries' decoders keep rows and tables on it */
#define QUEUE_PART  2                   /* queued bytes are at most the limit divided by this */

/* ---- the queue ---- */

/* Estimated decoding time of all parts that are not decoded yet, and of the next one. */
static void set_cost(struct media_task *t)
{
    t->entry.cost_ns = 0;
    t->entry.turn_ns = t->parts[t->part_next].cost_ns;
    for (uint32_t i = t->part_next; i < t->part_count; i++)
        t->entry.cost_ns += t->parts[i].cost_ns;
}

static void put_task(struct media *m, struct media_task *t)
{
    atomic_store(&t->state, MEDIA_WAITING);
    set_cost(t);
    media_queue_put(&m->waiting, &t->entry);
    m->queued_bytes += t->bytes;
    pthread_cond_broadcast(&m->work);
}

static void begin_waiting(struct media *m, struct media_task *t)
{
    uint64_t now_ns = clock_now_ns();
    atomic_store(&t->waits_since_ns, now_ns);
    t->entry.arrived_ns = now_ns;
    t->entry.video = t->video;
    put_task(m, t);
}

/* Ends a task that no thread works on. True: its exchange has left it, so the caller frees it. With the
 * lock. */
static bool end_task(struct media *m, struct media_task *t)
{
    m->numbers.tasks++;
    m->numbers.tasks_failed += t->failed && !t->left;
    m->numbers.tasks_left += t->left;
    if (!t->left)
        atomic_store(&t->state, MEDIA_DONE);
    return t->left;
}

uint32_t media_retry_after_s(struct media *m)
{
    pthread_mutex_lock(&m->lock);
    uint64_t ns = m->task_ns * (m->waiting.count + 1) / m->opts.thread_count;
    pthread_mutex_unlock(&m->lock);
    return (uint32_t)MIN_OF(ns / NS_PER_S + 1, 60ull);
}

static bool has_room(const struct media *m, const struct media_task *t)
{
    return m->waiting.count + m->fetching_count < m->opts.tasks_max &&
           (m->queued_bytes == 0 || m->queued_bytes + t->bytes <= m->limit / QUEUE_PART);
}

bool media_submit(struct media_task *t, uint64_t tenant, struct media_failure *why)
{
    struct media *m = t->media;
    t->entry.fair.tenant = tenant;
    if (!t->remote)
        media_measure(t);
    pthread_mutex_lock(&m->lock);
    bool ok = has_room(m, t) && !m->stopping;
    uint32_t waiting = m->waiting.count + m->fetching_count;
    uint64_t bytes = m->queued_bytes;
    if (ok && t->remote) {
        atomic_store(&t->state, MEDIA_FETCHING);
        atomic_store(&t->waits_since_ns, clock_now_ns());
        m->fetching_count++;
        fetch_put(m->fetch, t);
    } else if (ok) {
        begin_waiting(m, t);
    }
    pthread_mutex_unlock(&m->lock);
    if (ok)
        return true;
    *why = (struct media_failure){.fault = MEDIA_FAULT_BUSY, .retry_after_s = media_retry_after_s(m)};
    snprintf(
        why->message, sizeof(why->message),
        "%u requests with images wait to be decoded, %llu bytes together; at most %u may wait, with %llu "
        "bytes. Try again in %u s.",
        waiting, (ull)bytes, m->opts.tasks_max, (ull)(m->limit / QUEUE_PART), why->retry_after_s);
    return false;
}

static uint64_t bytes_left(const struct media_task *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->source_count; i++)
        bytes += t->sources[i].bytes.len;
    return bytes;
}

static void fetched(struct media_task *t)
{
    struct media *m = t->media;
    media_measure(t);
    pthread_mutex_lock(&m->lock);
    m->fetching_count--;
    bool over = t->left || t->failed, gone = false;
    t->bytes = bytes_left(t);
    if (over)
        gone = end_task(m, t);
    else
        begin_waiting(m, t);
    pthread_mutex_unlock(&m->lock);
    if (gone)
        media_task_free(t);
    else if (over)
        m->opts.done(m->opts.arg);
}

void media_task_leave(struct media_task *t)
{
    if (!t)
        return;
    struct media *m = t->media;
    pthread_mutex_lock(&m->lock);
    enum media_state state = media_task_state(t);
    bool mine = state == MEDIA_MADE || state == MEDIA_WAITING || state == MEDIA_DONE;
    t->left = true;
    atomic_store(&t->stop, true);
    if (state == MEDIA_WAITING) {
        fair_queue_remove(&m->waiting, &t->entry.fair);
        m->queued_bytes -= t->bytes;
    }
    if (state == MEDIA_FETCHING && fetch_take_back(m->fetch, t)) {
        m->fetching_count--;
        mine = true;
    }
    if (mine && state != MEDIA_MADE && state != MEDIA_DONE)
        end_task(m, t);
    pthread_mutex_unlock(&m->lock);
    if (mine)
        media_task_free(t);
}

/* ---- work ---- */

static bool make_part(struct media_task *t, struct media_part *p)
{
    if (p->kind == MEDIA_IMAGE)
        return media_make_image(t, p);
    return p->listed ? media_make_frames(t, p) : media_make_video(t, p);
}

/* Decodes the next part. */
static void work(struct media_task *t)
{
    struct media_part *p = &t->parts[t->part_next++];
    uint64_t began_ns = clock_now_ns();
    t->failed = atomic_load(&t->stop) || !make_part(t, p);
    t->work_ns += clock_now_ns() - began_ns;
    if (t->failed)
        return;
    atomic_fetch_add(p->kind == MEDIA_VIDEO ? &t->media->videos_made : &t->media->images_made, 1);
    atomic_fetch_add(&t->parts_done, 1);
    atomic_store(&t->frames, 0);
}

/* The next task for this thread, or NULL; with the lock. */
static struct media_task *begin_work(struct media *m, bool small)
{
    enum media_lane lane = m->videos_now < m->videos_max ? MEDIA_LANE_ALL : MEDIA_LANE_IMAGES;
    struct media_entry *e = media_queue_take(&m->waiting, small ? MEDIA_LANE_SMALL : lane);
    if (!e)
        return NULL;
    struct media_task *t = CONTAINER(e, struct media_task, entry);
    m->queued_bytes -= t->bytes;
    atomic_store(&t->state, MEDIA_WORKING);
    atomic_store(&t->waits_since_ns, 0);
    m->working_count++;
    m->videos_now += t->video;
    return t;
}

enum after_work { AFTER_WAITS, AFTER_DONE, AFTER_GONE };

/* After work() has decoded a part; with the lock. */
static enum after_work end_work(struct media *m, struct media_task *t)
{
    m->working_count--;
    m->videos_now -= t->video;
    if (t->video)
        pthread_cond_broadcast(&m->work);
    if (!t->failed && !t->left && t->part_next < t->part_count) {
        t->bytes = bytes_left(t);
        put_task(m, t);
        return AFTER_WAITS;
    }
    m->numbers.work_ns += t->work_ns;
    m->task_ns = m->task_ns ? (3 * m->task_ns + t->work_ns) / 4 : t->work_ns;
    return end_task(m, t) ? AFTER_GONE : AFTER_DONE;
}

static void run(struct media *m, bool small)
{
    pthread_mutex_lock(&m->lock);
    while (!m->stopping) {
        struct media_task *t = begin_work(m, small);
        if (!t) {
            pthread_cond_wait(&m->work, &m->lock);
            continue;
        }
        pthread_mutex_unlock(&m->lock);
        work(t);
        pthread_mutex_lock(&m->lock);
        enum after_work after = end_work(m, t);
        if (after == AFTER_WAITS)
            continue;
        pthread_mutex_unlock(&m->lock);
        if (after == AFTER_GONE)
            media_task_free(t);
        else
            m->opts.done(m->opts.arg);
        pthread_mutex_lock(&m->lock);
    }
    pthread_mutex_unlock(&m->lock);
}

static void *run_any(void *arg)
{
    run(arg, false);
    return NULL;
}

static void *run_small(void *arg)
{
    run(arg, true);
    return NULL;
}

/* ---- start and end ---- */

static uint32_t processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : (uint32_t)CPU_COUNT(&set);
}

static void fill_defaults(struct media_opts *o)
{
    o->thread_count = o->thread_count ? o->thread_count : MIN_OF(processors(), 2u);
    o->thread_count = MIN_OF(o->thread_count, (uint32_t)MEDIA_THREADS_MAX);
    o->tasks_max = o->tasks_max ? o->tasks_max : 256;
    o->parts_max = o->parts_max ? o->parts_max : 16;
    o->bytes_max = o->bytes_max ? o->bytes_max : (size_t)64 << 20;
    o->pixels_max = o->pixels_max ? o->pixels_max : 64000000;
    o->timeout_s = o->timeout_s ? o->timeout_s : 60;
    o->video_s_max = o->video_s_max ? o->video_s_max : 3600;
}

uint64_t media_stack_bytes(const struct media_opts *opts)
{
    struct media_opts o = *opts;
    fill_defaults(&o);
    return (o.thread_count + 1) * (uint64_t)thread_stack_bytes(STACK_BYTES) +
           (o.allow_remote ? fetch_stack_bytes() : 0);
}

/* Searches PATH, as execvp() does. */
static bool find_program(const char *name)
{
    char path[4096];
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t len = strcspn(at, ":");
        snprintf(path, sizeof(path), "%.*s/%s", (int)len, at, name);
        if (len > 0 && access(path, X_OK) == 0)
            return true;
        at += len + (at[len] == ':');
    }
    return false;
}

static int start_threads(struct media *m)
{
    struct charge charge = account_charge(m->opts.threads ? m->opts.threads : m->opts.account);
    while (m->thread_count <= m->opts.thread_count) {
        uint32_t i = m->thread_count;
        int r = thread_stack_init(&m->stacks[i], STACK_BYTES, &charge);
        if (r == 0)
            r = thread_stack_start(&m->stacks[i], i == 0 ? run_small : run_any, m, &m->threads[i]);
        if (r < 0) {
            thread_stack_done(&m->stacks[i]);
            return r;
        }
        pthread_setname_np(m->threads[m->thread_count++], "media");
    }
    return 0;
}

static int open_dir(struct media *m, struct err *e)
{
    if (!m->opts.dir)
        return 0;
    m->dir = open(m->opts.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (m->dir >= 0)
        m->dir_path = realpath(m->opts.dir, NULL);
    return !m->dir_path ? err_set(e, -errno, "--media-dir %s: %s", m->opts.dir, strerror(errno)) : 0;
}

int media_create(const struct media_opts *opts, struct media **ret, struct err *e)
{
    struct media *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(e, -ENOMEM, "no memory for the media service");
    m->opts = *opts;
    fill_defaults(&m->opts);
    m->charge = media_memory_charge(m);
    m->limit = account_numbers(opts->account).limit;
    m->dir = -1;
    m->has_ffmpeg = find_program("ffmpeg") && find_program("ffprobe");
    m->videos_max = MAX_OF(m->opts.thread_count, 2u) - 1;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->work, NULL);
    fair_queue_init(&m->waiting);
    int r = open_dir(m, e);
    if (r == 0)
        r = accounts_open(opts->account, ACCOUNT_VIDEO, m->limit, &m->video);
    if (r == 0)
        account_set_planned(m->video, m->limit);
    if (r == 0 && m->opts.allow_remote)
        r = fetch_create(m, fetched, &m->fetch);
    if (r == 0)
        r = start_threads(m);
    if (r < 0) {
        media_free(m);
        return e->text[0] ? r : err_set(e, r, "the media service does not start: %s", strerror(-r));
    }
    *ret = m;
    return 0;
}

void media_stop(struct media *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->stopping = true;
    pthread_cond_broadcast(&m->work);
    pthread_mutex_unlock(&m->lock);
    while (m->thread_count > 0) {
        pthread_join(m->threads[--m->thread_count], NULL);
        thread_stack_done(&m->stacks[m->thread_count]);
    }
    fetch_free(m->fetch);
    m->fetch = NULL;
}

void media_free(struct media *m)
{
    if (!m)
        return;
    media_stop(m);
    ASSERT(m->waiting.count == 0);
    account_close(m->video);
    if (m->dir >= 0)
        close(m->dir);
    free(m->dir_path);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->work);
    free(m);
}

void media_numbers(struct media *m, struct media_numbers *ret)
{
    pthread_mutex_lock(&m->lock);
    *ret = m->numbers;
    ret->waiting = m->waiting.count;
    ret->working = m->working_count;
    ret->fetching = m->fetching_count;
    ret->queued_bytes = m->queued_bytes;
    pthread_mutex_unlock(&m->lock);
    ret->images = atomic_load(&m->images_made);
    ret->videos = atomic_load(&m->videos_made);
    ret->frames = atomic_load(&m->frames_made);
    ret->bytes_fetched = atomic_load(&m->bytes_fetched);
    ret->addresses_refused = atomic_load(&m->addresses_refused);
}

struct account *media_account(const struct media *m)
{
    return m->opts.account;
}

const struct media_opts *media_options(const struct media *m)
{
    return &m->opts;
}
