/* Speed of this machine, and the work of a token. */
#include "model_path.h"
#include "test.h"

#include "host/machine_limits.h"
#include "model/model.h"
#include "model/model_work.h"

#define QWEN3   PLATEAU_SOURCE_DIR "/tests/golden/data/qwen3"
#define MIXTRAL PLATEAU_SOURCE_DIR "/tests/golden/data/mixtral"

TEST(the_work_of_a_token_is_that_of_its_matrices)
{
    struct model_work w;
    struct err e = {{0}};
    assert_int_equal(machine_limits_work(QWEN3, &w, &e), 0);
    /* 4 layers of hidden 32: q and o of 4 heads of 16, k and v of 2, gate, up and down of 48. */
    const uint64_t layers = 4 * (2 * 32 * 64 + 2 * 32 * 32 + 3 * 32 * 48);
    assert_int_equal(w.token_operations, 2 * layers);
    const uint64_t head = 512 * 32;
    assert_int_equal(w.logits_operations, 2 * head);
    const uint64_t norms = 4 * (2 * 32 + 2 * 16) + 32;
    assert_int_equal(w.token_bytes, 2 * (layers + head + norms)); /* BF16; the embedding table is the head */
    assert_false(w.routed);
    assert_true(model_work_prefill(w, 100) == 200.0 * (double)layers + 2.0 * (double)head);
}

TEST(experts_that_a_token_does_not_choose_do_not_count)
{
    struct model_work w;
    struct model_shape s;
    struct err e = {{0}};
    assert_int_equal(machine_limits_work(MIXTRAL, &w, &e), 0);
    assert_int_equal(model_probe_at(MIXTRAL, NULL, &s, &e), 0);
    assert_true(w.routed);
    assert_true(w.token_operations + w.logits_operations < 2 * s.parameters);
}

TEST(a_directory_without_a_model_has_no_work)
{
    struct model_work w = {.token_bytes = 7};
    struct err e = {{0}};
    assert_true(machine_limits_work(PLATEAU_SOURCE_DIR "/tests", &w, &e) < 0);
    assert_true(e.text[0]);
    assert_int_equal(w.token_bytes, 7);
}

TEST(a_machine_reads_and_multiplies)
{
    struct machine_limits *l;
    assert_int_equal(machine_limits_open(&l), 0);
    assert_true(machine_limits_threads(l) >= 1);
    assert_true(machine_limits_read(l) > 1e6);
    assert_true(machine_limits_multiply(l) >= 0);
    assert_false(machine_limits_in_cache((uint64_t)1 << 62));
    machine_limits_close(l);
    machine_limits_close(NULL);
}

TEST_MAIN()
