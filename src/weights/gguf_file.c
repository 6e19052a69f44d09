/* gguf_file.c - names of files, and heads read in parts that double until the head is whole. */
#include "weights/gguf_file.h"

#include "base/check.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KEYS_BYTES_MAX ((size_t)GGUF_KEYS_MAX * 128)
#define TAIL_FORMAT    "-%05u-of-%05u.gguf"
#define TAIL_BYTES     20 /* of what it prints for parts up to 99999 */

static bool is_weights(const char *name)
{
    struct slice s = slice_of(name);
    return slice_ends(s, SLICE(".gguf")) && !slice_starts(s, SLICE("mmproj"));
}

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.' && is_weights(d->d_name);
}

/* A name is "NAME-00002-of-00003.gguf": its length up to there, 0: it is no part. */
static size_t part_of(const char *name, uint32_t *index, uint32_t *count)
{
    size_t len = strlen(name);
    char again[TAIL_BYTES + 1];
    if (len <= TAIL_BYTES || sscanf(name + len - TAIL_BYTES, "-%5u-of-%5u", index, count) != 2 ||
        *index > GGUF_PARTS_MAX || *count > GGUF_PARTS_MAX)
        return 0;
    snprintf(again, sizeof(again), TAIL_FORMAT, *index, *count);
    return strcmp(again, name + len - TAIL_BYTES) == 0 ? len - TAIL_BYTES : 0;
}

/* Whether two names are parts of one model. */
static bool same_model(const char *a, const char *b)
{
    uint32_t i, m, j, n;
    size_t len = part_of(a, &i, &m);
    return len > 0 && len == part_of(b, &j, &n) && m == n && memcmp(a, b, len) == 0;
}

static bool has_config(const char *dir)
{
    char path[GGUF_PATH_BYTES];
    return (size_t)snprintf(path, sizeof(path), "%s/config.json", dir) < sizeof(path) &&
           access(path, F_OK) == 0;
}

/* *.gguf of a directory, sorted; the caller frees. 0 or the system's error. */
static int list(const char *dir, struct dirent ***ret, int *count)
{
    *count = scandir(dir, ret, visible, alphasort);
    return *count < 0 ? -errno : 0;
}

static void list_free(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

/* As Ollama's store names its files: "sha256-" and 64 digits. */
static bool is_blob(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strncmp(name, "sha256-", 7) == 0 && strlen(name) == 7 + 64;
}

bool gguf_file_is(const char *path)
{
    struct dirent **entries = NULL;
    int count;
    if (list(path, &entries, &count) < 0)
        return slice_ends(slice_of(path), SLICE(".gguf")) || is_blob(path);
    list_free(entries, count);
    return count > 0 && !has_config(path);
}

static int join(const char *dir, const char *name, char ret[GGUF_PATH_BYTES], struct err *e)
{
    return (size_t)snprintf(ret, GGUF_PATH_BYTES, "%s/%s", dir, name) < GGUF_PATH_BYTES
               ? 0
               : err_set(e, -ENAMETOOLONG, "path of %s is longer than %d bytes", name, GGUF_PATH_BYTES - 1);
}

static int only_model(const char *dir, struct dirent *const *entries, int count, char ret[GGUF_PATH_BYTES],
                      struct err *e)
{
    if (count == 0)
        return err_set(e, -ENOENT, "%s has no .gguf file", dir);
    for (int i = 1; i < count; i++) {
        if (!same_model(entries[0]->d_name, entries[i]->d_name))
            return err_set(e, -EINVAL, "%s holds more than one GGUF model, %s and %s among them: name a file",
                           dir, entries[0]->d_name, entries[i]->d_name);
    }
    return join(dir, entries[0]->d_name, ret, e);
}

int gguf_file_find(const char *path, char ret[GGUF_PATH_BYTES], struct err *e)
{
    struct dirent **entries = NULL;
    int count;
    int r = list(path, &entries, &count);
    if (r == 0) {
        r = only_model(path, entries, count, ret, e);
        list_free(entries, count);
        return r;
    }
    if (r != -ENOTDIR)
        return err_set(e, r, "cannot read %s: %s", path, strerror(-r));
    return (size_t)snprintf(ret, GGUF_PATH_BYTES, "%s", path) < GGUF_PATH_BYTES
               ? 0
               : err_set(e, -ENAMETOOLONG, "a path is longer than %d bytes", GGUF_PATH_BYTES - 1);
}

int gguf_file_part(const char *first, uint32_t index, uint32_t count, char ret[GGUF_PATH_BYTES],
                   struct err *e)
{
    uint32_t i = 0, n = 0;
    size_t len = part_of(first, &i, &n);
    ASSERT(index < count && strlen(first) < GGUF_PATH_BYTES);
    if (len == 0 || i != 1 || n != count)
        return err_set(e, -EINVAL, "%s is one of %u parts: the first is named NAME-00001-of-%05u.gguf", first,
                       count, count);
    snprintf(ret, GGUF_PATH_BYTES, "%.*s" TAIL_FORMAT, (int)len, first, index + 1, count);
    return 0;
}

/* ---- heads ---- */

/* The first `len` bytes of the file as a head. -EAGAIN: it is longer. */
static int read_head(struct gguf_file *f, size_t len, struct err *e)
{
    char *text = arena_alloc(f->arena, len);
    if (!text)
        return err_set(e, -ENOMEM, "no memory left for %zu bytes of its head", len);
    int r = regular_file_read(&f->at, 0, text, len, e);
    return r < 0 ? r : gguf_parse(f->arena, (struct slice){text, len}, f->at.bytes, &f->head, e);
}

int gguf_file_open(const char *file, struct account *account, struct gguf_file *ret, struct err *e)
{
    struct gguf_file f = GGUF_FILE_NONE;
    struct charge charge = account ? account_charge(account) : (struct charge){0};
    int r = regular_file_open(file, &f.at, e);
    if (r < 0)
        return r;
    /* The text, the table of tensors, that of keys. */
    size_t most = (size_t)MIN_OF(f.at.bytes, (uint64_t)GGUF_HEAD_BYTES_MAX);
    struct arena_opts opts = {.bytes_max = 5 * most + KEYS_BYTES_MAX, .charge = account ? &charge : NULL};
    r = arena_create(&opts, &f.arena);
    if (r < 0)
        err_set(e, r, "no memory left to read its head");
    for (size_t len = MIN_OF(most, GGUF_FIRST_READ); r == 0; len = MIN_OF(most, 2 * len)) {
        size_t mark = arena_mark(f.arena);
        r = read_head(&f, len, e);
        if (r != -EAGAIN)
            break;
        ASSERT(len < most);
        arena_rewind(f.arena, mark);
        r = 0;
    }
    if (r == 0) {
        *ret = f;
        return 0;
    }
    gguf_file_close(&f);
    return err_prefix(e, r, "%s", file);
}

int gguf_file_open_model(const char *path, char first[GGUF_PATH_BYTES], struct account *account,
                         struct gguf_file *ret, struct err *e)
{
    int r = gguf_file_find(path, first, e);
    return r == 0 ? gguf_file_open(first, account, ret, e) : r;
}

void gguf_file_forget(struct gguf_file *f)
{
    arena_free(f->arena);
    f->arena = NULL;
    f->head = (struct gguf){.version = 0};
}

void gguf_file_close(struct gguf_file *f)
{
    regular_file_close(&f->at);
    gguf_file_forget(f);
}
