/* publish.c - the copies, and the phase of a job as clients know it. */
#include "engine/publish.h"

#include "engine/image_sched.h"
#include "engine/job.h"

#include "base/check.h"
#include "model/model.h"
#include "sched/sched.h"

#include <errno.h>

size_t publish_arena_bytes(uint32_t jobs_max, uint32_t seqs_max)
{
    return jobs_max * sizeof(struct job_numbers) + seqs_max * sizeof(struct request_id) + 2 * (size_t)64;
}

int publish_init(struct publish *p, struct arena *a, uint32_t jobs_max, uint32_t seqs_max,
                 const struct model_shape *shape)
{
    struct job_numbers *jobs = ARENA_ARRAY(a, struct job_numbers, jobs_max);
    struct request_id *ids = ARENA_ARRAY(a, struct request_id, seqs_max);
    if (!jobs || !ids)
        return -ENOMEM;
    *p = (struct publish){jobs_max, seqs_max, shape, .jobs = jobs, .step_ids = ids};
    pthread_mutex_init(&p->lock, NULL);
    return 0;
}

void publish_done(struct publish *p)
{
    if (p->jobs)
        pthread_mutex_destroy(&p->lock);
}

static enum job_phase phase_of(const struct job *j)
{
    if (j->over || j->seq.paused)
        return JOB_PAUSED;
    switch (j->seq.phase) {
    case SCHED_FETCHING:
        return JOB_FETCHING;
    case SCHED_PREFILLING:
        return image_sched_is_awaited(j) ? JOB_ENCODING : JOB_PREFILLING;
    case SCHED_DECODING:
        return JOB_DECODING;
    case SCHED_PREEMPTED:
        return JOB_PREEMPTED;
    case SCHED_PARKED:
        return JOB_PARKED;
    default:
        return JOB_QUEUED;
    }
}

/* Returns the bytes of its pages and its state. */
static uint64_t pool_bytes(const struct publish *p, const struct sched_seq *seq)
{
    uint64_t bytes = seq->state != NONE ? p->shape->state_bytes : 0;
    for (uint32_t g = 0; g < p->shape->group_count; g++)
        bytes += (uint64_t)(MAX_OF(seq->page_count, seq->first[g]) - seq->first[g]) *
                 p->shape->groups[g].page_bytes;
    return bytes;
}

static struct job_numbers numbers_of(const struct publish *p, const struct job *j, uint64_t now_ns)
{
    return (struct job_numbers){
        .id = stream_id(j->stream),
        .phase = phase_of(j),
        .prompt_tokens = j->prompt_count,
        .prompt_done = MIN_OF(j->seq.done, j->prompt_count),
        .completion_tokens = j->output_count,
        .cached_tokens = j->seq.cached,
        .max_tokens = j->max_tokens,
        .drafted_tokens = j->draft.drafted_tokens,
        .accepted_tokens = j->draft.accepted_tokens,
        .images = j->image_count,
        .images_done = image_sched_images_done(j),
        .age_ns = now_ns - j->arrival_ns,
        .image_bytes = j->image_bytes,
        .bytes = j->bytes + pool_bytes(p, &j->seq),
    };
}

static bool has_place(const struct job *j)
{
    return j->seq.phase == SCHED_PREFILLING || j->seq.phase == SCHED_DECODING;
}

/* The jobs of the list with a place in the batch, or those without. */
static void list_jobs(struct publish *p, const struct list *jobs, bool placed, uint64_t now_ns)
{
    for (const struct list *it = jobs->next; it != jobs; it = it->next) {
        const struct job *j = LIST_ENTRY(it, const struct job, link);
        if (has_place(j) != placed)
            continue;
        ASSERT(p->job_count < p->jobs_max);
        p->jobs[p->job_count++] = numbers_of(p, j, now_ns);
    }
}

static uint64_t prompt_left(const struct publish *p)
{
    uint64_t ret = 0;
    for (uint32_t i = 0; i < p->job_count; i++)
        ret += p->jobs[i].prompt_tokens - p->jobs[i].prompt_done;
    return ret;
}

void publish_write(struct publish *p, const struct engine_numbers *now, const struct list *jobs,
                   const struct list *over, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    p->numbers = *now;
    p->job_count = 0;
    list_jobs(p, jobs, true, now_ns);
    list_jobs(p, jobs, false, now_ns);
    p->numbers.prompt_left = prompt_left(p); /* ended jobs have none */
    list_jobs(p, over, false, now_ns);
    pthread_mutex_unlock(&p->lock);
}

void publish_step(struct publish *p, const struct sched_plan *plan)
{
    ASSERT(plan->seq_count <= p->seqs_max);
    pthread_mutex_lock(&p->lock);
    p->step_id_count = plan->seq_count;
    for (uint32_t i = 0; i < plan->seq_count; i++)
        p->step_ids[i] = stream_id(job_of(plan->seqs[i].seq)->stream);
    pthread_mutex_unlock(&p->lock);
}

/* ---- for readers ---- */

void publish_read(struct publish *p, struct engine_numbers *ret)
{
    pthread_mutex_lock(&p->lock);
    *ret = p->numbers;
    pthread_mutex_unlock(&p->lock);
}

uint32_t publish_read_jobs(struct publish *p, struct job_numbers *ret, uint32_t max)
{
    pthread_mutex_lock(&p->lock);
    uint32_t count = p->job_count;
    if (MIN_OF(count, max) > 0)
        memcpy(ret, p->jobs, MIN_OF(count, max) * sizeof(*ret));
    pthread_mutex_unlock(&p->lock);
    return count;
}

uint32_t publish_read_step(struct publish *p, struct request_id *ret, uint32_t max)
{
    pthread_mutex_lock(&p->lock);
    uint32_t count = p->step_id_count;
    for (uint32_t i = 0; i < MIN_OF(count, max); i++)
        ret[i] = p->step_ids[i];
    pthread_mutex_unlock(&p->lock);
    return count;
}
