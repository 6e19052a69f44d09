/* small_model.h - models small enough to make up, change and load many times over in a test.
 *
 * Tensors come from a golden checkpoint or from a seed. A test changes the list, writes it as a directory,
 * and gets the logits of a fixed prompt: all of them, as one hash (the same bits or not) or as numbers. */
#ifndef PLATEAU_TESTS_SMALL_MODEL_H
#define PLATEAU_TESTS_SMALL_MODEL_H

#include "model_path.h"
#include "test_rng.h"
#include "test_floats.h"
#include "test_device.h"
#include "test_files.h"

#include "golden/room.h"
#include "golden/runner.h"

#include "base/check.h"
#include "compute/backend.h"
#include "weights/checkpoint.h"

#define SMALL_PROMPT   75
#define SMALL_GENERATE 5

/* ---- loading and running ---- */

/* The test's device with that many workers. */
static inline struct device *small_device(uint32_t workers)
{
    static struct device *d;
    if (d && d->workers != workers) {
        device_close(d);
        d = NULL;
    }
    if (!d)
        assert_int_equal(test_device_open(workers, &d), 0);
    return d;
}

static inline struct model_opts small_opts(struct account *parent)
{
    return (struct model_opts){.tokens_max = SMALL_PROMPT * 3,
                               .seqs_max = 3,
                               .logits_max = SMALL_PROMPT * 3,
                               .parts = {.backend = small_device(2)->backend, .compute = COMPUTE_F32},
                               .device = small_device(2),
                               .parent = parent};
}

static inline struct room small_room(const struct model *m, uint64_t bytes)
{
    struct room r;
    assert_int_equal(room_make(model_domain(m), bytes, 0xff, &r), 0);
    return r;
}

/* The model's output for three prompts that share steps. Of the first one also the logits after its last
 * token. */
struct small_answer {
    uint64_t hash;
    uint32_t vocab;
    float logits[4096];
    uint32_t generated[SMALL_GENERATE];
};

static inline void small_see(struct runner_sequence *q, uint32_t position, const float *logits,
                             uint32_t vocab)
{
    struct small_answer *a = q->arg;
    if (!a || position + 1 != q->prompt_count)
        return;
    assert_true(vocab <= COUNT_OF(a->logits));
    memcpy(a->logits, logits, vocab * sizeof(float));
    a->vocab = vocab;
}

static inline void small_run(struct model *m, const struct model_opts *o, struct small_answer *ret)
{
    struct runner *r;
    uint32_t prompt[SMALL_PROMPT], generated[3][SMALL_GENERATE], vocab = model_shape(m)->vocab;
    struct rng rng = {7, 0};
    for (int i = 0; i < SMALL_PROMPT; i++)
        prompt[i] = (uint32_t)rng_below(&rng, vocab);
    struct runner_sequence q[3];
    for (int i = 0; i < 3; i++)
        q[i] = (struct runner_sequence){.prompt = prompt + i * 9,
                                        .prompt_count = SMALL_PROMPT - (uint32_t)i * 11,
                                        .generate = SMALL_GENERATE,
                                        .generated = generated[i],
                                        .arg = i == 0 ? ret : NULL};
    struct runner_opts opts = {m, o->tokens_max, o->seqs_max, SMALL_PROMPT + SMALL_GENERATE};
    assert_int_equal(runner_create(&opts, &r), 0);
    device_turn_begin(o->device);
    assert_int_equal(runner_run(r, q, 3, 40, 3, small_see), 0);
    device_turn_end(o->device);
    runner_free(r);
    ret->hash = q[0].hash ^ q[1].hash * 3 ^ q[2].hash * 5;
    memcpy(ret->generated, generated[0], sizeof(ret->generated));
}

static inline void small_ask_with(const char *dir, const struct model_opts *o, struct small_answer *ret)
{
    struct model *m = NULL;
    struct err e = {{0}};
    int r = model_load_at(dir, o, &m, &e);
    if (r < 0)
        print_message("%s: %s\n", dir, e.text);
    assert_int_equal(r, 0);
    small_run(m, o, ret);
    model_free(m);
}

static inline void small_ask(const char *dir, struct small_answer *ret)
{
    const struct model_opts o = small_opts(NULL);
    small_ask_with(dir, &o, ret);
}

/* Checks that loading refuses the directory with `code` and a message that contains `says`. */
static inline void small_refuses(const char *dir, int code, const char *says)
{
    struct model *m = NULL;
    struct err e = {{0}};
    struct model_opts o = small_opts(NULL);
    int r = model_load_at(dir, &o, &m, &e);
    if (r != code || !strstr(e.text, says))
        print_message("gave %d: %s\n", r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, says));
    assert_null(m);
}

/* ---- tensors ---- */

static inline struct test_tensors *small_tensors(void)
{
    struct test_tensors *l = calloc(1, sizeof(*l));
    assert_non_null(l);
    return l;
}

static inline void small_free(struct test_tensors *l)
{
    test_tensors_free(l);
    free(l);
}

#define SMALL_GOLDEN(name) PLATEAU_SOURCE_DIR "/tests/golden/data/" name

/* All tensors of a directory, copied. */
static inline struct test_tensors *small_read(const char *dir)
{
    struct test_tensors *l = small_tensors();
    struct arena *a;
    struct checkpoint *c;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 16 << 20}, &a), 0);
    assert_int_equal(checkpoint_open_at(a, dir, NULL, &c, NULL), 0);
    for (uint32_t i = 0; i < checkpoint_count(c); i++) {
        struct tensor t;
        assert_true(checkpoint_find(c, checkpoint_name(c, i), &t));
        void *data = test_tensor_add(l, checkpoint_name(c, i), t.dtype, t.rank, t.shape);
        assert_int_equal(checkpoint_read(c, &t, 0, data, t.bytes, NULL), 0);
    }
    checkpoint_close_at();
    arena_free(a);
    return l;
}

/* A directory with this configuration and these tensors in one file. */
static inline const char *small_write(const char *config, const struct test_tensors *l)
{
    const char *dir = test_dir();
    test_write_text(dir, "config.json", config);
    test_write_tensors(l, dir, "model.safetensors", 0, NULL);
    return dir;
}

/* A copy of a golden with its tensors changed by `change`. */
static inline const char *small_changed(const char *golden, void (*change)(struct test_tensors *l))
{
    struct test_tensors *l = small_read(golden);
    char *config = test_read_file(golden, "config.json", NULL);
    change(l);
    const char *dir = small_write(config, l);
    free(config);
    small_free(l);
    return dir;
}

/* Values of any float tensor as F32, in place. */
static inline void small_to_f32(struct test_tensor *n)
{
    if (n->t.dtype == DTYPE_F32)
        return;
    uint64_t count = tensor_count(&n->t);
    float *values = malloc(count * sizeof(float) + 1);
    assert_non_null(values);
    for (uint64_t i = 0; i < count; i++)
        values[i] = tensor_f32_at(&n->t, i);
    free((void *)n->t.data);
    n->t.data = values;
    n->t.dtype = DTYPE_F32;
    n->t.bytes = count * sizeof(float);
}

/* F32 values rounded to a 16-bit type, in place. */
static inline void small_to_half(struct test_tensor *n, enum dtype dtype)
{
    uint64_t count = tensor_count(&n->t);
    uint16_t *halves = malloc(count * sizeof(uint16_t) + 1);
    assert_non_null(halves);
    for (uint64_t i = 0; i < count; i++) {
        float f = tensor_f32_at(&n->t, i);
        halves[i] = dtype == DTYPE_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
    }
    free((void *)n->t.data);
    n->t.data = halves;
    n->t.dtype = dtype;
    n->t.bytes = count * sizeof(uint16_t);
}

#endif
