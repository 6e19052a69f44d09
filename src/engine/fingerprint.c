/* fingerprint.c - a chain: each piece is hashed together with the hash of the pieces before it. */
#include "engine/fingerprint.h"

#include "base/check.h"
#include "base/files/bundle.h"
#include "base/files/regular_file.h"
#include "cache/prefix_key.h"
#include "model/model.h"
#include "store/store_file.h"
#include "tensor/quantise.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Version of the layout of a page and a recurrent state, and of the arithmetic that fills them. */
#define LAYOUT_VERSION 2
#define CHUNK_BYTES    ((size_t)256 << 10)
#define SAMPLE_BYTES   4096u
#define CONFIG_MOST    ((uint64_t)4 << 20)
#define PATH_BYTES     4608
#define GROUPS_BYTES   128

struct fingerprint {
    char *chunk; /* [CHUNK_BYTES] */
    struct prefix_key key;
    uint32_t files;
};

static void add(struct fingerprint *f, const void *bytes, size_t len)
{
    struct slice parts[] = {{(const char *)f->key.bytes, sizeof(f->key.bytes)}, {bytes, len}};
    f->key = prefix_key_root(parts, COUNT_OF(parts));
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
    return MIN_OF(le64toh(len), FINGERPRINT_HEADER_MOST - 8) + 8;
}

static int add_weights(struct fingerprint *f, const struct regular_file *file, const char *name)
{
    uint64_t size = file->bytes, header = MIN_OF(header_bytes(file, name), size), rest = size - header;
    uint64_t numbers[] = {size, (uint64_t)file->changed.tv_sec, (uint64_t)file->changed.tv_nsec, header};
    add(f, name, strlen(name));
    add(f, numbers, sizeof(numbers));
    int r = add_range(f, file, 0, header);
    for (uint32_t i = 0; i < FINGERPRINT_SAMPLES && r == 0; i++)
        r = add_range(f, file, header + rest / FINGERPRINT_SAMPLES * i, SAMPLE_BYTES);
    regular_file_drop(file, 0, size);
    f->files++;
    return r;
}

static int add_file(struct fingerprint *f, const char *path, const char *name, bool weights)
{
    struct regular_file file;
    int r = regular_file_open(path, &file, NULL);
    if (r < 0)
        return r;
    r = weights ? add_weights(f, &file, name) : add_range(f, &file, 0, CONFIG_MOST);
    regular_file_close(&file);
    return r;
}

static int is_weights(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return dot && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".gguf") == 0);
}

/* In the order of their names. */
static int add_folder(struct fingerprint *f, const char *dir)
{
    struct dirent **names;
    int count = scandir(dir, &names, is_weights, alphasort), r = count < 0 ? -errno : 0;
    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
        if (r == 0)
            r = f->files < FINGERPRINT_FILES_MAX ? add_file(f, path, names[i]->d_name, true) : -E2BIG;
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    return r;
}

/* The preprocessor's files decide the values of pixels; not every model has them. */
static int add_preprocessors(struct fingerprint *f, const char *dir)
{
    static const char *const names[] = {"preprocessor_config.json", "processor_config.json"};
    char path[PATH_BYTES];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        int r = access(path, F_OK) == 0 ? add_file(f, path, names[i], false) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/* One file, or NAME-00001-of-0000N.gguf and the parts after it. */
static int add_gguf(struct fingerprint *f, const char *first)
{
    static const char head[] = "-00001-of-";
    size_t len = strlen(first), tail = strlen("-00001-of-00002.gguf");
    const char *at = len > tail ? first + len - tail : "";
    unsigned long count = strncmp(at, head, strlen(head)) == 0 ? strtoul(at + strlen(head), NULL, 10) : 1;
    int r = add_file(f, first, ".gguf", true);
    for (unsigned long i = 2; r == 0 && i <= count; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof(path), "%.*s-%05lu%s", (int)(at - first), first, i, at + strlen("-00001"));
        r = f->files < FINGERPRINT_FILES_MAX ? add_file(f, path, path + (at - first), true) : -E2BIG;
    }
    return r;
}

/* A packed file's first page has a checksum of all its checksums. */
static int add_bundle(struct fingerprint *f, const char *path)
{
    struct regular_file file;
    int r = regular_file_open(path, &file, NULL);
    if (r < 0)
        return r;
    r = add_range(f, &file, 0, BUNDLE_PAGE);
    regular_file_close(&file);
    f->files++;
    return r;
}

static int add_model(struct fingerprint *f, const char *dir)
{
    struct stat st;
    char path[PATH_BYTES];
    if (stat(dir, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return bundle_is(dir) ? add_bundle(f, dir) : add_gguf(f, dir);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    int r = add_file(f, path, "config.json", false);
    if (r == -ENOENT) /* a folder of one GGUF model */
        r = 0;
    if (r == 0)
        r = add_preprocessors(f, dir);
    if (r == 0)
        r = add_folder(f, dir);
    snprintf(path, sizeof(path), "%s/mtp", dir);
    if (r == 0 && access(path, F_OK) == 0)
        r = add_folder(f, path);
    return r == 0 && f->files == 0 ? -ENOENT : r;
}

static int make(struct fingerprint *f, const char *dir)
{
    f->chunk = malloc(CHUNK_BYTES);
    return f->chunk ? add_model(f, dir) : -ENOMEM;
}

/* "4096", or "4096+128:8192": bytes of a page of the first group, then the window and the bytes of each
 * other. */
static void groups_text(const struct model_shape *shape, char ret[GROUPS_BYTES])
{
    int len = snprintf(ret, GROUPS_BYTES, "%zu", shape->groups[0].page_bytes);
    for (uint32_t g = 1; g < shape->group_count; g++)
        len += snprintf(ret + len, (size_t)(GROUPS_BYTES - len), "+%u:%zu", shape->groups[g].window,
                        shape->groups[g].page_bytes);
    ASSERT(len < GROUPS_BYTES); /* 20 digits, and 32 for each of three windows, at most */
}

/* Behind the arithmetic; a name has no room for more. */
static const char *const kv_marks[KV_FORMS] = {[KV_F32] = "", [KV_BF16] = "/b", [KV_INT8] = "/i"};

int fingerprint_files(const char *dir, uint8_t ret[32], struct err *e)
{
    struct fingerprint f = {0};
    _Static_assert(sizeof(f.key.bytes) == 32, "a SHA-256");
    int r = make(&f, dir);
    free(f.chunk);
    if (r < 0)
        return err_set(e, r, "the model's files at %s could not be read for their fingerprint", dir);
    memcpy(ret, f.key.bytes, sizeof(f.key.bytes));
    return 0;
}

int fingerprint_make(const char *dir, const struct model_shape *shape, unsigned cpu_flags,
                     struct store_identity *ret, struct err *e)
{
    struct store_identity identity = {0};
    int r = fingerprint_files(dir, identity.fingerprint, e);
    if (r < 0)
        return r;
    *ret = identity;
    char groups[GROUPS_BYTES];
    groups_text(shape, groups);
    const char *quant = shape->quant ? quantise_name(shape->quant) : "";
    int len =
        snprintf(ret->layout, sizeof(ret->layout), "%d %s%s%s%s page=%s state=%zu cpu=%x%s%s %s",
                 LAYOUT_VERSION, compute_mode_name(shape->compute), kv_marks[shape->kv_form],
                 shape->quant ? "/" : "", quant, groups, shape->state_bytes, cpu_flags,
                 shape->longrope ? " rope=" : "", shape->longrope ? shape->longrope : "", PLATEAU_VERSION);
    ASSERT(len < (int)sizeof(ret->layout));
    return 0;
}
