/* Made-up checkpoints: every form of the tiny shapes loads and computes; the same options give the same
 * bytes. */
#include "model_path.h"
#include "small_vision.h"

#include "mkmodel/mk_write.h"

#include <errno.h>
#include <math.h>

static bool is_tiny(const struct mk_shape *s)
{
    return strncmp(s->name, "tiny-", 5) == 0;
}

static void make(const struct mk_write_opts *o, const char *dir)
{
    struct err e = {{0}};
    int r = mk_write(o, dir, &e);
    if (r < 0)
        print_message("%s %s: %s\n", o->shape->name, o->form->name, e.text);
    assert_int_equal(r, 0);
}

/* Finite logits, spread about as widely as an output of normed inputs should be. */
static void check_logits(const struct small_answer *a)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < a->vocab; i++) {
        assert_true(isfinite(a->logits[i]));
        sum += a->logits[i];
        squares += (double)a->logits[i] * a->logits[i];
    }
    double mean = sum / a->vocab, deviation = sqrt(squares / a->vocab - mean * mean);
    assert_true(deviation > 0.1 && deviation < 10);
}

/* Features that differ from token to token and are about as large as embeddings. */
static void check_tower(const char *dir)
{
    struct model_opts o = small_opts(NULL);
    struct model *m = small_vision_load(dir, &o);
    struct small_image p = small_image_make(m, 128, 64);
    double squares = 0;
    small_encode(m, &o, &p);
    for (size_t i = 0; i < p.floats; i++)
        squares += (double)p.features[i] * (double)p.features[i] / (double)p.floats;
    assert_true(squares > 1e-4 && squares < 100);
    assert_memory_not_equal(p.features, p.features + p.floats / 2, 16);
    small_image_free(&p);
    model_free(m);
}

TEST(every_form_of_the_tiny_shapes_loads_and_computes)
{
    uint32_t shapes = 0;
    for (const struct mk_shape *s = mk_shapes; s->name; s++) {
        if (!is_tiny(s))
            continue;
        shapes++;
        for (const struct mk_form *f = mk_forms; f->name; f++) {
            static struct small_answer answer;
            struct model_shape probed;
            if (!mk_form_fits(f, s))
                continue;
            const char *dir = test_dir();
            make(&(struct mk_write_opts){s, f, 4, 1}, dir);
            assert_int_equal(model_probe_at(dir, NULL, &probed, NULL), 0);
            assert_int_equal(probed.layers, 4);
            assert_string_equal(probed.family, s->model_type);
            assert_true((probed.state_bytes > 0) == mk_shape_is_hybrid(s));
            assert_true(probed.page_bytes > 0);
            small_ask(dir, &answer);
            check_logits(&answer);
            if (s->vision.depth)
                check_tower(dir);
        }
    }
    assert_int_equal(shapes, 4);
}

TEST(the_same_options_give_the_same_bytes)
{
    struct mk_write_opts o = {mk_shape_find("tiny-qwen3.5"), mk_form_find("4bit"), 0, 5};
    const uint64_t seeds[] = {5, 5, 6};
    char *files[3];
    size_t lens[3];
    uint64_t expected;
    assert_int_equal(mk_write_bytes(&o, &expected, NULL), 0);
    for (int i = 0; i < 3; i++) {
        const char *dir = test_dir();
        o.seed = seeds[i];
        make(&o, dir);
        files[i] = test_read_file(dir, "model.safetensors", &lens[i]);
        assert_int_equal(lens[i], expected);
    }
    assert_memory_equal(files[0], files[1], lens[0]);
    assert_memory_not_equal(files[0], files[2], lens[0]);
    for (int i = 0; i < 3; i++)
        free(files[i]);
}

TEST(a_shorter_model_is_the_beginning_of_the_longer_one)
{
    static struct small_answer four, all;
    struct mk_write_opts o = {mk_shape_find("tiny-qwen3.5"), mk_form_find("8bit"), 4, 0};
    struct model_shape shape;
    const char *dir = test_dir(), *whole = test_dir();
    make(&o, dir);
    small_ask(dir, &four);
    o.layers = 0;
    make(&o, whole);
    assert_int_equal(model_probe_at(whole, NULL, &shape, NULL), 0);
    assert_int_equal(shape.layers, o.shape->layers);
    small_ask(whole, &all);
    assert_true(four.hash != all.hash);
}

TEST(what_cannot_be_written_is_refused_in_words)
{
    struct err e = {{0}};
    struct mk_write_opts o = {mk_shape_find("tiny-qwen3"), mk_form_find("bf16"), 0, 0};
    const char *dir = test_dir();
    make(&o, dir);
    assert_int_equal(mk_write(&o, dir, &e), -EEXIST);
    assert_non_null(strstr(e.text, "never overwritten"));
    o.layers = o.shape->layers + 1;
    assert_int_equal(mk_write(&o, test_dir(), &e), -EINVAL);
    assert_non_null(strstr(e.text, "5 layers, but tiny-qwen3 has 4"));
    const struct mk_write_opts floats = {mk_shape_find("tiny-qwen3.5"), mk_form_find("fp8"), 0, 0};
    assert_int_equal(mk_write(&floats, test_dir(), &e), -EINVAL);
    assert_non_null(strstr(e.text, "fp8 is for dense models, and tiny-qwen3.5 is not one"));
    /* A file system without a free block. */
    o.layers = 0;
    assert_int_equal(mk_write(&o, "/proc/plateau-mkmodel", &e), -ENOSPC);
    assert_non_null(strstr(e.text, "1 MiB are needed and 64 MiB must stay free, but only 0 MiB are"));
}

/* Returns the program's exit status; `said` gets the first 4095 bytes of its output. */
static int run(const char *args, char said[4096])
{
    char command[1024];
    snprintf(command, sizeof(command), "%s %s 2>&1", MKMODEL_PROGRAM, args);
    FILE *p = popen(command, "re");
    assert_non_null(p);
    said[fread(said, 1, 4095, p)] = 0;
    int status = pclose(p);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(the_program_writes_lists_and_refuses)
{
    char said[4096], args[256];
    const char *dir = test_dir();
    struct model_shape shape;
    assert_int_equal(run("--help", said), 0);
    assert_non_null(strstr(said, "usage: mkmodel"));
    assert_int_equal(run("--list", said), 0);
    assert_non_null(strstr(said, "qwen3.5-2b"));
    assert_non_null(strstr(said, "qwen3.5-35b-a3b"));
    snprintf(args, sizeof(args), "--layers 4 --seed 3 tiny-qwen3.5-moe 4bit --out %s/new", dir);
    assert_int_equal(run(args, said), 0);
    assert_string_equal(said, "");
    snprintf(args, sizeof(args), "%s/new", dir);
    assert_int_equal(model_probe_at(args, NULL, &shape, NULL), 0);
    assert_int_equal(shape.layers, 4);
    const char *const refused[] = {"tiny-qwen3 bf16",
                                   "--out /tmp tiny-qwen3",
                                   "--out /tmp huge bf16",
                                   "--out /tmp tiny-qwen3 9bit",
                                   "--out /tmp --layers 0 tiny-qwen3 bf16",
                                   "--what"};
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        assert_int_equal(run(refused[i], said), 2);
        assert_true(said[0] != 0);
    }
}

TEST_MAIN()
