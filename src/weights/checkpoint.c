/* checkpoint.c - which files, which tensor lies in which, and that no two overlap.
 *
 * With an index the index decides: a shard's tensors that it does not list there are ignored, and one that it
 * lists and the shard lacks is an error. Without an index every tensor of every file counts and a name may
 * occur once. Headers are read twice, first to count, so that the tables are allocated once and to size; a
 * file that has another header the second time is refused. The text of one header or of the index is in
 * memory at a time. All files stay open: a file that is replaced by another one of its name is still the one
 * that was opened. */
#include "weights/checkpoint.h"

#include "weights/json_scan.h"
#include "weights/safetensors.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/regular_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FILES_MAX       4096
#define FILE_NAME_MAX   255
#define INDEX_BYTES_MAX SAFETENSORS_HEADER_BYTES_MAX
#define INDEX_NAME      "model.safetensors.index.json"

struct file {
    const char *name; /* relative to the directory */
    struct regular_file at;
};

/* The bytes of a file, to be parsed. */
struct text {
    struct arena *arena;
    struct slice bytes;
};

struct entry {
    const char *name;
    uint32_t name_len;
    uint32_t file;
    bool found; /* its file has been read and holds it; false only while opening */
    struct tensor tensor;
};

struct checkpoint {
    struct arena *arena;
    struct account *account; /* charged with a text while there is one; may be NULL */
    uint64_t file_bytes;
    const char *dir;
    struct file *files; /* the side file, if any, is the last */
    uint32_t file_count;
    bool has_side;
    struct entry *entries;
    uint32_t entry_count, entries_max;
    struct hash_map by_name;
};

/* Passed through safetensors_parse. */
struct visit {
    struct checkpoint *c;
    uint32_t file, count;
    struct err *e;
};

static bool is_side_name(struct slice name)
{
    return slice_starts(name, SLICE("mtp.")) || slice_starts(name, SLICE("language_model.mtp."));
}

/* ---- files ---- */

static int open_file(const char *dir, struct file *f, struct err *e)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, f->name) >= sizeof(path))
        return err_set(e, -ENAMETOOLONG, "path of %s is longer than %zu bytes", f->name, sizeof(path) - 1);
    int r = regular_file_open(path, &f->at, e);
    return r == 0 && f->at.bytes == 0 ? err_set(e, -EINVAL, "%s is empty", path) : r;
}

static void text_done(struct text *t)
{
    arena_free(t->arena);
    *t = (struct text){0};
}

/* The first `bytes` of the file. */
static int read_text(const struct checkpoint *c, const struct file *f, size_t bytes, struct text *ret,
                     struct err *e)
{
    struct charge charge = c->account ? account_charge(c->account) : (struct charge){0};
    struct arena_opts opts = {.bytes_max = bytes, .charge = c->account ? &charge : NULL};
    struct text t = {0};
    int r = arena_create(&opts, &t.arena);
    char *memory = r == 0 ? arena_alloc_align(t.arena, bytes, 1) : NULL;
    if (!memory)
        r = err_set(e, -ENOMEM, "%s: no memory left for %zu bytes of its header", f->name, bytes);
    else if ((r = regular_file_read(&f->at, 0, memory, bytes, e)) < 0)
        err_prefix(e, r, "%s", f->name);
    t.bytes = (struct slice){memory, bytes};
    if (r < 0)
        text_done(&t);
    else
        *ret = t;
    return r;
}

static int read_head(const struct checkpoint *c, const struct file *f, struct text *ret, struct err *e)
{
    char first[SAFETENSORS_FIRST_BYTES];
    size_t len = (size_t)MIN_OF(f->at.bytes, (uint64_t)sizeof(first)), data_at;
    int r = regular_file_read(&f->at, 0, first, len, e);
    if (r == 0)
        r = safetensors_data_at((struct slice){first, len}, f->at.bytes, &data_at, e);
    return r < 0 ? err_prefix(e, r, "%s", f->name) : read_text(c, f, data_at, ret, e);
}

/* True when dir/name can be opened. */
static bool file_exists(const char *dir, const char *name)
{
    char path[4096];
    return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) && access(path, F_OK) == 0;
}

static int add_file(struct checkpoint *c, const char *name, size_t len, struct err *e)
{
    if (c->file_count == FILES_MAX)
        return err_set(e, -EINVAL, "more than %d weight files", FILES_MAX);
    char *copy = arena_strndup(c->arena, name, len);
    if (!copy)
        return -ENOMEM;
    c->files[c->file_count++] = (struct file){copy, REGULAR_FILE_NONE};
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

/* model*.safetensors, in the order of their names; the MTP side file is not one of them. */
static int glob_files(struct checkpoint *c, struct err *e)
{
    DIR *d = opendir(c->dir);
    if (!d)
        return err_set(e, -errno, "cannot read directory %s: %m", c->dir);
    int r = 0;
    for (struct dirent *entry; r == 0 && (entry = readdir(d));) {
        struct slice name = slice_of(entry->d_name);
        if (slice_starts(name, SLICE("model")) && slice_ends(name, SLICE(".safetensors")) &&
            !slice_eq(name, SLICE("model-mtp.safetensors")))
            r = add_file(c, name.ptr, name.len, e);
    }
    closedir(d);
    if (r == 0 && c->file_count == 0)
        r = err_set(e, -ENOENT, "%s has no model*.safetensors", c->dir);
    if (r == 0)
        qsort(c->files, c->file_count, sizeof(c->files[0]), by_text);
    return r;
}

/* ---- index ---- */

/* A shard's name must stay in the directory: the index is foreign text. */
static bool shard_name_ok(struct slice name)
{
    return name.len > 0 && name.len <= FILE_NAME_MAX && !memchr(name.ptr, '/', name.len) &&
           !memchr(name.ptr, 0, name.len) && !slice_starts(name, SLICE("."));
}

static int index_shard(struct checkpoint *c, struct hash_map *shards, struct slice name, uint32_t *ret,
                       struct err *e)
{
    if (hash_map_get(shards, name, ret))
        return 0;
    if (!shard_name_ok(name))
        return err_set(e, -EINVAL, "index: '%.*s' is not the name of a file in the directory",
                       (int)MIN_OF(name.len, 64), name.ptr);
    int r = add_file(c, name.ptr, name.len, e);
    if (r < 0)
        return r;
    *ret = c->file_count - 1;
    hash_map_add(shards, slice_of(c->files[*ret].name), *ret);
    return 0;
}

/* Moves to the weight_map's members. */
static bool index_find_map(struct json_scan *s)
{
    struct slice key;
    bool first = true;
    json_scan_open(s, '{');
    while (json_scan_key(s, &first, &key)) {
        if (slice_eq(key, SLICE("weight_map")))
            return json_scan_open(s, '{');
        json_scan_skip(s);
    }
    if (!s->error)
        s->error = "no weight_map";
    return false;
}

static int index_syntax(const struct json_scan *s, struct err *e)
{
    return err_set(e, -EINVAL, INDEX_NAME " is not valid: %s at byte %zu", s->error, s->at);
}

static int index_count(struct slice text, uint32_t *ret, struct err *e)
{
    struct json_scan s = {.text = text};
    struct slice key;
    bool first = true;
    uint32_t count = 0;
    if (!index_find_map(&s))
        return index_syntax(&s, e);
    while (json_scan_key(&s, &first, &key) && json_scan_skip(&s)) {
        if (count++ == SAFETENSORS_COUNT_MAX)
            return err_set(e, -EINVAL, "index: more than %d tensors", SAFETENSORS_COUNT_MAX);
    }
    if (s.error)
        return index_syntax(&s, e);
    *ret = count;
    return 0;
}

static int add_entry(struct checkpoint *c, struct slice name, uint32_t file, const struct tensor *t,
                     struct err *e)
{
    if (c->entry_count == c->entries_max)
        return err_set(e, -ESTALE, "the files were changed while they were read");
    char *copy = arena_strndup(c->arena, name.ptr, name.len);
    if (!copy)
        return -ENOMEM;
    struct slice kept = {copy, name.len};
    if (!hash_map_add(&c->by_name, kept, c->entry_count))
        return err_set(e, -EINVAL, "tensor %s occurs twice", copy);
    c->entries[c->entry_count++] = (struct entry){.name = copy,
                                                  .name_len = (uint32_t)name.len,
                                                  .file = file,
                                                  .found = t != NULL,
                                                  .tensor = t ? *t : (struct tensor){0}};
    c->entries[c->entry_count - 1].tensor.file = file;
    return 0;
}

/* All tensors of the weight_map as entries that wait for their file. The tables exist. */
static int index_add_entries(struct checkpoint *c, struct slice text, struct hash_map *shards, struct err *e)
{
    struct json_scan s = {.text = text};
    struct slice key, name;
    bool first = true;
    uint32_t file;
    if (!index_find_map(&s))
        return index_syntax(&s, e);
    while (json_scan_key(&s, &first, &key) && json_scan_string(&s, &name)) {
        if (key.len > SAFETENSORS_NAME_MAX)
            return err_set(e, -EINVAL, "index: a tensor name is longer than %d bytes", SAFETENSORS_NAME_MAX);
        int r = index_shard(c, shards, name, &file, e);
        if (r == 0)
            r = add_entry(c, key, file, NULL, e);
        if (r < 0)
            return r;
    }
    return s.error ? index_syntax(&s, e) : 0;
}

/* ---- tables ---- */

static int make_tables(struct checkpoint *c, uint32_t entries_max, struct err *e)
{
    if (entries_max > SAFETENSORS_COUNT_MAX)
        return err_set(e, -EINVAL, "more than %d tensors", SAFETENSORS_COUNT_MAX);
    c->entries_max = entries_max;
    c->entries = ARENA_ARRAY(c->arena, struct entry, entries_max);
    return c->entries ? hash_map_init(&c->by_name, c->arena, MAX_OF(entries_max, 1)) : -ENOMEM;
}

static int count_tensor(void *arg, struct slice name, const struct tensor *t)
{
    struct visit *v = arg;
    (void)name, (void)t;
    v->count++;
    return 0;
}

static int add_tensor(void *arg, struct slice name, const struct tensor *t)
{
    struct visit *v = arg;
    return add_entry(v->c, name, v->file, t, v->e);
}

static int place_tensor(void *arg, struct slice name, const struct tensor *t)
{
    struct visit *v = arg;
    uint32_t index;
    if (!hash_map_get(&v->c->by_name, name, &index) || v->c->entries[index].file != v->file)
        return 0;
    struct entry *entry = &v->c->entries[index];
    if (entry->found)
        return err_set(v->e, -EINVAL, "tensor %s occurs twice", entry->name);
    entry->tensor = *t;
    entry->tensor.file = v->file;
    entry->found = true;
    return 0;
}

/* The side file adds MTP tensors only; repeated and other tensors are skipped. */
static int add_side_tensor(void *arg, struct slice name, const struct tensor *t)
{
    struct visit *v = arg;
    uint32_t index;
    if (!is_side_name(name))
        return 0;
    if (hash_map_get(&v->c->by_name, name, &index)) {
        if (v->c->entries[index].file == v->file)
            return err_set(v->e, -EINVAL, "tensor %s occurs twice", v->c->entries[index].name);
        return 0;
    }
    return add_entry(v->c, name, v->file, t, v->e);
}

static int visit_file(struct checkpoint *c, uint32_t file,
                      int (*found)(void *, struct slice, const struct tensor *), uint32_t *count,
                      struct err *e)
{
    struct visit v = {.c = c, .file = file, .e = e};
    const struct file *f = &c->files[file];
    struct err none = {0};
    struct text head = {0};
    v.e = e ? e : &none;
    int r = read_head(c, f, &head, v.e);
    if (r < 0)
        return r;
    r = safetensors_parse(head.bytes, f->at.bytes, found, &v, v.e);
    text_done(&head);
    if (r == -ENOMEM)
        return err_set(e, r, "no memory left for the table of tensors of %s", f->name);
    if (r < 0)
        return err_prefix(e, r, "%s", f->name);
    if (count)
        *count += v.count;
    return 0;
}

/* ---- opening ---- */

static int open_files(struct checkpoint *c, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < c->file_count; i++) {
        r = open_file(c->dir, &c->files[i], e);
        c->file_bytes += c->files[i].at.bytes;
    }
    return r;
}

static bool has_file(const struct checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < c->file_count; i++) {
        if (strcmp(c->files[i].name, name) == 0)
            return true;
    }
    return false;
}

static int find_side(struct checkpoint *c, struct err *e)
{
    static const char *const names[] = {"mtp/weights.safetensors", "model-mtp.safetensors"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!file_exists(c->dir, names[i]))
            continue;
        if (has_file(c, names[i]))
            return 0;
        c->has_side = true;
        return add_file(c, names[i], strlen(names[i]), e);
    }
    return 0;
}

static uint32_t main_files(const struct checkpoint *c)
{
    return c->file_count - (c->has_side ? 1 : 0);
}

static int count_tensors(struct checkpoint *c, uint32_t from, uint32_t *count, struct err *e)
{
    int r = 0;
    for (uint32_t i = from; r == 0 && i < c->file_count; i++) {
        r = visit_file(c, i, count_tensor, count, e);
        if (r == 0 && *count > SAFETENSORS_COUNT_MAX)
            r = err_set(e, -EINVAL, "more than %d tensors", SAFETENSORS_COUNT_MAX);
    }
    return r;
}

static int check_all_found(const struct checkpoint *c, struct err *e)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const struct entry *entry = &c->entries[i];
        if (!entry->found)
            return err_set(e, -EINVAL, "%s lacks tensor %s, which the index says is there",
                           c->files[entry->file].name, entry->name);
    }
    return 0;
}

/* With the index's text: the tables come from it, then each shard fills in its tensors. */
static int read_indexed(struct checkpoint *c, struct slice index, struct err *e)
{
    struct hash_map shards;
    uint32_t count = 0, side = 0;
    int r = index_count(index, &count, e);
    if (r < 0)
        return r;
    /* The side file is found and counted before the shards: the tables are made once. */
    struct checkpoint probe = {.arena = c->arena, .account = c->account, .dir = c->dir, .files = c->files};
    r = find_side(&probe, e);
    if (r == 0 && probe.has_side) {
        r = open_file(c->dir, &c->files[0], e);
        if (r == 0)
            r = visit_file(&probe, 0, count_tensor, &side, e);
        regular_file_close(&c->files[0].at);
    }
    if (r == 0)
        r = make_tables(c, count + side, e);
    if (r == 0)
        r = hash_map_init(&shards, c->arena, FILES_MAX);
    if (r == 0)
        r = index_add_entries(c, index, &shards, e);
    if (r == 0)
        r = find_side(c, e);
    if (r == 0)
        r = open_files(c, e);
    for (uint32_t i = 0; r == 0 && i < main_files(c); i++)
        r = visit_file(c, i, place_tensor, NULL, e);
    return r == 0 ? check_all_found(c, e) : r;
}

static int read_plain(struct checkpoint *c, struct err *e)
{
    uint32_t count = 0;
    int r =
        file_exists(c->dir, "model.safetensors") ? add_file(c, "model.safetensors", 17, e) : glob_files(c, e);
    if (r == 0)
        r = find_side(c, e);
    if (r == 0)
        r = open_files(c, e);
    if (r == 0)
        r = count_tensors(c, 0, &count, e);
    if (r == 0)
        r = make_tables(c, count, e);
    for (uint32_t i = 0; r == 0 && i < main_files(c); i++)
        r = visit_file(c, i, add_tensor, NULL, e);
    return r;
}

static int read_with_index(struct checkpoint *c, struct err *e)
{
    struct file index = {INDEX_NAME, REGULAR_FILE_NONE};
    struct text text = {0};
    int r = open_file(c->dir, &index, e);
    if (r == 0 && index.at.bytes > INDEX_BYTES_MAX)
        r = err_set(e, -EINVAL, "%s has %llu bytes, more than the limit of %llu", index.name,
                    (ull)index.at.bytes, (ull)INDEX_BYTES_MAX);
    if (r == 0)
        r = read_text(c, &index, (size_t)index.at.bytes, &text, e);
    if (r == 0)
        r = read_indexed(c, text.bytes, e);
    text_done(&text);
    regular_file_close(&index.at);
    return r;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    uint64_t at_x = x->tensor.offset, at_y = y->tensor.offset;
    return at_x < at_y ? -1 : at_x > at_y;
}

static int check_overlaps(struct checkpoint *c, struct err *e)
{
    size_t mark = arena_mark(c->arena);
    const struct entry **order = ARENA_ARRAY(c->arena, const struct entry *, c->entry_count);
    if (!order)
        return -ENOMEM;
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        if (c->entries[i].tensor.bytes > 0)
            order[count++] = &c->entries[i];
    }
    qsort(order, count, sizeof(order[0]), by_place);
    int r = 0;
    for (uint32_t i = 1; r == 0 && i < count; i++) {
        const struct entry *x = order[i - 1], *y = order[i];
        if (x->file == y->file && y->tensor.offset < x->tensor.offset + x->tensor.bytes)
            r = err_set(e, -EINVAL, "%s: tensors %s and %s overlap", c->files[x->file].name, x->name,
                        y->name);
    }
    arena_rewind(c->arena, mark);
    return r;
}

int checkpoint_open(struct arena *a, const char *dir, struct account *account, struct checkpoint **ret,
                    struct err *e)
{
    struct checkpoint *c = ARENA_NEW(a, struct checkpoint);
    if (!c)
        return err_set(e, -ENOMEM, "no memory left to open %s", dir);
    c->arena = a;
    c->account = account;
    c->dir = arena_strndup(a, dir, strlen(dir));
    c->files = ARENA_ARRAY(a, struct file, FILES_MAX);
    int r = c->dir && c->files ? 0 : -ENOMEM;
    if (r == 0)
        r = file_exists(dir, INDEX_NAME) ? read_with_index(c, e) : read_plain(c, e);
    if (r == 0 && c->has_side)
        r = visit_file(c, c->file_count - 1, add_side_tensor, NULL, e);
    if (r == 0)
        r = check_overlaps(c, e);
    if (r == -ENOMEM && e && !e->text[0])
        err_set(e, r, "no memory left for the table of tensors of %s", dir);
    if (r < 0) {
        checkpoint_close(c);
        return r;
    }
    *ret = c;
    return 0;
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->file_count; i++)
        regular_file_close(&c->files[i].at);
    c->file_count = 0;
    c->file_bytes = 0;
}

/* ---- reading ---- */

uint32_t checkpoint_count(const struct checkpoint *c)
{
    return c->entry_count;
}

uint64_t checkpoint_bytes(const struct checkpoint *c)
{
    return c->file_bytes;
}

static const struct entry *find(const struct checkpoint *c, const char *name)
{
    uint32_t index;
    return hash_map_get(&c->by_name, slice_of(name), &index) ? &c->entries[index] : NULL;
}

bool checkpoint_find(const struct checkpoint *c, const char *name, struct tensor *ret)
{
    const struct entry *entry = find(c, name);
    if (!entry)
        return false;
    *ret = entry->tensor;
    return true;
}

bool checkpoint_any(const struct checkpoint *c, const char *head)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        if (slice_starts(slice_of(c->entries[i].name), slice_of(head)))
            return true;
    }
    return false;
}

const char *checkpoint_name(const struct checkpoint *c, uint32_t index)
{
    ASSERT(index < c->entry_count);
    return c->entries[index].name;
}

const char *checkpoint_file_of(const struct checkpoint *c, const char *name)
{
    const struct entry *entry = find(c, name);
    return entry ? c->files[entry->file].name : NULL;
}

static const struct file *file_of(const struct checkpoint *c, const struct tensor *t)
{
    ASSERT(!t->data && t->file < c->file_count);
    return &c->files[t->file];
}

int checkpoint_read(const struct checkpoint *c, const struct tensor *t, size_t from, void *into, size_t len,
                    struct err *e)
{
    const struct file *f = file_of(c, t);
    ASSERT(from <= t->bytes && len <= t->bytes - from);
    int r = regular_file_read(&f->at, t->offset + from, into, len, e);
    return r < 0 ? err_prefix(e, r, "%s", f->name) : 0;
}

int checkpoint_check(const struct checkpoint *c, struct err *e)
{
    for (uint32_t i = 0; i < c->file_count; i++) {
        int r = regular_file_check(&c->files[i].at, e);
        if (r < 0)
            return err_prefix(e, r, "%s", c->files[i].name);
    }
    return 0;
}

void checkpoint_ahead(const struct checkpoint *c, const struct tensor *t)
{
    regular_file_ahead(&file_of(c, t)->at, t->offset, t->bytes);
}

void checkpoint_drop(const struct checkpoint *c, const struct tensor *t)
{
    /* Whole pages inside only: a page at the border also holds a neighbour that may not have been read. */
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t from = ROUND_UP(t->offset, page), to = (t->offset + t->bytes) / page * page;
    if (from < to)
        regular_file_drop(&file_of(c, t)->at, from, to - from);
}
