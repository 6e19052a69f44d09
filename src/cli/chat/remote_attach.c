/* remote_attach.c - base64 of libcrypto, which writes whole groups of three bytes. */
#include "cli/chat/remote_attach.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "base/slice.h"
#include "host/attach.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By the first bytes of the file. */
static const char *type_of(enum media_kind kind, struct slice bytes)
{
    static const struct {
        const char *head, *type;
    } types[] = {{"\x89PNG", "image/png"}, {"GIF8", "image/gif"}, {"RIFF", "image/webp"}};
    if (kind == MEDIA_VIDEO)
        return "video/mp4";
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (slice_starts(bytes, slice_of(types[i].head)))
            return types[i].type;
    return "image/jpeg";
}

static json_t *part_of(enum media_kind kind, const char *url)
{
    const char *type = kind == MEDIA_VIDEO ? "video_url" : "image_url";
    return json_pack("{s:s, s:{s:s}}", "type", type, type, "url", url);
}

static json_t *part_of_bytes(enum media_kind kind, struct slice bytes)
{
    char head[64];
    int n = snprintf(head, sizeof(head), "data:%s;base64,", type_of(kind, bytes));
    char *url = malloc((size_t)n + (bytes.len + 2) / 3 * 4 + 1);
    if (!url)
        return NULL;
    memcpy(url, head, (size_t)n);
    EVP_EncodeBlock((unsigned char *)url + n, (const unsigned char *)bytes.ptr, (int)bytes.len);
    json_t *part = part_of(kind, url);
    free(url);
    return part;
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

static int read_part(enum media_kind kind, struct slice what, json_t **ret, struct err *e)
{
    char path[PATH_MAX];
    struct small_file f = {0};
    int r =
        slice_starts(what, SLICE("file://")) ? path_of_address(what, path, e) : attach_path(what, path, e);
    if (r == 0)
        r = small_file_read(path, REMOTE_ATTACH_BYTES_MAX, &f, e);
    if (r == 0 && !(*ret = part_of_bytes(kind, (struct slice){f.bytes, f.len})))
        r = err_set(e, -ENOMEM, "no memory for %s", path);
    small_file_done(&f);
    return r;
}

int remote_attach(struct attach *a, enum media_kind kind, struct slice what, struct err *e)
{
    char address[4096];
    json_t *part = NULL;
    int r = 0;
    what = attach_unquote(what);
    if (a->count == ATTACH_MAX)
        return err_set(e, -E2BIG, "a conversation has at most %d images and videos; /reset begins a new one",
                       ATTACH_MAX);
    if (slice_starts(what, SLICE("http://")) || slice_starts(what, SLICE("https://"))) {
        snprintf(address, sizeof(address), "%.*s", SLICE_ARGS(what));
        part = part_of(kind, address);
        r = part ? 0 : err_set(e, -EINVAL, "the address is not valid UTF-8 text");
    } else {
        r = read_part(kind, what, &part, e);
    }
    if (r == 0)
        a->items[a->count++] = (struct attach_item){.part = part};
    return r;
}
