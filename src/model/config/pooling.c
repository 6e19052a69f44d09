/* pooling.c - the modules after the transformer: one Pooling, then perhaps Dense modules (vector_head.h),
 * then perhaps Normalize. */
#include "model/config/pooling.h"

#include "model/config/json_read.h"

#include "base/check.h"
#include "weights/model_json.h"

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
    int r = model_json(files, name, &config, e);
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

/* A view's: the output matrix has a row for each. */
static bool are_yes_no(const json_t *labels)
{
    const char *first = json_string_value(json_array_get(labels, 0));
    const char *second = json_string_value(json_array_get(labels, 1));
    return first && second && strcmp(first, "yes") == 0 && strcmp(second, "no") == 0;
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
        ret->yes_no = are_yes_no(json_object_get(module, "labels"));
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
    int r = model_json(files, "config.json", &config, e);
    if (r < 0)
        return r;
    struct json_read in = {.object = config, .where = "config.json", .e = e};
    json_read_ids(&in, "matryoshka_dimensions", hidden, ret->dimensions, COUNT_OF(ret->dimensions),
                  &ret->dimension_count);
    ret->cuts = json_read_bool_or(&in, "is_matryoshka", false) || ret->dimension_count > 0;
    json_decref(config);
    return in.error;
}

int pooling_config_load(struct model_files *files, uint32_t hidden, struct pooling_config *ret, struct err *e)
{
    struct pooling_config c = {.kind = POOLING_NONE};
    json_t *list = NULL, *module;
    size_t i;
    *ret = c;
    int r = model_json_list(files, "modules.json", &list, e);
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
    int r = model_json(files, name, &config, e);
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
