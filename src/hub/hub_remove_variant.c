/* hub_remove_variant.c - one GGUF model of several in a repository: its links in all snapshots, then the
 * blobs that no other link leads to. A link out of the folder is removed alone. */
#include "hub/hub_remove.h"

#include "hub/hub_cache.h"
#include "hub/hub_variants.h"
#include "weights/weights_name.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOBS_MAX  (2 * WEIGHTS_PARTS_MAX)
#define PATH_BYTES (HUB_PATH_BYTES + HUB_FILE_BYTES_MAX + 2)

struct blob {
    char *path;
    dev_t device;
    ino_t inode;
    bool kept; /* another file of a snapshot is it, too */
};

struct removal {
    char blobs_dir[HUB_PATH_BYTES + 8];
    bool removes;
    struct blob *blobs;
    uint32_t count;
    uint32_t others; /* models that stay */
};

static struct blob *find_blob(const struct removal *w, const struct stat *st)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (w->blobs[i].device == st->st_dev && w->blobs[i].inode == st->st_ino)
            return &w->blobs[i];
    return NULL;
}

/* Notes the blob of a link in the folder. 0, -ENOMEM, -E2BIG. */
static int note_blob(struct removal *w, const char *link)
{
    struct stat st;
    char *path = realpath(link, NULL);
    const bool ours = path && strncmp(path, w->blobs_dir, strlen(w->blobs_dir)) == 0 && stat(path, &st) == 0;
    if (!ours || find_blob(w, &st)) {
        free(path);
        return 0;
    }
    if (w->count == BLOBS_MAX) {
        free(path);
        return -E2BIG;
    }
    w->blobs[w->count++] = (struct blob){.path = path, .device = st.st_dev, .inode = st.st_ino};
    return 0;
}

/* Calls `see` for the files of each model of each snapshot. */
static int each_file(struct removal *w, const char *folder, const struct hub_name *n,
                     int (*see)(struct removal *w, const char *path, bool chosen))
{
    char snapshots[HUB_PATH_BYTES + 16], path[PATH_BYTES];
    snprintf(snapshots, sizeof(snapshots), "%s/snapshots", folder);
    DIR *d = opendir(snapshots);
    int r = 0;
    for (const struct dirent *f; d && r == 0 && (f = readdir(d));) {
        char snapshot[HUB_PATH_BYTES + 300];
        struct hub_variants g;
        const struct hub_variant *m = NULL;
        if (f->d_name[0] == '.')
            continue;
        snprintf(snapshot, sizeof(snapshot), "%s/%s", snapshots, f->d_name);
        r = hub_variants_of_snapshot(snapshot, &g, NULL);
        if (r == 0)
            (void)hub_variants_find(&g, n, &m, NULL);
        w->others += g.safetensors;
        for (uint32_t i = 0; i < g.count && r == 0; i++) {
            const bool chosen = m == &g.list[i];
            uint32_t index = 1, parts = 1;
            const size_t len = weights_name_part(g.list[i].file, &index, &parts);
            w->others += !chosen;
            for (uint32_t k = 1; k <= parts && r == 0; k++) {
                char part[HUB_FILE_BYTES_MAX];
                snprintf(part, sizeof(part), "%s", g.list[i].file);
                if (len > 0)
                    weights_name_of_part(g.list[i].file, len, k, parts, part, sizeof(part));
                snprintf(path, sizeof(path), "%s/%s", snapshot, part);
                r = see(w, path, chosen);
            }
        }
        hub_variants_done(&g);
    }
    if (d)
        closedir(d);
    return r;
}

static int see_chosen(struct removal *w, const char *path, bool chosen)
{
    return chosen ? note_blob(w, path) : 0;
}

static int see_other(struct removal *w, const char *path, bool chosen)
{
    struct stat st;
    struct blob *b = !chosen && stat(path, &st) == 0 ? find_blob(w, &st) : NULL;
    if (b)
        b->kept = true;
    return 0;
}

static int unlink_chosen(struct removal *w, const char *path, bool chosen)
{
    (void)w;
    return chosen && unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int remove_blobs(struct removal *w, uint64_t *bytes)
{
    int r = 0;
    for (uint32_t i = 0; i < w->count && r == 0; i++) {
        struct stat st;
        const struct blob *b = &w->blobs[i];
        if (b->kept || stat(b->path, &st) < 0)
            continue;
        r = w->removes && unlink(b->path) < 0 ? -errno : 0;
        *bytes += r == 0 ? (uint64_t)st.st_size : 0;
    }
    return r;
}

int hub_remove_variant(const char *folder, const struct hub_name *n, bool removes, uint64_t *bytes,
                       bool *whole)
{
    struct removal w = {.removes = removes, .blobs = calloc(BLOBS_MAX, sizeof(*w.blobs))};
    char *real = realpath(folder, NULL);
    int r = real && w.blobs ? 0 : -ENOMEM;
    *bytes = 0;
    if (r == 0) {
        snprintf(w.blobs_dir, sizeof(w.blobs_dir), "%.4000s/blobs/", real);
        r = each_file(&w, folder, n, see_chosen);
    }
    *whole = w.others == 0 && w.count > 0;
    if (r == 0 && w.count == 0)
        r = -ENOENT;
    if (r == 0 && !*whole) {
        r = each_file(&w, folder, n, see_other);
        if (r == 0 && removes)
            r = each_file(&w, folder, n, unlink_chosen);
        if (r == 0)
            r = remove_blobs(&w, bytes);
    }
    for (uint32_t i = 0; i < w.count; i++)
        free(w.blobs[i].path);
    free(w.blobs);
    free(real);
    return r;
}
