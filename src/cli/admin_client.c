/* admin_client.c - libcurl does the talking: it knows Unix sockets, TLS and proxies. */
#include "cli/admin_client.h"

#include "api/access/keyring.h"
#include "base/files/small_file.h"
#include "host/settings.h"
#include "host/socket_dir.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(((struct admin_client *)0)->socket) == SOCKET_PATH_BYTES, "a socket's path");
_Static_assert(sizeof(((struct admin_client *)0)->key) == KEYRING_KEY_BYTES_MAX + 1, "a key");

#define CONNECT_S 10

/* ---- which server ---- */

static int several(const struct socket_servers *found, struct err *e)
{
    char list[192] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < found->count && n < sizeof(list); i++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "\n  --socket %s", found->paths[i]);
    return err_set(e, -E2BIG, "%u servers run here; choose one:%s%s", found->count, list,
                   n >= sizeof(list) ? "..." : "");
}

static int find_socket(struct admin_client *c, struct err *e)
{
    struct socket_servers found;
    socket_servers_find(&found);
    if (found.count > 1)
        return several(&found, e);
    if (found.count == 0 && found.shut[0])
        return err_set(e, -ENOENT,
                       "no server of this user runs here, and %s is another user's: sudo may help",
                       found.shut);
    if (found.count == 0)
        return err_set(e, -ENOENT,
                       "no server runs here: there is no admin socket. `plateau serve` starts one; --socket "
                       "PATH or --url URL names one elsewhere");
    snprintf(c->socket, sizeof(c->socket), "%s", found.paths[0]);
    return 0;
}

/* The first key of a file. */
static int read_key(const char *option, const char *path, struct admin_client *c, struct err *e)
{
    struct small_file f = {0};
    struct slice key = {0};
    int r = small_file_read(path, KEYRING_FILE_BYTES_MAX, &f, e);
    if (r == 0)
        key = keyring_first((struct slice){f.bytes, f.len});
    if (r == 0 && (key.len == 0 || key.len >= sizeof(c->key)))
        r = err_set(e, -EINVAL, "%s has no key in it", path);
    if (r == 0)
        snprintf(c->key, sizeof(c->key), "%.*s", SLICE_ARGS(key));
    small_file_done(&f);
    return r < 0 ? err_prefix(e, r, "--%s-key-file", option) : 0;
}

/* option: "admin" or "api" */
static int take_key(const char *option, const char *key, const char *path, struct admin_client *c,
                    struct err *e)
{
    if (!key)
        return path ? read_key(option, path, c, e) : 0;
    for (const char *at = key; *at; at++)
        if (!isgraph((unsigned char)*at) || at - key >= KEYRING_KEY_BYTES_MAX)
            return err_set(e, -EINVAL, "--%s-key: a key has 1 to %d visible ASCII characters", option,
                           KEYRING_KEY_BYTES_MAX);
    snprintf(c->key, sizeof(c->key), "%s", key);
    return 0;
}

int admin_client_open_url(const struct settings *o, struct admin_client *ret, struct err *e)
{
    struct slice url = slice_trim(slice_of(o->url), "/");
    *ret = (struct admin_client){.url = o->url};
    if (slice_ends(url, SLICE("/v1")))
        url = slice_sub(url, 0, url.len - 3);
    if (url.len == 0 || url.len >= sizeof(ret->base))
        return err_set(e, -EINVAL, "--url needs the address of a server, such as http://127.0.0.1:8080");
    snprintf(ret->base, sizeof(ret->base), "%.*s", SLICE_ARGS(url));
    return take_key("api", o->keys.api_keys[0], o->keys.api_key_files[0], ret, e);
}

int admin_client_open(const struct settings *o, struct admin_client *ret, struct err *e)
{
    *ret = (struct admin_client){.url = o->url};
    if (o->url && o->socket)
        return err_set(e, -EINVAL, "--socket and --url are two servers: give one of them");
    if (o->url)
        return take_key("admin", o->keys.admin_keys[0], o->keys.admin_key_files[0], ret, e);
    if (!o->socket)
        return find_socket(ret, e);
    if (strlen(o->socket) >= sizeof(ret->socket))
        return err_set(e, -EINVAL, "--socket: the path of a Unix socket has at most %zu bytes",
                       sizeof(ret->socket) - 1);
    snprintf(ret->socket, sizeof(ret->socket), "%s", o->socket);
    return 0;
}

void admin_client_close(struct admin_client *c)
{
    explicit_bzero(c, sizeof(*c));
}

/* ---- asking ---- */

static size_t on_bytes(char *bytes, size_t size, size_t count, void *arg)
{
    struct buf *body = arg;
    buf_put(body, bytes, size * count);
    return body->error ? 0 : size * count;
}

#define SET(option, value) code = code == CURLE_OK ? curl_easy_setopt(h, option, value) : code

/* Where, for any request. */
static CURLcode address(CURL *h, const struct admin_client *c, const char *path)
{
    CURLcode code = CURLE_OK;
    char url[2048];
    const char *base = c->base[0] ? c->base : c->url;
    size_t end = base ? strlen(base) : 0;
    while (end > 0 && base[end - 1] == '/')
        end--;
    int n = c->socket[0] ? snprintf(url, sizeof(url), "http://localhost%s", path)
                         : snprintf(url, sizeof(url), "%.*s%s", (int)end, base, path);
    if (n < 0 || (size_t)n >= sizeof(url))
        return CURLE_URL_MALFORMAT;
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_DEFAULT_PROTOCOL, "http");
    SET(CURLOPT_URL, url);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    SET(CURLOPT_USERAGENT, "plateau/" PLATEAU_VERSION);
    if (c->socket[0]) {
        if (c->socket[0] == '@')
            SET(CURLOPT_ABSTRACT_UNIX_SOCKET, c->socket + 1);
        else
            SET(CURLOPT_UNIX_SOCKET_PATH, c->socket);
        SET(CURLOPT_NOPROXY, "*");
    }
    return code;
}

static CURLcode set_up(CURL *h, const struct admin_client *c, const char *method, const char *path,
                       struct admin_reply *ret)
{
    CURLcode code = address(h, c, path);
    SET(CURLOPT_WRITEFUNCTION, on_bytes);
    SET(CURLOPT_WRITEDATA, &ret->body);
    if (strcmp(method, "POST") == 0) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDS, c->body ? c->body : "");
    }
    return code;
}

static struct curl_slist *headers_of(const struct admin_client *c)
{
    char line[KEYRING_KEY_BYTES_MAX + 64];
    if (!c->key[0])
        return NULL;
    snprintf(line, sizeof(line), "Authorization: Bearer %s", c->key);
    struct curl_slist *list = curl_slist_append(NULL, line);
    explicit_bzero(line, sizeof(line));
    return list;
}

static int explain(const struct admin_client *c, CURLcode code, struct err *e)
{
    const char *where = c->socket[0] ? c->socket : c->url;
    if (code == CURLE_OUT_OF_MEMORY)
        return err_set(e, -ENOMEM, "no memory");
    if (code == CURLE_COULDNT_CONNECT)
        return err_set(e, -ECONNREFUSED, "no server answers at %s", where);
    if (code == CURLE_WRITE_ERROR)
        return err_set(e, -EIO, "%s: the answer is longer than %zu bytes", where, ADMIN_REPLY_BYTES_MAX);
    return err_set(e, -EIO, "%s: %s", where, curl_easy_strerror(code));
}

int admin_client_explain(const struct admin_client *c, int code, struct err *e)
{
    return explain(c, (CURLcode)code, e);
}

int admin_client_prepare(const struct admin_client *c, void *h, const char *path, struct curl_slist **headers,
                         struct err *e)
{
    struct curl_slist *list = headers_of(c);
    struct curl_slist *longer = curl_slist_append(list, "Content-Type: application/json");
    CURLcode code = longer ? address(h, c, path) : CURLE_OUT_OF_MEMORY;
    *headers = longer ? longer : list;
    SET(CURLOPT_HTTPHEADER, *headers);
    return code == CURLE_OK ? 0 : explain(c, code, e);
}

const char *admin_client_sentence(const json_t *body)
{
    const json_t *error = json_object_get(body, "error");
    return json_string_value(json_is_string(error) ? error : json_object_get(error, "message"));
}

/* As `admin_client_order()`, but succeeds whatever the status is. */
static int request(const struct admin_client *c, const char *method, const char *path,
                   struct admin_reply *ret, struct err *e)
{
    long status = 0;
    *ret = (struct admin_reply){.status = 0};
    buf_init(&ret->body, ADMIN_REPLY_BYTES_MAX, NULL);
    CURL *h = curl_easy_init();
    if (!h)
        return err_set(e, -ENOMEM, "no memory");
    struct curl_slist *headers = headers_of(c);
    CURLcode code = set_up(h, c, method, path, ret);
    SET(CURLOPT_HTTPHEADER, headers);
    if (code == CURLE_OK)
        code = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    if (code != CURLE_OK)
        return explain(c, code, e);
    ret->status = (unsigned)status;
    if (ret->body.len > 0)
        ret->json = json_loadb(ret->body.ptr, ret->body.len, 0, NULL);
    return 0;
}

int admin_client_order(const struct admin_client *c, const char *method, const char *path,
                       struct admin_reply *ret, struct err *e)
{
    int r = request(c, method, path, ret, e);
    if (r < 0 || ret->status < 400)
        return r;
    const char *message = admin_client_sentence(ret->json);
    if (ret->status == 401 && !c->key[0])
        return err_set(e, -EPROTO, "%s needs its admin key: --admin-key-file FILE or PLATEAU_ADMIN_KEY",
                       c->url ? c->url : c->socket);
    return err_set(e, -EPROTO, "%s (status %u)", message ? message : "the server refused", ret->status);
}

void admin_reply_done(struct admin_reply *r)
{
    buf_done(&r->body);
    json_decref(r->json);
    *r = (struct admin_reply){.status = 0};
}

int admin_path(const char *prefix, const char *id, const char *suffix, char *ret, size_t bytes_max)
{
    size_t n = (size_t)snprintf(ret, bytes_max, "%s", prefix);
    for (const char *at = id; *at && n < bytes_max; at++)
        n += (size_t)snprintf(ret + n, bytes_max - n,
                              isalnum((unsigned char)*at) || strchr("-._~", *at) ? "%c" : "%%%02X",
                              (unsigned char)*at);
    if (n < bytes_max)
        n += (size_t)snprintf(ret + n, bytes_max - n, "%s", suffix);
    return n < bytes_max ? 0 : -ENAMETOOLONG;
}

static int put(const char *bytes, size_t len, void *arg)
{
    struct buf *ret = arg;
    buf_put(ret, bytes, len);
    return ret->error;
}

int admin_write_json(const json_t *value, struct buf *ret)
{
    return value && json_dump_callback(value, put, ret, JSON_COMPACT) == 0 && !ret->error ? 0 : -ENOMEM;
}
