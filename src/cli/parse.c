/* parse.c - the command parse: a model's raw output through the parser of replies, without a model. */
#include "cli/cli.h"
#include "cli/output.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/json/json_out.h"
#include "chat/chat_format.h"
#include "chat/chat_probe.h"
#include "chat/chat_syntax.h"
#include "host/settings.h"
#include "template/chat_template.h"
#include "unicode/utf8.h"
#include "weights/model_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_BYTES_MAX   ((size_t)64 << 20)
#define ARENA_BYTES_MAX   ((size_t)256 << 20)
#define TEMPLATE_FILE_MAX ((size_t)1 << 20)

struct parsed {
    struct buf reasoning, content, calls, name, id, arguments;
};

static int read_all(int fd, struct buf *ret)
{
    char block[65536];
    ssize_t n;
    while ((n = read(fd, block, sizeof(block))) > 0)
        buf_put(ret, block, (size_t)n);
    return n < 0 ? -errno : ret->error;
}

static int load_template(struct arena *a, const char *dir, struct chat_template **ret, struct err *e)
{
    struct model_files *files;
    int r = model_files_open(dir, &files, e);
    if (r < 0)
        return r;
    r = chat_template_load(a, files, ret, e);
    model_files_close(files);
    return r;
}

static int read_template(struct arena *a, const char *path, struct chat_template **ret, struct err *e)
{
    struct stat st;
    struct buf text;
    if (stat(path, &st) < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return load_template(a, path, ret, e);
    FILE *f = fopen(path, "rbe");
    if (!f)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    buf_init(&text, TEMPLATE_FILE_MAX, NULL);
    int r = read_all(fileno(f), &text);
    fclose(f);
    r = r < 0 ? err_set(e, r, "%s cannot be read, or has more than 1 MiB", path)
              : chat_template_compile(a, buf_slice(&text), ret, e);
    buf_done(&text);
    return r;
}

/* A list, or an object with the list in `tools`. */
static int read_tools(const char *path, json_t **ret, struct err *e)
{
    json_error_t why;
    json_t *json = path ? json_load_file(path, 0, &why) : NULL;
    if (path && !json)
        return err_set(e, -EINVAL, "--tools %s: line %d: %s", path, why.line, why.text);
    if (json_is_object(json)) {
        json_t *tools = json_incref(json_object_get(json, "tools"));
        json_decref(json);
        json = tools;
    }
    if (path && !json_is_array(json)) {
        json_decref(json);
        return err_set(e, -EINVAL, "--tools %s: a list of tools is expected", path);
    }
    *ret = json;
    return 0;
}

/* ---- events ---- */

static void end_call(struct parsed *r)
{
    json_t *value = json_loadb(r->arguments.ptr, r->arguments.len, JSON_ALLOW_NUL, NULL);
    struct json_out j = json_out_items(&r->calls);
    j.spaced = true;
    json_open(&j, NULL);
    json_put_text(&j, "name", buf_slice(&r->name));
    if (json_is_object(value))
        json_put_value(&j, "arguments", value);
    else
        json_put_text(&j, "arguments", buf_slice(&r->arguments));
    if (r->id.len)
        json_put_text(&j, "id", buf_slice(&r->id));
    json_end(&j);
    json_decref(value);
}

static void take(void *arg, const struct chat_event *event)
{
    struct parsed *r = arg;
    switch (event->kind) {
    case CHAT_REASONING:
        buf_put_slice(&r->reasoning, event->text);
        break;
    case CHAT_CONTENT:
        buf_put_slice(&r->content, event->text);
        break;
    case CHAT_TOOL_BEGIN:
        buf_clear(&r->name);
        buf_clear(&r->id);
        buf_clear(&r->arguments);
        buf_put_slice(&r->name, event->text);
        buf_put_slice(&r->id, event->id);
        break;
    case CHAT_TOOL_ARGUMENTS:
        buf_put_slice(&r->arguments, event->text);
        break;
    case CHAT_TOOL_END:
        end_call(r);
        break;
    }
}

static void print(const struct parsed *r)
{
    struct buf out;
    buf_init(&out, SIZE_MAX / 4, NULL);
    struct json_out j = {.buf = &out, .spaced = true};
    json_open(&j, NULL);
    json_put_text(&j, "reasoning", buf_slice(&r->reasoning));
    json_put_text(&j, "content", buf_slice(&r->content));
    json_put_list(&j, "tool_calls", buf_slice(&r->calls));
    json_end(&j);
    buf_putc(&out, '\n');
    terminal_write(stdout, buf_slice(&out));
    buf_done(&out);
}

/* ---- the command ---- */

/* Pieces of `chunk` bytes, and up to three more to the end of a character. */
static int feed(struct chat_parser *p, struct slice text, size_t chunk)
{
    int r = 0;
    while (text.len && r == 0) {
        size_t n = chunk && chunk < text.len ? chunk : text.len;
        while (n < text.len && ((unsigned char)text.ptr[n] & 0xc0) == 0x80)
            n++;
        r = chat_parser_push(p, slice_sub(text, 0, n));
        text = slice_sub(text, n, text.len);
    }
    return r == 0 ? chat_parser_finish(p, CHAT_END_BY_MODEL) : r;
}

static int parse(const struct settings *o, const struct chat_syntax *syntax, bool reasons,
                 const json_t *tools, struct err *e)
{
    struct parsed result;
    struct buf *bufs[] = {&result.reasoning, &result.content, &result.calls,
                          &result.name,      &result.id,      &result.arguments};
    struct buf raw, text;
    struct chat_parser *p = NULL;
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        buf_init(bufs[i], SIZE_MAX / 4, NULL);
    buf_init(&raw, INPUT_BYTES_MAX, NULL);
    buf_init(&text, 3 * INPUT_BYTES_MAX, NULL);
    struct chat_parser_opts opts = {.syntax = syntax,
                                    .in_reasoning = reasons,
                                    .parse_tools = !tools || json_array_size(tools) > 0,
                                    .tools = tools,
                                    .bytes_max = 4 * INPUT_BYTES_MAX,
                                    .sink = take,
                                    .sink_arg = &result};
    int r = read_all(STDIN_FILENO, &raw);
    if (r < 0)
        err_set(e, r, "standard input cannot be read, or has more than 64 MiB");
    utf8_put_lossy(&text, buf_slice(&raw));
    if (r == 0 && (r = chat_parser_create(&opts, &p)) == 0)
        r = feed(p, buf_slice(&text), (size_t)o->parse.chunk);
    if (r == 0)
        print(&result);
    else if (!e->text[0])
        err_set(e, r, "the output is too large: %s", strerror(-r));
    chat_parser_free(p);
    buf_done(&raw);
    buf_done(&text);
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        buf_done(bufs[i]);
    return r;
}

/* Whether the prompt of these tools ends inside reasoning. */
static bool prompt_reasons(const struct chat_template *t, struct arena *scratch, const json_t *tools,
                           const struct chat_syntax *syntax)
{
    struct buf prompt;
    buf_init(&prompt, INPUT_BYTES_MAX, NULL);
    bool reasons = syntax->prompt_reasons;
    if (t && tools && chat_probe_prompt(t, scratch, tools, &prompt))
        reasons = chat_syntax_prompt_reasons(syntax, buf_slice(&prompt));
    buf_done(&prompt);
    return reasons;
}

static void describe(const struct chat_syntax *syntax)
{
    struct buf out;
    buf_init(&out, 65536, NULL);
    struct json_out j = json_out_object(&out);
    chat_syntax_describe(syntax, &j);
    json_end(&j);
    buf_putc(&out, '\n');
    terminal_write(stdout, buf_slice(&out));
    buf_done(&out);
}

static int run_in(const struct settings *o, struct arena *a, struct arena *scratch, struct err *e)
{
    struct chat_template *t = NULL;
    struct chat_syntax syntax;
    json_t *tools = NULL;
    int r = o->parse.template ? read_template(a, o->parse.template, &t, e) : 0;
    struct chat_syntax_opts opts = {
        .template = t, .tool_format = o->model.tool_format, .reasoning_format = o->model.reasoning_format};
    if (r == 0)
        r = chat_syntax_find(a, scratch, &opts, &syntax, e);
    if (r == 0 && o->parse.describe) {
        describe(&syntax);
        return 0;
    }
    if (r == 0)
        r = read_tools(o->parse.tools, &tools, e);
    if (r == 0)
        r = parse(o, &syntax, prompt_reasons(t, scratch, tools, &syntax), tools, e);
    json_decref(tools);
    return r;
}

static int run_all(const struct settings *o, struct err *e)
{
    struct arena *a = NULL, *scratch = NULL;
    const struct arena_opts opts = {.bytes_max = ARENA_BYTES_MAX};
    int r = arena_create(&opts, &a);
    if (r == 0)
        r = arena_create(&opts, &scratch);
    r = r == 0 ? run_in(o, a, scratch, e) : err_set(e, r, "no memory");
    arena_free(scratch);
    arena_free(a);
    return r;
}

static bool is_auto(const char *name)
{
    return !name || !name[0] || strcmp(name, "auto") == 0;
}

static int run(struct settings *o, struct err *e)
{
    if (!o->parse.template && is_auto(o->model.tool_format) && is_auto(o->model.reasoning_format))
        return err_set(e, -EINVAL, "--template or --tool-format is needed; see plateau parse --help");
    return cli_status(run_all(o, e), e);
}

int command_parse(int argc, char **argv)
{
    return cli_run(COMMAND_PARSE, argc, argv, run);
}
