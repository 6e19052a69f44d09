/* model_fingerprint.c - a chain: each piece is hashed together with the hash of the pieces before it. */
#include "weights/model_fingerprint.h"

#include "weights/weights_name.h"
#include "weights/model_files.h"

#include "base/check.h"
#include "base/files/bundle.h"
#include "base/slice.h"

#include <endian.h>
#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES  ((size_t)256 << 10)
#define SAMPLE_BYTES 4096u
#define SAMPLE_EACH  ((uint64_t)16 << 20) /* bytes of a large file that one sample stands for */
#define CONFIG_MOST  ((uint64_t)4 << 20)

_Static_assert(MODEL_FINGERPRINT_BYTES == SHA256_DIGEST_SIZE, "a SHA-256");

struct fingerprint {
    struct model_files *model;
    char *chunk; /* [CHUNK_BYTES] */
    uint8_t sum[MODEL_FINGERPRINT_BYTES];
    uint32_t files;
    const char *folder; /* that is walked */
};

static void add(struct fingerprint *f, const void *bytes, size_t len)
{
    const uint64_t lens[] = {sizeof(f->sum), len};
    struct sha256_ctx c;
    sha256_init(&c);
    sha256_update(&c, sizeof(lens[0]), (const uint8_t *)&lens[0]);
    sha256_update(&c, sizeof(f->sum), f->sum);
    sha256_update(&c, sizeof(lens[1]), (const uint8_t *)&lens[1]);
    sha256_update(&c, len, bytes);
    sha256_digest(&c, sizeof(f->sum), f->sum);
}

/* [from, from + len) of the file, as far as it goes. */
static int add_range(struct fingerprint *f, const struct regular_file *file, uint64_t from, uint64_t len)
{
    uint64_t end = MIN_OF(from + len, file->bytes);
    while (from < end) {
        size_t n = (size_t)MIN_OF(end - from, CHUNK_BYTES);
        int r = regular_file_read(file, from, f->chunk, n, NULL);
        if (r < 0)
            return r;
        add(f, f->chunk, n);
        from += n;
        len -= n;
    }
    if (len > 0) /* fingerprints on disk have the end of a file in them */
        add(f, f->chunk, 0);
    return 0;
}

/* safetensors: the first 8 bytes are the header's length. Of other formats the first MiB counts as
 * header. */
static uint64_t header_bytes(const struct regular_file *file, const char *name)
{
    uint64_t len = 0;
    size_t chars = strlen(name);
    bool says = chars > 12 && strcmp(name + chars - 12, ".safetensors") == 0;
    if (!says || regular_file_read(file, 0, &len, sizeof(len), NULL) < 0)
        return (uint64_t)1 << 20;
    return MIN_OF(le64toh(len), MODEL_FINGERPRINT_HEADER_MOST - 8) + 8;
}

static int add_weights(struct fingerprint *f, const struct regular_file *file, const char *name)
{
    uint64_t size = file->bytes, header = MIN_OF(header_bytes(file, name), size), rest = size - header;
    uint64_t numbers[] = {size, header};
    const uint64_t samples = MIN_OF(MAX_OF(rest / SAMPLE_EACH, (uint64_t)MODEL_FINGERPRINT_SAMPLES),
                                    (uint64_t)MODEL_FINGERPRINT_SAMPLES_MAX);
    add(f, name, strlen(name));
    add(f, numbers, sizeof(numbers));
    int r = add_range(f, file, 0, header);
    for (uint64_t i = 0; i < samples && r == 0; i++)
        r = add_range(f, file, header + rest / samples * i, SAMPLE_BYTES);
    regular_file_drop(file, 0, size);
    f->files++;
    return r;
}

static int add_file(struct fingerprint *f, const char *path, const char *name, bool weights)
{
    const struct regular_file *file;
    if (f->files >= MODEL_FINGERPRINT_FILES_MAX)
        return -E2BIG;
    int r = model_files_file(f->model, path, &file, NULL);
    if (r < 0)
        return r;
    return weights ? add_weights(f, file, name) : add_range(f, file, 0, CONFIG_MOST);
}

static bool is_weights(const char *name)
{
    const struct slice s = slice_of(name);
    return slice_ends(s, SLICE(".safetensors")) || weights_name_is(name);
}

static int add_found(void *arg, const char *name, struct err *e)
{
    struct fingerprint *f = arg;
    char path[MODEL_FILES_PATH_BYTES];
    (void)e;
    snprintf(path, sizeof(path), "%s%s%s", f->folder, f->folder[0] ? "/" : "", name);
    return add_file(f, path, name, true);
}

static int add_folder(struct fingerprint *f, const char *folder)
{
    f->folder = folder;
    return model_files_each(f->model, folder, is_weights, add_found, f, NULL);
}

static int add_optional(struct fingerprint *f, const char *name)
{
    int r = add_file(f, name, name, false);
    return r == -ENOENT ? 0 : r;
}

/* The preprocessor's files decide the values of pixels; not every model has them. */
static int add_directory(struct fingerprint *f)
{
    static const char *const names[] = {"config.json", "preprocessor_config.json", "processor_config.json"};
    int r = 0;
    for (size_t i = 0; i < COUNT_OF(names) && r == 0; i++)
        r = add_optional(f, names[i]);
    if (r == 0)
        r = add_folder(f, "");
    return r == 0 ? add_folder(f, "mtp") : r;
}

/* The first part counts without its name. */
static int add_parts(struct fingerprint *f)
{
    char name[MODEL_FILES_NAME_BYTES];
    const uint32_t count = model_files_part_count(f->model);
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i++) {
        r = model_files_part(f->model, i, count, name, NULL);
        if (r == 0)
            r = add_file(f, name, i ? name : ".gguf", true);
    }
    const char *encoder = model_files_encoder(f->model);
    return r == 0 && encoder ? add_file(f, encoder, ".mmproj", true) : r;
}

/* A packed file's first page has a checksum of all its checksums. */
static int add_bundle(struct fingerprint *f, const struct bundle *b)
{
    f->files++;
    return add_range(f, &b->at, 0, BUNDLE_PAGE);
}

static int add_model(struct fingerprint *f)
{
    const struct bundle *b = model_files_bundle(f->model);
    if (b)
        return add_bundle(f, b);
    int r = model_files_is_directory(f->model) ? add_directory(f) : add_parts(f);
    return r == 0 && f->files == 0 ? -ENOENT : r;
}

int model_fingerprint(struct model_files *model, uint8_t ret[MODEL_FINGERPRINT_BYTES], struct err *e)
{
    struct fingerprint f = {.model = model, .chunk = malloc(CHUNK_BYTES)};
    int r = f.chunk ? add_model(&f) : -ENOMEM;
    free(f.chunk);
    if (r < 0)
        return err_set(e, r, "the model's files at %s could not be read for their fingerprint",
                       model_files_path(model));
    memcpy(ret, f.sum, sizeof(f.sum));
    return 0;
}
