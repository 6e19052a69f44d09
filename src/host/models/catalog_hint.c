/* catalog_hint.c - asked only after a model could not be read, so it never refuses what works. It looks at
 * names and sizes; of contents it reads the index of the weights and the first bytes of one file. */
#include "host/models/catalog.h"

#include "host/models/catalog_names.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "base/slice.h"
#include "hub/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES      CATALOG_PATH_BYTES
#define NAME_BYTES      256
#define INDEX_BYTES_MAX ((size_t)64 << 20)
#define SHARDS_MAX      9999
#define LISTED_MAX      3 /* names in a message */
#define A_MODEL                                                                                              \
    "a model is a directory with config.json, .safetensors files and tokenizer.json, or a GGUF file"

static bool is_there(const char *dir, const char *name)
{
    char path[PATH_BYTES + NAME_BYTES];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return stat(path, &st) == 0;
}

static bool ends_in(const char *name, const char *tail)
{
    return slice_ends(slice_of(name), slice_of(tail));
}

/* A folder of the hub's cache; naming it would have meant its snapshot. */
static int tell_hub_folder(const char *dir, int code, struct err *e)
{
    char snapshot[PATH_BYTES];
    struct err why = {{0}};
    if (hub_cache_snapshot(dir, "main", snapshot, &why) < 0)
        return err_set(e, code, "%s", why.text);
    return err_set(e, code, "%s is a folder of the hub's cache; the model in it is %s: name that", dir,
                   snapshot);
}

/* --- contents of a directory --- */

struct contents {
    uint32_t safetensors, ggufs, others, hub_models;
    bool config, adapter, snapshots;
    char weights[NAME_BYTES], gguf[NAME_BYTES], other[NAME_BYTES]; /* the first of each, by name */
};

static void count(uint32_t *count, char first[NAME_BYTES], const char *name)
{
    if ((*count)++ == 0)
        snprintf(first, NAME_BYTES, "%s", name);
}

static void look_at(struct contents *c, const char *name)
{
    static const char *const formats[] = {".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx"};
    c->config |= strcmp(name, "config.json") == 0;
    c->adapter |= strcmp(name, "adapter_config.json") == 0;
    c->snapshots |= strcmp(name, "snapshots") == 0;
    c->hub_models += slice_starts(slice_of(name), SLICE(HUB_FOLDER_HEAD));
    if (ends_in(name, ".safetensors"))
        count(&c->safetensors, c->weights, name);
    if (ends_in(name, ".gguf"))
        count(&c->ggufs, c->gguf, name);
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (ends_in(name, formats[i]))
            count(&c->others, c->other, name);
}

/* 0 or the system's error. */
static int look(const char *dir, struct contents *ret)
{
    struct dirent **entries;
    *ret = (struct contents){0};
    int n = scandir(dir, &entries, NULL, alphasort);
    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++) {
        look_at(ret, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return 0;
}

/* --- files that are missing or are not the weights --- */

struct missing {
    uint32_t count, of;
    char first[NAME_BYTES];
};

static void check_shard(const char *dir, const char *name, struct missing *m)
{
    m->of++;
    if (!is_there(dir, name))
        count(&m->count, m->first, name);
}

/* By model.safetensors.index.json. False: not readable. */
static bool missing_by_index(const char *dir, struct missing *ret)
{
    char path[PATH_BYTES + NAME_BYTES];
    struct small_file f = {0};
    const char *tensor;
    json_t *file, *seen = json_object();
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
    json_t *index =
        small_file_read(path, INDEX_BYTES_MAX, &f, NULL) == 0 ? json_loadb(f.bytes, f.len, 0, NULL) : NULL;
    json_t *map = json_object_get(index, "weight_map");
    bool is_index = json_is_object(map);
    json_object_foreach(map, tensor, file) {
        const char *name = json_string_value(file);
        if (!name || strchr(name, '/') || json_object_get(seen, name))
            continue;
        json_object_set_new(seen, name, json_true());
        check_shard(dir, name, ret);
    }
    json_decref(index);
    json_decref(seen);
    small_file_done(&f);
    return is_index;
}

/* By "-00001-of-00003" in the name of one that is there. */
static void missing_by_number(const char *dir, const char *name, struct missing *ret)
{
    const char *of = strstr(name, "-of-");
    unsigned total = of ? (unsigned)strtoul(of + 4, NULL, 10) : 0;
    if (!of || of - name < 6 || total == 0 || total > SHARDS_MAX)
        return;
    for (unsigned i = 1; i <= total; i++) {
        char shard[NAME_BYTES];
        snprintf(shard, sizeof(shard), "%.*s%05u%s", (int)(of - name) - 5, name, i, of);
        check_shard(dir, shard, ret);
    }
}

static bool is_pointer(const char *dir, const char *name)
{
    static const char head[] = "version https://git-lfs";
    char path[PATH_BYTES + NAME_BYTES], bytes[sizeof(head) - 1];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool is = fd >= 0 && read(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes) &&
              memcmp(bytes, head, sizeof(bytes)) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

struct next_step {
    char text[HUB_ID_BYTES + 64];
};

/* How the missing files come: by a pull, in the hub's cache. */
static struct next_step fetch_rest(const char *dir)
{
    struct next_step r = {"download it again"};
    struct hub_name name;
    if (hub_cache_name_of(dir, &name))
        snprintf(r.text, sizeof(r.text), "plateau pull %s fetches the rest", name.id);
    return r;
}

/* True: `e` names the missing files. */
static bool tell_missing(const char *dir, const struct contents *c, int code, struct err *e)
{
    struct missing m = {0};
    if (!missing_by_index(dir, &m) && c->safetensors > 0)
        missing_by_number(dir, c->weights, &m);
    if (m.count > 0)
        err_set(e, code, "%s is not complete: %u of its %u weight files missing, %s the first of them; %s",
                dir, m.count, m.of, m.first, fetch_rest(dir).text);
    else if (c->safetensors > 0 && is_pointer(dir, c->weights))
        err_set(e, code, "%s/%s is a pointer of Git LFS, not the weights: run git lfs pull there", dir,
                c->weights);
    else
        return false;
    return true;
}

/* --- models below a directory --- */

struct below {
    const char *dir;
    uint32_t count;
    char first[PATH_BYTES], names[3 * 80];
};

static int note_below(void *arg, const struct catalog_entry *m, struct err *e)
{
    struct below *b = arg;
    const char *path = m->path;
    size_t have = strlen(b->names), head = strlen(b->dir);
    (void)e;
    if (!catalog_is_model(m))
        return 0;
    if (b->count == 0)
        snprintf(b->first, sizeof(b->first), "%s", path);
    while (path[head] == '/')
        head++;
    if (b->count++ < LISTED_MAX)
        snprintf(b->names + have, sizeof(b->names) - have, "%s%.70s", have ? ", " : "", path + head);
    return 0;
}

static void tell_hub_cache(const char *dir, const struct below *b, int code, struct err *e)
{
    struct hub_name name = {.id = "ORG/NAME"};
    hub_cache_name_of(b->first, &name);
    err_set(e, code,
            "%s is a cache of the hub; name one model in it, such as %s, or serve all with --model-dir %s",
            dir, name.id, dir);
}

/* True: `e` names the models below. */
static bool tell_below(const char *dir, const struct contents *c, int code, struct err *e)
{
    struct below b = {.dir = dir};
    if (catalog_walk(dir, note_below, &b, NULL) < 0 || b.count == 0)
        return false;
    if (c->hub_models > 0)
        tell_hub_cache(dir, &b, code, e);
    else
        err_set(e, code, "%s is not a model; below it lie%s %s%s: name one, or serve all with --model-dir %s",
                dir, b.count == 1 ? "s" : "", b.names, b.count > LISTED_MAX ? " and more" : "", dir);
    return true;
}

/* --- all of it --- */

static int tell_directory(const char *dir, const struct contents *c, int code, struct err *e)
{
    if (tell_missing(dir, c, code, e))
        return code;
    if (c->config && c->safetensors > 0)
        return err_prefix(e, code, "%s", dir);
    struct hub_name hub;
    if (c->snapshots || (hub_cache_name_of(dir, &hub) && !c->config))
        return tell_hub_folder(dir, code, e);
    if (c->safetensors > 0)
        return err_set(e, code, "%s has %s but no config.json%s", dir, c->weights,
                       c->adapter ? ": it is an adapter, which is not served; name its base model"
                                  : ": download the model's other files as well");
    if (c->ggufs > 0 && !c->config)
        return code; /* the reader of GGUF files has said why */
    if (c->others > 0)
        return err_set(
            e, code,
            "%s has weights in another format only (%s); .safetensors files are read: look for them in the "
            "model's repository, or convert the weights (transformers' save_pretrained writes them)",
            dir, c->other);
    if (c->config)
        return err_set(e, code, "%s has config.json but no .safetensors file: the weights are missing; %s",
                       dir, fetch_rest(dir).text);
    return tell_below(dir, c, code, e) ? code : err_set(e, code, "%s is not a model: " A_MODEL, dir);
}

static int tell_file(const char *path, const struct stat *st, int code, struct err *e)
{
    if (S_ISREG(st->st_mode) && code != -ENOTDIR)
        return code; /* its reader has said why */
    if (ends_in(path, ".plateau"))
        return err_set(
            e, code, "%s is not a packed file: its first bytes are not those that plateau pack writes", path);
    if (ends_in(path, ".safetensors"))
        return err_set(e, code, "%s is one file of a model: name its directory", path);
    return err_set(e, code, "%s is not a directory: " A_MODEL, path);
}

/* A path, or a name that is neither the hub's nor listed. */
static int tell_nothing(const char *path, int code, struct err *e)
{
    if (strchr(path, '/'))
        return err_set(e, code, "there is no file or directory %s: " A_MODEL, path);
    if (strcmp(path, CATALOG_STARTER) == 0)
        return err_set(e, code, "the starter model %s has not been fetched: tools/fetch-starter fetches it",
                       path);
    return err_set(e, code,
                   "there is no file or directory %s, and no model of that name: plateau models lists those "
                   "that are here, plateau pull ORG/NAME fetches one",
                   path);
}

int catalog_hint(const char *path, int code, struct err *e)
{
    struct stat st;
    struct contents c;
    int r = stat(path, &st) < 0 ? -errno : 0;
    if (r == -ENOENT || r == -ENOTDIR)
        return tell_nothing(path, code, e);
    if (r == 0 && !S_ISDIR(st.st_mode))
        return tell_file(path, &st, code, e);
    if (r == 0)
        r = look(path, &c);
    return r < 0 ? err_set(e, code, "%s cannot be read: %s", path, strerror(-r))
                 : tell_directory(path, &c, code, e);
}
