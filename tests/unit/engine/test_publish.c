/* Published state of jobs and numbers, without an engine. */
#include "test_ledger.h"

#include "base/check.h"
#include "base/none.h"
#include "engine/job.h"
#include "engine/publish.h"
#include "model/model.h"
#include "sched/sched.h"

#include <string.h>

#define JOBS 4

struct fixture {
    struct arena *arena;
    struct publish p;
    struct list jobs, over;
    struct job of[JOBS];
};

static void add(struct fixture *f, uint32_t i, enum sched_phase phase, struct list *list)
{
    struct job *j = &f->of[i];
    struct stream_opts o = {.id = request_id_new()};
    *j = (struct job){.prompt_count = 10 + i, .arrival_ns = 100, .bytes = 1000};
    assert_int_equal(stream_create(&o, &j->stream), 0);
    j->seq.phase = phase;
    j->seq.done = 99;
    j->seq.page_count = i;
    j->seq.state = i % 2 ? 7 : NONE;
    list_init(&j->link);
    list_push_back(list, &j->link);
}

static const struct model_shape shape = {
    .groups = {{.page_bytes = 50}}, .group_count = 1, .page_bytes = 50, .state_bytes = 3};

static void setup(struct fixture *f)
{
    *f = (struct fixture){0};
    list_init(&f->jobs);
    list_init(&f->over);
    assert_int_equal(
        arena_create(&(struct arena_opts){.bytes_max = publish_arena_bytes(JOBS, 2) + 4096}, &f->arena), 0);
    assert_int_equal(publish_init(&f->p, f->arena, JOBS, 2, &shape), 0);
}

static void teardown(struct fixture *f)
{
    for (uint32_t i = 0; i < JOBS && f->of[i].stream; i++) {
        struct stream_finish end = {0};
        stream_finish(f->of[i].stream, &end);
        stream_release(f->of[i].stream);
        stream_release(f->of[i].stream);
    }
    publish_done(&f->p);
    arena_free(f->arena);
}

static bool is_job(const struct fixture *f, const struct job_numbers *n, uint32_t i)
{
    struct request_id id = stream_id(f->of[i].stream);
    return memcmp(&n->id, &id, sizeof(id)) == 0 && n->prompt_tokens == 10 + i && n->prompt_done == 10 + i &&
           n->age_ns == 400 && n->bytes == 1000 + i * 50 + (i % 2 ? 3 : 0);
}

TEST(jobs_in_the_batch_come_first_and_ended_ones_last)
{
    struct fixture f;
    struct engine_numbers now = {.steps = 5}, got;
    struct job_numbers jobs[JOBS];
    setup(&f);
    add(&f, 0, SCHED_QUEUED, &f.jobs);
    add(&f, 1, SCHED_DECODING, &f.jobs);
    add(&f, 2, SCHED_NEW, &f.over);
    add(&f, 3, SCHED_PREFILLING, &f.jobs);
    f.of[2].over = true;
    f.of[3].seq.paused = true;
    publish_write(&f.p, &now, &f.jobs, &f.over, 500);
    publish_read(&f.p, &got);
    assert_int_equal(got.steps, 5);
    assert_int_equal(publish_read_jobs(&f.p, jobs, JOBS), JOBS);
    assert_true(is_job(&f, &jobs[0], 1) && jobs[0].phase == JOB_DECODING);
    assert_true(is_job(&f, &jobs[1], 3) && jobs[1].phase == JOB_PAUSED);
    assert_true(is_job(&f, &jobs[2], 0) && jobs[2].phase == JOB_QUEUED);
    assert_true(is_job(&f, &jobs[3], 2) && jobs[3].phase == JOB_PAUSED);
    memset(jobs, 0, sizeof(jobs));
    assert_int_equal(publish_read_jobs(&f.p, jobs, 1), JOBS);
    assert_int_equal(jobs[1].prompt_tokens, 0);
    assert_int_equal(publish_read_jobs(&f.p, NULL, 0), JOBS);
    teardown(&f);
}

TEST(readers_see_the_last_copy_only)
{
    struct fixture f;
    struct engine_numbers now = {.steps = 1}, got;
    setup(&f);
    add(&f, 0, SCHED_DECODING, &f.jobs);
    publish_write(&f.p, &now, &f.jobs, &f.over, 500);
    now.steps = 2;
    list_remove(&f.of[0].link);
    publish_read(&f.p, &got);
    assert_true(got.steps == 1 && publish_read_jobs(&f.p, NULL, 0) == 1);
    publish_write(&f.p, &now, &f.jobs, &f.over, 500);
    publish_read(&f.p, &got);
    assert_true(got.steps == 2 && publish_read_jobs(&f.p, NULL, 0) == 0);
    teardown(&f);
}

TEST(the_requests_of_a_step_are_known_before_it)
{
    struct fixture f;
    struct request_id ids[2], want;
    setup(&f);
    add(&f, 0, SCHED_DECODING, &f.jobs);
    add(&f, 1, SCHED_DECODING, &f.jobs);
    assert_int_equal(publish_read_step(&f.p, ids, 2), 0);
    struct sched_step_seq seqs[] = {{.seq = &f.of[1].seq}, {.seq = &f.of[0].seq}};
    publish_step(&f.p, &(struct sched_plan){.seq_count = 2, .seqs = seqs});
    assert_int_equal(publish_read_step(&f.p, ids, 1), 2);
    want = stream_id(f.of[1].stream);
    assert_memory_equal(&ids[0], &want, sizeof(want));
    teardown(&f);
}

TEST_MAIN()
