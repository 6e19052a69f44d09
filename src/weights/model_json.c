/* model_json.c - jansson after a depth check.
 *
 * jansson recurses to a depth of 2048, more than a 256 KiB stack holds; json_scan passes over the text first
 * and stops at 32. */
#include "weights/model_json.h"

#include "weights/json_scan.h"
#include "weights/model_files.h"

#include "base/files/small_file.h"
#include "gguf/gguf_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Python writes an infinite number as a bare Infinity, which is not JSON: the largest number of its length
 * takes its place. Outside of strings only. */
static void replace_infinity(char *text, size_t len)
{
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted && text[i] == '\\')
            i++;
        else if (!quoted && len - i >= 8 && memcmp(text + i, "Infinity", 8) == 0)
            memcpy(text + i, "1.0e+308", 8);
    }
}

static int parse_json(struct slice text, const char *name, bool list, json_t **ret, struct err *e)
{
    struct json_scan scan = {.text = text};
    json_error_t error;
    if (text.len > MODEL_JSON_BYTES_MAX)
        return err_set(e, -EINVAL, "%s has %zu bytes, more than the limit of %zu", name, text.len,
                       MODEL_JSON_BYTES_MAX);
    if (!json_scan_skip(&scan) || !json_scan_end(&scan))
        return err_set(e, -EINVAL, "%s is not valid JSON: %s at byte %zu", name, scan.error, scan.at);
    json_t *root = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return err_set(e, -EINVAL, "%s is not valid JSON: %s at line %d", name, error.text, error.line);
    if (list ? !json_is_array(root) : !json_is_object(root)) {
        json_decref(root);
        return err_set(e, -EINVAL, "%s is not a JSON %s", name, list ? "list" : "object");
    }
    *ret = root;
    return 0;
}

static int parse(struct slice text, const char *name, bool list, json_t **ret, struct err *e)
{
    if (text.len > MODEL_JSON_BYTES_MAX || slice_find(text, SLICE("Infinity"), 0) == text.len)
        return parse_json(text, name, list, ret, e);
    char *copy = malloc(text.len);
    if (!copy)
        return err_set(e, -ENOMEM, "no memory left for %s", name);
    memcpy(copy, text.ptr, text.len);
    replace_infinity(copy, text.len);
    int r = parse_json((struct slice){copy, text.len}, name, list, ret, e);
    free(copy);
    return r;
}

int model_json_parse(struct slice text, const char *name, json_t **ret, struct err *e)
{
    return parse(text, name, false, ret, e);
}

static int read_file(struct model_files *files, const char *name, bool list, json_t **ret, struct err *e)
{
    struct small_file file = {0};
    if (model_files_is_view(files))
        return model_json_view(files, name, ret, e);
    int r = model_files_text(files, name, MODEL_JSON_BYTES_MAX, &file, e);
    if (r == 0)
        r = parse((struct slice){file.bytes, file.len}, name, list, ret, e);
    small_file_done(&file);
    return r;
}

int model_json(struct model_files *files, const char *name, json_t **ret, struct err *e)
{
    return read_file(files, name, false, ret, e);
}

int model_json_list(struct model_files *files, const char *name, json_t **ret, struct err *e)
{
    return read_file(files, name, true, ret, e);
}

int model_json_view(struct model_files *files, const char *name, json_t **ret, struct err *e)
{
    struct gguf_head head = GGUF_HEAD_NONE, encoder = GGUF_HEAD_NONE;
    int r = model_files_head(files, NULL, &head, e);
    if (r < 0)
        return r;
    if (strcmp(name, "config.json") == 0 || strcmp(name, "preprocessor_config.json") == 0)
        r = model_files_encoder_head(files, NULL, &encoder, e);
    head.encoder = encoder.at ? &encoder.head : NULL;
    if (r == 0 || r == -ENOENT)
        r = gguf_view_json(&head, name, ret, e);
    gguf_head_done(&encoder);
    gguf_head_done(&head);
    return r < 0 ? err_prefix(e, r, "%s", model_files_path(files)) : 0;
}
