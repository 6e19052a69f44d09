/* golden_file.c - both kinds of file become cases: a `text` and an `image` part, or lists of `cases` and of
 * `vision`. */
#include "golden/golden_file.h"

#include "base/check.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX 10000000

static int read_ids(const json_t *o, const char *key, struct golden_ids *ret, struct err *e)
{
    const json_t *list = json_object_get(o, key);
    size_t n = json_array_size(list);
    if (n == 0)
        return 0;
    if (n > NUMBERS_MAX)
        return err_set(e, -EINVAL, "%s has %zu entries", key, n);
    ret->ids = calloc(n, sizeof(ret->ids[0]));
    if (!ret->ids)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= UINT32_MAX)
            return err_set(e, -EINVAL, "%s[%zu] is not a token id", key, i);
        ret->ids[i] = (uint32_t)id;
    }
    ret->count = (uint32_t)n;
    return 0;
}

static int read_values(const json_t *o, const char *key, struct golden_values *ret, struct err *e)
{
    const json_t *list = json_object_get(o, key);
    size_t n = json_array_size(list);
    if (n == 0)
        return 0;
    if (n > NUMBERS_MAX)
        return err_set(e, -EINVAL, "%s has %zu entries", key, n);
    ret->values = calloc(n, sizeof(ret->values[0]));
    if (!ret->values)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!json_is_number(json_array_get(list, i)))
            return err_set(e, -EINVAL, "%s[%zu] is not a number", key, i);
        ret->values[i] = json_number_value(json_array_get(list, i));
    }
    ret->count = (uint32_t)n;
    return 0;
}

static int check_case(const struct golden_case *c, struct err *e)
{
    if (c->prompt.count == 0)
        return err_set(e, -EINVAL, "%s has no prompt", c->name);
    const uint32_t per_prompt[] = {c->argmax.count, c->max_logit.count, c->margin.count};
    for (size_t i = 0; i < COUNT_OF(per_prompt); i++) {
        if (per_prompt[i] > c->prompt.count)
            return err_set(e, -EINVAL, "%s: a list has %u entries for a prompt of %u", c->name, per_prompt[i],
                           c->prompt.count);
    }
    if (c->greedy_margin.count != c->greedy.count)
        return err_set(e, -EINVAL, "%s: greedy and greedy_margin differ in length", c->name);
    if (c->mtp_argmax.count != c->mtp_max_logit.count ||
        c->mtp_argmax.count >= c->prompt.count + c->greedy.count ||
        (c->mtp_second_logit.count > 0 && c->mtp_second_logit.count != c->mtp_argmax.count))
        return err_set(e, -EINVAL, "%s: the MTP head's lists differ in length or are too long", c->name);
    if (c->last_ids.count != 0 && c->last_ids.count != c->last.count)
        return err_set(e, -EINVAL, "%s: the last logits' ids and values differ in length", c->name);
    return 0;
}

/* The keys of one form: a text part or a case. */
struct keys {
    const char *prompt, *argmax, *greedy, *last, *last_ids;
};

static int read_case(const json_t *o, const struct keys *k, struct golden_case *ret, struct err *e)
{
    int r = read_ids(o, k->prompt, &ret->prompt, e);
    if (r == 0)
        r = read_ids(o, k->argmax, &ret->argmax, e);
    if (r == 0)
        r = read_ids(o, k->greedy, &ret->greedy, e);
    if (r == 0)
        r = read_values(o, "max_logit", &ret->max_logit, e);
    if (r == 0)
        r = read_values(o, "margin", &ret->margin, e);
    if (r == 0)
        r = read_values(o, "greedy_margin", &ret->greedy_margin, e);
    if (r == 0)
        r = read_values(o, k->last, &ret->last, e);
    if (r == 0 && k->last_ids)
        r = read_ids(o, k->last_ids, &ret->last_ids, e);
    if (r == 0)
        r = read_ids(o, "mtp_argmax", &ret->mtp_argmax, e);
    if (r == 0)
        r = read_values(o, "mtp_max_logit", &ret->mtp_max_logit, e);
    if (r == 0)
        r = read_values(o, "mtp_second_logit", &ret->mtp_second_logit, e);
    return r == 0 ? check_case(ret, e) : r;
}

static int read_numbers(const json_t *o, const char *key, uint32_t count, uint32_t max, uint32_t *ret,
                        struct err *e)
{
    const json_t *list = json_object_get(o, key);
    if (json_array_size(list) != count)
        return err_set(e, -EINVAL, "%s must have %u numbers", key, count);
    for (uint32_t i = 0; i < count; i++) {
        json_int_t n = json_integer_value(json_array_get(list, i));
        if (n < 1 || n > max)
            return err_set(e, -EINVAL, "%s[%u] must be in 1..%u", key, i, max);
        ret[i] = (uint32_t)n;
    }
    return 0;
}

static int read_grid(const json_t *o, struct golden_image *ret, struct err *e)
{
    uint32_t grid[3];
    int r = read_numbers(o, "grid_thw", 3, 1u << 16, grid, e);
    if (r == 0)
        r = read_values(o, "features_first_token", &ret->features, e);
    if (r < 0)
        return r;
    ret->grid_rows = grid[1];
    ret->grid_columns = grid[2];
    return 0;
}

/* Reads the pixels from the begin of the file that the case names, beside golden.json. */
static int read_pixel_file(const char *name, const char *path, size_t bytes, uint8_t *ret, struct err *e)
{
    const char *slash = strrchr(path, '/');
    char file[512];
    snprintf(file, sizeof(file), "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    FILE *in = fopen(file, "rbe");
    if (!in)
        return err_set(e, -errno, "cannot open %s: %m", file);
    bool whole = fread(ret, 1, bytes, in) == bytes;
    fclose(in);
    return whole ? 0 : err_set(e, -EINVAL, "%s does not have the bytes of image_shape", file);
}

/* Older goldens list the pixels. */
static int read_pixel_list(const json_t *list, size_t bytes, uint8_t *ret, struct err *e)
{
    if (json_array_size(list) != bytes)
        return err_set(e, -EINVAL, "image_hwc_u8 does not have the bytes of image_shape");
    for (size_t i = 0; i < bytes; i++) {
        json_int_t n = json_integer_value(json_array_get(list, i));
        if (n < 0 || n > UINT8_MAX)
            return err_set(e, -EINVAL, "image_hwc_u8[%zu] is not a byte", i);
        ret[i] = (uint8_t)n;
    }
    return 0;
}

/* Reads height, width and the pixels, R, G and B. */
static int read_pixels(const json_t *o, const char *path, struct golden_image *ret, struct err *e)
{
    const char *name = json_string_value(json_object_get(o, "image_hwc"));
    const json_t *list = json_object_get(o, "image_hwc_u8");
    uint32_t shape[3];
    int r = read_numbers(o, "image_shape", 3, 1u << 12, shape, e);
    if (r < 0)
        return r;
    if (shape[2] != 3 || (!name && !list))
        return err_set(e, -EINVAL,
                       "image_shape has no 3 channels, or image_hwc and image_hwc_u8 are missing");
    size_t n = (size_t)shape[0] * shape[1] * 3;
    ret->pixels = malloc(n);
    ret->height = shape[0];
    ret->width = shape[1];
    if (!ret->pixels)
        return -ENOMEM;
    return name ? read_pixel_file(name, path, n, ret->pixels, e) : read_pixel_list(list, n, ret->pixels, e);
}

static int read_name(const json_t *o, struct golden_image *ret, struct err *e)
{
    const char *name = json_string_value(json_object_get(o, "image"));
    if (!name || snprintf(ret->file, sizeof(ret->file), "images/%s", name) >= (int)sizeof(ret->file))
        return err_set(e, -EINVAL, "a vision part has no image");
    return 0;
}

/* A case of the `vision` list, or of the `image` part. */
static int read_seen(const json_t *o, const char *path, const struct keys *k, struct golden_case *c,
                     struct err *e)
{
    int r = read_case(o, k, c, e);
    if (r == 0)
        r = read_grid(o, &c->image, e);
    if (r < 0)
        return r;
    return json_object_get(o, "image") ? read_name(o, &c->image, e) : read_pixels(o, path, &c->image, e);
}

static int read_one(const json_t *o, const char *key, uint32_t *ret, struct err *e)
{
    const json_t *v = json_object_get(o, key);
    json_int_t id = json_integer_value(v);
    if (!json_is_integer(v) || id < 0 || id >= UINT32_MAX)
        return err_set(e, -EINVAL, "%s is not a token id", key);
    *ret = (uint32_t)id;
    return 0;
}

/* Zeros, then ones. */
static int read_types(const json_t *o, struct golden_vector *v, struct err *e)
{
    struct golden_ids types = {0};
    int r = read_ids(o, "token_types", &types, e);
    if (r == 0 && types.count != 0 && types.count != v->ids.count)
        r = err_set(e, -EINVAL, "token_types and ids differ in length");
    for (uint32_t i = 0; r == 0 && i < types.count; i++) {
        if (types.ids[i] == 1 && v->second == 0)
            v->second = i;
        if (types.ids[i] != (v->second > 0))
            r = err_set(e, -EINVAL, "token_types[%u] is %u, which is not supported there", i, types.ids[i]);
    }
    free(types.ids);
    return r;
}

static int read_score(const json_t *o, struct golden_vector *v, struct err *e)
{
    const json_t *score = json_object_get(o, "score");
    v->scores = true;
    v->answers = json_object_get(o, "yes") != NULL;
    v->vector.values = malloc(sizeof(v->vector.values[0]));
    if (!v->vector.values)
        return -ENOMEM;
    v->vector.values[0] = json_number_value(score);
    v->vector.count = 1;
    int r = read_ids(o, "ids", &v->ids, e);
    if (r == 0 && (v->ids.count == 0 || !json_is_number(score)))
        r = err_set(e, -EINVAL, "a score has no ids or no number");
    if (r == 0)
        r = read_types(o, v, e);
    if (r == 0 && v->answers)
        r = read_one(o, "yes", &v->yes, e);
    return r == 0 && v->answers ? read_one(o, "no", &v->no, e) : r;
}

static int read_scores(const json_t *root, struct golden_file *f, struct err *e)
{
    const json_t *list = json_object_get(root, "rerank");
    int r = 0;
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        f->score_count++;
        r = read_score(json_array_get(list, i), &f->vectors[f->vector_count++], e);
    }
    return r;
}

static int read_vectors(const json_t *root, struct golden_file *f, struct err *e)
{
    const json_t *list = json_object_get(root, "embedding");
    size_t n = json_array_size(list), all = n + json_array_size(json_object_get(root, "rerank"));
    int r = 0;
    f->vectors = calloc(all ? all : 1, sizeof(f->vectors[0]));
    if (!f->vectors)
        return -ENOMEM;
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct golden_vector *v = &f->vectors[f->vector_count++];
        r = read_ids(json_array_get(list, i), "ids", &v->ids, e);
        if (r == 0)
            r = read_values(json_array_get(list, i), "vector", &v->vector, e);
        if (r == 0 && (v->ids.count == 0 || v->vector.count == 0))
            r = err_set(e, -EINVAL, "embedding[%zu] has no ids or no vector", i);
    }
    return r == 0 ? read_scores(root, f, e) : r;
}

static int read_all(const json_t *root, const char *path, struct golden_file *f, struct err *e)
{
    static const struct keys text_keys = {"prompt", "argmax", "greedy", "logits_last", NULL};
    static const struct keys case_keys = {"prompt_ids", "argmax_all", "greedy_ids", "top8_logits_last",
                                          "top8_ids_last"};
    const json_t *text = json_object_get(root, "text"), *cases = json_object_get(root, "cases");
    const json_t *image = json_object_get(root, "image"), *vision = json_object_get(root, "vision");
    size_t n = json_array_size(cases) + json_array_size(vision) + (text ? 1 : 0) + (image ? 1 : 0);
    f->cases = calloc(n ? n : 1, sizeof(f->cases[0]));
    if (!f->cases)
        return -ENOMEM;
    int r = read_vectors(root, f, e);
    if (r == 0 && text) {
        struct golden_case *c = &f->cases[f->case_count++];
        snprintf(c->name, sizeof(c->name), "text");
        r = read_case(text, &text_keys, c, e);
        f->mtp += c->mtp_argmax.count > 0;
    }
    if (r == 0 && image) {
        struct golden_case *c = &f->cases[f->case_count++];
        snprintf(c->name, sizeof(c->name), "image");
        r = read_seen(image, path, &text_keys, c, e);
    }
    for (size_t i = 0; r == 0 && i < json_array_size(cases); i++) {
        struct golden_case *c = &f->cases[f->case_count++];
        snprintf(c->name, sizeof(c->name), "cases[%zu]", i);
        r = read_case(json_array_get(cases, i), &case_keys, c, e);
        f->mtp += c->mtp_argmax.count > 0;
    }
    for (size_t i = 0; r == 0 && i < json_array_size(vision); i++) {
        struct golden_case *c = &f->cases[f->case_count++];
        snprintf(c->name, sizeof(c->name), "vision[%zu]", i);
        r = read_seen(json_array_get(vision, i), path, &case_keys, c, e);
    }
    if (r == 0 && f->case_count == 0 && f->vector_count == 0)
        r = err_set(e, -EINVAL, "neither text, cases, embedding nor rerank");
    return r;
}

int golden_file_load(const char *path, struct golden_file *ret, struct err *e)
{
    json_error_t error;
    struct golden_file f = {0};
    FILE *in = fopen(path, "rbe");
    if (!in)
        return err_set(e, -errno, "cannot open %s: %m", path);
    json_t *root = json_loadf(in, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    fclose(in);
    if (!root)
        return err_set(e, -EINVAL, "%s: %s at line %d", path, error.text, error.line);
    int r = read_all(root, path, &f, e);
    json_decref(root);
    if (r < 0) {
        golden_file_free(&f);
        return err_prefix(e, r, "%s", path);
    }
    *ret = f;
    return 0;
}

void golden_file_free(struct golden_file *f)
{
    for (uint32_t i = 0; i < f->case_count; i++) {
        struct golden_case *c = &f->cases[i];
        void *const lists[] = {c->prompt.ids,
                               c->argmax.ids,
                               c->greedy.ids,
                               c->max_logit.values,
                               c->margin.values,
                               c->greedy_margin.values,
                               c->last.values,
                               c->last_ids.ids,
                               c->mtp_argmax.ids,
                               c->mtp_max_logit.values,
                               c->mtp_second_logit.values,
                               c->image.pixels,
                               c->image.features.values};
        for (size_t l = 0; l < COUNT_OF(lists); l++)
            free(lists[l]);
    }
    for (uint32_t i = 0; i < f->vector_count; i++) {
        free(f->vectors[i].ids.ids);
        free(f->vectors[i].vector.values);
    }
    free(f->vectors);
    free(f->cases);
    *f = (struct golden_file){0};
}
