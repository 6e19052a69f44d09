/* gguf_file.c - names of files, and heads read in parts that double until the head is whole. */
#include "weights/gguf_file.h"

#include "weights/gguf_name.h"

#include "base/check.h"
#include "base/files/bundle.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS_BYTES_MAX ((size_t)GGUF_KEYS_MAX * 128)

static bool is_safetensors(const char *name)
{
    return slice_ends(slice_of(name), SLICE(".safetensors"));
}

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.' && gguf_name_is_weights(d->d_name);
}

static int weighs(const struct dirent *d)
{
    return visible(d) || is_safetensors(d->d_name);
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

/* True for names of files in Ollama's store: "sha256-" and 64 digits. */
static bool is_blob(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strncmp(name, "sha256-", 7) == 0 && strlen(name) == 7 + 64;
}

bool gguf_file_is(const char *path)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, weighs, alphasort);
    if (count < 0)
        return gguf_name_is(path) || is_blob(path) || bundle_any(path, gguf_name_is, NULL);
    bool gguf = count > 0;
    for (int i = 0; i < count; i++)
        gguf = gguf && !is_safetensors(entries[i]->d_name);
    list_free(entries, count);
    return gguf;
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
        if (!gguf_name_same_model(entries[0]->d_name, entries[i]->d_name))
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
    char name[BUNDLE_NAME_MAX + 1];
    if (bundle_any(path, gguf_name_is, name)) /* the first of several parts comes first */
        return join(path, name, ret, e);
    return (size_t)snprintf(ret, GGUF_PATH_BYTES, "%s", path) < GGUF_PATH_BYTES
               ? 0
               : err_set(e, -ENAMETOOLONG, "a path is longer than %d bytes", GGUF_PATH_BYTES - 1);
}

int gguf_file_part(const char *first, uint32_t index, uint32_t count, char ret[GGUF_PATH_BYTES],
                   struct err *e)
{
    uint32_t i = 0, n = 0;
    size_t len = gguf_name_part(first, &i, &n);
    ASSERT(index < count && strlen(first) < GGUF_PATH_BYTES);
    if (len == 0 || i != 1 || n != count)
        return err_set(e, -EINVAL, "%s is one of %u parts: the first is named NAME-00001-of-%05u.gguf", first,
                       count, count);
    gguf_name_of_part(first, len, index + 1, count, ret, GGUF_PATH_BYTES);
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
