/* Loading: the memory that it takes and returns, and every checkpoint that does not fit its configuration. */
#include "model_path.h"
#include "small_model.h"
#include "test_ledger.h"

#include "base/none.h"
#include "memory/accounts.h"

#include <errno.h>

static const char *const goldens[] = {SMALL_GOLDEN("llama"), SMALL_GOLDEN("qwen3"), SMALL_GOLDEN("qwen3_5"),
                                      SMALL_GOLDEN("qwen3_5_moe")};

static void same_shape(const struct model_shape *a, const struct model_shape *b)
{
    assert_string_equal(a->family, b->family);
    assert_true(a->vocab == b->vocab && a->layers == b->layers && a->hidden == b->hidden);
    assert_true(a->context_max == b->context_max && a->page_bytes == b->page_bytes &&
                a->state_bytes == b->state_bytes);
    assert_true(a->weight_bytes == b->weight_bytes && a->checkpoint_bytes == b->checkpoint_bytes);
    assert_true(a->active_weight_bytes == b->active_weight_bytes && a->parameters == b->parameters);
    assert_true(a->active_checkpoint_bytes == b->active_checkpoint_bytes &&
                a->token_products == b->token_products);
    assert_memory_equal(&a->workspace, &b->workspace, sizeof(a->workspace));
    assert_true(a->has_vision == b->has_vision && a->has_mtp == b->has_mtp);
}

TEST(probing_says_what_loading_takes)
{
    for (size_t i = 0; i < COUNT_OF(goldens); i++) {
        struct model_shape probed;
        struct model *m;
        struct account *parent = test_account(ACCOUNT_NO_LIMIT);
        struct model_opts o = small_opts(parent);
        assert_int_equal(model_probe_at(goldens[i], &o.parts, &probed, NULL), 0);
        assert_int_equal(model_load_at(goldens[i], &o, &m, NULL), 0);
        same_shape(&probed, model_shape(m));
        assert_int_equal(probed.page_bytes % 64, 0);
        assert_int_equal(probed.state_bytes % 64, 0);
        assert_true((probed.state_bytes > 0) == (i >= 2));
        assert_true(probed.active_weight_bytes <= probed.weight_bytes);
        /* No file remains mapped; the account holds what the plan says. */
        const struct model_workspace w =
            model_workspace_bytes(&probed, o.tokens_max, o.seqs_max, o.device->workers);
        uint64_t workspace = w.device_bytes + w.host_bytes, used = account_numbers(parent).used;
        assert_true(used >= probed.weight_bytes + workspace / 2);
        assert_true(used <= probed.weight_bytes + workspace + (1 << 20));
        uint64_t recorded = probed.workspace.recorded_bytes + probed.workspace.recorded_host_bytes;
        assert_int_equal(account_numbers(parent).reserved, used + recorded);
        model_free(m);
        assert_int_equal(account_numbers(parent).reserved, 0);
        assert_int_equal(account_numbers(parent).children, 0);
    }
    model_free(NULL);
}

TEST(the_shape_counts_what_is_there)
{
    struct model_shape s;
    assert_int_equal(model_probe_at(SMALL_GOLDEN("qwen3_5_moe"), NULL, &s, NULL), 0);
    assert_string_equal(s.family, "qwen3_5_moe");
    assert_int_equal(s.vocab, 512);
    assert_int_equal(s.layers, 4);
    assert_int_equal(s.page_bytes, 1 * 2 * 2 * 16 * 32 * 4);
    assert_int_equal(s.state_bytes, 3 * (3 * 128 * 4 + 4 * 16 * 16 * 4));
    assert_false(s.has_vision || s.has_mtp);
    uint64_t parameters = 0;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5_moe"));
    for (size_t i = 0; i < l->count; i++)
        parameters += tensor_count(&l->list[i].t);
    small_free(l);
    assert_int_equal(s.parameters, parameters);
    assert_int_equal(model_probe_at(PLATEAU_SOURCE_DIR "/models/canary", NULL, &s, NULL), 0);
    assert_true(s.has_vision && s.has_mtp);
}

/* All bytes of a checkpoint's tensors, without the embedding table if there is a separate head. */
static uint64_t bytes_read(const char *dir)
{
    uint64_t bytes = 0;
    struct test_tensors *l = small_read(dir);
    for (size_t i = 0; i < l->count; i++) {
        bool table = strstr(l->list[i].name, "embed_tokens") != NULL;
        if (!table || !test_tensor_find(l, "lm_head.weight"))
            bytes += l->list[i].t.bytes;
    }
    small_free(l);
    return bytes;
}

TEST(a_token_reads_what_it_multiplies_with)
{
    struct model_shape s;
    for (size_t i = 0; i < 3; i++) { /* the dense ones */
        assert_int_equal(model_probe_at(goldens[i], NULL, &s, NULL), 0);
        assert_int_equal(s.active_checkpoint_bytes, bytes_read(goldens[i]));
        assert_true(s.token_products <= s.parameters && s.token_products > s.parameters / 4);
    }
    /* A token uses 2 of 8 experts. */
    assert_int_equal(model_probe_at(SMALL_GOLDEN("qwen3_5_moe"), NULL, &s, NULL), 0);
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5_moe"));
    uint64_t unread = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (strstr(l->list[i].name, "mlp.experts."))
            unread += l->list[i].t.bytes / 8 * 6;
    }
    small_free(l);
    assert_int_equal(s.active_checkpoint_bytes, bytes_read(SMALL_GOLDEN("qwen3_5_moe")) - unread);
}

TEST(a_ceiling_anywhere_leaves_nothing_behind)
{
    struct model *m = NULL;
    uint64_t limit = 0;
    int refused = 0, r;
    do {
        struct err e = {{0}};
        struct account *parent = test_account(limit);
        struct model_opts o = small_opts(parent);
        r = model_load_at(SMALL_GOLDEN("qwen3_5_moe"), &o, &m, &e);
        if (r < 0) {
            assert_int_equal(r, -ENOMEM);
            assert_true(e.text[0] != 0);
            assert_int_equal(account_numbers(parent).reserved, 0);
            refused++;
        }
        limit += 700 * 1024;
    } while (r < 0 && refused < 14);
    assert_int_equal(r, 0);
    assert_true(refused > 3);
    model_free(m);
}

/* On a device; the CPU records none. */
TEST(recorded_steps_have_an_account_and_need_none)
{
    const char *dir = SMALL_GOLDEN("qwen3_5");
    struct small_answer recorded, queued;
    struct account *parent = test_account(ACCOUNT_NO_LIMIT);
    struct model_opts o = small_opts(parent);
    struct model *m;
    assert_int_equal(model_load_at(dir, &o, &m, NULL), 0);
    struct account *steps = accounts_find(parent, ACCOUNT_RECORDED_STEPS);
    assert_true((steps != NULL) == test_device_is_fake());
    if (steps) {
        assert_int_equal(account_numbers(steps).limit, model_shape(m)->workspace.recorded_bytes);
        assert_int_equal(account_numbers(steps).used, 0);
        small_run(m, &o, &recorded);
        uint64_t replays = fake_device_numbers(o.device).replays, used = account_numbers(steps).used;
        assert_true(replays > 0 && used > 0 && used <= account_numbers(steps).limit);
        model_free(m);
        assert_int_equal(account_numbers(parent).children, 0);
        assert_int_equal(fake_device_numbers(o.device).committed_bytes, 0);
        /* No room. */
        assert_int_equal(model_load_at(dir, &o, &m, NULL), 0);
        steps = accounts_find(parent, ACCOUNT_RECORDED_STEPS);
        account_set_limit(steps, 0);
        small_run(m, &o, &queued);
        assert_int_equal(account_numbers(steps).used, 0);
        assert_int_equal(fake_device_numbers(o.device).replays, replays);
        assert_int_equal(queued.hash, recorded.hash);
        assert_memory_equal(queued.generated, recorded.generated, sizeof(queued.generated));
    }
    model_free(m);
}

/* How often a load tells its progress depends on its threads: it is stopped by bytes. */
struct watch {
    uint64_t calls, stops, stop_from, last, total;
};

static int watch_progress(void *arg, uint64_t done, uint64_t total)
{
    struct watch *w = arg;
    assert_true(done >= w->last && done <= total && total > 0);
    w->last = done;
    w->total = total;
    w->calls++;
    w->stops += done >= w->stop_from;
    return done >= w->stop_from;
}

TEST(progress_grows_to_the_total_and_can_stop_the_load)
{
    struct watch w = {.stop_from = UINT64_MAX};
    struct model *m = NULL;
    struct model_opts o = small_opts(NULL);
    o.progress = watch_progress;
    o.progress_arg = &w;
    assert_int_equal(model_load_at(SMALL_GOLDEN("qwen3_5"), &o, &m, NULL), 0);
    model_free(m);
    assert_true(w.calls > 10);
    assert_int_equal(w.last, w.total);
    const uint64_t total = w.total;
    for (uint64_t part = 0; part <= 32; part++) {
        struct err e = {{0}};
        m = NULL;
        w = (struct watch){.stop_from = total * part / 32};
        o.parent = test_account(ACCOUNT_NO_LIMIT);
        assert_int_equal(model_load_at(SMALL_GOLDEN("qwen3_5"), &o, &m, &e), -ECANCELED);
        assert_null(m);
        assert_int_equal(w.stops, 1); /* no call follows it */
        assert_int_equal(account_numbers(o.parent).reserved, 0);
    }
}

TEST(options_out_of_bounds_are_refused)
{
    struct model *m = NULL;
    struct err e = {{0}};
    struct model_opts o = small_opts(NULL);
    struct backend plain = *o.parts.backend;
    plain.bf16 = false;
    o.parts.backend = &plain;
    o.parts.compute = COMPUTE_BF16;
    struct model_shape shape;
    assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &o.parts, &shape, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "bf16"));
    o = small_opts(NULL);
    o.seqs_max = o.tokens_max + 1;
    assert_int_equal(model_load_at(SMALL_GOLDEN("llama"), &o, &m, &e), -EINVAL);
    o = small_opts(NULL);
    o.tokens_max = 0;
    assert_int_equal(model_load_at(SMALL_GOLDEN("llama"), &o, &m, &e), -EINVAL);
    enum compute_mode c;
    assert_true(compute_mode_parse("int8", &c) && c == COMPUTE_INT8);
    assert_false(compute_mode_parse("fp4", &c));
    assert_string_equal(compute_mode_name(COMPUTE_AUTO), "auto");
}

TEST(a_cancelled_step_stops_between_layers)
{
    struct model *m;
    struct model_opts o = small_opts(NULL);
    assert_int_equal(model_load_at(SMALL_GOLDEN("llama"), &o, &m, NULL), 0);
    const struct model_shape *s = model_shape(m);
    struct room pages = small_room(m, s->page_bytes);
    float *logits = calloc(s->vocab, sizeof(float));
    uint32_t token = 1, page = 0;
    atomic_bool cancel = true;
    struct model_seq row = {.tokens = &token, .token_count = 1, .pages = {&page}, .state_in = NONE};
    struct model_step step = {
        .seqs = &row, .seq_count = 1, .pages = {pages.at}, .logits = logits, .cancel = &cancel};
    device_turn_begin(o.device);
    assert_int_equal(model_forward(m, &step), -ECANCELED);
    cancel = false;
    assert_int_equal(model_forward(m, &step), 0);
    assert_true(logits[0] != 0);
    /* No logits requested: none written. */
    memset(logits, 0, s->vocab * sizeof(float));
    row.logits_from = 1;
    assert_int_equal(model_forward(m, &step), 0);
    assert_true(logits[0] == 0);
    /* One step at a time, and an end for each. */
    model_step_begin(m, &step);
    assert_stops(model_step_begin(m, &step));
    assert_int_equal(model_step_end(m), 0);
    assert_stops(model_step_end(m));
    /* The caller guarantees valid ids. */
    token = s->vocab;
    assert_stops(model_forward(m, &step));
    device_turn_end(o.device);
    room_free(&pages);
    free(logits);
    model_free(m);
}

TEST(workers_change_no_bit)
{
    struct small_answer one, three;
    struct model *m;
    for (size_t i = 0; i < COUNT_OF(goldens); i++) {
        struct model_opts o = small_opts(NULL);
        o.device = small_device(1);
        assert_int_equal(model_load_at(goldens[i], &o, &m, NULL), 0);
        small_run(m, &o, &one);
        model_free(m);
        o.device = small_device(3);
        assert_int_equal(model_load_at(goldens[i], &o, &m, NULL), 0);
        small_run(m, &o, &three);
        model_free(m);
        assert_true(one.hash == three.hash);
    }
}

/* ---- checkpoints that do not fit ---- */

static void reshape_down(struct test_tensors *l)
{
    struct tensor *t = &test_tensor_find(l, "model.layers.2.mlp.down_proj.weight")->t;
    t->shape[0] = 48;
    t->shape[1] = 32;
}

static void drop_norm(struct test_tensors *l)
{
    test_tensor_remove(l, "model.layers.3.input_layernorm.weight");
}

static void drop_embedding(struct test_tensors *l)
{
    test_tensor_remove(l, "model.embed_tokens.weight");
}

static void add_bias(struct test_tensors *l)
{
    test_tensor_add(l, "model.layers.0.self_attn.q_proj.bias", DTYPE_BF16, 1, (const uint64_t[]){63});
}

static void add_denied_bias(struct test_tensors *l)
{
    test_tensor_add(l, "model.layers.0.self_attn.v_proj.bias", DTYPE_BF16, 1, (const uint64_t[]){32});
}

static void add_denied_out_bias(struct test_tensors *l)
{
    test_tensor_add(l, "model.layers.0.self_attn.o_proj.bias", DTYPE_BF16, 1, (const uint64_t[]){32});
}

static void add_denied_mlp_bias(struct test_tensors *l)
{
    test_tensor_add(l, "model.layers.0.mlp.down_proj.bias", DTYPE_BF16, 1, (const uint64_t[]){32});
}

static void add_scales(struct test_tensors *l)
{
    test_tensor_add(l, "model.layers.0.self_attn.q_proj.scales", DTYPE_BF16, 2, (const uint64_t[]){64, 1});
}

static void make_fp8(struct test_tensors *l)
{
    test_tensor_remove(l, "model.layers.0.self_attn.v_proj.weight");
    test_tensor_add(l, "model.layers.0.self_attn.v_proj.weight", DTYPE_F8_E4M3, 2,
                    (const uint64_t[]){32, 32});
}

static void shorten_norm(struct test_tensors *l)
{
    test_tensor_remove(l, "model.norm.weight");
    test_tensor_add(l, "model.norm.weight", DTYPE_F32, 1, (const uint64_t[]){31});
}

static void poison_norm(struct test_tensors *l)
{
    uint16_t nan = 0x7fc0;
    memcpy((char *)test_tensor_find(l, "model.norm.weight")->t.data + 20, &nan, 2);
}

static void add_layer(struct test_tensors *l)
{
    test_tensor_add(l, "model.layers.4.mlp.up_proj.weight", DTYPE_BF16, 2, (const uint64_t[]){48, 32});
    test_tensor_add(l, "model.layers.4.mlp.down_proj.weight", DTYPE_BF16, 2, (const uint64_t[]){32, 48});
}

static void add_mtp_layer(struct test_tensors *l)
{
    add_layer(l);
    test_tensor_add(l, "model.layers.4.enorm.weight", DTYPE_BF16, 1, (const uint64_t[]){32});
}

TEST(a_page_is_the_sum_of_its_layers)
{
    struct model_shape s;
    struct err e = {{0}};
    assert_int_equal(model_probe_at(SMALL_GOLDEN("olmo3"), NULL, &s, &e), 0);
    assert_int_equal(s.kv_count, 2);
    assert_int_equal(s.kv[0].layers, 2);
    assert_int_equal(s.kv[0].window, 16);
    assert_int_equal(s.kv[1].window, 0);
    assert_int_equal(s.kv[0].page_bytes, 2 * 2 * 2 * 6 * 32 * sizeof(float));
    assert_int_equal(s.page_bytes, s.kv[0].page_bytes + s.kv[1].page_bytes);
    assert_int_equal(s.recurrent_layers, 0);
    assert_int_equal(model_probe_at(SMALL_GOLDEN("qwen3_5"), NULL, &s, &e), 0);
    assert_int_equal(s.kv_count, 1);
    assert_int_equal(s.recurrent_layers, 3);
}

TEST(what_does_not_fit_the_configuration_is_named)
{
    const char *llama = SMALL_GOLDEN("llama");
    small_refuses(small_changed(llama, reshape_down), -EINVAL,
                  "model.safetensors: tensor model.layers.2.mlp.down_proj.weight has shape [48, 32], the "
                  "configuration wants [32, 48]");
    small_refuses(small_changed(llama, drop_norm), -EINVAL,
                  "no tensor model.layers.3.input_layernorm.weight");
    small_refuses(small_changed(llama, drop_embedding), -EINVAL, "no tensor model.embed_tokens.weight");
    small_refuses(small_changed(llama, add_bias), -EINVAL,
                  "q_proj.bias has shape [63], the configuration wants [64]");
    small_refuses(small_changed(llama, add_denied_bias), -EINVAL,
                  "tensor model.layers.0.self_attn.v_proj has a bias, but attention_bias is false");
    small_refuses(small_changed(llama, add_denied_out_bias), -EINVAL,
                  "o_proj has a bias, but attention_bias (or attention_out_bias) is false");
    small_refuses(small_changed(llama, add_denied_mlp_bias), -EINVAL,
                  "tensor model.layers.0.mlp.down_proj has a bias, but mlp_bias is false");
    small_refuses(small_changed(llama, add_scales), -EINVAL, "no quantization block");
    small_refuses(small_changed(llama, make_fp8), -ENOTSUP, "v_proj.weight has dtype F8_E4M3");
    small_refuses(small_changed(llama, shorten_norm), -EINVAL, "model.norm.weight has shape [31]");
    small_refuses(small_changed(llama, poison_norm), -EINVAL,
                  "model.norm.weight holds a value that is infinite or not a");
    small_refuses(small_changed(llama, add_layer), -EINVAL,
                  "model.safetensors: tensor model.layers.4.mlp.up_proj.weight (2 such in all) is of a layer "
                  "beyond the configuration's 4");
}

TEST(layers_of_an_mtp_head_may_follow_those_of_the_text)
{
    struct model_shape s;
    assert_int_equal(model_probe_at(small_changed(SMALL_GOLDEN("llama"), add_mtp_layer), NULL, &s, NULL), 0);
}

static void mix_convs(struct test_tensors *l)
{
    struct tensor *t = &test_tensor_find(l, "model.layers.1.linear_attn.conv1d.weight")->t;
    t->shape[1] = t->shape[2];
    t->shape[2] = 1;
}

static void drop_expert(struct test_tensors *l)
{
    test_tensor_remove(l, "model.layers.1.mlp.experts.7.up_proj.weight");
}

static void turn_expert(struct test_tensors *l)
{
    struct tensor *t = &test_tensor_find(l, "model.layers.1.mlp.experts.5.down_proj.weight")->t;
    t->shape[0] = 12;
    t->shape[1] = 32;
}

TEST(what_does_not_fit_the_family_is_named)
{
    small_refuses(small_changed(SMALL_GOLDEN("qwen3_5"), mix_convs), -EINVAL,
                  "model.layers.1.linear_attn.conv1d.weight has shape [128, 4, 1]");
    small_refuses(small_changed(SMALL_GOLDEN("qwen3_5_moe"), drop_expert), -EINVAL,
                  "no tensor model.layers.1.mlp.experts.7.up_proj.weight");
    small_refuses(small_changed(SMALL_GOLDEN("qwen3_5_moe"), turn_expert), -EINVAL,
                  "experts.5.down_proj.weight has shape [12, 32], the configuration wants [32, 12]");
}

TEST(damaged_files_are_refused)
{
    struct test_tensors *l = small_read(SMALL_GOLDEN("llama"));
    char *config = test_read_file(SMALL_GOLDEN("llama"), "config.json", NULL);
    const char *dir = small_write(config, l);
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    small_refuses(dir, -EINVAL, "truncated file?");
    assert_int_equal(truncate(path, 100), 0);
    small_refuses(dir, -EINVAL, "longer than the file (truncated?)");
    unlink(path);
    small_refuses(dir, -ENOENT, "has no model*.safetensors");
    test_write_text(dir, "config.json", "{\"model_type\":\"gpt2\"}");
    small_refuses(dir, -ENOTSUP, "model_type 'gpt2' is not supported");
    snprintf(path, sizeof(path), "%s/config.json", dir);
    unlink(path);
    small_refuses(dir, -ENOENT, "config.json");
    free(config);
    small_free(l);
}

TEST_MAIN()
