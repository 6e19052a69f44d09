/* An EAGLE-3 head beside a model: any text as its config.json, and any numbers as the ids of its rows. What
 * must hold: no crash, a refusal has a sentence, the head reads layers of the model, and its rows are tokens
 * of the model. An input is the text, a byte of 0xff and the numbers. */
#include "model_path.h"

#include "base/check.h"
#include "base/slice.h"
#include "model/blocks/eagle.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char model[] =
    "{\"model_type\":\"qwen3\",\"vocab_size\":80,\"hidden_size\":16,\"intermediate_size\":24,"
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":6,"
    "\"max_position_embeddings\":256}";
static const char *const names[] = {"config.json", "model.safetensors"};
static char dir[64];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void clean(void)
{
    char path[128];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    snprintf(dir, sizeof(dir), "/tmp/plateau-fuzz-XXXXXX");
    ASSERT(mkdtemp(dir));
    atexit(clean);
    return 0;
}

static void write_file(const char *name, struct slice head, struct slice bytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && write(fd, head.ptr, head.len) == (ssize_t)head.len);
    ASSERT(write(fd, bytes.ptr ? bytes.ptr : "", bytes.len) == (ssize_t)bytes.len);
    close(fd);
}

static void write_ids(struct slice bytes)
{
    char head[256];
    const uint64_t count = bytes.len / 8;
    bytes.len = (size_t)count * 8;
    int n = snprintf(head + 8, sizeof(head) - 8,
                     "{\"d2t\":{\"dtype\":\"I64\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
                     (unsigned long long)count, (unsigned long long)bytes.len);
    const uint64_t header_bytes = (uint64_t)n;
    memcpy(head, &header_bytes, sizeof(header_bytes));
    write_file(names[1], (struct slice){head, 8 + (size_t)n}, bytes);
}

static void check_ids(struct arena *a, const struct eagle *g)
{
    struct checkpoint *checkpoint = NULL;
    struct err e = {{0}};
    uint32_t *ids = NULL;
    if (checkpoint_open_at(a, dir, NULL, &checkpoint, &e) < 0) {
        ASSERT(e.text[0]);
        return;
    }
    int r = eagle_read_ids(a, checkpoint, g, &ids, &e);
    ASSERT(r == 0 || e.text[0]);
    for (uint32_t i = 0; r == 0 && ids && i < g->vocab; i++)
        ASSERT(ids[i] < g->tokens);
    checkpoint_close_at();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *end = size ? memchr(data, 0xff, size) : NULL;
    const struct slice all = {(const char *)data, size}, none = {"", 0};
    const struct slice text = slice_sub(all, 0, end ? (size_t)(end - all.ptr) : size);
    struct arena *a = NULL;
    struct model_files *files = NULL;
    struct config c;
    struct eagle *g = NULL;
    struct err e = {{0}};
    write_file(names[0], text, none);
    write_ids(end ? slice_sub(all, text.len + 1, size - text.len - 1) : none);
    if (arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &a) < 0)
        return 0;
    ASSERT(config_parse(a, slice_of(model), &c, &e) == 0);
    int r = model_files_open(dir, &files, &e);
    if (r == 0)
        r = eagle_read(a, files, &c, &g, &e);
    ASSERT(r == 0 || e.text[0]);
    if (r == 0) {
        ASSERT(g->vocab > 0 && g->vocab <= c.vocab && g->config.hidden == c.hidden);
        for (uint32_t i = 0; i < EAGLE_LAYERS; i++)
            ASSERT(g->layers[i] < c.layers);
        ASSERT(c.mtp_layer.rope < c.rope_count);
        check_ids(a, g);
    }
    model_files_close(files);
    arena_free(a);
    return 0;
}
