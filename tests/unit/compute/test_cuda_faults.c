/* The GPU backend's host part over a driver that fails (fake_cuda.h): at each call in turn. What was begun is
 * given back, a step says so when its kernels did not all run, and later steps run. */
#include "fake_cuda.h"

#include "base/arena.h"
#include "base/charge.h"
#include "base/none.h"
#include "compute/backend.h"
#include "compute/batch.h"
#include "compute/cuda/cuda.h"
#include "compute/cuda/cuda_device.h"
#include "compute/ops.h"
#include "compute/rope.h"
#include "compute/row_sample.h"
#include "compute/shape.h"
#include "compute/weight.h"
#include "memory/domain.h"
#include "tensor/tensor.h"

#include <errno.h>

#define VOCAB        64u
#define WIDTH        64u
#define SEQS         2u
#define UNITS        8u
#define MEMORY_BYTES (3 * UNIT_BYTES)
/* A call that is made in every case has a lower number. */
#define CALLS_MAX 2000u

enum { ARRAY_H, ARRAY_ANGLES, ARRAYS };

/* ---- a device and a workspace ---- */

struct room {
    size_t used, limit;
};

static int take_room(void *owner, size_t bytes)
{
    struct room *r = owner;
    if (bytes > r->limit - r->used)
        return -ENOMEM;
    r->used += bytes;
    return 0;
}

static void give_room(void *owner, size_t bytes)
{
    struct room *r = owner;
    assert_true(bytes <= r->used);
    r->used -= bytes;
}

struct fixture {
    struct device *device;
    dev_ptr memory;
    struct arena *host;
    struct compute_shape shape;
    struct compute *compute;
    struct weight table;
    struct projection head;
    struct rope_tables ropes;
    struct batch batch;
    struct room room[2]; /* room of recorded steps: the device's and the machine's */
    struct charge charges[2];
    float logits[SEQS * VOCAB];
    bool sample;         /* from the first sequence's row the device samples */
    uint32_t other_step; /* 1: the step has another key */
    struct row_sampled sampled[SEQS];
    struct row_samples samples;
};

/* Puts a table of VOCAB rows: embeddings and logits. */
static void put_table(struct fixture *f, dev_ptr at)
{
    static float values[VOCAB * WIDTH];
    const struct backend *b = f->device->backend;
    const struct linear_source source = {.experts = 1,
                                         .out = VOCAB,
                                         .in = WIDTH,
                                         .exact = true,
                                         .weight = {.dtype = DTYPE_F32,
                                                    .rank = 1,
                                                    .shape = {VOCAB * WIDTH},
                                                    .data = values,
                                                    .bytes = sizeof(values)}};
    f->table = b->weight_begin(&source, 1, COMPUTE_F32, at);
    b->weight_put(f->device, &f->table, 0, &source);
    f->head = (struct projection){.parts = {f->table}, .part_count = 1, .in = WIDTH, .out = VOCAB};
}

/* Its workspace lies at `at`. */
static void open_workspace(struct fixture *f, dev_ptr at)
{
    static const struct array_spec arrays[ARRAYS] = {{ROWS_TOKENS, WIDTH, 0}, {ROWS_TOKENS, 2, 0}};
    f->shape =
        (struct compute_shape){.hidden = WIDTH, .vocab = VOCAB, .eps = 1e-6f, .layers = 1, .context_max = 64};
    for (uint32_t i = 0; i < 2; i++)
        f->charges[i] = (struct charge){take_room, give_room, &f->room[i]};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)4 << 20}, &f->host), 0);
    const struct compute_opts o = {.shape = &f->shape,
                                   .arrays = arrays,
                                   .array_count = ARRAYS,
                                   .mode = COMPUTE_F32,
                                   .tokens_max = SEQS,
                                   .seqs_max = SEQS,
                                   .logits_max = SEQS,
                                   .device = f->device,
                                   .host_memory = f->host,
                                   .range = at,
                                   .recorded = &f->charges[0],
                                   .recorded_host = &f->charges[1]};
    assert_int_equal(f->device->backend->open(&o, &f->compute), 0);
}

static void open_compute(struct fixture *f)
{
    assert_int_equal(domain_commit(f->device->domain, f->memory, MEMORY_BYTES), 0);
    put_table(f, f->memory);
    open_workspace(f, dev_add(f->memory, UNIT_BYTES));
}

static void close_compute(struct fixture *f)
{
    compute_close(f->compute);
    arena_free(f->host);
    assert_int_equal(domain_decommit(f->device->domain, f->memory, MEMORY_BYTES), 0);
    assert_true(f->room[0].used == 0 && f->room[1].used == 0);
    assert_true(fake_cuda.graphs == 0 && fake_cuda.made == 0);
    assert_true(fake_cuda.handles == 0 && fake_cuda.mapped == 0);
    assert_int_equal(f->device->domain->ops->committed(f->device->domain->arg), 0);
}

static void open_fixture(struct fixture *f)
{
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    *f = (struct fixture){.room = {{.limit = 1 << 20}, {.limit = 1 << 20}}};
    assert_int_equal(cuda_device_open(0, &f->device), 0);
    assert_int_equal(domain_reserve(f->device->domain, MEMORY_BYTES, false, &f->memory), 0);
    open_compute(f);
}

static void close_fixture(struct fixture *f)
{
    close_compute(f);
    assert_int_equal(domain_release(f->device->domain, f->memory, MEMORY_BYTES), 0);
    device_close(f->device);
    assert_int_equal(fake_cuda.contexts, 0);
}

/* ---- a step ---- */

/* A token for each sequence, and its logits; up to the end. */
static void begin_step(struct fixture *f)
{
    static const uint32_t ids[SEQS] = {1, 2}, columns[SEQS] = {0, 1};
    static const struct rope_position positions[SEQS];
    static const dev_ptr features[SEQS];
    static const struct row_sample orders[SEQS] = {{.wanted = 1, .mask = ROW_SAMPLE_ALL}};
    static const uint64_t valid_ids = 0xff;
    static const struct batch_seq seqs[SEQS] = {{.first = 0, .count = 1, .second = NONE},
                                                {.first = 1, .count = 1, .second = NONE}};
    f->samples = (struct row_samples){.rows = orders, .sampled = f->sampled};
    f->batch = (struct batch){.token_count = SEQS,
                              .seq_count = SEQS,
                              .logit_count = SEQS,
                              .seqs = seqs,
                              .ids = ids,
                              .token_seq = columns,
                              .positions = positions,
                              .features = features,
                              .logit_columns = columns,
                              .hidden_columns = columns,
                              .samples = f->sample ? &f->samples : NULL,
                              .valid_ids = &valid_ids,
                              .logits = f->logits};
    const struct act h = {ARRAY_H, 0, WIDTH};
    struct compute *c = f->compute;
    compute_step_begin(c, &f->batch);
    if (compute_replay(c, 3 + f->other_step))
        return;
    compute_embed(c, &(struct op_embed){
                         .table = &f->table, .ropes = &f->ropes, .h = h, .angles = {ARRAY_ANGLES, 0, 2}});
    compute_project(
        c, &(struct op_product){.w = &f->head, .x = h, .y = {OP_LOGITS, 0, VOCAB}, .columns = COLUMNS_LOGITS},
        1);
    compute_finish(c, &(struct op_finish){.scale = 2});
}

#define KERNELS 3u

/* A step that says nothing has run all of its kernels, and brought its logits. */
static int checked_step(struct fixture *f)
{
    unsigned ran = fake_cuda.ran, copied = fake_cuda.copied;
    begin_step(f);
    int r = compute_step_end(f->compute);
    if (r == 0) {
        assert_int_equal(fake_cuda.ran - ran, KERNELS + 2 * f->sample);
        assert_int_equal(fake_cuda.copied - copied, 1 + f->sample);
    }
    assert_null(fake_cuda.recorded);
    return r;
}

/* ---- tests ---- */

/* Their kernels go into one queue. */
TEST(a_launch_that_fails_costs_its_own_models_step)
{
    struct fixture f, other;
    open_fixture(&f);
    f.room[0].limit = 0; /* neither is recorded */
    other = f;
    open_workspace(&other, dev_add(f.memory, 2 * UNIT_BYTES));
    begin_step(&f);
    fake_fail(2, FAKE_OUT_OF_MEMORY);
    assert_int_equal(checked_step(&other), -ENOMEM);
    assert_int_equal(compute_step_end(f.compute), 0);
    begin_step(&other);
    fake_fail(3, FAKE_OUT_OF_MEMORY);
    begin_step(&f);
    assert_true(fake_cuda.failed);
    assert_int_equal(compute_step_end(other.compute), 0);
    assert_int_equal(compute_step_end(f.compute), -ENOMEM);
    compute_close(other.compute);
    arena_free(other.host);
    close_fixture(&f);
}

TEST(a_step_that_comes_again_is_recorded)
{
    struct fixture f;
    open_fixture(&f);
    assert_int_equal(checked_step(&f), 0);
    assert_int_equal(fake_cuda.made, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(checked_step(&f), 0);
    assert_true(fake_cuda.made == 1 && f.room[0].used > 0 && f.room[1].used > 0);
    close_fixture(&f);
}

TEST(a_step_without_room_is_launched_kernel_by_kernel)
{
    for (uint32_t none = 0; none < 2; none++) {
        struct fixture f;
        open_fixture(&f);
        f.room[none].limit = 0;
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(checked_step(&f), 0);
        assert_true(fake_cuda.made == 0 && f.room[0].used == 0 && f.room[1].used == 0);
        close_fixture(&f);
    }
}

TEST(a_step_that_is_cancelled_leaves_no_record)
{
    struct fixture f;
    open_fixture(&f);
    for (uint32_t i = 0; i < 3; i++) { /* the first, the recorded and the replayed step */
        for (uint32_t n = 0; n < i; n++)
            assert_int_equal(checked_step(&f), 0);
        begin_step(&f);
        compute_step_cancel(f.compute);
        assert_null(fake_cuda.recorded);
        if (i < 2)
            assert_true(fake_cuda.made == 0 && f.room[0].used == 0);
        for (uint32_t n = 0; n < 3; n++)
            assert_int_equal(checked_step(&f), 0);
        assert_true(fake_cuda.made == 1 && f.room[0].used > 0);
        close_compute(&f);
        open_compute(&f);
    }
    close_fixture(&f);
}

/* How many of four steps, the calls of which fail once, fail. The four after them do not. */
static uint32_t steps_with(unsigned fails, cuda_result error, bool sample, bool *failed)
{
    struct fixture f;
    uint32_t bad = 0;
    open_fixture(&f);
    f.sample = sample;
    fake_fail(fails, error);
    for (uint32_t i = 0; i < 4; i++) {
        int r = checked_step(&f);
        assert_true(r == 0 || r == -EIO || (r == -ENOMEM && error == FAKE_OUT_OF_MEMORY));
        bad += r < 0;
    }
    *failed = fake_cuda.failed;
    fake_cuda.fail_at = 0;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(checked_step(&f), 0);
    assert_false(atomic_load(&f.device->lost));
    assert_int_equal(fake_cuda.ropes, 1);
    close_fixture(&f);
    return bad;
}

static void fail_each_call(bool sample)
{
    bool failed = true;
    uint32_t costs = 0, free = 0;
    for (unsigned n = 1; failed; n++) {
        assert_true(n < CALLS_MAX);
        uint32_t bad = steps_with(n, n % 2 ? FAKE_OUT_OF_MEMORY : FAKE_CAPTURE_ENDED, sample, &failed);
        assert_true(bad <= 1 && (failed || bad == 0));
        costs += bad;
        free += failed && bad == 0;
    }
    /* A queue to record, the record's begin, kernels, end and making, and two replays: steps do without. */
    assert_true(costs > 10 && free == 6 + KERNELS);
}

TEST(a_call_that_fails_costs_one_step_at_most)
{
    fail_each_call(false);
    fail_each_call(true);
}

TEST(a_row_that_cannot_be_fetched_is_said)
{
    struct fixture f;
    open_fixture(&f);
    f.sample = true;
    assert_int_equal(checked_step(&f), 0);
    fake_fail(1, FAKE_OUT_OF_MEMORY);
    assert_int_equal(compute_row(f.compute, 0), -ENOMEM);
    unsigned copied = fake_cuda.copied;
    assert_int_equal(compute_row(f.compute, 0), 0);
    assert_int_equal(fake_cuda.copied - copied, 1);
    f.sample = false;
    assert_int_equal(checked_step(&f), 0);
    copied = fake_cuda.copied;
    assert_int_equal(compute_row(f.compute, 0), 0);
    assert_int_equal(fake_cuda.copied, copied); /* it has come */
    close_fixture(&f);
}

TEST(a_driver_that_takes_no_recorded_step_costs_no_step)
{
    for (uint32_t launches = 0; launches < 2; launches++) {
        struct fixture f;
        open_fixture(&f);
        fake_cuda.makes_none = launches == 0;
        fake_cuda.launches_none = launches == 1;
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(checked_step(&f), 0);
        assert_true(fake_cuda.made == 0 && f.room[0].used == 0);
        assert_int_equal(fake_cuda.asked, launches == 0 ? 1 : 2); /* and is not asked again soon */
        close_fixture(&f);
    }
}

TEST(a_driver_that_makes_no_record_is_not_asked_for_another)
{
    struct fixture f;
    open_fixture(&f);
    fake_cuda.makes_none = true;
    for (uint32_t i = 0; i < 8; i++) {
        f.other_step = i % 2;
        assert_int_equal(checked_step(&f), 0);
    }
    assert_int_equal(fake_cuda.asked, 1);
    close_fixture(&f);
}

TEST(a_lost_device_begins_anew)
{
    bool failed = true;
    for (unsigned n = 1; failed; n++) {
        struct fixture f;
        int r = 0;
        assert_true(n < CALLS_MAX);
        open_fixture(&f);
        fake_fail(n, FAKE_LAUNCH_FAILED);
        for (uint32_t i = 0; i < 4; i++)
            if (checked_step(&f) < 0)
                r = -1;
        failed = fake_cuda.failed;
        fake_cuda.fail_at = 0;
        assert_true(atomic_load(&f.device->lost) == failed && (r < 0) == failed);
        if (failed)
            assert_int_equal(checked_step(&f), -ENODEV);
        close_compute(&f);
        if (failed) {
            assert_int_equal(f.device->ops->reopen(f.device), 0);
            assert_false(atomic_load(&f.device->lost));
        }
        open_compute(&f);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(checked_step(&f), 0);
        assert_int_equal(fake_cuda.made, 1);
        close_fixture(&f);
    }
}

TEST(a_device_that_cannot_begin_anew_stays_lost)
{
    bool failed = true;
    unsigned spared = 0;
    struct device *d;
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    assert_int_equal(cuda_device_open(0, &d), 0);
    for (unsigned n = 1; failed; n++) {
        assert_true(n < CALLS_MAX);
        atomic_store(&d->lost, true);
        fake_fail(n, FAKE_OUT_OF_MEMORY);
        int r = d->ops->reopen(d);
        failed = fake_cuda.failed;
        spared += failed && r == 0;
        assert_true(r == -EIO ? failed : r == 0);
        assert_true(atomic_load(&d->lost) == (r < 0));
    }
    assert_int_equal(spared, 1); /* staging memory that is not pinned */
    assert_int_equal(fake_cuda.contexts, 1);
    device_close(d);
}

/* How many of the calls may fail. */
static unsigned open_at_every_call(cuda_result error)
{
    bool failed = true;
    unsigned spared = 0;
    for (unsigned n = 1; failed; n++) {
        struct device *d = NULL;
        assert_true(n < CALLS_MAX);
        memset(&fake_cuda, 0, sizeof(fake_cuda));
        fake_fail(n, error);
        int r = cuda_device_open(0, &d);
        failed = fake_cuda.failed;
        assert_true(failed || r == 0);
        spared += failed && r == 0;
        if (r == 0)
            device_close(d);
        assert_int_equal(fake_cuda.contexts, 0);
    }
    return spared;
}

TEST(a_device_that_does_not_open_leaves_nothing)
{
    /* Calls that only measure: the other context, its limit, and three questions. And a pin. */
    assert_int_equal(open_at_every_call(FAKE_CAPTURE_ENDED), 6);
    /* The context is opened again without the other one. */
    assert_true(open_at_every_call(FAKE_OUT_OF_MEMORY) > 6 + CUDA_KERNEL_COUNT);
    /* A lasting fault stays until a context goes: the last question alone, and the one before the other
     * goes. */
    assert_int_equal(open_at_every_call(FAKE_LAUNCH_FAILED), 2);
}

/* ---- memory of a context ---- */

#define CONTEXT_BYTES ((size_t)328 << 20)
#define OTHERS_BYTES  ((size_t)3 << 30)

static struct device *open_measured(void)
{
    struct device *d = NULL;
    fake_cuda.context_bytes = CONTEXT_BYTES;
    fake_cuda.others_bytes = OTHERS_BYTES;
    assert_int_equal(cuda_device_open(0, &d), 0);
    assert_int_equal(fake_cuda.contexts, 1);
    return d;
}

static void close_measured(struct device *d)
{
    device_close(d);
    assert_int_equal(fake_cuda.contexts, 0);
}

TEST(a_context_is_measured_as_it_opens)
{
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    struct device *d = open_measured();
    assert_int_equal(fake_cuda.created, 2);
    assert_int_equal(d->measured.total_bytes, FAKE_TOTAL_BYTES);
    assert_int_equal(d->measured.context_bytes, CONTEXT_BYTES);
    assert_int_equal(d->measured.free_bytes, FAKE_TOTAL_BYTES - OTHERS_BYTES - CONTEXT_BYTES);
    assert_int_equal(d->domain->ops->committed(d->domain->arg), CONTEXT_BYTES);
    close_measured(d);
}

TEST(a_context_that_begins_anew_keeps_its_figure)
{
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    struct device *d = open_measured();
    const struct device_measured before = d->measured;
    fake_cuda.context_bytes *= 2;
    assert_int_equal(d->ops->reopen(d), 0);
    assert_int_equal(fake_cuda.created, 3);
    assert_int_equal(fake_cuda.contexts, 1);
    assert_memory_equal(&before, &d->measured, sizeof(before));
    close_measured(d);
}

/* The device computes without the figures. */
TEST(a_driver_that_does_not_say_costs_the_figures_alone)
{
    struct domain_figures f;
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    fake_cuda.no_context = 1; /* the other one */
    struct device *d = open_measured();
    assert_int_equal(fake_cuda.created, 1);
    assert_int_equal(d->measured.context_bytes, 0);
    assert_int_equal(d->measured.free_bytes, FAKE_TOTAL_BYTES - OTHERS_BYTES - CONTEXT_BYTES);
    assert_true(domain_figures(d->domain, &f));
    close_measured(d);
    fake_cuda.no_info = true;
    d = open_measured();
    assert_true(d->measured.total_bytes == 0 && d->measured.free_bytes == 0 &&
                d->measured.context_bytes == 0);
    fake_cuda.no_info = false;
    assert_false(domain_figures(d->domain, &f));
    close_measured(d);
}

/* The other context gives way. */
TEST(a_device_with_room_for_one_context_opens)
{
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    fake_cuda.context_room = 1;
    struct device *d = open_measured();
    assert_int_equal(fake_cuda.created, 2);
    assert_int_equal(d->measured.context_bytes, 0);
    assert_int_equal(d->measured.free_bytes, FAKE_TOTAL_BYTES - OTHERS_BYTES - CONTEXT_BYTES);
    close_measured(d);
}

TEST(a_full_device_says_so)
{
    struct device *d;
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    fake_cuda.is_full = true;
    assert_int_equal(cuda_device_open(0, &d), -ENOSPC);
    assert_true(fake_cuda.contexts == 0 && fake_cuda.created == 0);
}

TEST(figures_are_the_drivers_and_what_no_account_has)
{
    struct domain_figures f;
    dev_ptr at;
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    struct device *d = open_measured();
    assert_true(domain_figures(d->domain, &f));
    assert_true(f.total_bytes == FAKE_TOTAL_BYTES && f.free_bytes == d->measured.free_bytes);
    assert_int_equal(f.unaccounted_bytes, 0);
    assert_int_equal(domain_reserve(d->domain, UNITS * UNIT_BYTES, false, &at), 0);
    assert_int_equal(domain_commit(d->domain, at, 3 * UNIT_BYTES), 0);
    fake_cuda.others_bytes += 5 << 20;
    assert_true(domain_figures(d->domain, &f));
    assert_int_equal(f.free_bytes, d->measured.free_bytes - 3 * UNIT_BYTES - (5 << 20));
    assert_int_equal(f.unaccounted_bytes, 5 << 20);
    fake_cuda.others_bytes = 0;
    assert_true(domain_figures(d->domain, &f));
    assert_true(f.unaccounted_bytes == -(int64_t)OTHERS_BYTES);
    assert_int_equal(domain_release(d->domain, at, UNITS * UNIT_BYTES), 0);
    atomic_store(&d->lost, true);
    assert_false(domain_figures(d->domain, &f));
    assert_int_equal(d->ops->reopen(d), 0);
    assert_true(domain_figures(d->domain, &f));
    close_measured(d);
}

TEST(a_commit_that_fails_takes_nothing)
{
    bool failed = true;
    for (unsigned n = 1; failed; n++) {
        struct device *d;
        dev_ptr at;
        assert_true(n < CALLS_MAX);
        memset(&fake_cuda, 0, sizeof(fake_cuda));
        assert_int_equal(cuda_device_open(0, &d), 0);
        assert_int_equal(domain_reserve(d->domain, UNITS * UNIT_BYTES, false, &at), 0);
        assert_int_equal(domain_commit(d->domain, at, UNIT_BYTES), 0);
        fake_fail(n, FAKE_OUT_OF_MEMORY);
        int r = domain_commit(d->domain, dev_add(at, 2 * UNIT_BYTES), 3 * UNIT_BYTES);
        failed = fake_cuda.failed;
        assert_int_equal(r, failed ? -ENOMEM : 0);
        assert_true(fake_cuda.handles == (failed ? 1 : 4) && fake_cuda.mapped == fake_cuda.handles);
        assert_int_equal(d->domain->ops->committed(d->domain->arg), (unsigned)fake_cuda.handles * UNIT_BYTES);
        assert_int_equal(domain_decommit(d->domain, at, UNITS * UNIT_BYTES), 0);
        assert_int_equal(domain_release(d->domain, at, UNITS * UNIT_BYTES), 0);
        assert_true(fake_cuda.handles == 0 && fake_cuda.mapped == 0);
        device_close(d);
    }
}

/* Nobody would learn which model's weights or pages are wrong. */
TEST(a_copy_that_fails_outside_of_steps_loses_the_device)
{
    static const char bytes[64];
    for (uint32_t what = 0; what < 3; what++) {
        struct fixture f;
        char back[64];
        open_fixture(&f);
        const struct domain *d = f.device->domain;
        assert_int_equal(checked_step(&f), 0);
        fake_fail(1, FAKE_OUT_OF_MEMORY);
        if (what == 0)
            domain_put(d, f.memory, bytes, sizeof(bytes));
        else if (what == 1)
            domain_copy(d, dev_add(f.memory, 64), f.memory, sizeof(bytes));
        else
            assert_int_equal(domain_get(d, back, f.memory, sizeof(back)), -EIO);
        assert_true(atomic_load(&f.device->lost) == (what < 2));
        assert_int_equal(checked_step(&f), what < 2 ? -ENODEV : 0);
        close_fixture(&f);
    }
}

TEST(wgmma_with_other_bits_is_not_used)
{
    struct device *d;
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    fake_cuda.differs = true;
    assert_int_equal(cuda_device_open(0, &d), 0);
    assert_false(cuda_device_of(d)->wide);
    fake_cuda.differs = false;
    assert_int_equal(d->ops->reopen(d), 0);
    assert_true(cuda_device_of(d)->wide);
    device_close(d);
    assert_int_equal(fake_cuda.contexts, 0);
}

TEST_MAIN()
