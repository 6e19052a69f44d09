/* The order of images and their memory, with an encoder that only counts: no engine and no model. */
#include "test_ledger.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "compute/device.h"
#include "engine/image_sched.h"
#include "engine/job.h"
#include "engine/pools.h"
#include "model/model.h"
#include "model/vision.h"
#include "sched/sched.h"
#include "vision/image.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define JOBS        3
#define EDGE        4u /* pixels of a token */
#define TOKEN_BYTES (4 * sizeof(float))

/* It only counts. */
struct vision_encoder {
    uint32_t begun, stopped, slices, left; /* slices: that an image takes */
    uint32_t refuses;                      /* so many begins find no memory */
};

struct fixture {
    struct arena *arena;
    struct account *parent;
    struct model_shape shape;
    struct device *device;
    struct pools pools;
    struct list jobs;
    struct image_sched s;
    _Atomic uint64_t step_ns, progress_ns;
    atomic_bool closing;
    /* Jobs with one image each, of 8 tokens from token 4 on. */
    struct job of[JOBS];
    struct image *images[JOBS];
    struct model_grid grids[JOBS];
    uint32_t entries[JOBS];
    struct vision_encoder encoder;
    /* The engine. */
    uint32_t called_off, refused, taken;
};

static int begin(struct vision_encoder *e, const struct model_image *in)
{
    assert_true(in->width == 2 * EDGE && in->height == 4 * EDGE);
    if (e->refuses > 0 && e->refuses--)
        return -ENOBUFS;
    e->begun++;
    e->left = e->slices;
    return 0;
}

/* A slice is over at once. */
static bool run(struct vision_encoder *e, uint64_t deadline_ns)
{
    (void)deadline_ns;
    return --e->left == 0;
}

static void stop(struct vision_encoder *e)
{
    e->stopped++;
}

static bool trim(struct vision_encoder *e)
{
    (void)e;
    return false;
}

static struct sched_seq *first_waiting(void *arg)
{
    struct fixture *f = arg;
    LIST_EACH(it, &f->jobs) {
        struct sched_seq *seq = &LIST_ENTRY(it, struct job, link)->seq;
        if (seq->phase == SCHED_PREFILLING && seq->ready > 0 && seq->done >= seq->ready)
            return seq;
    }
    return NULL;
}

static void begins(void *arg)
{
    struct fixture *f = arg;
    f->called_off++;
}

static void refused(void *arg, struct job *j, uint32_t index, uint64_t features, uint64_t encoding,
                    bool taken)
{
    struct fixture *f = arg;
    assert_true(index == 0 && features == 8 * TOKEN_BYTES && encoding == UNIT_BYTES);
    f->refused++;
    f->taken += taken;
    image_sched_leave(&f->s, j);
    list_remove(&j->link);
}

static void add_job(struct fixture *f, uint32_t i, uint8_t look)
{
    struct job *j = &f->of[i];
    struct charge charge = account_charge(f->parent);
    assert_int_equal(image_create(2 * EDGE, 4 * EDGE, 1, &charge, &f->images[i]), 0);
    f->images[i]->sha256[0] = look;
    f->grids[i] = (struct model_grid){.first = 4, .rows = 4, .columns = 2};
    f->entries[i] = NONE;
    *j = (struct job){.image_count = 1,
                      .images = &f->images[i],
                      .grids = &f->grids[i],
                      .entries = &f->entries[i],
                      .prompt_count = 20};
    list_init(&j->link);
    j->seq.phase = SCHED_PREFILLING;
    j->seq.done = 4;
    list_push_back(&f->jobs, &j->link);
    image_sched_enter(&f->s, j);
}

/* limit: of the account `images`' parent. */
static void setup(struct fixture *f, uint64_t limit)
{
    *f = (struct fixture){.parent = test_account(limit), .encoder = {.slices = 3}, .step_ns = 1};
    f->shape.vision = (struct model_vision){.present = true,
                                            .patch = 2,
                                            .merge = 2,
                                            .feature_floats = 4,
                                            .pixels_max = 32 * 32,
                                            .encode_patch_bytes = 1};
    list_init(&f->jobs);
    struct pools_opts pools = {.parent = f->parent,
                               .pages_max = 1,
                               .groups = {{.page_bytes = UNIT_BYTES}},
                               .group_count = 1,
                               .bytes_max = UNIT_BYTES};
    size_t bytes = image_sched_arena_bytes(&f->shape) + pools_arena_bytes(&pools) + 4096;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = bytes}, &f->arena), 0);
    assert_int_equal(device_open_cpu(1, NULL, &f->device), 0);
    assert_int_equal(pools_create(f->arena, &pools, &f->pools), 0);
    struct image_sched_opts o = {.shape = &f->shape,
                                 .parent = f->parent,
                                 .cache_bytes = 1 << 20,
                                 .jobs = &f->jobs,
                                 .pools = &f->pools,
                                 .device = f->device,
                                 .step_ns = &f->step_ns,
                                 .closing = &f->closing,
                                 .progress_ns = &f->progress_ns,
                                 .encoder = {begin, run, stop, trim, &f->encoder},
                                 .port = {first_waiting, begins, refused, f}};
    assert_int_equal(image_sched_create(&f->s, &o, f->arena), 0);
}

static void teardown(struct fixture *f)
{
    LIST_EACH(it, &f->jobs) {
        image_sched_leave(&f->s, LIST_ENTRY(it, struct job, link));
        list_remove(it);
    }
    for (uint32_t i = 0; i < JOBS; i++)
        if (f->images[i])
            image_unref(f->images[i]);
    image_sched_done(&f->s);
    assert_int_equal(pools_done(&f->pools, NULL), 0);
    assert_int_equal(account_numbers(f->parent).reserved, 0);
    device_close(f->device);
    arena_free(f->arena);
}

/* Runs slices until nothing is left; returns how many. */
static uint32_t run_all(struct fixture *f)
{
    uint32_t count = 0;
    while (image_sched_run(&f->s, true))
        assert_true(++count < 100);
    return count;
}

TEST(a_sequence_waits_for_its_image_and_goes_on_with_its_features)
{
    struct fixture f;
    setup(&f, ACCOUNT_NO_LIMIT);
    add_job(&f, 0, 1);
    assert_true(image_sched_update(&f.s));
    assert_int_equal(f.of[0].seq.ready, 4);
    assert_true(image_sched_is_awaited(&f.of[0]) && image_sched_images_done(&f.of[0]) == 0);
    assert_true(run_all(&f) >= 3 && f.encoder.begun == 1 && f.called_off == 1 && f.s.now.encoded == 1);
    assert_true(f.progress_ns > 0);
    assert_false(image_sched_update(&f.s)); /* the last run has looked already */
    assert_true(f.of[0].seq.ready == 0 && !dev_is_null(f.grids[0].features));
    assert_int_equal(image_sched_images_done(&f.of[0]), 1);
    f.of[0].seq.done = 12; /* it is past the image */
    image_sched_update(&f.s);
    assert_true(dev_is_null(f.grids[0].features) && image_sched_unused(&f.s) == 1);
    assert_true(image_sched_give(&f.s, UINT64_MAX, true) > 0 && image_sched_beside(&f.s).held_bytes == 0);
    teardown(&f);
}

TEST(two_sequences_share_one_encoding)
{
    struct fixture f;
    setup(&f, ACCOUNT_NO_LIMIT);
    add_job(&f, 0, 1);
    add_job(&f, 1, 1);
    add_job(&f, 2, 2);
    image_sched_update(&f.s);
    run_all(&f);
    image_sched_update(&f.s);
    assert_true(f.encoder.begun == 2 && f.s.now.encoded == 2 && f.s.now.found >= 1);
    for (uint32_t i = 0; i < JOBS; i++)
        assert_int_equal(f.of[i].seq.ready, 0);
    teardown(&f);
}

TEST(an_image_passes_to_another_sequence_when_its_own_leaves_or_is_stopped)
{
    struct fixture f;
    setup(&f, ACCOUNT_NO_LIMIT);
    f.encoder.slices = 1000000;
    add_job(&f, 0, 1);
    add_job(&f, 1, 1);
    image_sched_update(&f.s);
    while (f.encoder.begun == 0)
        assert_true(image_sched_run(&f.s, true));
    for (uint32_t i = 0; i < 2; i++) {
        assert_ptr_equal(f.s.owner, &f.of[i]);
        list_remove(&f.of[i].link);
        image_sched_leave(&f.s, &f.of[i]);
        assert_int_equal(f.encoder.stopped, i);
    }
    assert_null(f.s.owner);
    assert_int_equal(image_sched_beside(&f.s).held_bytes, 0);
    teardown(&f);
}

TEST(a_job_ends_when_nothing_can_make_room_for_its_image)
{
    struct fixture f;
    setup(&f, UNIT_BYTES);
    add_job(&f, 0, 1);
    uint64_t taken = UNIT_BYTES - account_numbers(f.parent).reserved;
    assert_int_equal(account_reserve(f.parent, taken), 0);
    image_sched_update(&f.s);
    assert_true(image_sched_run(&f.s, false) == false);
    assert_true(f.refused == 1 && f.taken == 0 && f.encoder.begun == 0 && f.s.jobs == 0);
    account_release(f.parent, taken);
    teardown(&f);
}

/* Runs until the encoder has refused once more, or begun. */
static void ask(struct fixture *f)
{
    uint32_t left = f->encoder.refuses;
    for (int i = 0; f->encoder.refuses == left && f->encoder.begun == 0; i++) {
        assert_in_range(i, 0, 10000);
        image_sched_update(&f->s);
        (void)image_sched_run(&f->s, false);
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
    }
}

TEST(an_image_waits_for_memory_that_other_programs_have)
{
    struct fixture f;
    setup(&f, ACCOUNT_NO_LIMIT);
    f.encoder.refuses = 2;
    add_job(&f, 0, 1);
    ask(&f);
    uint64_t since_ns = f.s.taken_ns;
    assert_true(since_ns > 0 && f.refused == 0 && !f.s.owner);
    ask(&f);
    assert_int_equal(f.s.taken_ns, since_ns);
    ask(&f);
    assert_true(f.encoder.begun == 1 && f.s.taken_ns == 0 && f.refused == 0);
    teardown(&f);
}

TEST(an_image_does_not_wait_for_ever)
{
    struct fixture f;
    setup(&f, ACCOUNT_NO_LIMIT);
    f.encoder.refuses = 2;
    add_job(&f, 0, 1);
    ask(&f);
    f.s.taken_ns = clock_now_ns() - SCHED_TAKEN_NS;
    ask(&f);
    assert_true(f.refused == 1 && f.taken == 1 && f.s.jobs == 0);
    assert_false(image_sched_run(&f.s, false));
    assert_int_equal(f.s.taken_ns, 0);
    teardown(&f);
}

TEST(nothing_begins_while_the_engine_closes)
{
    struct fixture f;
    setup(&f, ACCOUNT_NO_LIMIT);
    add_job(&f, 0, 1);
    image_sched_update(&f.s);
    f.closing = true;
    assert_false(image_sched_run(&f.s, true));
    teardown(&f);
}

TEST(a_model_that_sees_nothing_has_no_images)
{
    struct image_sched s = {0};
    struct model_shape shape = {0};
    struct image_sched_opts o = {.shape = &shape};
    assert_int_equal(image_sched_create(&s, &o, NULL), 0);
    assert_false(image_sched_update(&s) || image_sched_run(&s, true));
    assert_true(image_sched_beside(&s).held_bytes + image_sched_beside(&s).reach_bytes == 0);
    assert_true(image_sched_give(&s, UINT64_MAX, true) == 0);
    image_sched_done(&s);
}

TEST_MAIN()
