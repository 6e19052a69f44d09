/* checkpoint_safetensors.c - directories of safetensors files: which files, and which tensor lies in which.
 *
 * With an index the index decides: a shard's tensors that it does not list there are ignored, and one that it
 * lists and the shard lacks is an error. Without an index every tensor of every file counts and a name may
 * occur once. Headers are read twice, first to count, so that the tables are allocated once and to size; a
 * file that has another header the second time is refused. The text of one header or of the index is in
 * memory at a time. */
#include "weights/checkpoint_table.h"

#include "weights/json_scan.h"
#include "weights/safetensors.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_NAME_MAX   255
#define INDEX_BYTES_MAX SAFETENSORS_HEADER_BYTES_MAX
#define INDEX_NAME      "model.safetensors.index.json"

/* The bytes of a file, to be parsed. */
struct text {
    struct arena *arena;
    struct slice bytes;
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

static void text_done(struct text *t)
{
    arena_free(t->arena);
    *t = (struct text){0};
}

/* The first `bytes` of the file. */
static int read_text(const struct checkpoint *c, const struct checkpoint_file *f, size_t bytes,
                     struct text *ret, struct err *e)
{
    struct charge charge = c->account ? account_charge(c->account) : (struct charge){0};
    struct arena_opts opts = {.bytes_max = bytes, .charge = c->account ? &charge : NULL};
    struct text t = {0};
    int r = arena_create(&opts, &t.arena);
    char *memory = r == 0 ? arena_alloc_align(t.arena, bytes, 1) : NULL;
    if (!memory)
        r = err_set(e, -ENOMEM, "%s: no memory left for %zu bytes of its header", f->name, bytes);
    else if ((r = regular_file_read(f->at, 0, memory, bytes, e)) < 0)
        err_prefix(e, r, "%s", f->name);
    t.bytes = (struct slice){memory, bytes};
    if (r < 0)
        text_done(&t);
    else
        *ret = t;
    return r;
}

static int read_head(const struct checkpoint *c, const struct checkpoint_file *f, struct text *ret,
                     struct err *e)
{
    char first[SAFETENSORS_FIRST_BYTES];
    size_t len = (size_t)MIN_OF(f->at->bytes, (uint64_t)sizeof(first)), data_at;
    int r = regular_file_read(f->at, 0, first, len, e);
    if (r == 0)
        r = safetensors_data_at((struct slice){first, len}, f->at->bytes, &data_at, e);
    return r < 0 ? err_prefix(e, r, "%s", f->name) : read_text(c, f, data_at, ret, e);
}

/* The MTP side file is not one of them. */
static bool is_model_file(const char *name)
{
    const struct slice s = slice_of(name);
    return slice_starts(s, SLICE("model")) && slice_ends(s, SLICE(".safetensors")) &&
           !slice_eq(s, SLICE("model-mtp.safetensors"));
}

static int add_found(void *arg, const char *name, struct err *e)
{
    return checkpoint_table_add_file(arg, name, strlen(name), e);
}

/* model*.safetensors, in the order of their names. */
static int find_files(struct checkpoint *c, struct err *e)
{
    int r = model_files_each(c->model, c->folder, is_model_file, add_found, c, e);
    return r == 0 && c->file_count == 0
               ? err_set(e, -ENOENT, "%s%s%s has no model*.safetensors", model_files_path(c->model),
                         c->folder[0] ? "/" : "", c->folder)
               : r;
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
    int r = checkpoint_table_add_file(c, name.ptr, name.len, e);
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
        if (count++ == CHECKPOINT_TENSORS_MAX)
            return err_set(e, -EINVAL, "index: more than %d tensors", CHECKPOINT_TENSORS_MAX);
    }
    if (s.error)
        return index_syntax(&s, e);
    *ret = count;
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
            r = checkpoint_table_add(c, key, file, NULL, e);
        if (r < 0)
            return r;
    }
    return s.error ? index_syntax(&s, e) : 0;
}

/* ---- tables ---- */

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
    return checkpoint_table_add(v->c, name, v->file, t, v->e);
}

static int place_tensor(void *arg, struct slice name, const struct tensor *t)
{
    struct visit *v = arg;
    uint32_t index;
    if (!hash_map_get(&v->c->by_name, name, &index) || v->c->entries[index].file != v->file)
        return 0;
    struct checkpoint_entry *entry = &v->c->entries[index];
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
    return checkpoint_table_add(v->c, name, v->file, t, v->e);
}

static int visit_file(struct checkpoint *c, uint32_t file,
                      int (*found)(void *, struct slice, const struct tensor *), uint32_t *count,
                      struct err *e)
{
    struct visit v = {.c = c, .file = file, .e = e};
    const struct checkpoint_file *f = &c->files[file];
    struct err none = {0};
    struct text head = {0};
    v.e = e ? e : &none;
    int r = read_head(c, f, &head, v.e);
    if (r < 0)
        return r;
    r = safetensors_parse(head.bytes, f->at->bytes, found, &v, v.e);
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
        if (!checkpoint_table_has(c, names[i]))
            continue;
        if (has_file(c, names[i]))
            return 0;
        c->has_side = true;
        return checkpoint_table_add_file(c, names[i], strlen(names[i]), e);
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
        if (r == 0 && *count > CHECKPOINT_TENSORS_MAX)
            r = err_set(e, -EINVAL, "more than %d tensors", CHECKPOINT_TENSORS_MAX);
    }
    return r;
}

static int check_all_found(const struct checkpoint *c, struct err *e)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const struct checkpoint_entry *entry = &c->entries[i];
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
    struct checkpoint probe = *c;
    r = find_side(&probe, e);
    if (r == 0 && probe.has_side) {
        r = checkpoint_table_open_file(c, &c->files[0], e);
        if (r == 0)
            r = visit_file(&probe, 0, count_tensor, &side, e);
    }
    if (r == 0)
        r = checkpoint_table_make(c, count + side, e);
    if (r == 0)
        r = hash_map_init(&shards, c->arena, CHECKPOINT_FILES_MAX);
    if (r == 0)
        r = index_add_entries(c, index, &shards, e);
    if (r == 0)
        r = find_side(c, e);
    if (r == 0)
        r = checkpoint_table_open_files(c, e);
    for (uint32_t i = 0; r == 0 && i < main_files(c); i++)
        r = visit_file(c, i, place_tensor, NULL, e);
    return r == 0 ? check_all_found(c, e) : r;
}

static int read_plain(struct checkpoint *c, struct err *e)
{
    uint32_t count = 0;
    int r = checkpoint_table_has(c, "model.safetensors")
                ? checkpoint_table_add_file(c, "model.safetensors", 17, e)
                : find_files(c, e);
    if (r == 0)
        r = find_side(c, e);
    if (r == 0)
        r = checkpoint_table_open_files(c, e);
    if (r == 0)
        r = count_tensors(c, 0, &count, e);
    if (r == 0)
        r = checkpoint_table_make(c, count, e);
    for (uint32_t i = 0; r == 0 && i < main_files(c); i++)
        r = visit_file(c, i, add_tensor, NULL, e);
    return r;
}

static int read_with_index(struct checkpoint *c, struct err *e)
{
    struct checkpoint_file index = {INDEX_NAME, NULL};
    struct text text = {0};
    int r = checkpoint_table_open_file(c, &index, e);
    if (r == 0 && index.at->bytes > INDEX_BYTES_MAX)
        r = err_set(e, -EINVAL, "%s has %llu bytes, more than the limit of %llu", index.name,
                    (ull)index.at->bytes, (ull)INDEX_BYTES_MAX);
    if (r == 0)
        r = read_text(c, &index, (size_t)index.at->bytes, &text, e);
    if (r == 0)
        r = read_indexed(c, text.bytes, e);
    text_done(&text);
    return r;
}

int checkpoint_safetensors_open(struct checkpoint *c, struct err *e)
{
    int r = checkpoint_table_has(c, INDEX_NAME) ? read_with_index(c, e) : read_plain(c, e);
    return r == 0 && c->has_side ? visit_file(c, c->file_count - 1, add_side_tensor, NULL, e) : r;
}

int checkpoint_safetensors_head_bytes(const struct regular_file *at, uint64_t *ret, struct err *e)
{
    char first[SAFETENSORS_FIRST_BYTES];
    const size_t len = (size_t)MIN_OF(at->bytes, (uint64_t)sizeof(first));
    size_t bytes = 0;
    int r = regular_file_read(at, 0, first, len, e);
    if (r == 0)
        r = safetensors_data_at((struct slice){first, len}, at->bytes, &bytes, e);
    *ret = MIN_OF((uint64_t)bytes, at->bytes);
    return r;
}
