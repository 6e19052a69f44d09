/* Pieces of transposed stacks: every row as the definition says, however small the stage is. */
#include "model_path.h"
#include "test_files.h"

#include "base/arena.h"
#include "base/check.h"
#include "model/load/weight_staging.h"
#include "weights/checkpoint.h"

enum { EXPERTS = 3, OUT = 22, IN = 13 };

static struct linear_source source_of(const struct tensor *t, bool interleaved)
{
    return (struct linear_source){
        .experts = 1, .out = OUT, .in = IN, .weight = *t, .transposed = true, .interleaved = interleaved};
}

/* Expert `e` of the stack. */
static struct tensor cut(const struct tensor *stack, uint64_t e)
{
    struct tensor t = *stack;
    t.rank = 2;
    t.shape[0] = IN;
    t.shape[1] = OUT;
    t.bytes /= EXPERTS;
    t.offset += e * t.bytes;
    if (t.data)
        t.data = (const char *)t.data + e * t.bytes;
    return t;
}

static void rows_are_right(struct weight_staging *s, const struct linear_source *file,
                           const struct linear_source *memory)
{
    struct linear_source piece;
    for (uint64_t row = 0; row < OUT; row += piece.out) {
        assert_int_equal(weight_staging_rows(s, file, row, file->out - row, &piece, NULL), 0);
        assert_true(piece.out > 0 && row + piece.out <= OUT && !piece.transposed && !piece.interleaved);
        for (uint64_t i = 0; i < piece.out; i++)
            for (uint64_t k = 0; k < IN; k++)
                assert_true(linear_source_at(&piece, 0, i, k) == linear_source_at(memory, 0, row + i, k));
    }
}

TEST(a_transposed_stack_is_read_by_rows)
{
    const uint64_t shape[3] = {EXPERTS, IN, OUT};
    struct test_tensors *l = calloc(1, sizeof(*l));
    float *values = test_tensor_add(l, "x", DTYPE_F32, 3, shape);
    const char *dir = test_dir();
    struct arena *a;
    struct checkpoint *c;
    struct tensor t;
    for (int i = 0; i < EXPERTS * IN * OUT; i++)
        values[i] = (float)i;
    test_write_tensors(l, dir, "model.safetensors", 3, NULL);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 16 << 20}, &a), 0);
    assert_int_equal(checkpoint_open_at(a, dir, NULL, &c, NULL), 0);
    assert_true(checkpoint_find(c, "x", &t));
    for (int i = 0; i < EXPERTS * 2; i++) {
        struct linear_source file, memory;
        const struct tensor in_file = cut(&t, (uint64_t)i / 2),
                            in_memory = cut(&l->list[0].t, (uint64_t)i / 2);
        file = source_of(&in_file, i % 2);
        memory = source_of(&in_memory, i % 2);
        uint64_t whole = weight_staging_matrix_bytes(&file);
        assert_true(whole >= OUT * IN * sizeof(float) && whole < 2 * OUT * IN * sizeof(float));
        /* From room for a row to room for all. */
        for (uint64_t bytes = 2 * 64 + (IN + 2) * sizeof(float); bytes <= whole; bytes += 60) {
            struct weight_staging s;
            assert_int_equal(weight_staging_init(&s, c, NULL, bytes), 0);
            rows_are_right(&s, &file, &memory);
            weight_staging_done(&s);
        }
    }
    assert_true(linear_source_at(&(struct linear_source){.experts = 1,
                                                         .out = 4,
                                                         .in = 1,
                                                         .weight = {.dtype = DTYPE_F32, .data = values},
                                                         .transposed = true,
                                                         .interleaved = true},
                                 0, 2, 0) == 1);
    checkpoint_close_at();
    arena_free(a);
    test_tensors_free(l);
    free(l);
}

TEST_MAIN()
