/* env_file.c - no escapes, no continued lines: what cannot be misread is enough for settings. */
#include "cli/env_file.h"

#include "base/files/small_file.h"

#include <errno.h>

static bool is_name(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(i > 0 && c >= '0' && c <= '9'))
            return false;
    }
    return s.len > 0;
}

static bool unquote(struct slice *value)
{
    struct slice v = *value;
    bool quoted = v.len > 0 && (v.ptr[0] == '"' || v.ptr[0] == '\'');
    if (quoted && (v.len < 2 || v.ptr[v.len - 1] != v.ptr[0]))
        return false;
    if (quoted)
        v = slice_sub(v, 1, v.len - 2);
    for (size_t i = 0; i < v.len; i++)
        if (memchr("\"'\\$`", v.ptr[i], 5) || (!quoted && memchr(" \t#;&|<>()", v.ptr[i], 10)) ||
            v.ptr[i] == 0)
            return false;
    *value = v;
    return true;
}

static int parse_line(struct slice line, env_file_fn *entry, void *arg, struct err *e)
{
    line = slice_trim(line, " \t\r");
    if (line.len == 0 || line.ptr[0] == '#' || line.ptr[0] == ';')
        return 0;
    size_t equals = slice_find(line, SLICE("="), 0);
    struct slice name = slice_sub(line, 0, equals == SIZE_MAX ? 0 : equals);
    struct slice value = slice_sub(line, name.len + 1, line.len);
    if (!is_name(name))
        return err_set(e, -EINVAL, "it is not NAME=VALUE");
    if (!unquote(&value))
        return err_set(
            e, -EINVAL,
            "the value of %.*s has to stand in quotes, or has a quote, a backslash or a dollar in it",
            SLICE_ARGS(name));
    return entry(arg, name, value, e);
}

int env_file_parse(struct slice text, env_file_fn *entry, void *arg, struct err *e)
{
    for (unsigned number = 1; text.len > 0; number++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        int r = parse_line(slice_sub(text, 0, len), entry, arg, e);
        if (r != 0)
            return err_prefix(e, r, "line %u", number);
        text = slice_sub(text, len + 1, text.len);
    }
    return 0;
}

int env_file_read(const char *path, env_file_fn *entry, void *arg, struct err *e)
{
    struct small_file f;
    int r = small_file_read(path, ENV_FILE_BYTES_MAX, &f, e);
    if (r < 0)
        return r;
    r = env_file_parse((struct slice){f.bytes, f.len}, entry, arg, e);
    if (r != 0)
        err_prefix(e, r, "%s", path);
    small_file_done(&f);
    return r;
}
