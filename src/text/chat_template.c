/* chat_template.c - which template, and which variables.
 *
 * `tools` and `documents` stay undefined when there are none: templates test `tools is defined` and `if tools`, and some
 * walk over them without asking, which works on undefined and not on none. */
#include "text/chat_template.h"

#include "base/check.h"
#include "text/jinja.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* tokenizer_config.json also lists added tokens: a few MiB at most in the wild. */
#define CHAT_TEMPLATE_FILE_BYTES_MAX ((size_t)16 << 20)
/* The fixed variables and those of a request's kwargs. */
#define VARIABLES_MAX 64

struct chat_template {
    struct jinja_template *normal;   /* NULL only when there is one for tools alone */
    struct jinja_template *tool_use; /* NULL: the normal one serves */
};

static const struct jinja_template *variant(const struct chat_template *t, bool tools)
{
    return (tools && t->tool_use) || !t->normal ? t->tool_use : t->normal;
}

/* ---- loading ---- */

int chat_template_compile(struct arena *a, struct slice source, struct chat_template **ret, struct err *e)
{
    size_t mark = arena_mark(a);
    struct chat_template *t = ARENA_NEW(a, struct chat_template);
    if (!t)
        return err_set(e, -ENOMEM, "no memory left for the chat template");
    int r = jinja_compile(a, source, &t->normal, e);
    if (r < 0)
        arena_rewind(a, mark);
    else
        *ret = t;
    return r;
}

struct file {
    char *bytes; /* of the general heap */
    size_t len;
};

static int read_all(int fd, const char *path, struct file *ret, struct err *e)
{
    struct stat st;
    size_t len = 0;
    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > CHAT_TEMPLATE_FILE_BYTES_MAX)
        return err_set(e, -EINVAL, "%s: not a file of at most %zu bytes", path, CHAT_TEMPLATE_FILE_BYTES_MAX);
    char *bytes = malloc((size_t)st.st_size + 1);
    if (!bytes)
        return err_set(e, -ENOMEM, "%s: no memory", path);
    while (len < (size_t)st.st_size) {
        ssize_t n = read(fd, bytes + len, (size_t)st.st_size - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int r = n < 0 ? -errno : -EIO;
            free(bytes);
            return err_set(e, r, "%s: %s", path, strerror(-r));
        }
        len += (size_t)n;
    }
    *ret = (struct file){bytes, len};
    return 0;
}

/* -ENOENT when it is not there. */
static int read_file(const char *dir, const char *name, struct file *ret, struct err *e)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
        return err_set(e, -ENAMETOOLONG, "%s: the path is too long", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    int r = read_all(fd, path, ret, e);
    close(fd);
    return r;
}

static int compile_named(struct arena *a, const char *name, struct slice source, struct jinja_template **ret,
                         struct err *e)
{
    int r = jinja_compile(a, source, ret, e);
    return r < 0 ? err_prefix(e, r, "%s", name) : 0;
}

static int compile_file(struct arena *a, const char *dir, const char *name, struct jinja_template **ret,
                        struct err *e)
{
    struct file f;
    int r = read_file(dir, name, &f, e);
    if (r < 0)
        return r;
    r = compile_named(a, name, (struct slice){f.bytes, f.len}, ret, e);
    free(f.bytes);
    return r;
}

static int load_jinja(struct arena *a, const char *dir, struct chat_template *t, struct err *e)
{
    int r = compile_file(a, dir, "chat_template.jinja", &t->normal, e);
    if (r < 0)
        return r;
    r = compile_file(a, dir, "additional_chat_templates/tool_use.jinja", &t->tool_use, e);
    return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

static int compile_json(struct arena *a, const char *name, const json_t *source, struct jinja_template **ret,
                        struct err *e)
{
    if (!json_is_string(source))
        return err_set(e, -EINVAL, "%s: a chat template is a text", name);
    return compile_named(a, name, (struct slice){json_string_value(source), json_string_length(source)}, ret,
                         e);
}

/* [{"name": ..., "template": ...}, ...] */
static int load_list(struct arena *a, const char *name, const json_t *list, struct chat_template *t,
                     struct err *e)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *which = json_string_value(json_object_get(entry, "name"));
        struct jinja_template **at = !which                           ? NULL
                                     : strcmp(which, "default") == 0  ? &t->normal
                                     : strcmp(which, "tool_use") == 0 ? &t->tool_use
                                                                      : NULL;
        if (!at)
            continue;
        int r = compile_json(a, name, json_object_get(entry, "template"), at, e);
        if (r < 0)
            return r;
    }
    if (t->normal || t->tool_use)
        return 0;
    return err_set(e, -ENOENT, "%s: no chat template called \"default\"", name);
}

static int load_json(struct arena *a, const char *dir, const char *name, struct chat_template *t,
                     struct err *e)
{
    struct file f;
    json_error_t where;
    int r = read_file(dir, name, &f, e);
    if (r < 0)
        return r;
    json_t *root = json_loadb(f.bytes, f.len, JSON_REJECT_DUPLICATES, &where);
    free(f.bytes);
    if (!root)
        return err_set(e, -EINVAL, "%s/%s: line %d: %s", dir, name, where.line, where.text);
    const json_t *value = json_object_get(root, "chat_template");
    if (!value || json_is_null(value))
        r = err_set(e, -ENOENT, "%s/%s: no chat_template", dir, name);
    else if (json_is_array(value))
        r = load_list(a, name, value, t, e);
    else
        r = compile_json(a, name, value, &t->normal, e);
    json_decref(root);
    return r;
}

int chat_template_load(struct arena *a, const char *dir, struct chat_template **ret, struct err *e)
{
    size_t mark = arena_mark(a);
    struct chat_template *t = ARENA_NEW(a, struct chat_template);
    if (!t)
        return err_set(e, -ENOMEM, "no memory left for the chat template");
    int r = load_jinja(a, dir, t, e);
    if (r == -ENOENT)
        r = load_json(a, dir, "chat_template.json", t, e);
    if (r == -ENOENT)
        r = load_json(a, dir, "tokenizer_config.json", t, e);
    if (r == -ENOENT)
        err_set(
            e, r,
            "%s: no chat_template.jinja, and no chat_template in chat_template.json or tokenizer_config.json",
            dir);
    if (r < 0)
        arena_rewind(a, mark);
    else
        *ret = t;
    return r;
}

/* ---- rendering ---- */

struct variables {
    struct jinja_variable list[VARIABLES_MAX];
    size_t count;
};

static void add_json(struct variables *v, const char *name, const json_t *json)
{
    if (json)
        v->list[v->count++] =
            (struct jinja_variable){.name = slice_of(name), .kind = JINJA_VARIABLE_JSON, .json = json};
}

static void add_text(struct variables *v, const char *name, struct slice text)
{
    if (text.ptr)
        v->list[v->count++] =
            (struct jinja_variable){.name = slice_of(name), .kind = JINJA_VARIABLE_TEXT, .text = text};
}

static int add_kwargs(struct variables *v, const json_t *kwargs, struct err *e)
{
    size_t room = VARIABLES_MAX - v->count;
    if (json_object_size(kwargs) > room)
        return err_set(e, -EINVAL, "chat_template_kwargs has %zu members; the limit is %zu",
                       json_object_size(kwargs), room);
    json_t *object = (json_t *)kwargs; /* iterating changes nothing */
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it))
        add_json(v, json_object_iter_key(it), json_object_iter_value(it));
    return 0;
}

int chat_template_render(const struct chat_template *t, struct arena *scratch,
                         const struct chat_template_input *in, const struct chat_template_limits *limits,
                         struct buf *ret, struct err *e)
{
    struct variables v = {.count = 0};
    ASSERT(json_is_array(in->messages) && (!in->kwargs || json_is_object(in->kwargs)));
    add_json(&v, "messages", in->messages);
    add_json(&v, "tools", in->tools);
    add_json(&v, "documents", in->documents);
    add_text(&v, "bos_token", in->bos_token);
    add_text(&v, "eos_token", in->eos_token);
    add_text(&v, "pad_token", in->pad_token);
    add_text(&v, "unk_token", in->unk_token);
    v.list[v.count++] = (struct jinja_variable){.name = SLICE("add_generation_prompt"),
                                                .kind = JINJA_VARIABLE_BOOL,
                                                .flag = in->add_generation_prompt};
    int r = in->kwargs ? add_kwargs(&v, in->kwargs, e) : 0;
    if (r < 0)
        return r;
    struct jinja_input input = {v.list, v.count, in->now_s};
    struct jinja_limits bounds = {.steps_max = limits->steps_max,
                                  .depth_max = limits->depth_max,
                                  .output_bytes_max = limits->output_bytes_max,
                                  .memory_bytes_max = limits->memory_bytes_max};
    return jinja_render(variant(t, in->tools != NULL), scratch, &input, &bounds, ret, e);
}

bool chat_template_mentions(const struct chat_template *t, struct slice word)
{
    const struct jinja_template *const both[] = {t->normal, t->tool_use};
    for (size_t i = 0; i < COUNT_OF(both); i++)
        if (both[i] && slice_find(jinja_source(both[i]), word, 0) != SIZE_MAX)
            return true;
    return false;
}
