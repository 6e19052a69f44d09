/* A model's plan is equal to its load, to the byte, in every form of weights; and names of forms. */
#include "model_path.h"
#include "test_ledger.h"
#include "small_quantised.h"

#include "memory/accounts.h"
#include "model/config/weight_forms.h"
#include "tensor/block_form.h"
#include "weights/stored_form.h"

#include <dirent.h>

#define SHARED PLATEAU_SOURCE_DIR "/../shared/"

static void account_is(struct account *parent, enum account_id id, uint64_t bytes)
{
    const struct account_numbers n = account_numbers(accounts_find(parent, id));
    if (n.planned != bytes || n.reserved != bytes || n.used != bytes)
        fail_msg("account %s: %llu bytes are planned; the ledger has %llu planned, %llu reserved, %llu used",
                 n.name, (ull)bytes, (ull)n.planned, (ull)n.reserved, (ull)n.used);
}

/* The account of what a load reads with is gone after it: its peak is in that of the parent. */
static int watch_loading(void *arg, uint64_t done, uint64_t total)
{
    struct account *loading = accounts_find(arg, ACCOUNT_LOADING);
    (void)total;
    if (loading && done > 0) {
        const struct account_numbers n = account_numbers(loading);
        assert_true(n.used <= n.planned && n.reserved <= n.planned);
    }
    return 0;
}

static void plan_is_the_ledger(const char *dir, enum compute_mode mode, char form[64])
{
    struct model_shape s;
    struct model *m = NULL;
    struct err e = {{0}};
    struct account *parent = test_account(ACCOUNT_NO_LIMIT);
    struct model_opts o = small_opts(parent);
    o.parts.compute = mode;
    o.parts.vision = o.parts.mtp = true;
    o.parts.drafts_max = 2;
    o.progress = watch_loading;
    o.progress_arg = parent;
    if (model_probe_at(dir, &o.parts, &s, &e) < 0 || model_load_at(dir, &o, &m, &e) < 0)
        fail_msg("%s: %s", dir, e.text);
    const struct model_workspace w = model_workspace_bytes(&s, o.tokens_max, o.seqs_max, o.device->workers);
    account_is(parent, ACCOUNT_WEIGHTS, s.weight_bytes);
    account_is(parent, ACCOUNT_MTP, s.mtp_weight_bytes);
    const struct account_numbers workspace = account_numbers(accounts_find(parent, ACCOUNT_WORKSPACE));
    assert_int_equal(workspace.planned, w.device_bytes + w.host_bytes);
    assert_true(workspace.used <= workspace.planned && workspace.reserved <= workspace.planned);
    const struct account_numbers tables = account_numbers(accounts_find(parent, ACCOUNT_TABLES));
    assert_true(tables.used <= s.tables_bytes);
    assert_string_equal(s.form, model_shape(m)->form);
    memcpy(form, s.form, 64);
    model_free(m);
    assert_int_equal(account_numbers(parent).reserved, 0);
}

static int is_folder(const struct dirent *d)
{
    return d->d_name[0] != '.' && !strchr(d->d_name, '.');
}

/* Compares the plans of all models of a folder with their ledgers; returns their number. */
static int plans_are_ledgers(const char *folder)
{
    static const enum compute_mode modes[] = {COMPUTE_F32, COMPUTE_INT16, COMPUTE_BF16};
    struct dirent **names;
    char path[1024], form[64];
    int count = scandir(folder, &names, is_folder, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s%s", folder, names[i]->d_name);
        if (strcmp(names[i]->d_name, "canary-8bit") != 0)
            plan_is_the_ledger(path, modes[i % 3], form);
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    return count;
}

TEST(plans_of_the_goldens_are_their_ledgers)
{
    assert_true(plans_are_ledgers(SMALL_GOLDEN("")) > 30);
}

TEST(plans_of_quantised_models_are_their_ledgers)
{
    static const struct {
        uint32_t bits, group;
        enum dtype dtype;
    } kinds[] = {{2, 32, DTYPE_BF16},
                 {3, 64, DTYPE_F16},
                 {4, 64, DTYPE_BF16},
                 {5, 32, DTYPE_F32},
                 {6, 128, DTYPE_F16}};
    char form[64], wanted[64], config[8192];
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct test_tensors *dense = random_model(i, i % 2), *quantised = random_model(i, i % 2);
        quantise_model(quantised, dense, kinds[i].bits, kinds[i].group, kinds[i].dtype);
        quantised_config(config, sizeof(config), kinds[i].bits, kinds[i].group);
        plan_is_the_ledger(small_write(config, quantised), i % 2 ? COMPUTE_INT8 : COMPUTE_F32, form);
        snprintf(wanted, sizeof(wanted), "mlx %u bit g%u and 1 other", kinds[i].bits, kinds[i].group);
        assert_string_equal(form, wanted);
        small_free(dense);
        small_free(quantised);
    }
}

/* Goldens of forms that are too large for the project. */
static void beside(const char *folder, const char *const names[][2], size_t count)
{
    char path[1024], form[64];
    if (access(folder, R_OK) != 0) {
        print_message("no %s\n", folder);
        skip();
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s%s", folder, names[i][0]);
        plan_is_the_ledger(path, i % 2 ? COMPUTE_INT16 : COMPUTE_INT8, form);
        plan_is_the_ledger(path, COMPUTE_F32, form);
        if (strncmp(form, names[i][1], strlen(names[i][1])) != 0)
            fail_msg("%s is called %s, not %s", names[i][0], form, names[i][1]);
    }
}

TEST(plans_of_the_forms_beside_the_checkout_are_their_ledgers)
{
    static const char *const names[][2] = {{"awq", "awq 4 bit"},
                                           {"fp8-block", "fp8 e4m3 block 128 and 1 other"},
                                           {"fp8-dynamic", "fp8 e4m3 row and 1 other"},
                                           {"gpt_oss-mxfp4", "mxfp4"},
                                           {"gptq", "gptq 4 bit"},
                                           {"mlx-3bit", "mlx 3 bit g"},
                                           {"mlx-4bit", "mlx 4 bit g"},
                                           {"mlx-mixed", "mlx "},
                                           {"mlx-mxfp4", "mxfp4"},
                                           {"mlx-mxfp8", "mxfp8"},
                                           {"mlx-nvfp4", "nvfp4"},
                                           {"nvfp4", "nvfp4"},
                                           {"w4a16", "int4 g"},
                                           {"w8a8", "int8 row"}};
    beside(SHARED "golden-quant/", names, COUNT_OF(names));
}

TEST(plans_of_gguf_files_beside_the_checkout_are_their_ledgers)
{
    static const char *const names[][2] = {{"gemma3-Q6_K", "Q6_K"},  {"gpt_oss-MXFP4", "MXFP4"},
                                           {"llama-Q4_K_M", "Q4_K"}, {"qwen3-Q4_0", "Q4_0"},
                                           {"qwen3-Q8_0", "Q8_0"},   {"qwen3_5_moe-Q4_K_M", "Q4_K"}};
    beside(SHARED "golden-gguf/", names, COUNT_OF(names));
}

/* ---- names ---- */

static const struct linear_source bf16 = {.in = 256, .weight = {.dtype = DTYPE_BF16}};
static const struct linear_source fp8 = {.in = 256,
                                         .affine = true,
                                         .bits = 8,
                                         .group = 128,
                                         .codes = CODES_E4M3,
                                         .weight = {.dtype = DTYPE_F8_E4M3},
                                         .scales = {.dtype = DTYPE_F32}};
static const struct linear_source mlx = {.in = 256,
                                         .affine = true,
                                         .bits = 4,
                                         .group = 64,
                                         .weight = {.dtype = DTYPE_U32},
                                         .scales = {.dtype = DTYPE_F16}};

static void is_called(struct linear_source s, const char *form, uint32_t rows, uint32_t columns,
                      const char *wanted)
{
    struct weight_forms f = {0};
    char name[WEIGHT_FORMS_BYTES];
    s.stored = form ? stored_form_find(form) : NULL;
    s.scale_rows = rows;
    s.scale_columns = columns;
    weight_forms_add(&f, &s, 1);
    weight_forms_text(&f, name);
    assert_string_equal(name, wanted);
}

TEST(forms_have_names)
{
    struct linear_source s = fp8, blocks = {.in = 256, .affine = true, .weight = {.dtype = DTYPE_BLOCKS}};
    is_called(bf16, NULL, 0, 0, "BF16");
    struct linear_source at_load = mlx;
    at_load.at_load = true;
    at_load.weight.dtype = DTYPE_BF16;
    is_called(at_load, NULL, 0, 0, "q4 g64 from BF16");
    is_called(mlx, NULL, 0, 0, "mlx 4 bit g64");
    is_called(fp8, "rows", 128, 128, "fp8 e4m3 block 128");
    is_called(fp8, "rows", 64, 128, "fp8 e4m3 block 64x128");
    is_called(fp8, "rows", 1, 256, "fp8 e4m3 row");
    is_called(fp8, "rows", 0, 256, "fp8 e4m3 tensor");
    s.codes = CODES_WHOLE;
    is_called(s, "int8", 1, 256, "int8 row");
    is_called(s, "gptq v2", 0, 64, "gptq 8 bit");
    s.bits = 4;
    is_called(s, "rows", 1, 128, "int4 g128");
    is_called(s, "awq", 0, 128, "awq 4 bit");
    s.codes = CODES_E2M1;
    s.scales.dtype = DTYPE_F8_E4M3;
    is_called(s, "nvfp4 divided", 1, 16, "nvfp4");
    is_called(s, NULL, 0, 0, "nvfp4");
    s.scales.dtype = DTYPE_F8_E8M0;
    is_called(s, NULL, 0, 0, "mxfp4");
    blocks.weight.form = block_form_find(12);
    is_called(blocks, NULL, 0, 0, "Q4_K");
}

TEST(a_mixture_is_named_after_its_largest_part)
{
    struct weight_forms f = {0};
    char name[WEIGHT_FORMS_BYTES];
    struct linear_source other = mlx, rows = fp8;
    rows.stored = stored_form_find("rows");
    rows.scale_rows = 1;
    rows.scale_columns = (uint32_t)rows.in;
    weight_forms_text(&f, name);
    assert_string_equal(name, "no matrices");
    weight_forms_add(&f, &bf16, 0); /* a table of tokens, however large */
    weight_forms_add(&f, &mlx, 100);
    weight_forms_text(&f, name);
    assert_string_equal(name, "mlx 4 bit g64 and 1 other");
    weight_forms_add(&f, &rows, 60);
    rows.group = 64; /* the kernels' group */
    weight_forms_add(&f, &rows, 60);
    weight_forms_text(&f, name);
    assert_string_equal(name, "fp8 e4m3 row and 2 others");
    for (uint32_t i = 0; i < 2 * WEIGHT_FORMS_MAX; i++) { /* no more than there is room for */
        other.group = i;
        weight_forms_add(&f, &other, 1);
    }
    weight_forms_text(&f, name);
    assert_string_equal(name, "fp8 e4m3 row and 31 others");
}

TEST_MAIN()
