/* hub_list.c - the listing is scanned front to back without a tree, which would be twenty times its size. */
#include "hub/hub_list.h"

#include "hub/hub_name.h"

#include "weights/json_scan.h"
#include "weights/weights_name.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

struct entry {
    struct slice name, sum, large_sum, type;
    uint64_t bytes, large_bytes;
    bool sized, large;
};

/* A string, or nothing where there is another value or one with escapes. */
static struct slice read_text(struct json_scan *s)
{
    struct json_scan before = *s;
    struct slice text = {0};
    if (json_scan_string(s, &text))
        return text;
    *s = before;
    json_scan_skip(s);
    return (struct slice){0};
}

static bool read_bytes(struct json_scan *s, uint64_t *ret)
{
    struct json_scan before = *s;
    if (json_scan_u64(s, ret))
        return true;
    *s = before;
    json_scan_skip(s);
    return false;
}

/* {"sha256": ..., "size": ...}, or null */
static void read_large(struct json_scan *s, struct entry *x)
{
    struct json_scan before = *s;
    struct slice key;
    bool first = true;
    if (!json_scan_open(s, '{')) {
        *s = before;
        json_scan_skip(s);
        return;
    }
    x->large = true;
    while (json_scan_key(s, &first, &key)) {
        if (slice_eq(key, SLICE("sha256")) || slice_eq(key, SLICE("oid")))
            x->large_sum = read_text(s);
        else if (slice_eq(key, SLICE("size")))
            x->sized |= read_bytes(s, &x->large_bytes);
        else
            json_scan_skip(s);
    }
}

static void read_entry(struct json_scan *s, struct entry *ret)
{
    struct slice key;
    bool first = true;
    *ret = (struct entry){0};
    if (!json_scan_open(s, '{'))
        return;
    while (json_scan_key(s, &first, &key)) {
        if (slice_eq(key, SLICE("rfilename")) || slice_eq(key, SLICE("path")))
            ret->name = read_text(s);
        else if (slice_eq(key, SLICE("blobId")) || slice_eq(key, SLICE("oid")))
            ret->sum = read_text(s);
        else if (slice_eq(key, SLICE("size")))
            ret->sized |= read_bytes(s, &ret->bytes);
        else if (slice_eq(key, SLICE("lfs")))
            read_large(s, ret);
        else if (slice_eq(key, SLICE("type")))
            ret->type = read_text(s);
        else
            json_scan_skip(s);
    }
}

static bool is_sum(struct slice s, size_t digits)
{
    for (size_t i = 0; i < s.len; i++)
        if (slice_hex(s.ptr[i]) < 0 || (s.ptr[i] >= 'A' && s.ptr[i] <= 'F'))
            return false;
    return s.len == digits;
}

static int keep(struct hub_list *l, const struct entry *x, struct err *e)
{
    struct slice sum = x->large ? x->large_sum : x->sum;
    uint64_t bytes = x->large ? x->large_bytes : x->bytes;
    if (slice_eq(x->type, SLICE("directory")))
        return 0;
    bool summed = x->sized && is_sum(sum, x->large ? 64 : 40) && (x->large || bytes <= HUB_SMALL_BYTES_MAX);
    if (!hub_file_is_valid(x->name)) {
        l->odd++;
        return 0;
    }
    if (l->count == HUB_LIST_FILES_MAX)
        return err_set(e, -E2BIG, "the hub lists more than %d files", HUB_LIST_FILES_MAX);
    struct hub_file f = {.name = strndup(x->name.ptr, x->name.len), .bytes = bytes, .sha256 = x->large};
    if (!f.name)
        return -ENOMEM;
    if (summed)
        memcpy(f.etag, sum.ptr, sum.len);
    l->files[l->count++] = f;
    return 0;
}

static int read_entries(struct json_scan *s, struct hub_list *l, struct err *e)
{
    bool first = true;
    int r = 0;
    if (!l->files)
        l->files = calloc(HUB_LIST_FILES_MAX, sizeof(*l->files));
    if (!l->files)
        return err_set(e, -ENOMEM, "no memory for a list of files");
    if (!json_scan_open(s, '['))
        return 0;
    while (r == 0 && json_scan_element(s, &first)) {
        struct entry x;
        read_entry(s, &x);
        if (!s->error)
            r = keep(l, &x, e);
    }
    return r;
}

static int read_object(struct json_scan *s, struct hub_list *l, struct err *e)
{
    struct slice key;
    bool first = true;
    int r = 0;
    json_scan_open(s, '{');
    while (r == 0 && json_scan_key(s, &first, &key)) {
        if (slice_eq(key, SLICE("sha"))) {
            struct slice commit = read_text(s);
            if (hub_commit_is_valid(commit))
                memcpy(l->commit, commit.ptr, commit.len);
        } else if (slice_eq(key, SLICE("siblings"))) {
            r = read_entries(s, l, e);
        } else {
            json_scan_skip(s);
        }
    }
    return r;
}

int hub_list_parse(struct slice json, struct hub_list *l, struct err *e)
{
    struct json_scan s = {.text = slice_trim(json, SLICE_BLANKS)};
    bool tree = s.text.len > 0 && s.text.ptr[0] == '[';
    int r = json.len > HUB_LIST_BYTES_MAX
                ? err_set(e, -E2BIG, "the hub's list is longer than %zu bytes", HUB_LIST_BYTES_MAX)
            : tree ? read_entries(&s, l, e)
                   : read_object(&s, l, e);
    if (r == 0 && (s.error || !json_scan_end(&s)))
        return err_set(e, -EINVAL, "the hub's list of files is not what it documents: %s", s.error);
    if (r == 0 && !l->commit[0])
        return err_set(e, -EINVAL, "the hub's list of files names no commit");
    return r;
}

void hub_list_done(struct hub_list *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        free(l->files[i].name);
    free(l->files);
    *l = (struct hub_list){.count = 0};
}

const struct hub_file *hub_list_find(const struct hub_list *l, const char *name)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->files[i].name, name) == 0)
            return &l->files[i];
    return NULL;
}

/* ---- which are needed ---- */

static bool matches_any(const char *name, const char *const *patterns, int flags)
{
    for (size_t i = 0; patterns && patterns[i]; i++)
        if (fnmatch(patterns[i], name, flags) == 0)
            return true;
    return false;
}

bool hub_file_matches(const struct hub_file *f, const char *const *patterns)
{
    return matches_any(f->name, patterns, 0);
}

bool hub_file_is_safe(const struct hub_file *f)
{
    static const char *const never[] = {"*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.py", "*.onnx", NULL};
    return !hub_file_matches(f, never);
}

bool hub_file_is_weights(const struct hub_file *f)
{
    return slice_ends(slice_of(f->name), SLICE(".safetensors")) || weights_name_is(f->name);
}

static bool is_wanted(const struct hub_file *f, const char *const *include, struct slice index)
{
    static const char *const texts[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer*",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab*",
                                        "merges.txt",
                                        "chat_template*",
                                        "additional_chat_templates/*.jinja",
                                        "*preprocessor_config.json",
                                        "processor_config.json",
                                        "*.safetensors.index.json",
                                        "modules.json",
                                        "config_sentence_transformers.json",
                                        "sentence_bert_config.json",
                                        "[0-9]_*/config.json",
                                        "[0-9]_*/model.safetensors",
                                        "LICENSE*",
                                        "README.md",
                                        "mtp/weights.safetensors",
                                        "model-mtp.safetensors",
                                        NULL};
    if (!hub_file_is_safe(f))
        return false;
    if (matches_any(f->name, texts, FNM_PATHNAME) || hub_file_matches(f, include))
        return true;
    if (strchr(f->name, '/') || !slice_ends(slice_of(f->name), SLICE(".safetensors")))
        return false;
    if (index.len == 0)
        return fnmatch("consolidated*", f->name, 0) != 0;
    char quoted[HUB_FILE_BYTES_MAX + 3];
    snprintf(quoted, sizeof(quoted), "\"%s\"", f->name);
    return slice_find(index, slice_of(quoted), 0) != SIZE_MAX;
}

static int no_weights(const struct hub_list *l, struct err *e)
{
    static const char *const pickles[] = {"*.bin", "*.pt", "*.pth", NULL};
    for (uint32_t i = 0; i < l->count; i++)
        if (hub_file_matches(&l->files[i], pickles))
            return err_set(e, -ENODATA,
                           "the weights are in .bin or .pt files only (%.200s), which may run code and are "
                           "never fetched; "
                           "look for .safetensors or GGUF files of the same model",
                           l->files[i].name);
    return err_set(e, -ENODATA, "there are no weights in .safetensors or GGUF files");
}

int hub_list_choose(struct hub_list *l, const char *const *include, struct slice index, struct err *e)
{
    uint32_t kept = 0, weights = 0;
    for (uint32_t i = 0; i < l->count; i++)
        weights += is_wanted(&l->files[i], include, index) && hub_file_is_weights(&l->files[i]);
    if (weights == 0)
        return no_weights(l, e);
    for (uint32_t i = 0; i < l->count; i++) {
        if (is_wanted(&l->files[i], include, index))
            l->files[kept++] = l->files[i];
        else
            free(l->files[i].name);
    }
    l->count = kept;
    return 0;
}
