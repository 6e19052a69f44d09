/* --quant: a model of floats that is quantised while it is loaded is, bit for bit, the model that has these
 * codes in its files; and every family can be. */
#include "model_path.h"
#include "test_ledger.h"
#include "small_quantised.h"

#include "memory/accounts.h"
#include "tensor/quantise.h"

#include <dirent.h>
#include <errno.h>

/* P.weight of `l` becomes codes, F16 scales and biases, as mlx-lm stores them. */
static void put_codes_of(struct test_tensors *l, const char *weight, uint32_t bits)
{
    char name[208], module[192];
    const struct tensor w = test_tensor_find(l, weight)->t;
    uint64_t shape[3], in = w.shape[w.rank - 1], groups = tensor_count(&w) / 64;
    float *values = malloc(w.bytes);
    memcpy(values, w.data, w.bytes);
    snprintf(module, sizeof(module), "%.*s", (int)(strlen(weight) - strlen(".weight")), weight);
    memcpy(shape, w.shape, sizeof(shape));
    test_tensor_remove(l, weight);
    shape[w.rank - 1] = in * bits / 32;
    uint8_t *packed = test_tensor_add(l, weight, DTYPE_U32, w.rank, shape);
    shape[w.rank - 1] = in / 64;
    snprintf(name, sizeof(name), "%s.scales", module);
    uint16_t *scales = test_tensor_add(l, name, DTYPE_F16, w.rank, shape);
    snprintf(name, sizeof(name), "%s.biases", module);
    uint16_t *biases = test_tensor_add(l, name, DTYPE_F16, w.rank, shape);
    for (uint64_t g = 0; g < groups; g++) {
        uint8_t codes[64];
        quantise_values(values + g * 64, 64, bits, codes, &scales[g], &biases[g]);
        for (uint64_t i = 0, at = g * 64; i < 64; i++, at++)
            put_code(packed + at / in * (in * bits / 8), at % in, bits, codes[i]);
    }
    free(values);
}

/* Routers and small gates keep their floats. */
static bool is_float(const char *name)
{
    return is_router(name) || strstr(name, "in_proj_a.") || strstr(name, "in_proj_b.");
}

static void quantise_files(struct test_tensors *l, uint32_t bits)
{
    char names[128][192];
    size_t count = 0;
    for (size_t i = 0; i < l->count; i++) {
        assert_true(count < COUNT_OF(names));
        if (is_matrix(&l->list[i]) && !is_float(l->list[i].name))
            snprintf(names[count++], sizeof(names[0]), "%s", l->list[i].name);
    }
    for (size_t i = 0; i < count; i++)
        put_codes_of(l, names[i], bits);
}

static void file_config(char *ret, size_t bytes_max, uint32_t bits)
{
    quantised_config(ret, bytes_max, bits, 64);
}

/* Tables have at least 6 bits: the files have one number of bits for all. */
static void is_the_model_of_its_codes(uint32_t bits, bool tied, enum dtype dtype, enum compute_mode mode)
{
    char config[8192];
    struct test_tensors *floats = random_model(bits, tied), *codes = random_model(bits, tied);
    struct small_answer wanted, got;
    struct model_opts o = small_opts(NULL);
    o.parts.compute = mode;
    quantise_files(codes, bits);
    file_config(config, sizeof(config), bits);
    small_ask_with(small_write(config, codes), &o, &wanted);
    for (size_t i = 0; i < floats->count; i++) {
        if (dtype != DTYPE_F32)
            small_to_half(&floats->list[i], dtype); /* its values are BF16 */
    }
    o.parts.quant = bits;
    small_ask_with(small_write("{" QUANT_CONFIG "}", floats), &o, &got);
    assert_true(wanted.hash == got.hash);
    small_free(floats);
    small_free(codes);
}

TEST(a_model_quantised_at_load_is_the_model_with_these_codes)
{
    is_the_model_of_its_codes(6, true, DTYPE_F32, COMPUTE_F32);
    is_the_model_of_its_codes(6, false, DTYPE_BF16, COMPUTE_INT16);
    is_the_model_of_its_codes(8, false, DTYPE_BF16, COMPUTE_F32);
    is_the_model_of_its_codes(8, true, DTYPE_F32, COMPUTE_INT8);
}

/* ---- the plan ---- */

static int watch_loading(void *arg, uint64_t done, uint64_t total)
{
    struct account *loading = accounts_find(arg, ACCOUNT_LOADING);
    (void)total;
    if (loading && done > 0)
        assert_true(account_numbers(loading).used <= account_numbers(loading).planned);
    return 0;
}

/* Loads with a plan that is the ledger. -ENOTSUP: nothing of the model can be quantised. */
static int load_quantised(const char *dir, uint32_t bits, struct model_shape *ret)
{
    struct model *m = NULL;
    struct err e = {{0}};
    struct account *parent = test_account(ACCOUNT_NO_LIMIT);
    struct model_opts o = small_opts(parent);
    o.parts.quant = bits;
    o.parts.vision = o.parts.mtp = true;
    o.parts.drafts_max = 2;
    o.progress = watch_loading;
    o.progress_arg = parent;
    int r = model_probe_at(dir, &o.parts, ret, &e);
    if (r == -ENOTSUP && strstr(e.text, "--quant"))
        return r;
    if (r < 0 || model_load_at(dir, &o, &m, &e) < 0)
        fail_msg("%s: %s", dir, e.text);
    assert_int_equal(account_numbers(accounts_find(parent, ACCOUNT_WEIGHTS)).used, ret->weight_bytes);
    assert_int_equal(account_numbers(accounts_find(parent, ACCOUNT_MTP)).used, ret->mtp_weight_bytes);
    assert_string_equal(ret->form, model_shape(m)->form);
    assert_int_equal(ret->quant, bits);
    model_free(m);
    assert_int_equal(account_numbers(parent).reserved, 0);
    return 0;
}

static int is_folder(const struct dirent *d)
{
    return d->d_name[0] != '.' && !strchr(d->d_name, '.');
}

/* Logits with weights of 8 bits are near the logits with floats. */
static void is_near(const char *dir)
{
    struct small_answer floats, quantised;
    struct model_opts o = small_opts(NULL);
    double off = 0, size = 0;
    small_ask_with(dir, &o, &floats);
    o.parts.quant = 8;
    small_ask_with(dir, &o, &quantised);
    for (uint32_t i = 0; i < floats.vocab; i++) {
        off += pow((double)floats.logits[i] - (double)quantised.logits[i], 2);
        size += pow((double)floats.logits[i], 2);
    }
    if (!(off < 0.04 * size) || off == 0)
        fail_msg("%s: off by %g of the logits' size", dir, sqrt(off / size));
}

/* Whether most bytes of a golden lie in matrices narrower than a group, or in an encoder of images. */
static bool most_is_narrow(const char *name, const struct model_shape *s)
{
    return s->hidden < 32 || strstr(name, "_vl") != NULL;
}

TEST(every_family_can_be_quantised)
{
    static const uint32_t bits[] = {4, 5, 6, 8};
    struct dirent **names;
    struct model_shape s, dense;
    uint32_t loaded = 0;
    int count = scandir(SMALL_GOLDEN(""), &names, is_folder, alphasort);
    for (int i = 0; i < count; i++) {
        char dir[1024];
        snprintf(dir, sizeof(dir), "%s%s", SMALL_GOLDEN(""), names[i]->d_name);
        if (strcmp(names[i]->d_name, "canary-8bit") != 0 && load_quantised(dir, bits[i % 4], &s) == 0) {
            assert_int_equal(model_probe_at(dir, NULL, &dense, NULL), 0);
            if (!most_is_narrow(names[i]->d_name, &s) && !(s.form[0] == 'q' && strstr(s.form, " from ")))
                fail_msg("%s: %s", dir, s.form);
            assert_true(s.active_weight_bytes < dense.active_weight_bytes);
            loaded++;
            if (!s.encoder && !s.both_ways && s.vocab <= COUNT_OF(((struct small_answer *)0)->logits))
                is_near(dir);
        }
        free(names[i]);
    }
    free(names);
    print_message("%u models\n", loaded);
    assert_true(loaded >= 23); /* others are narrower than a group */
}

/* ---- refusals ---- */

TEST(a_wish_that_changes_nothing_is_refused)
{
    char config[8192];
    struct test_tensors *codes = random_model(1, true), *floats = random_model(1, true);
    struct model_shape s;
    struct err e = {{0}};
    quantise_model(codes, floats, 4, 64, DTYPE_BF16);
    quantised_config(config, sizeof(config), 4, 64);
    const struct model_parts parts = {.quant = 8};
    assert_int_equal(model_probe_at(small_write(config, codes), &parts, &s, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "--quant q8"));
    assert_non_null(strstr(e.text, "mlx 4 bit g64"));
    small_free(floats);
    small_free(codes);
}

TEST(a_weight_that_is_no_number_is_refused_by_name)
{
    struct model *m = NULL;
    struct err e = {{0}};
    struct test_tensors *l = random_model(1, true);
    struct model_opts o = small_opts(NULL);
    o.parts.quant = 4;
    ((float *)test_tensor_find(l, "language_model.model.layers.1.self_attn.k_proj.weight")->t.data)[77] = NAN;
    assert_int_equal(model_load_at(small_write("{" QUANT_CONFIG "}", l), &o, &m, &e), -EINVAL);
    assert_non_null(strstr(e.text, "layers.1.self_attn.k_proj.weight"));
    small_free(l);
}

TEST_MAIN()
