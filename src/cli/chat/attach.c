/* attach.c - a file for the own server is an address of it. For another server it is base64 of libcrypto,
 * which writes whole groups of three bytes. */
#include "cli/chat/attach.h"

#include "cli/chat/remote.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "host/settings.h"

#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URL_BYTES  (3 * PATH_MAX + 16)
#define NAME_BYTES 200u /* bytes of the typed name in messages */

void attach_init(struct attach *a, const struct remote *r, bool (*stopped)(void))
{
    *a = (struct attach){.remote = r, .stopped = stopped};
}

void attach_done(struct attach *a)
{
    attach_cut(a, 0);
}

void attach_cut(struct attach *a, uint32_t count)
{
    while (a->count > count)
        json_decref(a->parts[--a->count]);
}

/* ---- the typed name ---- */

static bool is_address(struct slice what)
{
    return slice_starts(what, SLICE("http://")) || slice_starts(what, SLICE("https://"));
}

/* Strips the quotation marks in which terminals paste names with spaces. */
static struct slice unquote(struct slice s)
{
    bool quoted = s.len >= 2 && (s.ptr[0] == '\'' || s.ptr[0] == '"') && s.ptr[s.len - 1] == s.ptr[0];
    return quoted ? (struct slice){s.ptr + 1, s.len - 2} : s;
}

/* The path of "file://PATH" or "file://localhost/PATH", percent-decoded. 0 or -EINVAL. */
static int path_of_address(struct slice what, char ret[PATH_MAX], struct err *e)
{
    int len = 0;
    what = slice_sub(what, strlen("file://"), what.len);
    if (slice_starts(what, SLICE("localhost/")))
        what = slice_sub(what, strlen("localhost"), what.len);
    char *path = curl_easy_unescape(NULL, what.ptr, (int)what.len, &len);
    const bool whole = path && (size_t)len == strlen(path) && path[0] == '/' && len < PATH_MAX;
    if (whole)
        memcpy(ret, path, (size_t)len + 1);
    curl_free(path);
    return whole ? 0 : err_set(e, -EINVAL, "the address of a file is file:// and a path from the root");
}

/* "~/" is the home directory. */
static int path_of(struct slice what, char ret[PATH_MAX], struct err *e)
{
    const char *home = getenv("HOME");
    if (slice_starts(what, SLICE("file://")))
        return path_of_address(what, ret, e);
    bool at_home = what.len > 1 && what.ptr[0] == '~' && what.ptr[1] == '/' && home;
    int n = at_home ? snprintf(ret, PATH_MAX, "%s%.*s", home, (int)what.len - 1, what.ptr + 1)
                    : snprintf(ret, PATH_MAX, "%.*s", SLICE_ARGS(what));
    return n >= 0 && n < PATH_MAX
               ? 0
               : err_set(e, -EINVAL, "the name of a file has at most %d bytes", PATH_MAX - 1);
}

/* ---- parts of a message ---- */

/* By the first bytes of the file. */
static const char *type_of(bool video, struct slice bytes)
{
    static const struct {
        const char *head, *type;
    } types[] = {{"\x89PNG", "image/png"}, {"GIF8", "image/gif"}, {"RIFF", "image/webp"}};
    if (video)
        return "video/mp4";
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (slice_starts(bytes, slice_of(types[i].head)))
            return types[i].type;
    return "image/jpeg";
}

static json_t *part_of(bool video, const char *url)
{
    const char *type = video ? "video_url" : "image_url";
    return json_pack("{s:s, s:{s:s}}", "type", type, type, "url", url);
}

static json_t *part_of_bytes(bool video, struct slice bytes)
{
    char head[64];
    int n = snprintf(head, sizeof(head), "data:%s;base64,", type_of(video, bytes));
    char *url = malloc((size_t)n + (bytes.len + 2) / 3 * 4 + 1);
    if (!url)
        return NULL;
    memcpy(url, head, (size_t)n);
    EVP_EncodeBlock((unsigned char *)url + n, (const unsigned char *)bytes.ptr, (int)bytes.len);
    json_t *part = part_of(video, url);
    free(url);
    return part;
}

/* A file's address. The path is resolved first, for the server follows no link. */
static int name_file(bool video, const char *named, json_t **ret, struct err *e)
{
    static const char plain[] = "/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char path[PATH_MAX], url[URL_BYTES], *to = url + sprintf(url, "file://");
    if (!realpath(named, path))
        return err_set(e, -EINVAL, "the file cannot be read: %s", strerror(errno));
    for (const char *at = path; *at; at++)
        to += strchr(plain, *at) ? sprintf(to, "%c", *at) : sprintf(to, "%%%02X", (unsigned char)*at);
    *ret = json_pack("{s:s, s:s}", "type", video ? "video" : "image", video ? "video" : "image", url);
    return *ret ? 0 : err_set(e, -ENOMEM, "no memory for the name");
}

static int send_file(bool video, const char *path, json_t **ret, struct err *e)
{
    struct small_file f = {0};
    int r = small_file_read(path, ATTACH_BYTES_MAX, &f, e);
    if (r == 0 && !(*ret = part_of_bytes(video, (struct slice){f.bytes, f.len})))
        r = err_set(e, -ENOMEM, "no memory for %s", path);
    small_file_done(&f);
    return r;
}

static int make_part(const struct attach *a, bool video, struct slice what, json_t **ret, struct err *e)
{
    char path[PATH_MAX], address[4096];
    if (is_address(what) || slice_starts(what, SLICE("data:"))) {
        if (what.len >= sizeof(address))
            return err_set(e, -EINVAL, "an address has at most %zu bytes", sizeof(address) - 1);
        snprintf(address, sizeof(address), "%.*s", SLICE_ARGS(what));
        *ret = part_of(video, address);
        return *ret ? 0 : err_set(e, -EINVAL, "the address is not valid UTF-8 text");
    }
    int r = path_of(what, path, e);
    if (r == 0)
        r = a->remote->own ? name_file(video, path, ret, e) : send_file(video, path, ret, e);
    return r;
}

static int check(const struct attach *a, struct err *e)
{
    const struct remote *r = a->remote;
    if (a->count == ATTACH_MAX)
        return err_set(e, -E2BIG, "a conversation has at most %d images and videos; /reset begins a new one",
                       ATTACH_MAX);
    if (!r->text_only)
        return 0;
    if (r->own && r->settings->model.image_pixels_max == 0)
        return err_set(e, -EINVAL, "%s is loaded without its vision encoder (--max-image-pixels 0)", r->id);
    return err_set(e, -EINVAL, "the model %s takes text only", r->id);
}

int attach_add(struct attach *a, bool video, struct slice what, uint32_t *ret, struct err *e)
{
    json_t *part = NULL;
    uint32_t tokens = 0;
    int r = check(a, e);
    if (r < 0)
        return r;
    what = unquote(what);
    r = make_part(a, video, what, &part, e);
    if (r == 0 && a->remote->own)
        r = remote_read_part(a->remote, part, a->stopped, &tokens, e);
    if (r < 0) {
        json_decref(part);
        return a->remote->own ? err_prefix(e, r, "%.*s", (int)MIN_OF(what.len, NAME_BYTES), what.ptr) : r;
    }
    a->parts[a->count++] = part;
    *ret = tokens;
    return 0;
}

/* ---- messages ---- */

json_t *attach_content(const struct attach *a, uint32_t first, struct slice text)
{
    json_t *list = json_array();
    json_t *words = json_pack("{s:s, s:s%}", "type", "text", "text", text.ptr ? text.ptr : "", text.len);
    bool ok = list && words;
    for (uint32_t i = first; ok && i < a->count; i++)
        ok = json_array_append(list, a->parts[i]) == 0;
    if (ok && json_array_append(list, words) == 0) {
        json_decref(words);
        return list;
    }
    json_decref(words);
    json_decref(list);
    return NULL;
}

uint32_t attach_count(const json_t *messages)
{
    size_t i, k;
    const json_t *message, *part;
    uint32_t count = 0;
    json_array_foreach(messages, i, message) {
        json_array_foreach(json_object_get(message, "content"), k, part)
            count += strcmp(json_string_value(json_object_get(part, "type")), "text") != 0;
    }
    return count;
}
