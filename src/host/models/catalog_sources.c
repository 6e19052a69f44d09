/* catalog_sources.c - a source that does not exist has no models; nothing here follows a name out of its
 * folder. A checkout's program takes the checkout's model, an installed one that of its prefix. */
#include "host/models/catalog.h"

#include "host/models/catalog_files.h"
#include "host/models/catalog_names.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "base/slice.h"
#include "hub/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES         HUB_PATH_BYTES
#define ID_BYTES           1024
#define MANIFEST_BYTES_MAX ((size_t)1 << 20)
#define MANIFEST_DEPTH     4 /* HOST/OWNER/NAME/TAG */
#define LOOKS_MAX          4096
#define HEX_BYTES          64

struct walk {
    const char *store;
    catalog_found_fn *found;
    void *arg;
    struct err *e;
    const char *parts[MANIFEST_DEPTH];
    unsigned looks;
};

/* ---- the models that come with the program ---- */

int catalog_bundled(char ret[HUB_PATH_BYTES], struct err *e)
{
    static const char *const places[] = {"models/" CATALOG_BUNDLED, "share/plateau/models/" CATALOG_BUNDLED};
    char exe[3900];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2 && strrchr(exe, '/'); up++)
        *strrchr(exe, '/') = 0;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        snprintf(ret, HUB_PATH_BYTES, "%s/%s", exe, places[i]);
        if (access(ret, R_OK) == 0)
            return 0;
    }
    snprintf(ret, HUB_PATH_BYTES, "%s/%s", PLATEAU_CHECKOUT, places[0]);
    if (access(ret, R_OK) == 0)
        return 0;
    return err_set(
        e, -ENOENT,
        "the bundled model is not here: name a model's directory, or copy models/canary of the checkout to "
        "%s/%s",
        exe, places[1]);
}

bool catalog_starter(char ret[HUB_PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool named = cache && cache[0];
    int n = snprintf(ret, HUB_PATH_BYTES, "%s%s/plateau/%s",
                     named  ? cache
                     : home ? home
                            : "",
                     named ? "" : "/.cache", CATALOG_STARTER);
    return n > 0 && n < HUB_PATH_BYTES && catalog_is_gguf(ret);
}

/* ---- Ollama ---- */

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static bool join(const char *dir, const char *name, char ret[PATH_BYTES])
{
    return snprintf(ret, PATH_BYTES, "%s/%s", dir, name) < PATH_BYTES;
}

/* "sha256:HEX" of the layer with the weights; false: the manifest names none. */
static bool read_digest(const char *manifest, char ret[HEX_BYTES + 1])
{
    struct small_file f = {0};
    if (small_file_read(manifest, MANIFEST_BYTES_MAX, &f, NULL) < 0)
        return false;
    json_t *root = json_loadb(f.bytes, f.len, 0, NULL), *layers = json_object_get(root, "layers"), *layer;
    size_t i;
    bool is = false;
    json_array_foreach(layers, i, layer) {
        struct slice type = slice_of(json_string_value(json_object_get(layer, "mediaType")));
        struct slice digest = slice_of(json_string_value(json_object_get(layer, "digest")));
        if (is || !slice_ends(type, SLICE(".image.model")) || !slice_starts(digest, SLICE("sha256:")))
            continue;
        struct slice hex = slice_sub(digest, strlen("sha256:"), digest.len);
        is = hex.len == HEX_BYTES;
        for (size_t k = 0; k < hex.len; k++)
            is = is && slice_hex(hex.ptr[k]) >= 0;
        if (is)
            snprintf(ret, HEX_BYTES + 1, "%.*s", SLICE_ARGS(hex));
    }
    json_decref(root);
    small_file_done(&f);
    return is;
}

static int found_manifest(struct walk *w, const char *path)
{
    char hex[HEX_BYTES + 1], blob[PATH_BYTES], id[ID_BYTES];
    bool library = strcmp(w->parts[1], "library") == 0;
    if (!read_digest(path, hex) ||
        snprintf(blob, PATH_BYTES, "%s/blobs/sha256-%s", w->store, hex) >= PATH_BYTES)
        return 0;
    snprintf(id, sizeof(id), "%s%s%s:%s", library ? "" : w->parts[1], library ? "" : "/", w->parts[2],
             w->parts[3]);
    return w->found(w->arg, blob, id, w->e);
}

static int walk(struct walk *w, const char *dir, unsigned depth)
{
    struct dirent **entries;
    char path[PATH_BYTES];
    int r = 0, n = scandir(dir, &entries, visible, alphasort);
    if (n < 0)
        return 0;
    for (int i = 0; i < n && r == 0 && w->looks++ < LOOKS_MAX; i++) {
        w->parts[depth] = entries[i]->d_name;
        if (join(dir, entries[i]->d_name, path))
            r = depth + 1 < MANIFEST_DEPTH ? walk(w, path, depth + 1) : found_manifest(w, path);
    }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    return r;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Ollama's store: models are named by manifests/HOST/OWNER/NAME/TAG, and are files blobs/sha256-HEX of
 * GGUF. The id is NAME:TAG, or OWNER/NAME:TAG. 0, -ENOENT (`dir` has no manifests), or the result of
 * `found`. */
static int ollama_models(const char *dir, catalog_found_fn *found, void *arg, struct err *e)
{
    char manifests[PATH_BYTES];
    struct walk w = {.store = dir, .found = found, .arg = arg, .e = e};
    if (!join(dir, "manifests", manifests) || !is_directory(manifests))
        return err_set(e, -ENOENT, "%s has no manifests", dir);
    return walk(&w, manifests, 0);
}

/* ---- all sources ---- */

/* A folder of models at $HOME/`below`, if there is one. */
static int each_at_home(const char *below, catalog_found_fn *found, void *arg, struct err *e)
{
    char path[PATH_BYTES];
    const char *home = getenv("HOME");
    if (!home || !home[0] || !join(home, below, path) || !is_directory(path))
        return 0;
    return catalog_each(path, found, arg, e);
}

int catalog_each_source(catalog_found_fn *found, void *arg, struct err *e)
{
    static const char *const folders[] = {".lmstudio/models", ".cache/lm-studio/models"};
    char path[PATH_BYTES];
    const char *ollama = getenv("OLLAMA_MODELS"), *home = getenv("HOME");
    int r = 0;
    if (catalog_bundled(path, NULL) == 0)
        r = found(arg, path, CATALOG_BUNDLED, e);
    if (r == 0 && catalog_starter(path))
        r = found(arg, path, CATALOG_STARTER, e);
    if (r == 0 && hub_cache_dir(path, NULL) == 0 && is_directory(path))
        r = catalog_each(path, found, arg, e);
    for (size_t i = 0; i < COUNT_OF(folders) && r == 0; i++)
        r = each_at_home(folders[i], found, arg, e);
    if (r < 0)
        return r;
    if (ollama && ollama[0])
        snprintf(path, sizeof(path), "%s", ollama);
    else if (!home || !join(home, ".ollama/models", path))
        return 0;
    r = ollama_models(path, found, arg, NULL);
    return r == -ENOENT ? 0 : r;
}
