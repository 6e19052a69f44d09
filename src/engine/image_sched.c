/* image_sched.c - how far each sequence may go, and which image is encoded next.
 *
 * Each sequence's answer is computed anew before each plan: the first image ahead of it without
 * embeddings. Images are few, so no event is needed when a sequence is preempted, paused, cached or ended.
 * A queued sequence counts as having none: its cache hits are not known before it is admitted. The one
 * image in progress belongs to a job. When that job ends, another with the same image takes it over, or it
 * is stopped. Embeddings get their memory piece by piece like everything else: a large image's are tens of
 * MB to commit. */
#include "engine/image_sched.h"

#include "engine/embedding_cache.h"
#include "engine/engine.h"
#include "engine/engine_numbers.h"
#include "engine/job.h"
#include "engine/job_images.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "compute/device.h"
#include "memory/accounts.h"
#include "model/model.h"
#include "model/vision.h"
#include "reclaim/holders.h"
#include "sched/sched.h"
#include "vision/image.h"

#include <errno.h>
#include <string.h>

#define SLICE_LEAST_NS (NS_PER_MS / 2)
#define SLICE_ALONE_NS (20 * NS_PER_MS) /* between two looks at the inbox */
#define RETRY_NS       (10 * NS_PER_MS) /* until memory that was refused is tried again */

static uint32_t end_of(const struct model_grid *g)
{
    return g->first + model_grid_tokens(g);
}

/* ---- life cycle ---- */

size_t image_sched_arena_bytes(const struct model_shape *s)
{
    return s->vision.present ? embedding_cache_arena_bytes() : 0;
}

static size_t token_bytes(const struct model_shape *s)
{
    return s->vision.feature_floats * sizeof(float);
}

uint64_t engine_image_bytes(const struct model_shape *s)
{
    uint64_t edge = job_images_edge(s);
    return edge ? embedding_cache_entry_bytes(token_bytes(s), s->vision.pixels_max / (edge * edge)) : 0;
}

int image_sched_create(struct image_sched *s, const struct image_sched_opts *opts, struct arena *a)
{
    if (!opts->shape->vision.present)
        return 0;
    uint64_t bytes_max = MAX_OF(opts->cache_bytes, engine_image_bytes(opts->shape));
    int r = accounts_open(opts->parent, ACCOUNT_IMAGES, bytes_max, &s->images);
    if (r < 0)
        return r;
    account_set_planned(s->images, bytes_max);
    s->opts = *opts;
    s->vision = accounts_find(opts->parent, ACCOUNT_VISION);
    s->entry = NONE;
    struct embedding_cache_opts embedding_cache = {.account = s->images,
                                                   .token_bytes = token_bytes(opts->shape),
                                                   .bytes_max = bytes_max,
                                                   .keep_bytes = opts->cache_bytes};
    return embedding_cache_create(a, &embedding_cache, &s->embedding_cache);
}

void image_sched_done(struct image_sched *s)
{
    ASSERT(s->jobs == 0 && !s->owner);
    while (s->images && s->opts.encoder.trim(s->opts.encoder.of))
        ;
    embedding_cache_done(s->embedding_cache);
    account_close(s->images);
    *s = (struct image_sched){0};
}

void image_sched_enter(struct image_sched *s, const struct job *j)
{
    s->jobs += j->image_count > 0;
}

/* ---- images of a sequence ---- */

static struct embedding_cache_key key_of(const struct job *j, uint32_t i)
{
    struct embedding_cache_key key = {.scope = j->scope,
                                      .rows = j->grids[i].rows,
                                      .columns = j->grids[i].columns,
                                      .frames = j->images[i]->frames};
    memcpy(key.sha256, j->images[i]->sha256, sizeof(key.sha256));
    return key;
}

static void take(struct image_sched *s, struct job *j, uint32_t i, uint32_t entry)
{
    ASSERT(j->entries[i] == NONE && entry != NONE);
    j->entries[i] = entry;
    j->grids[i].features = embedding_cache_features(s->embedding_cache, entry);
}

static void let_go(struct image_sched *s, struct job *j, uint32_t i)
{
    if (j->entries[i] == NONE)
        return;
    j->grids[i].features = DEV_NULL;
    embedding_cache_unref(s->embedding_cache, j->entries[i]);
    j->entries[i] = NONE;
}

static void let_go_all(struct image_sched *s, struct job *j)
{
    for (uint32_t i = 0; i < j->image_count; i++)
        let_go(s, j, i);
}

/* References the image's embeddings, if they are cached. */
static bool find(struct image_sched *s, struct job *j, uint32_t i)
{
    if (j->entries[i] != NONE)
        return true;
    struct embedding_cache_key key = key_of(j, i);
    uint32_t entry = embedding_cache_find(s->embedding_cache, &key);
    if (entry == NONE)
        return false;
    embedding_cache_ref(s->embedding_cache, entry);
    take(s, j, i, entry);
    s->now.found++;
    return true;
}

/* sched_seq.ready for the present state of the sequence. */
static uint32_t ready_of(struct image_sched *s, struct job *j)
{
    ASSERT(j->image_count > 0);
    bool reads = j->seq.phase == SCHED_PREFILLING && !j->seq.paused;
    if (!reads)
        let_go_all(s, j);
    if (!reads)
        return j->seq.phase == SCHED_DECODING ? 0 : j->grids[0].first;
    for (uint32_t i = 0; i < j->image_count; i++) {
        if (end_of(&j->grids[i]) <= j->seq.done)
            let_go(s, j, i);
        else if (!find(s, j, i))
            return j->grids[i].first;
    }
    return 0;
}

bool image_sched_update(struct image_sched *s)
{
    bool changed = false;
    if (s->jobs == 0)
        return false;
    LIST_EACH(it, s->opts.jobs) {
        struct job *j = LIST_ENTRY(it, struct job, link);
        uint32_t ready = j->image_count > 0 ? ready_of(s, j) : 0;
        changed |= ready != j->seq.ready;
        j->seq.ready = ready;
    }
    return changed;
}

/* ---- the image in progress ---- */

static void forget(struct image_sched *s)
{
    ASSERT(s->owner && s->image);
    image_unref(s->image);
    s->image = NULL;
    s->owner = NULL;
    s->entry = NONE;
    s->begun = false;
    s->ended_ns = clock_now_ns();
}

static void stop(struct image_sched *s)
{
    ASSERT(s->entry != NONE);
    if (s->begun)
        s->opts.encoder.stop(s->opts.encoder.of);
    embedding_cache_abandon(s->embedding_cache, s->entry);
    forget(s);
}

/* The job's image that is the one in progress, if any. */
static bool wants_same(const struct image_sched *s, const struct job *j,
                       const struct embedding_cache_key *key, uint32_t *ret)
{
    for (uint32_t i = 0; i < j->image_count; i++) {
        struct embedding_cache_key own = key_of(j, i);
        if (end_of(&j->grids[i]) <= j->seq.done || !embedding_cache_key_eq(&own, key))
            continue;
        *ret = i;
        return j != s->owner && j->seq.phase == SCHED_PREFILLING;
    }
    return false;
}

static void leave_to_another(struct image_sched *s)
{
    ASSERT(s->at < s->owner->image_count);
    struct embedding_cache_key key = key_of(s->owner, s->at);
    LIST_EACH(it, s->opts.jobs) {
        struct job *j = LIST_ENTRY(it, struct job, link);
        if (!wants_same(s, j, &key, &s->at))
            continue;
        s->owner = j;
        return;
    }
    stop(s);
}

void image_sched_leave(struct image_sched *s, struct job *j)
{
    if (j->image_count == 0)
        return;
    if (s->owner == j)
        leave_to_another(s);
    let_go_all(s, j);
    ASSERT(s->jobs > 0);
    s->jobs--;
}

static void finish(struct image_sched *s)
{
    struct job *j = s->owner;
    embedding_cache_finish(s->embedding_cache, s->entry);
    s->now.encoded++;
    /* The owner takes over the reference that the entry was made with. An owner that has lost its place
     * meanwhile looks for the entry again. */
    take(s, j, s->at, s->entry);
    forget(s);
}

/* ---- memory that was refused ---- */

/* Deadlock: all others release their embeddings, and find or compute them again later. */
static void let_others_go(struct image_sched *s, const struct job *but)
{
    LIST_EACH(it, s->opts.jobs) {
        struct job *j = LIST_ENTRY(it, struct job, link);
        if (j != but && j->image_count > 0)
            let_go_all(s, j);
    }
}

enum refusal { REFUSAL_OVER, REFUSAL_PASSES, REFUSAL_STAYS };

static enum refusal find_memory(struct image_sched *s, const struct job *j, uint64_t bytes, bool stepped)
{
    struct embedding_cache_numbers n;
    if (!stepped)
        let_others_go(s, j);
    if (embedding_cache_evict(s->embedding_cache) > 0 || pools_free_unit(s->opts.pools))
        return REFUSAL_OVER;
    if (s->opts.pools->holder && holder_want(s->opts.pools->holder, bytes, clock_now_ns()))
        return REFUSAL_PASSES;
    embedding_cache_numbers(s->embedding_cache, &n);
    return n.entries > n.unused ? REFUSAL_PASSES : REFUSAL_STAYS;
}

/* The job's image got no memory. error -ENOBUFS: the system refused it. True: there is some now. */
static bool refuse(struct image_sched *s, struct job *j, uint32_t i, int error, bool stepped)
{
    ASSERT(i < j->image_count && error < 0);
    const struct image *p = j->images[i];
    uint64_t now_ns = clock_now_ns();
    uint64_t features = token_bytes(s->opts.shape) * j->grids[i].rows * j->grids[i].columns;
    uint64_t encoding = model_encode_bytes(s->opts.shape, (uint64_t)p->width * p->height);
    enum refusal refusal = find_memory(s, j, features + encoding, stepped);
    bool taken = refusal == REFUSAL_STAYS && error == -ENOBUFS && !pools_are_limited(s->opts.pools);
    if (taken && s->taken_ns == 0)
        s->taken_ns = now_ns;
    if (refusal == REFUSAL_STAYS && (!taken || now_ns - s->taken_ns >= SCHED_TAKEN_NS))
        s->opts.port.refused(s->opts.port.arg, j, i, features, encoding, taken);
    else if (refusal != REFUSAL_OVER)
        s->retry_ns = now_ns + RETRY_NS;
    return refusal == REFUSAL_OVER;
}

/* ---- slices ---- */

/* The next sequence with images to encode. Sequences admitted by the last plan have not been looked at
 * yet. */
static struct job *next_job(struct image_sched *s)
{
    struct sched_seq *seq;
    while ((seq = s->opts.port.first_waiting(s->opts.port.arg)) != NULL) {
        uint32_t ready = ready_of(s, job_of(seq));
        if (ready == seq->ready)
            return job_of(seq);
        seq->ready = ready;
    }
    return NULL;
}

static uint32_t image_at(const struct job *j, uint32_t token)
{
    uint32_t i = 0;
    while (i < j->image_count && j->grids[i].first != token)
        i++;
    ASSERT(i < j->image_count);
    return i;
}

/* True: something has changed: an image is in progress, or there is more room for one. */
static bool begin(struct image_sched *s, bool stepped)
{
    struct job *j = next_job(s);
    if (!j) {
        s->taken_ns = 0;
        return false;
    }
    if (clock_now_ns() < s->retry_ns)
        return false;
    uint32_t at = image_at(j, j->seq.ready), entry;
    struct embedding_cache_key key = key_of(j, at);
    int r = embedding_cache_begin(s->embedding_cache, &key, &entry);
    if (r == -ENOMEM || (r == -EAGAIN && !stepped))
        return refuse(s, j, at, r, stepped);
    if (r < 0)
        return false;
    ASSERT(!s->owner);
    s->owner = j;
    s->at = at;
    s->entry = entry;
    s->image = image_ref(j->images[at]);
    s->opts.port.begins(s->opts.port.arg);
    return true;
}

/* Commits a piece of the embeddings' memory, then of the vision encoder's; the last piece starts the
 * image. */
static int prepare(struct image_sched *s)
{
    const struct image *p = s->image;
    ASSERT(!s->begun && p->frames > 0);
    int r = embedding_cache_commit(s->embedding_cache, s->entry);
    if (r != 0)
        return r < 0 ? r : 0;
    const uint8_t *last = p->pixels + (p->frames - 1) * image_frame_bytes(p->width, p->height);
    struct model_image in = {.frames = {p->pixels, last},
                             .width = p->width,
                             .height = p->height,
                             .features = embedding_cache_features(s->embedding_cache, s->entry)};
    r = s->opts.encoder.begin(s->opts.encoder.of, &in);
    s->begun = r == 0;
    if (s->begun)
        s->taken_ns = 0;
    return r < 0 ? r : 0;
}

static bool is_decoding(const struct image_sched *s)
{
    for (const struct list *it = s->opts.jobs->next; it != s->opts.jobs; it = it->next) {
        const struct job *j = LIST_ENTRY(it, const struct job, link);
        if (j->seq.phase == SCHED_DECODING && !j->seq.paused)
            return true;
    }
    return false;
}

static uint64_t median_step_ns(const struct image_sched *s)
{
    uint64_t sorted[IMAGE_SCHED_STEPS];
    uint32_t count = (uint32_t)MIN_OF(s->step_count, (uint64_t)IMAGE_SCHED_STEPS);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > s->steps_ns[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = s->steps_ns[i];
    }
    return count ? sorted[count / 2] : 0;
}

/* Beside sequences that decode, their tokens come half as fast as without. */
static uint64_t slice_ns(const struct image_sched *s)
{
    uint64_t step_ns = atomic_load(s->opts.step_ns);
    if (!is_decoding(s))
        return MIN_OF(SLICE_ALONE_NS, step_ns);
    return MIN_OF(step_ns / 2, MAX_OF(median_step_ns(s), SLICE_LEAST_NS));
}

/* True: the image is done. began_ns: when this engine's turn began. r: the result of preparing it. */
static bool work(struct image_sched *s, uint64_t *began_ns, int *r)
{
    ASSERT(s->owner);
    bool done = false;
    *r = 0;
    device_work_begin(s->opts.device);
    device_turn_begin(s->opts.device);
    *began_ns = clock_now_ns();
    const uint64_t deadline_ns = *began_ns + slice_ns(s);
    do {
        if (s->begun)
            done = s->opts.encoder.run(s->opts.encoder.of, deadline_ns);
        else
            *r = prepare(s);
    } while (*r == 0 && !done && clock_now_ns() < deadline_ns);
    device_turn_end(s->opts.device);
    device_work_end(s->opts.device);
    return done;
}

static void count_slice(struct image_sched *s, uint64_t began_ns)
{
    uint64_t now_ns = clock_now_ns(), took_ns = now_ns - began_ns;
    s->now.slices++;
    s->now.slices_ns += took_ns;
    s->now.slice_max_ns = MAX_OF(s->now.slice_max_ns, took_ns);
    atomic_store(s->opts.progress_ns, now_ns);
}

/* The image in progress begins again when there is room, or its job ends. */
static void refuse_current(struct image_sched *s, int error, bool stepped)
{
    struct job *j = s->owner;
    uint32_t at = s->at;
    stop(s);
    (void)refuse(s, j, at, error, stepped);
}

static void slice(struct image_sched *s, bool stepped)
{
    if (s->opts.port.slice)
        s->opts.port.slice(s->opts.port.slice_arg);
    uint64_t began_ns;
    int r;
    atomic_store(s->opts.progress_ns, clock_now_ns());
    if (work(s, &began_ns, &r))
        finish(s);
    count_slice(s, began_ns);
    if (r < 0)
        refuse_current(s, r, stepped);
}

bool image_sched_run(struct image_sched *s, bool stepped)
{
    if (s->jobs == 0)
        s->taken_ns = 0;
    if (s->jobs == 0 || atomic_load(s->opts.closing))
        return false;
    if (!s->owner && !begin(s, stepped))
        return false;
    if (s->owner)
        slice(s, stepped);
    return true;
}

void image_sched_note_step(struct image_sched *s, const struct sched_plan *plan, uint64_t took_ns)
{
    for (uint32_t i = 0; i < plan->seq_count; i++)
        if (plan->seqs[i].from < job_of(plan->seqs[i].seq)->prompt_count)
            return;
    s->steps_ns[s->step_count++ % IMAGE_SCHED_STEPS] = took_ns;
}

/* ---- memory ---- */

static uint64_t vision_bytes(const struct image_sched *s)
{
    return s->vision ? account_numbers(s->vision).used : 0;
}

static struct embedding_cache_numbers embedding_cache_now(const struct image_sched *s)
{
    struct embedding_cache_numbers n = {0};
    if (s->embedding_cache)
        embedding_cache_numbers(s->embedding_cache, &n);
    return n;
}

uint64_t image_sched_spare_bytes(const struct image_sched *s, uint64_t before_ns)
{
    uint64_t held = s->owner || s->ended_ns >= before_ns ? 0 : vision_bytes(s);
    return held > s->least_bytes ? held - s->least_bytes : 0;
}

struct pools_beside image_sched_beside(const struct image_sched *s)
{
    const struct embedding_cache_numbers n = embedding_cache_now(s);
    uint64_t spare = image_sched_spare_bytes(s, UINT64_MAX);
    return (struct pools_beside){
        .held_bytes = n.bytes + vision_bytes(s),
        .free_bytes = n.unused_bytes + spare,
        .reach_bytes = (s->images ? account_would_free(s->images, n.unused_bytes) : 0) +
                       (s->vision ? account_would_free(s->vision, spare) : 0),
    };
}

uint32_t image_sched_unused(const struct image_sched *s)
{
    return embedding_cache_now(s).unused;
}

static uint64_t relax(struct image_sched *s)
{
    uint64_t before = vision_bytes(s);
    bool more = s->opts.encoder.trim(s->opts.encoder.of);
    uint64_t now = vision_bytes(s);
    if (!more)
        s->least_bytes = now;
    return before - MIN_OF(now, before);
}

uint64_t image_sched_give(struct image_sched *s, uint64_t before_ns, bool features)
{
    uint64_t bytes = image_sched_spare_bytes(s, before_ns) > 0 ? relax(s) : 0;
    if (bytes == 0 && features && s->embedding_cache)
        bytes = embedding_cache_evict(s->embedding_cache);
    return bytes;
}

/* ---- for reports ---- */

void image_sched_read_gauges(const struct image_sched *s, struct engine_numbers *ret)
{
    struct embedding_cache_numbers n = embedding_cache_now(s);
    ret->images_encoded = s->now.encoded;
    ret->images_found = s->now.found;
    ret->encode_slices = s->now.slices;
    ret->encode_ns = s->now.slices_ns;
    ret->encode_slice_max_ns = s->now.slice_max_ns;
    ret->images_kept = n.entries;
    ret->images_bytes = n.bytes;
    ret->images_bytes_max = n.bytes_max;
    ret->images_evicted = n.evicted;
    ret->encoding_bytes = vision_bytes(s);
}

uint32_t image_sched_images_done(const struct job *j)
{
    uint32_t count = 0;
    if (j->seq.phase == SCHED_DECODING)
        return j->image_count;
    for (uint32_t i = 0; i < j->image_count; i++)
        count += end_of(&j->grids[i]) <= j->seq.done || j->entries[i] != NONE;
    return count;
}

bool image_sched_is_awaited(const struct job *j)
{
    return j->image_count > 0 && j->seq.phase == SCHED_PREFILLING && j->seq.ready > 0 &&
           j->seq.done >= j->seq.ready;
}
