/* Names, listings and the cache of the Hugging Face hub. */
#include "test_files.h"

#include "hub/hub_cache.h"
#include "hub/hub_variants.h"
#include "hub/hub_list.h"
#include "hub/hub_remove.h"
#include "hub/hub_token.h"
#include "weights/weights_name.h"

#include <errno.h>

#define A40 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B40 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define S64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* ---- names ---- */

TEST(a_name_has_two_parts_and_perhaps_a_revision)
{
    static const char *const wrong[] = {"",        "acme",        "a/b/c",    "../x", "a/..",     ".a/b",
                                        "-a/b",    "a/-b",        "a--b/c",   "a/b@", "a/b@../x", "a/b@-x",
                                        "a b/c",   "a/b\n",       "/a",       "a/",   "a//b",     "a/b@x//y",
                                        "a/b@.x",  "a/b c",       "a\\b/c",   "a/b:", "a/b:../x", "a/b:x y",
                                        "a/b@:Q4", "a/b:Q4@main", "a/b:Q4:Q8"};
    struct hub_name n = {.id = "untouched"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_false(hub_name_parse(wrong[i], &n));
    assert_string_equal(n.id, "untouched");
    assert_true(hub_name_parse("acme/Small-1.5_b", &n));
    assert_string_equal(n.id, "acme/Small-1.5_b");
    assert_string_equal(n.revision, "main");
    assert_string_equal(hub_name_last(&n), "Small-1.5_b");
    assert_true(hub_name_parse("acme/Small@refs/pr/1", &n));
    assert_string_equal(n.id, "acme/Small");
    assert_string_equal(n.revision, "refs/pr/1");
    assert_string_equal(n.quant, "");
}

TEST(a_name_may_choose_a_quantisation)
{
    static const char *const texts[] = {"acme/Small", "acme/Small:Q4_K_M", "acme/Small@refs/pr/1:UD-Q4_K_XL",
                                        "acme/Small@v1"};
    char text[HUB_NAME_BYTES];
    struct hub_name n;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        assert_true(hub_name_parse(texts[i], &n));
        assert_string_equal(n.id, "acme/Small");
        hub_name_text(&n, text);
        assert_string_equal(text, texts[i]);
    }
    assert_true(hub_name_parse(texts[2], &n));
    assert_string_equal(n.quant, "UD-Q4_K_XL");
    assert_string_equal(n.revision, "refs/pr/1");
}

/* ---- GGUF models ---- */

TEST(a_file_says_its_quantisation)
{
    static const char *const files[][2] = {
        {"Small-Q4_K_M.gguf", "Q4_K_M"},
        {"UD-Q4_K_XL/Small-UD-Q4_K_XL-00001-of-00003.gguf", "UD-Q4_K_XL"},
        {"small.i1-IQ2_XXS.gguf", "IQ2_XXS"},
        {"small_q8_0.gguf", "q8_0"},
        {"small-bf16.gguf", "bf16"},
        {"Small-MXFP4_MOE.gguf", "MXFP4_MOE"},
        {"Q4_0.gguf", "Q4_0"},
        {"small-q4_k_m-00002-of-00002.gguf", "q4_k_m"},
        {"Qwen3-8B.gguf", ""},
        {"small-Q4_K_M-chat.gguf", ""},
        {"small-Q.gguf", ""},
        {"small-Q4-0.gguf", ""},
    };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        const struct slice q = weights_name_quant(files[i][0]);
        assert_true(slice_eq(q, slice_of(files[i][1])));
    }
}

static const char *found_of(const struct hub_variants *g, const char *quant, int result)
{
    const struct hub_variant *m = NULL;
    struct hub_name n = {.id = "acme/Small"};
    struct err e;
    snprintf(n.quant, sizeof(n.quant), "%s", quant);
    assert_int_equal(hub_variants_find(g, &n, &m, &e), result);
    assert_true(result == 0 || strstr(e.text, "acme/Small has ") != NULL);
    return result == 0 ? m->file : "";
}

TEST(a_quantisation_chooses_a_model)
{
    static const char *const names[] = {
        "Small-Q8_0.gguf",       "Small-Q4_K_XL.gguf",      "x/Small-UD-Q4_K_XL-00002-of-00002.gguf",
        "mmproj-Small-F16.gguf", "mmproj-Small-F32.gguf",   "x/Small-UD-Q4_K_XL-00001-of-00002.gguf",
        "draft/Tiny-Q8_0.gguf",  "model-Q6_K-imatrix.gguf", "README.md",
        "config.json",           "x/Small-UD-Q4_K_XL.txt",  "script.py"};
    struct hub_file files[COUNT_OF(names)];
    struct hub_list l = {.files = files, .count = COUNT_OF(names)};
    struct hub_variants g;
    struct err e;
    for (size_t i = 0; i < COUNT_OF(names); i++)
        files[i] = (struct hub_file){.name = strdup(names[i]), .bytes = 1000 + i};
    assert_int_equal(hub_variants_of_list(&l, &g, &e), 0);
    assert_int_equal(g.count, 5);
    assert_false(g.safetensors);
    assert_string_equal(found_of(&g, "q4_k_xl", 0), names[1]);
    assert_string_equal(found_of(&g, "UD-Q4_K_XL", 0), names[5]);
    assert_string_equal(found_of(&g, "Small-Q8_0", 0), names[0]);
    assert_string_equal(found_of(&g, "Q6_K", 0), names[7]);
    found_of(&g, "Q8_0", -ENOTUNIQ);
    found_of(&g, "", -ENOTUNIQ);
    found_of(&g, "Q5_K_M", -ENOENT);
    found_of(&g, "XL", -ENOTUNIQ);
    found_of(&g, "Q", -ENOENT);
    bool chosen[5] = {false};
    for (uint32_t i = 0; i < g.count; i++)
        chosen[i] = strcmp(g.list[i].quant, "UD-Q4_K_XL") == 0;
    static const char *const include[] = {"*.json", "*.py", NULL};
    hub_variants_keep(&l, &g, chosen, include);
    assert_int_equal(l.count, 5);
    for (size_t i = 2; i < COUNT_OF(names); i++)
        if (i == 2 || i == 3 || i == 5 || i == 8 || i == 9)
            assert_non_null(hub_list_find(&l, names[i]));
    for (uint32_t i = 0; i < l.count; i++)
        free(files[i].name);
    hub_variants_done(&g);
}

TEST(a_folder_and_a_name_lead_to_each_other)
{
    char folder[HUB_ID_BYTES + 16];
    struct hub_name n, back;
    for (int i = 0; i < 2; i++) {
        n = (struct hub_name){.revision = "main"};
        strcpy(n.id, i ? "acme/Small" : "gpt2");
        hub_name_folder(&n, folder);
        assert_string_equal(folder, i ? "models--acme--Small" : "models--gpt2");
        assert_true(hub_name_of_folder(folder, &back));
        assert_string_equal(back.id, n.id);
    }
    assert_false(hub_name_of_folder("datasets--acme--Small", &back));
    assert_false(hub_name_of_folder("models--..--x", &back));
    assert_false(hub_name_of_folder("models--a--b--c", &back));
}

TEST(a_files_name_stays_below_its_directory)
{
    static const char *const wrong[] = {"",       "/a",  "a/",   "a//b", "..",
                                        "a/../b", "./a", "a\\b", "a\nb", "a/b/c/d/e"};
    char longest[HUB_FILE_BYTES_MAX];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_false(hub_file_is_valid(slice_of(wrong[i])));
    assert_true(hub_file_is_valid(SLICE("a/b/c/d")));
    assert_true(hub_file_is_valid(SLICE("..a/b c.json")));
    memset(longest, 'x', sizeof(longest));
    assert_true(hub_file_is_valid((struct slice){longest, 255}));
    assert_false(hub_file_is_valid((struct slice){longest, 256}));
    longest[255] = longest[511] = longest[767] = '/';
    assert_true(hub_file_is_valid((struct slice){longest, 1023}));
    assert_false(hub_file_is_valid((struct slice){longest, 1024}));
}

/* ---- listings ---- */

static int parse(const char *json, struct hub_list *l, struct err *e)
{
    *l = (struct hub_list){.count = 0};
    *e = (struct err){{0}};
    return hub_list_parse(slice_of(json), l, e);
}

#define FILE_OF(name)  "{\"rfilename\":\"" name "\",\"size\":5,\"blobId\":\"" A40 "\"}"
#define LARGE_OF(name) "{\"rfilename\":\"" name "\",\"lfs\":{\"sha256\":\"" S64 "\",\"size\":9000}}"
#define LIST_OF(files) "{\"sha\":\"" B40 "\",\"siblings\":[" files "]}"

TEST(a_list_has_names_sizes_and_sums)
{
    struct hub_list l;
    struct err e;
    assert_int_equal(parse(LIST_OF(FILE_OF("config.json") "," LARGE_OF("model.safetensors")), &l, &e), 0);
    assert_string_equal(l.commit, B40);
    assert_int_equal(l.count, 2);
    assert_int_equal(l.files[0].bytes, 5);
    assert_false(l.files[0].sha256);
    assert_string_equal(l.files[0].etag, A40);
    assert_int_equal(l.files[1].bytes, 9000);
    assert_true(l.files[1].sha256 && hub_file_is_weights(&l.files[1]));
    assert_string_equal(l.files[1].etag, S64);
    assert_ptr_equal(hub_list_find(&l, "config.json"), &l.files[0]);
    assert_null(hub_list_find(&l, "config"));
    hub_list_done(&l);
}

TEST(hostile_names_are_left_out_and_counted)
{
    struct hub_list l;
    struct err e;
    assert_int_equal(
        parse(LIST_OF(FILE_OF("../config.json") "," FILE_OF("/etc/passwd") "," FILE_OF("a")), &l, &e), 0);
    assert_int_equal(l.count, 1);
    assert_int_equal(l.odd, 2);
    hub_list_done(&l);
}

TEST(a_sum_of_another_length_is_none)
{
    struct hub_list l;
    struct err e;
    assert_int_equal(parse(LIST_OF("{\"rfilename\":\"a\",\"size\":1,\"blobId\":\"" S64 "\"},"
                                   "{\"rfilename\":\"b\",\"blobId\":\"" A40 "\"},"
                                   "{\"rfilename\":\"c\",\"size\":1,\"blobId\":\"" A40 "\",\"lfs\":{}}"),
                           &l, &e),
                     0);
    for (uint32_t i = 0; i < 3; i++)
        assert_string_equal(l.files[i].etag, "");
    hub_list_done(&l);
}

TEST(what_is_no_list_is_refused)
{
    static const char *const wrong[] = {"",
                                        "{}",
                                        "[",
                                        "{\"sha\":\"main\"}",
                                        LIST_OF("{") "x",
                                        "[]",
                                        "null",
                                        "{\"sha\":\"" B40 "\",\"siblings\":{}}"};
    struct hub_list l;
    struct err e;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(parse(wrong[i], &l, &e), -EINVAL);
        assert_true(e.text[0] != 0);
        hub_list_done(&l);
    }
}

TEST(a_list_is_bounded)
{
    const size_t most = HUB_LIST_FILES_MAX + 1;
    const char *one = FILE_OF("a") ",", *head = "{\"sha\":\"" B40 "\",\"siblings\":[";
    char *json = malloc(strlen(head) + most * strlen(one) + 3);
    struct hub_list l;
    struct err e;
    char *to = json + sprintf(json, "%s", head);
    for (size_t i = 0; i < most; i++)
        to += sprintf(to, "%s", one);
    sprintf(to - 1, "]}");
    assert_int_equal(parse(json, &l, &e), -E2BIG);
    assert_int_equal(l.count, HUB_LIST_FILES_MAX);
    hub_list_done(&l);
    free(json);
}

TEST(the_files_that_serving_needs_are_chosen)
{
    static const char *const include[] = {"*.txt", "*.py", NULL};
    struct hub_list l;
    struct err e;
    const char *json = LIST_OF(
        FILE_OF("config.json") "," LARGE_OF("model-1.safetensors") "," LARGE_OF("model-2.safetensors") "," LARGE_OF(
            "consolidated.safetensors") "," FILE_OF("x.py") "," LARGE_OF("pytorch_model.bin") "," FILE_OF("no"
                                                                                                          "te"
                                                                                                          "s."
                                                                                                          "tx"
                                                                                                          "t"));
    assert_int_equal(parse(json, &l, &e), 0);
    assert_int_equal(hub_list_choose(&l, NULL, (struct slice){0}, &e), 0);
    assert_int_equal(l.count, 3);
    assert_null(hub_list_find(&l, "consolidated.safetensors"));
    hub_list_done(&l);
    assert_int_equal(parse(json, &l, &e), 0);
    assert_int_equal(hub_list_choose(&l, include, SLICE("{\"w\": \"model-2.safetensors\"}"), &e), 0);
    assert_int_equal(l.count, 3);
    assert_non_null(hub_list_find(&l, "model-2.safetensors"));
    assert_non_null(hub_list_find(&l, "notes.txt"));
    assert_null(hub_list_find(&l, "x.py"));
    hub_list_done(&l);
}

TEST(without_weights_the_formats_are_named)
{
    struct hub_list l;
    struct err e;
    assert_int_equal(parse(LIST_OF(LARGE_OF("pytorch_model.bin")), &l, &e), 0);
    assert_int_equal(hub_list_choose(&l, NULL, (struct slice){0}, &e), -ENODATA);
    assert_non_null(strstr(e.text, "pytorch_model.bin"));
    hub_list_done(&l);
    assert_int_equal(parse(LIST_OF(LARGE_OF("x.Q4.gguf")), &l, &e), 0);
    assert_int_equal(hub_list_choose(&l, NULL, (struct slice){0}, &e), -ENODATA);
    assert_non_null(strstr(e.text, "no weights in .safetensors or GGUF files"));
    hub_list_done(&l);
}

/* ---- the cache ---- */

static void put(const char *dir, const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s/%s", dir, path);
    for (char *c = whole + strlen(dir) + 1; (c = strchr(c, '/')); *c++ = '/') {
        *c = 0;
        mkdir(whole, 0755);
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

TEST(a_snapshot_is_found_by_its_revision)
{
    const char *cache = test_dir();
    char folder[HUB_PATH_BYTES], found[HUB_PATH_BYTES], right[HUB_PATH_BYTES];
    struct hub_name n, name;
    struct err e;
    assert_true(hub_name_parse("acme/Small", &n));
    assert_int_equal(hub_cache_folder(cache, &n, folder, &e), 0);
    assert_int_equal(hub_cache_snapshot(folder, "main", found, &e), -ENOENT);
    put(cache, "models--acme--Small/snapshots/" A40 "/config.json", "{}");
    assert_int_equal(hub_cache_snapshot(folder, "main", found, &e), 0);
    put(cache, "models--acme--Small/snapshots/" B40 "/config.json", "{}");
    assert_int_equal(hub_cache_snapshot(folder, "main", found, &e), -ENODATA);
    put(cache, "models--acme--Small/refs/main", B40);
    assert_int_equal(hub_cache_snapshot(folder, "main", found, &e), 0);
    snprintf(right, sizeof(right), "%.4000s/snapshots/" B40, folder);
    assert_string_equal(found, right);
    assert_true(hub_cache_name_of(found, &name));
    assert_string_equal(name.id, "acme/Small");
    assert_int_equal(hub_cache_snapshot(folder, A40, found, &e), 0);
    put(cache, "models--acme--Small/refs/main", "../../..");
    assert_int_equal(hub_cache_snapshot(folder, "main", found, &e), -ENODATA);
}

TEST(a_plain_name_is_found_if_only_one_has_it)
{
    const char *cache = test_dir();
    struct hub_name n;
    struct err e;
    put(cache, "models--acme--Small/snapshots/" A40 "/config.json", "{}");
    assert_int_equal(hub_cache_find(cache, "Small", &n, &e), 0);
    assert_string_equal(n.id, "acme/Small");
    assert_int_equal(hub_cache_find(cache, "Large", &n, &e), -ENOENT);
    put(cache, "models--other--Small/snapshots/" A40 "/config.json", "{}");
    assert_int_equal(hub_cache_find(cache, "Small", &n, &e), -ENOTUNIQ);
}

/* The target of a link is neither counted nor removed. */
TEST(a_removal_stays_inside)
{
    const char *cache = test_dir(), *outside = test_dir();
    char link[256], kept[256];
    struct hub_name n;
    struct err e;
    uint64_t bytes = 0;
    put(outside, "kept", "123");
    put(cache, "models--acme--Small/blobs/x", "12345");
    snprintf(link, sizeof(link), "%s/models--acme--Small/link", cache);
    snprintf(kept, sizeof(kept), "%s/kept", outside);
    assert_int_equal(symlink(outside, link), 0);
    assert_true(hub_name_parse("acme/Small", &n));
    assert_int_equal(hub_remove_bytes(cache, &n, &bytes, &e), 0);
    const uint64_t told = bytes;
    assert_int_equal(hub_remove(cache, &n, &bytes, &e), 0);
    assert_int_equal(bytes, told);
    assert_int_equal(access(kept, R_OK), 0);
    assert_int_equal(hub_remove(cache, &n, &bytes, &e), -ENOENT);
    snprintf(link, sizeof(link), "%s/models--acme--Small", cache);
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(hub_remove(cache, &n, &bytes, &e), -ELOOP);
    assert_int_equal(access(kept, R_OK), 0);
}

TEST(a_token_that_no_header_can_have_is_refused_and_not_shown)
{
    char token[HUB_TOKEN_BYTES], longest[HUB_TOKEN_BYTES + 2];
    struct err e = {{0}};
    setenv("HF_TOKEN", "hf_good", 1);
    assert_int_equal(hub_token_read(token, &e), 0);
    assert_string_equal(token, "hf_good");
    setenv("HF_TOKEN", "hf_bad\nx: y", 1);
    assert_int_equal(hub_token_read(token, &e), -EINVAL);
    assert_null(strstr(e.text, "hf_bad"));
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    setenv("HF_TOKEN", longest, 1);
    assert_int_equal(hub_token_read(token, &e), -EINVAL);
    assert_null(strstr(e.text, "xxx"));
    unsetenv("HF_TOKEN");
}

TEST_MAIN()
