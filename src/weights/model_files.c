/* model_files.c - one descriptor for a directory or a packed file, and one for each file in it.
 *
 * A model that is one file has a directory only if it is named as a part: then its other parts lie there. */
#include "weights/model_files.h"

#include "base/check.h"
#include "base/files/bundle.h"
#include "base/files/small_file.h"
#include "base/slice.h"
#include "weights/weights_name.h"
#include "gguf/gguf_view.h"
#include "gguf/gguf_vision.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(MODEL_FILES_NAME_BYTES == BUNDLE_NAME_MAX + 1, "names in a packed file fit");

/* A file that is open. */
struct opened {
    struct opened *next;
    const char *name; /* behind the last byte of its directory's path */
    struct regular_file at;
    char path[];
};

struct model_files {
    char *path;   /* path that was given */
    char *folder; /* directory of the files, for messages */
    int dir;      /* its descriptor; -1: there are no other files */
    bool directory, gguf, packed;
    char first[MODEL_FILES_NAME_BYTES];   /* name of a GGUF model's first part */
    struct bundle bundle;                 /* with `packed` */
    bool looked;                          /* whether an encoder was looked for */
    char encoder[MODEL_FILES_PATH_BYTES]; /* name or absolute path of the vision encoder's file; "": none */
    const struct tensor_naming *naming;   /* names of a GGUF model's tensors, once they are known */
    struct opened *opened;
    uint32_t opened_count;
};

/* ---- files that are open ---- */

static int new_opened(struct model_files *f, const char *name, struct opened **ret, struct err *e)
{
    const bool absolute = name[0] == '/';
    const size_t len = (absolute ? 0 : strlen(f->folder) + 1) + strlen(name);
    if (len >= MODEL_FILES_PATH_BYTES)
        return err_set(e, -ENAMETOOLONG, "path of %s is longer than %d bytes", name,
                       MODEL_FILES_PATH_BYTES - 1);
    if (f->opened_count == MODEL_FILES_MAX)
        return err_set(e, -E2BIG, "%s: more than %d files", f->path, MODEL_FILES_MAX);
    struct opened *o = malloc(sizeof(*o) + len + 1);
    if (!o)
        return err_set(e, -ENOMEM, "no memory left to open %s", name);
    snprintf(o->path, len + 1, "%s%s%s", absolute ? "" : f->folder, absolute ? "" : "/", name);
    o->name = o->path + len - strlen(name);
    o->at = REGULAR_FILE_NONE;
    *ret = o;
    return 0;
}

static void keep(struct model_files *f, struct opened *o)
{
    o->next = f->opened;
    f->opened = o;
    f->opened_count++;
}

static struct opened *find_opened(const struct model_files *f, const char *name)
{
    struct opened *o = f->opened;
    while (o && strcmp(o->name, name) != 0)
        o = o->next;
    return o;
}

static int open_named(const struct model_files *f, struct opened *o, struct err *e)
{
    if (o->name[0] == '/' && strcmp(o->name, f->encoder) != 0)
        return err_set(e, -EINVAL, "%s: only a vision encoder may lie outside the model's folder", o->name);
    if (o->name[0] == '/')
        return regular_file_open_at(AT_FDCWD, o->name, o->path, &o->at, e);
    if (f->packed)
        return bundle_open_file(&f->bundle, o->name, o->path, &o->at, e);
    if (f->dir >= 0)
        return regular_file_open_at(f->dir, o->name, o->path, &o->at, e);
    return err_set(e, -ENOENT, "%s: cannot be opened: %s", o->path, strerror(ENOENT));
}

static int open_file(struct model_files *f, const char *name, struct opened **ret, struct err *e)
{
    struct opened *o = find_opened(f, name);
    int r = o ? 0 : new_opened(f, name, &o, e);
    if (r < 0)
        return r;
    if (o->at.fd < 0) {
        r = open_named(f, o, e);
        if (r < 0) {
            free(o);
            return r;
        }
        keep(f, o);
    }
    *ret = o;
    return 0;
}

int model_files_file(struct model_files *f, const char *name, const struct regular_file **ret, struct err *e)
{
    struct opened *o;
    int r = open_file(f, name, &o, e);
    if (r == 0)
        *ret = &o->at;
    return r;
}

/* Copies what a view has in place of the file. */
static int view_text(struct model_files *f, const char *name, size_t bytes_max, struct small_file *ret,
                     struct err *e)
{
    struct gguf_head head = GGUF_HEAD_NONE;
    struct slice text;
    int r = model_files_head(f, NULL, &head, e);
    if (r < 0)
        return r;
    if (!gguf_view_text(&head, name, &text))
        r = err_set(e, -ENOENT, "%s: the metadata have no %s", f->path, name);
    else if (text.len > bytes_max)
        r = err_set(e, -EFBIG, "%s: %s is larger than %zu bytes", f->path, name, bytes_max);
    else if (!(ret->bytes = malloc(text.len + 1)))
        r = err_set(e, -ENOMEM, "%s: no memory for %s", f->path, name);
    if (r == 0) {
        memcpy(ret->bytes, text.ptr, text.len);
        ret->bytes[text.len] = 0;
        ret->len = text.len;
    }
    gguf_head_done(&head);
    return r;
}

int model_files_text(struct model_files *f, const char *name, size_t bytes_max, struct small_file *ret,
                     struct err *e)
{
    struct opened *o;
    if (f->gguf)
        return view_text(f, name, bytes_max, ret, e);
    int r = open_file(f, name, &o, e);
    return r == 0 ? small_file_read_open(&o->at, o->path, bytes_max, ret, e) : r;
}

uint64_t model_files_bytes(struct model_files *f, const char *name)
{
    struct gguf_head head = GGUF_HEAD_NONE;
    struct opened *o;
    if (!f->gguf)
        return open_file(f, name, &o, NULL) == 0 ? o->at.bytes : 0;
    if (model_files_head(f, NULL, &head, NULL) < 0)
        return 0;
    const uint64_t bytes = gguf_view_bytes(&head, name);
    gguf_head_done(&head);
    return bytes;
}

bool model_files_has(const struct model_files *f, const char *name)
{
    if (f->packed)
        return bundle_find(&f->bundle, name) != NULL;
    return find_opened(f, name) || (f->dir >= 0 && faccessat(f->dir, name, F_OK, 0) == 0);
}

/* ---- names in a directory ---- */

/* The part of a bundle's name that lies in `folder` itself; NULL: it lies elsewhere. */
static const char *name_in(const char *name, const char *folder)
{
    const size_t len = strlen(folder);
    if (strncmp(name, folder, len) != 0 || (len > 0 && name[len] != '/'))
        return NULL;
    name += len + (len > 0);
    return strchr(name, '/') ? NULL : name;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int each_packed(const struct bundle *b, const char *folder, bool (*is)(const char *name),
                       int (*found)(void *arg, const char *name, struct err *e), void *arg, struct err *e)
{
    const char **names = calloc(b->file_count + 1, sizeof(names[0]));
    uint32_t count = 0;
    int r = 0;
    if (!names)
        return err_set(e, -ENOMEM, "no memory left for a list of files");
    for (uint32_t i = 0; i < b->file_count; i++) {
        const char *name = name_in(b->files[i].name, folder);
        if (name && is(name))
            names[count++] = name;
    }
    qsort(names, count, sizeof(names[0]), by_text);
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = found(arg, names[i], e);
    free(names);
    return r;
}

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

int model_files_each(const struct model_files *f, const char *folder, bool (*is)(const char *name),
                     int (*found)(void *arg, const char *name, struct err *e), void *arg, struct err *e)
{
    struct dirent **entries = NULL;
    int r = 0;
    if (f->packed)
        return each_packed(&f->bundle, folder, is, found, arg, e);
    if (f->dir < 0)
        return 0;
    int count = scandirat(f->dir, folder[0] ? folder : ".", &entries, visible, alphasort);
    if (count < 0 && errno == ENOENT && folder[0])
        return 0;
    if (count < 0)
        return err_set(e, -errno, "cannot read directory %s/%s: %s", f->folder, folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (r == 0 && is(entries[i]->d_name))
            r = found(arg, entries[i]->d_name, e);
        free(entries[i]);
    }
    free(entries);
    return r;
}

/* ---- kinds of paths ---- */

/* Names of the first GGUF file, and of one that belongs to another model. */
struct kinds {
    char first[MODEL_FILES_NAME_BYTES], other[MODEL_FILES_NAME_BYTES];
    bool safetensors;
};

static bool weighs(const char *name)
{
    return weights_name_is_weights(name) || slice_ends(slice_of(name), SLICE(".safetensors"));
}

static int look_at(void *arg, const char *name, struct err *e)
{
    struct kinds *k = arg;
    (void)e;
    if (!weights_name_is(name))
        k->safetensors = true;
    else if (!k->first[0])
        snprintf(k->first, sizeof(k->first), "%s", name);
    else if (!k->other[0] && !weights_name_same_model(k->first, name))
        snprintf(k->other, sizeof(k->other), "%s", name);
    return 0;
}

static int find_kind(struct model_files *f, struct err *e)
{
    struct kinds k = {.safetensors = false};
    int r = model_files_each(f, "", weighs, look_at, &k, e);
    f->gguf = r == 0 && k.first[0] && !k.safetensors;
    if (!f->gguf)
        return r;
    snprintf(f->first, sizeof(f->first), "%s", k.first);
    return !k.other[0]
               ? 0
               : err_set(e, -EINVAL, "%s holds more than one GGUF model, %s and %s among them: name a file",
                         f->path, k.first, k.other);
}

/* True for names of files in Ollama's store: "sha256-" and 64 digits. */
static bool is_blob(const char *name)
{
    return strncmp(name, "sha256-", 7) == 0 && strlen(name) == 7 + 64;
}

/* Other parts of the model lie beside this one. */
static int open_folder(struct model_files *f, struct err *e)
{
    uint32_t index, count;
    if (weights_name_part(f->first, &index, &count) == 0)
        return 0;
    f->dir = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return f->dir >= 0 ? 0 : err_set(e, -errno, "%s: cannot be opened: %s", f->folder, strerror(errno));
}

/* Gives `f` the file, which is the first part of a GGUF model. */
static int take_gguf(struct model_files *f, const char *name, struct regular_file *file, struct err *e)
{
    struct opened *o;
    f->gguf = true;
    snprintf(f->first, sizeof(f->first), "%s", name);
    int r = new_opened(f, name, &o, e);
    if (r < 0)
        return r;
    o->at = *file;
    *file = REGULAR_FILE_NONE;
    keep(f, o);
    return open_folder(f, e);
}

/* Gives `f` the file, which is a bundle. Paths of the files in it begin with its own. */
static int open_packed(struct model_files *f, struct regular_file *file, struct err *e)
{
    int r = bundle_read(file, &f->bundle, e);
    if (r < 0)
        return err_prefix(e, r, "%s", f->path);
    f->packed = true;
    free(f->folder);
    f->folder = strdup(f->path);
    return f->folder ? find_kind(f, e) : err_set(e, -ENOMEM, "no memory left to open %s", f->path);
}

static int open_single(struct model_files *f, struct err *e)
{
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    struct regular_file file;
    int r = regular_file_open(f->path, &file, e);
    if (r < 0)
        return r;
    if (bundle_begins(&file)) {
        r = open_packed(f, &file, e);
        regular_file_close(&file);
        return r;
    }
    if (strlen(name) < MODEL_FILES_NAME_BYTES && (weights_name_is(name) || is_blob(name)))
        r = take_gguf(f, name, &file, e);
    else
        r = err_set(e, -ENOTDIR, "%s: cannot be opened: %s", f->path, strerror(ENOTDIR));
    regular_file_close(&file);
    return r;
}

static int open_directory(struct model_files *f, struct err *e)
{
    f->directory = true;
    f->dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir < 0)
        return err_set(e, -errno, "%s: cannot be opened: %s", f->path, strerror(errno));
    return find_kind(f, e);
}

/* The directory of the model's files: of a packed file, the file itself. */
static int set_paths(struct model_files *f, const char *path, bool directory, struct err *e)
{
    const char *slash = strrchr(path, '/');
    if (strlen(path) >= MODEL_FILES_PATH_BYTES)
        return err_set(e, -ENAMETOOLONG, "the path %.80s... is longer than %d bytes", path,
                       MODEL_FILES_PATH_BYTES - 1);
    f->path = strdup(path);
    if (directory || !slash)
        f->folder = strdup(directory ? path : ".");
    else
        f->folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    return f->path && f->folder ? 0 : err_set(e, -ENOMEM, "no memory left to open %s", path);
}

int model_files_open(const char *path, struct model_files **ret, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_set(e, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    struct model_files *f = calloc(1, sizeof(*f));
    if (!f)
        return err_set(e, -ENOMEM, "no memory left to open %s", path);
    f->dir = -1;
    int r = set_paths(f, path, S_ISDIR(st.st_mode), e);
    if (r == 0)
        r = S_ISDIR(st.st_mode) ? open_directory(f, e) : open_single(f, e);
    if (r < 0)
        model_files_close(f);
    else
        *ret = f;
    return r;
}

void model_files_close(struct model_files *f)
{
    if (!f)
        return;
    for (struct opened *o = f->opened, *next; o; o = next) {
        next = o->next;
        regular_file_close(&o->at);
        free(o);
    }
    if (f->packed)
        bundle_close(&f->bundle);
    if (f->dir >= 0)
        close(f->dir);
    free(f->folder);
    free(f->path);
    free(f);
}

const char *model_files_path(const struct model_files *f)
{
    return f->path;
}

bool model_files_is_view(const struct model_files *f)
{
    return f->gguf;
}

bool model_files_is_directory(const struct model_files *f)
{
    return f->directory;
}

const struct bundle *model_files_bundle(const struct model_files *f)
{
    return f->packed ? &f->bundle : NULL;
}

/* ---- GGUF ---- */

uint32_t model_files_part_count(const struct model_files *f)
{
    uint32_t index, count;
    return weights_name_part(f->first, &index, &count) > 0 && index == 1 ? count : 1;
}

int model_files_part(const struct model_files *f, uint32_t index, uint32_t count,
                     char ret[MODEL_FILES_NAME_BYTES], struct err *e)
{
    uint32_t i = 0, n = 0;
    size_t len = weights_name_part(f->first, &i, &n);
    ASSERT(f->gguf && index < count);
    if (index == 0) {
        snprintf(ret, MODEL_FILES_NAME_BYTES, "%s", f->first);
        return 0;
    }
    if (len == 0 || i != 1 || n != count)
        return err_set(e, -EINVAL, "%s/%s is one of %u parts: the first is named NAME-00001-of-%05u.gguf",
                       f->folder, f->first, count, count);
    weights_name_of_part(f->first, len, index + 1, count, ret, MODEL_FILES_NAME_BYTES);
    return 0;
}

int model_files_head(struct model_files *f, struct account *account, struct gguf_head *ret, struct err *e)
{
    struct opened *o;
    ASSERT(f->gguf);
    int r = open_file(f, f->first, &o, e);
    if (r < 0)
        return r;
    r = gguf_head_read(&o->at, account, ret, e);
    return r < 0 ? err_prefix(e, r, "%s", o->path) : 0;
}

/* ---- a vision encoder beside it ---- */

struct encoder_search {
    struct model_files *files;
    struct gguf_head model; /* read for the first candidate */
};

/* Keeps the name of the file if it fits. One that cannot be read, or belongs to another model, is passed
 * over. */
static int try_encoder(void *arg, const char *name, struct err *e)
{
    struct encoder_search *s = arg;
    struct model_files *f = s->files;
    struct gguf_head head = GGUF_HEAD_NONE;
    struct opened *o;
    (void)e;
    if (f->encoder[0] || strlen(name) >= sizeof(f->encoder) || open_file(f, name, &o, NULL) < 0)
        return 0;
    if (!s->model.at && model_files_head(f, NULL, &s->model, NULL) < 0)
        return 0;
    if (gguf_head_read(&o->at, NULL, &head, NULL) == 0 && gguf_vision_fits(&s->model.head, &head.head))
        snprintf(f->encoder, sizeof(f->encoder), "%s", name);
    gguf_head_done(&head);
    return 0;
}

/* A model that is one file opens its directory for this search alone. */
static void find_encoder(struct model_files *f)
{
    struct encoder_search s = {f, GGUF_HEAD_NONE};
    const bool own = !f->packed && f->dir < 0;
    if (own)
        f->dir = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    f->looked = model_files_each(f, "", weights_name_is_mmproj, try_encoder, &s, NULL) == 0;
    gguf_head_done(&s.model);
    if (own && f->dir >= 0)
        close(f->dir);
    if (own)
        f->dir = -1;
}

/* Reads both heads and compares them. */
static int check_encoder(struct model_files *f, const char *path, struct err *e)
{
    struct gguf_head model = GGUF_HEAD_NONE, head = GGUF_HEAD_NONE;
    struct opened *o;
    struct err why = {{0}};
    int r = open_file(f, path, &o, e);
    if (r < 0)
        return r;
    r = gguf_head_read(&o->at, NULL, &head, &why);
    if (r == 0)
        r = model_files_head(f, NULL, &model, &why);
    if (r == 0)
        r = gguf_vision_check(&model.head, &head.head, &why);
    gguf_head_done(&model);
    gguf_head_done(&head);
    return r < 0 ? err_set(e, r, "%s: %s", path, why.text) : 0;
}

int model_files_use_encoder(struct model_files *f, const char *path, struct err *e)
{
    char *whole = realpath(path, NULL);
    int r = whole ? 0 : err_set(e, -errno, "%s: cannot be opened: %m", path);
    if (r == 0 && (!f->gguf || f->packed))
        r = err_set(e, -EINVAL, "%s: %s is not a GGUF model, whose vision encoder is a file of its own", path,
                    f->path);
    if (r == 0 && strlen(whole) >= sizeof(f->encoder))
        r = err_set(e, -ENAMETOOLONG, "%s is longer than %zu bytes", path, sizeof(f->encoder) - 1);
    if (r == 0) {
        snprintf(f->encoder, sizeof(f->encoder), "%s", whole);
        r = check_encoder(f, whole, e);
        f->looked = r == 0;
        if (r < 0)
            f->encoder[0] = 0;
    }
    free(whole);
    return r;
}

const char *model_files_encoder(struct model_files *f)
{
    if (f->gguf && !f->looked)
        find_encoder(f);
    return f->encoder[0] ? f->encoder : NULL;
}

int model_files_encoder_head(struct model_files *f, struct account *account, struct gguf_head *ret,
                             struct err *e)
{
    struct opened *o;
    if (!model_files_encoder(f))
        return -ENOENT;
    int r = open_file(f, f->encoder, &o, e);
    if (r < 0)
        return r;
    r = gguf_head_read(&o->at, account, ret, e);
    return r < 0 ? err_prefix(e, r, "%s", o->path) : 0;
}

int model_files_naming(struct model_files *f, const struct tensor_naming **ret, struct err *e)
{
    struct gguf_head head = GGUF_HEAD_NONE;
    int r = f->gguf && !f->naming ? model_files_head(f, NULL, &head, e) : 0;
    if (r == 0 && head.at)
        r = gguf_view_naming(&head, &f->naming, e);
    gguf_head_done(&head);
    if (r == 0)
        *ret = f->naming;
    return r;
}
