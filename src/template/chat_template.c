/* chat_template.c - finds, compiles and runs a model's chat template. */
#include "template/chat_template.h"

#include "template/tmpl_eval.h"
#include "template/tmpl_trace.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "weights/model_files.h"

#include <errno.h>
#include <stdio.h>

#define TEMPLATE_FILE_BYTES_MAX ((size_t)16 << 20) /* tokenizer_config.json lists all added tokens, too */

struct chat_template {
    struct slice source;
    struct tmpl_node *root;
    struct chat_template *tool_use; /* used when tools are given; NULL: this one */
};

/* Windows line ends are normalised: the template is the same. */
static struct slice normalised(struct arena *a, struct slice source)
{
    char *out = arena_alloc_align(a, source.len + 1, 1);
    size_t n = 0;
    for (size_t i = 0; out && i < source.len; i++) {
        bool pair = source.ptr[i] == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n';
        if (!pair)
            out[n++] = source.ptr[i] == '\r' ? '\n' : source.ptr[i];
    }
    return (struct slice){out, n};
}

struct slice chat_template_source(const struct chat_template *t)
{
    return t->source;
}

int chat_template_compile(struct arena *a, struct slice source, struct chat_template **ret, struct err *e)
{
    if (source.len > TMPL_SOURCE_BYTES_MAX)
        return err_set(e, -E2BIG, "the chat template has %zu bytes: at most %zu are taken", source.len,
                       TMPL_SOURCE_BYTES_MAX);
    struct chat_template *t = ARENA_NEW(a, struct chat_template);
    struct slice text = normalised(a, source);
    if (!t || !text.ptr)
        return err_set(e, -ENOMEM, "no memory for the chat template");
    t->source = text;
    int r = tmpl_parse(a, text, &t->root, e);
    if (r < 0)
        return err_prefix(e, r, "chat template");
    *ret = t;
    return 0;
}

/* NULL bytes when it does not exist. */
static int read_file(struct model_files *files, const char *name, struct small_file *ret, struct err *e)
{
    *ret = (struct small_file){0};
    int r = model_files_text(files, name, TEMPLATE_FILE_BYTES_MAX, ret, e);
    return r == -ENOENT ? 0 : r;
}

static int compile_json_string(struct arena *a, const json_t *text, struct chat_template **ret, struct err *e)
{
    if (!json_is_string(text))
        return err_set(e, -EINVAL, "chat_template is neither a string nor a list of {name, template}");
    return chat_template_compile(a, (struct slice){json_string_value(text), json_string_length(text)}, ret,
                                 e);
}

static int compile_named(struct arena *a, const json_t *list, struct chat_template **ret, struct err *e)
{
    struct chat_template *main = NULL, *tool_use = NULL;
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        bool is_default = name && strcmp(name, "default") == 0,
             is_tools = name && strcmp(name, "tool_use") == 0;
        if (!is_default && !is_tools)
            continue;
        int r = compile_json_string(a, json_object_get(entry, "template"), is_default ? &main : &tool_use, e);
        if (r < 0)
            return err_prefix(e, r, "chat_template \"%s\"", name);
    }
    if (!main)
        return err_set(e, -EINVAL, "the list chat_template has no entry \"default\"");
    main->tool_use = tool_use;
    *ret = main;
    return 0;
}

static int load_from_json(struct arena *a, struct model_files *files, const char *name,
                          struct chat_template **ret, struct err *e)
{
    struct small_file file;
    json_error_t error;
    int r = read_file(files, name, &file, e);
    if (r < 0 || !file.bytes)
        return r < 0 ? r : -ENOENT;
    json_t *json = json_loadb(file.bytes, file.len, 0, &error);
    small_file_done(&file);
    if (!json)
        return err_set(e, -EINVAL, "%s: line %d: %s", name, error.line, error.text);
    const json_t *text = json_object_get(json, "chat_template");
    r = -ENOENT;
    if (json_is_array(text))
        r = compile_named(a, text, ret, e);
    else if (text && !json_is_null(text))
        r = compile_json_string(a, text, ret, e);
    json_decref(json);
    return r < 0 && r != -ENOENT ? err_prefix(e, r, "%s", name) : r;
}

/* -ENOENT: the file does not exist. */
static int load_from_file(struct arena *a, struct model_files *files, const char *name,
                          struct chat_template **ret, struct err *e)
{
    struct small_file file;
    int r = read_file(files, name, &file, e);
    if (r < 0 || !file.bytes)
        return r < 0 ? r : -ENOENT;
    r = chat_template_compile(a, (struct slice){file.bytes, file.len}, ret, e);
    small_file_done(&file);
    return r < 0 ? err_prefix(e, r, "%s", name) : 0;
}

/* chat_template.jinja, and the template for tools of newer writers. */
static int load_from_files(struct arena *a, struct model_files *files, struct chat_template **ret,
                           struct err *e)
{
    struct chat_template *main, *tool_use = NULL;
    int r = load_from_file(a, files, "chat_template.jinja", &main, e);
    if (r < 0)
        return r;
    r = load_from_file(a, files, CHAT_TEMPLATE_TOOL_USE, &tool_use, e);
    if (r < 0 && r != -ENOENT)
        return r;
    main->tool_use = tool_use;
    *ret = main;
    return 0;
}

int chat_template_load(struct arena *a, struct model_files *files, struct chat_template **ret, struct err *e)
{
    int r = load_from_files(a, files, ret, e);
    if (r == -ENOENT)
        r = load_from_json(a, files, "chat_template.json", ret, e);
    if (r == -ENOENT)
        r = load_from_json(a, files, "tokenizer_config.json", ret, e);
    if (r == -ENOENT)
        err_set(e, r, "%s: no chat_template.jinja, and no chat_template in tokenizer_config.json",
                model_files_path(files));
    return r;
}

static bool define_json(struct tmpl_run *run, const char *name, const json_t *json)
{
    struct tmpl_value v;
    if (!json)
        return true;
    return tmpl_from_json(run->a, json, 0, &v) && tmpl_define(run, slice_of(name), v);
}

/* Without tools the name is undefined, so that templates that only loop over it work, too. */
static bool define_variables(struct tmpl_run *run, const struct chat_template_input *in)
{
    const char *key;
    json_t *value;
    bool ok = tmpl_define(run, SLICE("bos_token"), tmpl_string(in->bos_token)) &&
              tmpl_define(run, SLICE("eos_token"), tmpl_string(in->eos_token)) &&
              tmpl_define(run, SLICE("add_generation_prompt"), tmpl_bool(in->add_generation_prompt));
    json_object_foreach((json_t *)in->kwargs, key, value)
        ok = ok && define_json(run, key, value);
    return ok && define_json(run, "tools", in->tools) && define_json(run, "documents", in->documents);
}

/* `trace`: NULL, or records the messages' output. */
static bool define_messages(struct tmpl_run *run, const json_t *messages, struct tmpl_trace *trace)
{
    struct tmpl_value v;
    if (!tmpl_from_json(run->a, messages, 0, &v) || !tmpl_define(run, SLICE("messages"), v))
        return false;
    run->trace = trace;
    return !trace || tmpl_trace_init(trace, run->a, run->out, &v);
}

int chat_template_render_cuts(const struct chat_template *t, struct arena *scratch,
                              const struct chat_template_input *in, const struct chat_template_limits *limits,
                              struct buf *ret, struct chat_cuts *cuts, struct err *e)
{
    struct tmpl_trace trace;
    size_t mark = arena_mark(scratch);
    struct tmpl_text out;
    struct tmpl_run run = {.a = scratch,
                           .e = e,
                           .steps_left = limits->steps_max,
                           .depth_left = limits->depth_max,
                           .text_bytes_max = limits->output_bytes_max,
                           .look_below = limits->steps_max,
                           .wanted = limits->wanted,
                           .now_s = in->now_s,
                           .out = &out};
    if (t->tool_use && json_array_size(in->tools) > 0)
        t = t->tool_use;
    tmpl_text_begin(&run, &out);
    if (limits->prompt_bytes_max)
        out.bytes_max = MIN_OF(out.bytes_max, limits->prompt_bytes_max);
    if (!tmpl_run_init(&run) || !define_variables(&run, in) ||
        !define_messages(&run, in->messages, cuts ? &trace : NULL))
        tmpl_fail_memory(&run);
    if (!run.error)
        tmpl_exec(&run, t->root);
    if (!run.error)
        buf_put_slice(ret, tmpl_text_slice(&out));
    if (!run.error && cuts)
        chat_cuts_choose(&trace, in->messages, &in->marks, tmpl_text_slice(&out), cuts);
    if (run.error == -E2BIG && out.full && out.bytes_max == limits->prompt_bytes_max)
        run.error = err_set(e, -EMSGSIZE, "the prompt has more than %zu bytes", out.bytes_max);
    ASSERT(run.error || (run.depth_left == limits->depth_max && run.scope == run.globals && run.out == &out));
    arena_rewind(scratch, mark);
    if (!run.error && ret->error)
        return err_set(e, ret->error, "the rendered prompt does not fit in its buffer");
    return run.error;
}

bool chat_template_mentions(const struct chat_template *t, struct slice word)
{
    return slice_find(t->source, word, 0) != SIZE_MAX ||
           (t->tool_use && slice_find(t->tool_use->source, word, 0) != SIZE_MAX);
}
