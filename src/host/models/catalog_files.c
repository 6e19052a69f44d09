/* catalog_files.c - the walk over files reads names alone, as its callers do. */
#include "host/models/catalog_files.h"

#include "host/models/catalog_names.h"

#include "base/check.h"
#include "base/slice.h"
#include "weights/weights_name.h"
#include "weights/model_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.' && (weights_name_is(d->d_name) || catalog_is_packed(d->d_name));
}

bool catalog_is_gguf(const char *path)
{
    struct model_files *files;
    if (model_files_open(path, &files, NULL) < 0)
        return false;
    const bool is = model_files_is_view(files);
    model_files_close(files);
    return is;
}

int catalog_file_entry(const char *dir, struct dirent *const *entries, int index, catalog_found_fn *found,
                       void *arg, struct err *e)
{
    char path[PATH_BYTES], id[PATH_BYTES];
    struct stat st;
    const bool packed = catalog_is_packed(entries[index]->d_name);
    if ((!packed && !weights_name_leads(entries, index)) ||
        (size_t)snprintf(path, sizeof(path), "%s/%s", dir, entries[index]->d_name) >= sizeof(path) ||
        stat(path, &st) < 0 || !S_ISREG(st.st_mode) || !catalog_file_id(path, 0, id, sizeof(id)))
        return 0;
    return found(arg, path, id, e);
}

int catalog_files_in(const char *dir, catalog_found_fn *found, void *arg, struct err *e)
{
    struct dirent **entries;
    int r = 0, count = scandir(dir, &entries, visible, alphasort);
    if (count < 0)
        return 0;
    for (int i = 0; i < count; i++)
        r = r == 0 ? catalog_file_entry(dir, entries, i, found, arg, e) : r;
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return r;
}

static int is_encoder(const struct dirent *d)
{
    return d->d_name[0] != '.' && weights_name_is_mmproj(d->d_name);
}

bool catalog_encoder_beside(const char *path, char *ret, size_t bytes)
{
    char dir[PATH_BYTES];
    struct dirent **entries;
    const char *slash = strrchr(path, '/');
    const size_t len = slash ? (size_t)(slash - path) : 0;
    if (!weights_name_is(path))
        snprintf(dir, sizeof(dir), "%s", path);
    else if (slash)
        snprintf(dir, sizeof(dir), "%.*s", (int)MIN_OF(MAX_OF(len, (size_t)1), sizeof(dir) - 1), path);
    else
        snprintf(dir, sizeof(dir), ".");
    int count = scandir(dir, &entries, is_encoder, alphasort);
    for (int i = 0; i < count; i++) {
        if (i == 0)
            snprintf(ret, bytes, "%s", entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return count > 0;
}

static uint64_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

uint64_t catalog_file_bytes(const char *path)
{
    uint32_t index, count;
    size_t len = weights_name_part(path, &index, &count);
    if (len == 0)
        return file_bytes(path);
    uint64_t sum = 0;
    for (uint32_t i = 1; i <= count; i++) {
        char part[PATH_BYTES];
        weights_name_of_part(path, len, i, count, part, sizeof(part));
        sum += file_bytes(part);
    }
    return sum;
}
