/* Packed files: the bits of their source; damaged and foreign files are refused; packing resumes after any
 * part. */
#include "model_path.h"
#include "test_ledger.h"
#include "small_mtp.h"

#include "base/files/bundle.h"
#include "base/none.h"
#include "compute/device.h"
#include "memory/accounts.h"
#include "model/load/pack.h"
#include "model/load/packed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define PART_BYTES  8192
#define SHARED      PLATEAU_SOURCE_DIR "/../shared/"
#define FINGERPRINT "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* ---- packing ---- */

static struct device *cpu(void)
{
    static struct device *d;
    if (!d)
        assert_int_equal(device_open_cpu(2, NULL, &d), 0);
    return d;
}

static struct pack_opts pack_opts(enum compute_mode mode)
{
    return (struct pack_opts){
        .compute = mode, .device = cpu(), .fingerprint = FINGERPRINT, .part_bytes = PART_BYTES};
}

static int pack(const char *dir, const char *out, const struct pack_opts *o, struct pack_result *ret)
{
    struct err e = {{0}};
    int r = pack_model_at(dir, out, o, ret, &e);
    if (r < 0 && r != -ECANCELED)
        print_message("pack %s: %s\n", dir, e.text);
    return r;
}

static const char *out_path(void)
{
    static char paths[8][4096];
    static unsigned count;
    char *path = paths[count++ % COUNT_OF(paths)];
    snprintf(path, sizeof(paths[0]), "%s/model.plateau", test_dir());
    return path;
}

static const char *packed(const char *dir, enum compute_mode mode)
{
    const char *out = out_path();
    const struct pack_opts o = pack_opts(mode);
    struct pack_result done;
    assert_int_equal(pack(dir, out, &o, &done), 0);
    assert_int_equal(done.resumed_bytes, 0);
    return out;
}

/* ---- loading ---- */

static struct model_opts load_opts(struct account *parent, enum compute_mode mode)
{
    struct model_opts o = small_opts(parent);
    o.device = cpu();
    o.parts.backend = cpu()->backend;
    o.parts.compute = mode;
    return o;
}

static int load(const char *path, enum compute_mode mode, struct err *e)
{
    struct model *m = NULL;
    const struct model_opts o = load_opts(NULL, mode);
    int r = model_load_at(path, &o, &m, e);
    model_free(m);
    return r;
}

static void refuses(const char *path, enum compute_mode mode, int code, const char *says)
{
    struct err e = {{0}};
    int r = load(path, mode, &e);
    if (r != code || !strstr(e.text, says))
        fail_msg("gave %d: %s", r, e.text);
}

static uint64_t hash_of(const char *path, const struct model_opts *o)
{
    struct small_answer a;
    small_ask_with(path, o, &a);
    return a.hash;
}

static void same_bits(const char *dir, enum compute_mode mode)
{
    const struct model_opts o = load_opts(NULL, mode);
    assert_true(hash_of(dir, &o) == hash_of(packed(dir, mode), &o));
}

TEST(a_packed_file_has_the_bits_of_its_source)
{
    same_bits(SMALL_GOLDEN("llama"), COMPUTE_F32);
    same_bits(SMALL_GOLDEN("qwen3_5_moe"), COMPUTE_INT16);
    same_bits(SMALL_GOLDEN("deepseek_v2"), COMPUTE_F32);
    same_bits(SMALL_GOLDEN("gemma4"), COMPUTE_INT8);
    same_bits(SMALL_GOLDEN("qwen3_5"), COMPUTE_BF16);
}

/* A classifier, and Dense modules with their folders: what a load reads beside packing. */
TEST(layers_after_the_pooling_are_there)
{
    assert_int_equal(load(packed(SMALL_GOLDEN("xlm_roberta_reranker"), COMPUTE_F32), COMPUTE_F32, NULL), 0);
    assert_int_equal(load(packed(SMALL_GOLDEN("embeddinggemma"), COMPUTE_F32), COMPUTE_F32, NULL), 0);
}

static void draft(const char *path, uint32_t *id, float *logit)
{
    enum { TOKENS = 40 };
    struct model_opts o = load_opts(NULL, COMPUTE_F32);
    struct model *m = NULL;
    struct err e = {{0}};
    uint32_t tokens[TOKENS], table[2] = {1, 0}, token = 5;
    o.parts.mtp = true;
    o.parts.drafts_max = 1;
    o.parts.draft_vocab = 128;
    if (model_load_at(path, &o, &m, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(model_shape(m)->mtp);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i % 16;
    const struct model_seq row = {
        .tokens = tokens, .token_count = TOKENS, .pages = {table}, .state_in = NONE, .logits_from = TOKENS};
    const struct model_draft_seq d = {
        .token = token, .position = TOKENS, .pages = {table}, .count = 1, .drafts = id, .logits = logit};
    small_mtp_draft(m, &o, &row, 1, &d);
    model_free(m);
}

TEST(an_mtp_head_is_packed_too)
{
    const char *dir = small_mtp_model(SMALL_GOLDEN("qwen3_5"));
    uint32_t from_source, from_packed;
    float logits[2];
    draft(dir, &from_source, &logits[0]);
    draft(packed(dir, COMPUTE_F32), &from_packed, &logits[1]);
    assert_int_equal(from_source, from_packed);
    assert_true(logits[0] == logits[1]);
}

static struct account_numbers account_is(struct account *parent, enum account_id id, uint64_t bytes)
{
    const struct account_numbers n = account_numbers(accounts_find(parent, id));
    if (n.planned != bytes || n.reserved != bytes || n.used != bytes)
        fail_msg("account %s: %llu bytes are planned; the ledger has %llu planned, %llu reserved, %llu used",
                 n.name, (ull)bytes, (ull)n.planned, (ull)n.reserved, (ull)n.used);
    return n;
}

/* Weights are a file's pages in the ledger, and the plan's numbers are the ledger's. */
static struct model_shape mapped_as_planned(const char *path, struct model_opts o)
{
    struct model *m = NULL;
    struct model_shape s;
    struct err e = {{0}};
    o.parent = test_account(ACCOUNT_NO_LIMIT);
    if (model_probe_at(path, &o.parts, &s, &e) < 0 || model_load_at(path, &o, &m, &e) < 0)
        fail_msg("%s: %s", path, e.text);
    assert_true(s.mapped && model_shape(m)->mapped);
    assert_int_equal(account_is(o.parent, ACCOUNT_WEIGHTS, s.weight_bytes).class, ACCOUNT_FILE);
    assert_int_equal(account_is(o.parent, ACCOUNT_MTP, s.mtp_weight_bytes).class, ACCOUNT_ANON);
    const struct account_numbers tables = account_numbers(accounts_find(o.parent, ACCOUNT_TABLES));
    assert_true(tables.used <= s.tables_bytes);
    model_free(m);
    assert_int_equal(account_numbers(o.parent).reserved, 0);
    return s;
}

static int is_folder(const struct dirent *d)
{
    return d->d_name[0] != '.' && !strchr(d->d_name, '.');
}

/* Every form, in both layouts, also quantised while it is packed. */
TEST(plans_of_packed_files_are_their_ledgers)
{
    static const char *const folders[] = {SMALL_GOLDEN(""), SHARED "golden-quant/", SHARED "golden-gguf/"};
    static const uint32_t quants[] = {0, 4, 5, 6, 8};
    const char *out = out_path();
    uint32_t tried = 0;
    for (size_t f = 0; f < COUNT_OF(folders); f++) {
        struct dirent **names;
        char path[1024];
        int count = scandir(folders[f], &names, is_folder, alphasort);
        for (int i = 0; i < count; i++) {
            struct pack_result done;
            const enum compute_mode mode = i % 2 ? COMPUTE_INT16 : COMPUTE_F32;
            struct pack_opts o = pack_opts(mode);
            o.replace = true;
            o.quant = f == 0 ? quants[i % COUNT_OF(quants)] : 0;
            snprintf(path, sizeof(path), "%s%s", folders[f], names[i]->d_name);
            struct err e = {{0}};
            int r = strcmp(names[i]->d_name, "canary-8bit") == 0 ? -ENOTSUP
                                                                 : pack_model_at(path, out, &o, &done, &e);
            if (r < 0 && r != -ENOTSUP)
                fail_msg("%s: %s", path, e.text);
            if (r == 0)
                mapped_as_planned(out, load_opts(NULL, mode));
            tried += r == 0;
            free(names[i]);
        }
        if (count >= 0)
            free(names);
    }
    print_message("%u models\n", tried);
    assert_true(tried > 25);
}

/* The head is mapped; the rows of its draft vocabulary alone are memory of the process. */
TEST(a_packed_mtp_head_is_mapped)
{
    const char *dir = small_mtp_model(SMALL_GOLDEN("qwen3_5"));
    const char *out = packed(dir, COMPUTE_F32);
    struct model_opts o = load_opts(NULL, COMPUTE_F32);
    const struct model_shape text = mapped_as_planned(out, o);
    o.parts.mtp = true;
    o.parts.drafts_max = 1;
    const struct model_shape all = mapped_as_planned(out, o);
    assert_true(!text.mtp && all.mtp && all.mtp_mapped);
    assert_true(all.weight_bytes > text.weight_bytes && all.mtp_weight_bytes == 0);
    o.parts.draft_vocab = 128;
    const struct model_shape some = mapped_as_planned(out, o);
    assert_int_equal(some.mtp_weight_bytes, UNIT_BYTES);
    assert_int_equal(some.weight_bytes, all.weight_bytes);
}

/* ---- damage ---- */

static char *read_all(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    *len = (size_t)lseek(fd, 0, SEEK_END);
    char *bytes = malloc(*len);
    assert_int_equal(pread(fd, bytes, *len, 0), *len);
    close(fd);
    return bytes;
}

static void write_at(const char *path, uint64_t at, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, (off_t)at), len);
    close(fd);
}

TEST(each_byte_that_changes_is_noticed)
{
    const char *out = packed(SMALL_GOLDEN("llama"), COMPUTE_F32);
    size_t len;
    char *bytes = read_all(out, &len);
    struct rng rng = {23, 0};
    for (int i = 0; i < 160; i++) {
        /* The first page, the end with the table, and anywhere. */
        const size_t at = i < 40   ? rng_below(&rng, 4096)
                          : i < 80 ? len - 1 - rng_below(&rng, 2000)
                                   : rng_below(&rng, len);
        const char other = (char)(bytes[at] ^ (1 << rng_below(&rng, 8)));
        struct err e = {{0}};
        write_at(out, at, &other, 1);
        if (load(out, COMPUTE_F32, &e) == 0)
            fail_msg("byte %zu of %zu", at, len);
        assert_true(e.text[0]);
        write_at(out, at, &bytes[at], 1);
    }
    free(bytes);
    assert_int_equal(load(out, COMPUTE_F32, NULL), 0);
}

TEST(a_file_that_was_cut_is_refused)
{
    const char *out = packed(SMALL_GOLDEN("llama"), COMPUTE_F32);
    size_t len;
    char *bytes = read_all(out, &len);
    struct rng rng = {29, 0};
    assert_int_equal(truncate(out, (off_t)len + 1), 0);
    refuses(out, COMPUTE_F32, -EINVAL, "was cut or grew");
    for (int i = 0; i < 60; i++) {
        struct err e = {{0}};
        assert_int_equal(truncate(out, (off_t)(i < 10 ? (size_t)i : rng_below(&rng, len))), 0);
        assert_true(load(out, COMPUTE_F32, &e) < 0 && e.text[0]);
        write_at(out, 0, bytes, len);
    }
    free(bytes);
}

static int forward(struct model *m, const struct model_opts *o)
{
    uint32_t tokens[4] = {1, 2, 3, 4}, table[1] = {0};
    const struct model_seq seq = {
        .tokens = tokens, .token_count = 4, .pages = {table}, .state_in = NONE, .logits_from = 4};
    struct room pages = small_room(m, model_shape(m)->page_bytes);
    const struct model_step step = {.seqs = &seq, .seq_count = 1, .pages = {pages.at}};
    device_turn_begin(o->device);
    int r = model_forward(m, &step);
    device_turn_end(o->device);
    room_free(&pages);
    return r;
}

/* Instead of the end of the process by SIGBUS. */
TEST(a_file_cut_while_it_is_mapped_fails_the_step)
{
    const struct model_opts o = load_opts(NULL, COMPUTE_F32);
    for (int i = 0; i < 2; i++) {
        const char *out = packed(SMALL_GOLDEN("llama"), COMPUTE_F32);
        struct model *m = NULL;
        assert_int_equal(model_load_at(out, &o, &m, NULL), 0);
        assert_int_equal(forward(m, &o), 0);
        if (i == 0)
            assert_int_equal(truncate(out, 5000), 0);
        else
            write_at(out, 70000, "x", 1);
        assert_int_equal(forward(m, &o), -EIO);
        model_free(m);
    }
}

/* ---- another layout ---- */

TEST(another_layout_is_refused_with_what_to_do)
{
    const char *quantised = SMALL_GOLDEN("qwen3");
    struct pack_opts po = pack_opts(COMPUTE_INT16);
    struct pack_result done;
    const char *out = out_path();
    po.quant = 8;
    assert_int_equal(pack(quantised, out, &po, &done), 0);
    assert_int_equal(load(out, COMPUTE_AUTO, NULL), 0);
    assert_int_equal(load(out, COMPUTE_INT8, NULL), 0);
    refuses(out, COMPUTE_F32, -ENOTSUP, "pack qwen3 again with --compute f32");

    struct model_opts o = load_opts(NULL, COMPUTE_AUTO);
    struct model_shape shape;
    struct err e = {{0}};
    o.parts.quant = 4;
    assert_int_equal(model_probe_at(out, &o.parts, &shape, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "pack qwen3 again with --quant q4"));
    struct backend later = *cpu()->backend;
    later.layout = "cpu 99";
    o.parts = (struct model_parts){.backend = &later};
    assert_int_equal(model_probe_at(out, &o.parts, &shape, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "run plateau pack of qwen3 again"));
    later.apart = true;
    assert_int_equal(model_probe_at(out, &o.parts, &shape, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "is packed for the CPU"));
    assert_int_equal(pack_model_at(out, out_path(), &po, &done, &e), -ENOTSUP);
}

/* ---- going on ---- */

struct stop {
    unsigned calls, after;
};

static int stop_after(void *stop, uint64_t done, uint64_t total)
{
    struct stop *s = stop;
    assert_true(done <= total);
    return s->calls++ == s->after;
}

static void is_same_file(const char *path, const char *wanted, size_t len)
{
    size_t own_len;
    char *own = read_all(path, &own_len);
    assert_int_equal(own_len, len);
    assert_memory_equal(own, wanted, len);
    free(own);
}

static void damage(const char *path, uint64_t at)
{
    char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

TEST(packing_goes_on_where_it_was_stopped)
{
    const char *dir = small_mtp_model(SMALL_GOLDEN("qwen3_5"));
    struct pack_opts o = pack_opts(COMPUTE_F32);
    size_t len;
    char *wanted = read_all(packed(dir, COMPUTE_F32), &len);
    struct pack_result done;
    uint64_t most = 0;
    for (unsigned after = 0; after < 120; after += 1 + after / 4) {
        const char *out = out_path();
        char part[4200], again[4200];
        struct stop stop = {0, after};
        o.progress = stop_after;
        o.progress_arg = &stop;
        int r = pack(dir, out, &o, &done);
        if (r == 0) /* it ended before */
            break;
        assert_int_equal(r, -ECANCELED);
        assert_int_equal(access(out, F_OK), -1);
        snprintf(part, sizeof(part), "%s.part", out);
        snprintf(again, sizeof(again), "%s.journal", out);
        if (after % 3 == 1) /* a line was cut, and the file has another byte */
            damage(part, 4096 + after * 100);
        o.progress = NULL;
        assert_int_equal(pack(dir, out, &o, &done), 0);
        most = MAX_OF(most, done.resumed_bytes);
        is_same_file(out, wanted, len);
        assert_true(access(part, F_OK) < 0 && access(again, F_OK) < 0);
    }
    assert_true(most > 10 * PART_BYTES);
    free(wanted);
}

/* A journal of another model or of other options does not count. */
TEST(what_was_begun_for_another_model_is_begun_anew)
{
    struct pack_opts o = pack_opts(COMPUTE_F32);
    struct stop stop = {0, 8};
    struct pack_result done;
    const char *out = out_path();
    o.progress = stop_after;
    o.progress_arg = &stop;
    assert_int_equal(pack(SMALL_GOLDEN("qwen3"), out, &o, &done), -ECANCELED);
    o.progress = NULL;
    assert_int_equal(pack(SMALL_GOLDEN("llama"), out, &o, &done), 0);
    assert_int_equal(done.resumed_bytes, 0);
    assert_int_equal(load(out, COMPUTE_F32, NULL), 0);
    assert_int_equal(pack_model_at(SMALL_GOLDEN("llama"), out, &o, &done, NULL), -EEXIST);
    o.replace = true;
    assert_int_equal(pack(SMALL_GOLDEN("qwen3"), out, &o, &done), 0);
}

TEST_MAIN()
