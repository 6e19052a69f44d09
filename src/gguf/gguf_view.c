/* gguf_view.c - a table of the files that a head is shown as. */
#include "gguf/gguf_view.h"

#include "base/check.h"
#include "gguf/gguf_vision.h"

#include <errno.h>
#include <string.h>

#define ID_MAX (UINT32_MAX - 1)

/* Tokens that end a text or a turn. */
static int read_generation(const struct gguf_head *file, json_t **ret, struct err *e)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    json_t *ids = json_array();
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        uint64_t id;
        if (gguf_u64(gguf_find(&file->head, keys[i]), &id) && id <= ID_MAX)
            json_array_append_new(ids, json_integer((json_int_t)id));
    }
    *ret = json_pack("{s:o}", "eos_token_id", ids);
    return *ret ? 0 : err_set(e, -ENOMEM, "no memory left for the end tokens");
}

static int read_preprocessor(const struct gguf_head *file, json_t **ret, struct err *e)
{
    return file->encoder ? gguf_vision_preprocessor(file->encoder, ret, e)
                         : err_set(e, -ENOENT, "there is no vision encoder");
}

static const struct shown {
    const char *name;
    int (*read)(const struct gguf_head *file, json_t **ret, struct err *e);
} files[] = {
    {"config.json", gguf_config_read},
    {"tokenizer.json", gguf_tokenizer_read},
    {"tokenizer_config.json", gguf_tokenizer_config},
    {"generation_config.json", read_generation},
    {"preprocessor_config.json", read_preprocessor},
    {"modules.json", gguf_config_modules},
    {GGUF_POOLING_FOLDER "/config.json", gguf_config_pooling},
};

int gguf_view_json(const struct gguf_head *file, const char *name, json_t **ret, struct err *e)
{
    for (size_t i = 0; i < COUNT_OF(files); i++)
        if (strcmp(files[i].name, name) == 0)
            return files[i].read(file, ret, e);
    return err_set(e, -ENOENT, "the metadata have no %s", name);
}

bool gguf_view_text(const struct gguf_head *file, const char *name, struct slice *ret)
{
    return strcmp(name, "chat_template.jinja") == 0 &&
           gguf_string(gguf_find(&file->head, "tokenizer.chat_template"), ret);
}

uint64_t gguf_view_bytes(const struct gguf_head *file, const char *name)
{
    struct slice text;
    if (strcmp(name, "tokenizer.json") == 0)
        return gguf_tokenizer_bytes(file);
    return gguf_view_text(file, name, &text) ? text.len : 0;
}
