/* Which kernels the GPU backend launches for norms, products and residuals. Over a driver that counts them
 * (fake_cuda.h). A product computes a norm before it, and adds a residual after it. */
#include "cuda_test.h"
#include "fake_cuda.h"

#include "base/arena.h"
#include "compute/ops.h"
#include "compute/shape.h"
#include "compute/weight.h"
#include "memory/domain.h"
#include "tensor/tensor.h"

#define VOCAB        64u
#define WIDTH        128u
#define TOKENS       32u
#define MEMORY_BYTES (40 * UNIT_BYTES)

enum { ARRAY_H, ARRAY_NORMED, ARRAY_MID, ARRAY_OUT, ARRAYS };

static const struct act h = {ARRAY_H, 0, WIDTH}, normed = {ARRAY_NORMED, 0, WIDTH};
static const struct act mid = {ARRAY_MID, 0, WIDTH}, out = {ARRAY_OUT, 0, WIDTH};
static const struct rope_tables no_ropes;

struct fixture {
    struct gpu gpu;
    struct arena *host;
    struct compute_shape shape;
    struct compute *compute;
    struct weight table;
    struct projection square; /* WIDTH x WIDTH */
    struct norm norm;
    float values[TOKENS * WIDTH];
};

static struct weight put(struct fixture *f, uint32_t rows)
{
    static float values[WIDTH * WIDTH];
    const struct backend *b = f->gpu.device->backend;
    struct linear_source s = gpu_table(values, rows, WIDTH);
    s.exact = false; /* it becomes bf16 */
    struct weight w =
        b->weight_begin(&s, 1, COMPUTE_BF16, gpu_take(&f->gpu, b->weight_bytes(&s, 1, COMPUTE_BF16)));
    b->weight_put(f->gpu.device, &w, 0, &s);
    return w;
}

static void open_fixture(struct fixture *f)
{
    static const struct array_spec arrays[ARRAYS] = {[ARRAY_H] = {ROWS_TOKENS, WIDTH, WIDTH},
                                                     [ARRAY_NORMED] = {ROWS_TOKENS, WIDTH, WIDTH},
                                                     [ARRAY_MID] = {ROWS_TOKENS, WIDTH, WIDTH},
                                                     [ARRAY_OUT] = {ROWS_TOKENS, WIDTH, 0}};
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    *f = (struct fixture){
        .shape = {.hidden = WIDTH, .vocab = VOCAB, .eps = 1e-6f, .layers = 1, .context_max = TOKENS}};
    gpu_open(&f->gpu, MEMORY_BYTES);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)4 << 20}, &f->host), 0);
    f->compute = gpu_compute(&f->gpu, (struct compute_opts){.shape = &f->shape,
                                                            .arrays = arrays,
                                                            .array_count = ARRAYS,
                                                            .mode = COMPUTE_BF16,
                                                            .tokens_max = TOKENS,
                                                            .seqs_max = 1,
                                                            .logits_max = 1,
                                                            .host_memory = f->host});
    f->table = put(f, VOCAB);
    f->square = (struct projection){.parts = {put(f, WIDTH)}, .part_count = 1, .in = WIDTH, .out = WIDTH};
    f->norm.weight = gpu_take(&f->gpu, WIDTH * sizeof(float));
}

static void close_fixture(struct fixture *f)
{
    compute_close(f->compute);
    arena_free(f->host);
    gpu_close(&f->gpu);
    assert_int_equal(fake_cuda.contexts, 0);
}

/* One kernel: its inputs. */
static void begin(struct fixture *f, uint32_t tokens)
{
    fake_cuda.ran = 0;
    compute_step_begin(f->compute, gpu_batch(0, tokens, VOCAB, 1, f->values));
    compute_embed(f->compute,
                  &(struct op_embed){.table = &f->table, .ropes = &no_ropes, .h = h, .angles = h});
}

static void put_norm(struct fixture *f, bool add, struct act y)
{
    const struct residual r = {.kind = add ? RESIDUAL_ADD : RESIDUAL_NONE, .out = out};
    compute_norm(f->compute,
                 &(struct op_norm){.add = r, .h = h, .y = y, .norm = f->norm, .readers = {&f->square}});
}

static void put_product(struct fixture *f, struct act x, struct act y)
{
    compute_project(f->compute, &(struct op_product){.w = &f->square, .x = x, .y = y}, 1);
}

/* After embedding; `read`: its values go to the host. */
static void end(struct fixture *f, struct act read, uint32_t kernels)
{
    if (read.width > 0)
        compute_values(f->compute, &(struct op_values){.x = read});
    assert_int_equal(compute_step_end(f->compute), 0);
    assert_int_equal(fake_cuda.ran - 1, kernels);
}

TEST(a_product_takes_the_norm_of_one_token_and_the_residual_of_few)
{
    static const struct {
        uint32_t tokens, kernels;
    } cases[] = {{1, 3}, {2, 4}, {16, 4}, {17, 5}}; /* 17: it rounds the second product's inputs */
    struct fixture f;
    open_fixture(&f);
    for (uint32_t i = 0; i < COUNT_OF(cases); i++) {
        begin(&f, cases[i].tokens);
        put_norm(&f, false, normed);
        put_product(&f, normed, mid);
        put_product(&f, mid, out);
        put_norm(&f, true, normed);
        end(&f, normed, cases[i].kernels);
    }
    close_fixture(&f);
}

/* A product that reads h does not change it: other blocks still read it. */
TEST(a_residual_alone_costs_no_kernel)
{
    struct fixture f;
    open_fixture(&f);
    begin(&f, 16);
    put_product(&f, mid, out);
    put_norm(&f, true, (struct act){0});
    end(&f, h, 1);
    begin(&f, 16);
    put_product(&f, h, out);
    put_norm(&f, true, (struct act){0});
    end(&f, h, 2);
    begin(&f, 17); /* it rounds its inputs */
    put_product(&f, mid, out);
    put_norm(&f, true, (struct act){0});
    end(&f, h, 3);
    close_fixture(&f);
}

TEST(what_waits_runs_when_its_reader_is_another)
{
    struct fixture f;
    open_fixture(&f);
    begin(&f, 1); /* no reader */
    put_norm(&f, false, normed);
    end(&f, (struct act){0}, 1);
    begin(&f, 1); /* the host */
    put_norm(&f, false, normed);
    end(&f, normed, 1);
    begin(&f, 1); /* a product that reads something else, whose result the host reads */
    put_norm(&f, false, normed);
    put_product(&f, mid, out);
    end(&f, out, 2);
    begin(&f, 1); /* a residual of something else */
    put_product(&f, mid, normed);
    put_norm(&f, true, (struct act){0});
    end(&f, h, 2);
    begin(&f, 1); /* the next norm: each has its kernel */
    put_norm(&f, false, normed);
    put_norm(&f, false, mid);
    end(&f, mid, 2);
    close_fixture(&f);
}

TEST(what_waits_ends_with_a_cancelled_step)
{
    struct fixture f;
    open_fixture(&f);
    for (uint32_t i = 0; i < 2; i++) {
        begin(&f, 1);
        put_norm(&f, false, normed);
        if (i > 0)
            put_product(&f, normed, out);
        compute_step_cancel(f.compute);
        assert_int_equal(fake_cuda.ran, 1);
        begin(&f, 1);
        put_product(&f, h, out);
        end(&f, out, 1);
    }
    close_fixture(&f);
}

TEST_MAIN()
