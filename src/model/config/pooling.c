/* pooling.c - the modules after the transformer: one Pooling, then perhaps Dense modules (vector_head.h),
 * then perhaps Normalize. */
#include "model/config/pooling.h"

#include "model/config/json_read.h"

#include "base/check.h"
#include "weights/gguf_head.h"
#include "weights/model_files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES  256
#define MODULES_MAX 16u

const char *pooling_name(enum pooling p)
{
    static const char *const names[] = {"none", "last", "mean", "cls"};
    ASSERT((size_t)p < COUNT_OF(names));
    return names[p];
}

/* ---- configuration ---- */

const char *pooling_class(const char *type)
{
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type;
}

static const char *module_name(const json_t *module)
{
    return pooling_class(json_string_value(json_object_get(module, "type")));
}

static void read_named_mode(struct json_read *in, const char *name, uint32_t *count,
                            struct pooling_config *ret)
{
    static const struct {
        const char *name;
        enum pooling kind;
    } modes[] = {{"lasttoken", POOLING_LAST}, {"mean", POOLING_MEAN}, {"cls", POOLING_CLS}};
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        if (strcmp(name, modes[i].name) == 0) {
            ret->kind = modes[i].kind;
            (*count)++;
        }
    }
    if (*count == 0)
        json_read_fail(in, -ENOTSUP, "pooling_mode '%.40s' is not supported; lasttoken, mean and cls are",
                       name);
}

static int read_mode(struct model_files *files, const char *path, struct pooling_config *ret, struct err *e)
{
    static const struct {
        const char *key;
        enum pooling kind; /* POOLING_NONE: not computed */
    } modes[] = {{"pooling_mode_lasttoken", POOLING_LAST},
                 {"pooling_mode_mean_tokens", POOLING_MEAN},
                 {"pooling_mode_cls_token", POOLING_CLS},
                 {"pooling_mode_max_tokens", POOLING_NONE},
                 {"pooling_mode_mean_sqrt_len_tokens", POOLING_NONE},
                 {"pooling_mode_weightedmean_tokens", POOLING_NONE}};
    char name[NAME_BYTES];
    json_t *config = NULL;
    uint32_t count = 0;
    snprintf(name, sizeof(name), "%s/config.json", path);
    int r = json_read_file(files, name, &config, e);
    if (r < 0)
        return r;
    struct json_read in = {.object = config, .where = name, .e = e};
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        if (!json_read_bool_or(&in, modes[i].key, false))
            continue;
        count++;
        ret->kind = modes[i].kind;
        if (modes[i].kind == POOLING_NONE)
            json_read_fail(&in, -ENOTSUP, "%s is not supported; last, mean and cls are", modes[i].key);
    }
    /* Or its name alone. */
    const char *named = json_read_string_or(&in, "pooling_mode", NULL);
    if (count == 0 && named)
        read_named_mode(&in, named, &count, ret);
    if (count != 1)
        json_read_fail(&in, -ENOTSUP, "%u pooling modes are set; one is supported", count);
    json_decref(config);
    return in.error;
}

/* A path of modules.json names a folder of the directory itself. */
static bool is_folder(const char *path)
{
    return path && path[0] && path[0] != '.' && !strchr(path, '/') && strlen(path) < POOLING_FOLDER_BYTES;
}

static int read_module(struct model_files *files, const json_t *module, size_t index,
                       struct pooling_config *ret, struct err *e)
{
    const char *name = module_name(module), *path = json_string_value(json_object_get(module, "path"));
    if (!name)
        return err_set(e, -EINVAL, "modules.json: module %zu has no type", index);
    if (strcmp(name, "Transformer") == 0 && index == 0)
        return 0;
    if (strcmp(name, "LogitScore") == 0 && index == 1) {
        ret->scores = true;
        return 0;
    }
    if (strcmp(name, "Normalize") == 0 && ret->kind != POOLING_NONE) {
        ret->normalize = true;
        return 0;
    }
    bool dense = strcmp(name, "Dense") == 0 && ret->kind != POOLING_NONE && !ret->normalize &&
                 ret->dense_count < POOLING_DENSE_MAX;
    if (!dense && (strcmp(name, "Pooling") != 0 || ret->kind != POOLING_NONE))
        return err_set(e, -ENOTSUP, "modules.json: module %zu (%.60s) is not supported", index, name);
    if (!is_folder(path))
        return err_set(e, -EINVAL, "modules.json: the path of module %zu is not the name of a folder", index);
    if (dense) {
        snprintf(ret->dense[ret->dense_count++], POOLING_FOLDER_BYTES, "%s", path);
        return 0;
    }
    return read_mode(files, path, ret, e);
}

static int read_dimensions(struct model_files *files, uint32_t hidden, struct pooling_config *ret,
                           struct err *e)
{
    json_t *config = NULL;
    int r = json_read_file(files, "config.json", &config, e);
    if (r < 0)
        return r;
    struct json_read in = {.object = config, .where = "config.json", .e = e};
    json_read_ids(&in, "matryoshka_dimensions", hidden, ret->dimensions, COUNT_OF(ret->dimensions),
                  &ret->dimension_count);
    ret->cuts = json_read_bool_or(&in, "is_matryoshka", false) || ret->dimension_count > 0;
    json_decref(config);
    return in.error;
}

/* The architecture's own key in a GGUF file. */
static const struct gguf_value *find_gguf(const struct gguf_head *file, const char *name)
{
    struct slice arch;
    char key[128];
    if (!gguf_string(gguf_find(&file->head, "general.architecture"), &arch) || arch.len >= 64)
        return NULL;
    snprintf(key, sizeof(key), "%.*s.%s", SLICE_ARGS(arch), name);
    return gguf_find(&file->head, key);
}

/* llama.cpp's converter keeps these two rows of Qwen3-Reranker's output matrix. A score is their softmax's
 * first number: the sigmoid of the difference. */
static bool is_yes_no(const struct gguf_head *file)
{
    static const struct slice labels[] = {{"yes", 3}, {"no", 2}};
    struct gguf_walk w = {.value = find_gguf(file, "classifier.output_labels")};
    struct gguf_item item;
    size_t count = 0;
    for (bool same = true; w.value && gguf_next(&w, &item); count++) {
        same = same && count < COUNT_OF(labels) && item.kind == GGUF_IS_STRING &&
               slice_eq(item.string, labels[count]);
        if (!same)
            return false;
    }
    return count == COUNT_OF(labels);
}

/* Which rows, at length 1. The last kind, of scores, has none. */
static int read_gguf(struct model_files *files, struct pooling_config *ret, struct err *e)
{
    static const enum pooling kinds[] = {POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_NONE};
    struct gguf_head file = GGUF_HEAD_NONE;
    uint64_t kind = 0;
    int r = model_files_head(files, NULL, &file, e);
    if (r < 0)
        return r;
    if (gguf_u64(find_gguf(&file, "pooling_type"), &kind) && kind < COUNT_OF(kinds))
        *ret = (struct pooling_config){.kind = kinds[kind],
                                       .normalize = kinds[kind] != POOLING_NONE,
                                       .yes_no = kind == COUNT_OF(kinds) - 1 && is_yes_no(&file)};
    gguf_head_done(&file);
    return 0;
}

int pooling_config_load(struct model_files *files, uint32_t hidden, struct pooling_config *ret, struct err *e)
{
    struct pooling_config c = {.kind = POOLING_NONE};
    json_t *list = NULL, *module;
    size_t i;
    *ret = c;
    if (model_files_is_gguf(files))
        return read_gguf(files, ret, e);
    int r = json_read_list_file(files, "modules.json", &list, e);
    if (r == -ENOENT)
        return err_set(e, 0, "%s", "");
    if (r == 0 && json_array_size(list) > MODULES_MAX)
        r = err_set(e, -EINVAL, "modules.json has %zu modules, more than %u", json_array_size(list),
                    MODULES_MAX);
    json_array_foreach(list, i, module)
        if (r == 0)
            r = read_module(files, module, i, &c, e);
    json_decref(list);
    if (r == 0 && c.kind != POOLING_NONE)
        r = read_dimensions(files, hidden, &c, e);
    if (r == 0)
        *ret = c;
    return r;
}

int pooling_text_max(struct model_files *files, uint32_t *ret, struct err *e)
{
    static const char name[] = "sentence_bert_config.json";
    json_t *config = NULL;
    int r = json_read_file(files, name, &config, e);
    *ret = 0;
    if (r == -ENOENT)
        return err_set(e, 0, "%s", "");
    if (r < 0)
        return r;
    struct json_read in = {.object = config, .where = name, .e = e};
    *ret = json_read_u32_or(&in, "max_seq_length", 1, UINT32_MAX, 0);
    json_decref(config);
    return in.error;
}

/* ---- arithmetic ---- */

void pooling_take(enum pooling p, float *vector, uint32_t width, const float *rows, uint32_t from,
                  uint32_t count)
{
    ASSERT(p != POOLING_NONE && count > 0);
    if (p == POOLING_LAST)
        memcpy(vector, rows + (size_t)(count - 1) * width, width * sizeof(*vector));
    else if (p == POOLING_CLS && from == 0)
        memcpy(vector, rows, width * sizeof(*vector));
    else if (p == POOLING_MEAN && from == 0)
        memset(vector, 0, width * sizeof(*vector));
    for (uint32_t t = 0; p == POOLING_MEAN && t < count; t++)
        for (uint32_t i = 0; i < width; i++)
            vector[i] += rows[(size_t)t * width + i];
}

void pooling_end(enum pooling p, float *vector, uint32_t width, uint32_t count)
{
    ASSERT(count > 0);
    for (uint32_t i = 0; p == POOLING_MEAN && i < width; i++)
        vector[i] /= (float)count;
}

void pooling_normalize(float *vector, uint32_t width)
{
    double sum = 0;
    for (uint32_t i = 0; i < width; i++)
        sum += (double)vector[i] * vector[i];
    for (uint32_t i = 0; sum > 0 && i < width; i++)
        vector[i] = (float)(vector[i] / sqrt(sum));
}
