/* hub_http.c - one libcurl multi handle.
 *
 * Redirects are followed here and not by libcurl, so this file alone decides which host gets the token: an
 * address is compared with the endpoint's scheme, host and port, and only an equal one gets it. */
#include "hub/hub_http.h"

#include "base/check.h"
#include "base/public_address.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define PUBLIC_HUB   "https://huggingface.co"
#define HOPS_MAX     5
#define CONNECT_MS   30000l
#define SLOW_BYTES   1000l
#define RETRY_S_MAX  3600
#define TOKEN_MAX    1024
#define HEADER_BYTES 256
#define BUFFER_BYTES 131072l
#define ERROR_BYTES  65536u /* unread bytes of a body that are read and dropped */

struct origin {
    char scheme[16], host[256], port[8];
};

struct exchange {
    struct hub_http *http;
    struct hub_transfer *t; /* NULL: free */
    CURL *easy;
    struct curl_slist *headers;
    char url[HUB_URL_BYTES];
    unsigned hops;
    bool home;    /* the address is the endpoint's */
    bool refused; /* it leads to a private address */
    bool whole, longer, moved;
    bool over;       /* the body that is not read is long: its headers are enough */
    uint64_t unread; /* bytes of it */
    /* Read from the reply. */
    char error[HEADER_BYTES], range[HEADER_BYTES];
    unsigned retry_s;
    bool retry_given;
};

struct hub_http {
    char endpoint[HUB_URL_BYTES], token[TOKEN_MAX];
    struct origin origin;
    bool mirror;  /* the endpoint is not the public hub */
    bool local;   /* the endpoint is of this machine: http is fine */
    bool private; /* the endpoint's address was not public: redirects may lead to such */
    unsigned stall_s;
    CURLM *multi;
    struct exchange exchanges[HUB_TRANSFERS_MAX];
};

/* ---- addresses ---- */

static bool part(CURLU *u, CURLUPart what, char *ret, size_t bytes_max)
{
    char *text = NULL;
    bool fits = curl_url_get(u, what, &text, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                (size_t)snprintf(ret, bytes_max, "%s", text) < bytes_max;
    curl_free(text);
    return fits;
}

static bool origin_of(const char *url, struct origin *ret)
{
    CURLU *u = curl_url();
    char *user = NULL;
    bool is = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_NO_USER &&
              part(u, CURLUPART_SCHEME, ret->scheme, sizeof(ret->scheme)) &&
              part(u, CURLUPART_HOST, ret->host, sizeof(ret->host)) &&
              part(u, CURLUPART_PORT, ret->port, sizeof(ret->port));
    curl_free(user);
    curl_url_cleanup(u);
    return is;
}

static bool same_origin(const struct origin *a, const struct origin *b)
{
    return strcasecmp(a->scheme, b->scheme) == 0 && strcasecmp(a->host, b->host) == 0 &&
           strcmp(a->port, b->port) == 0;
}

static bool is_loopback(const struct origin *o)
{
    bool v4 = strncmp(o->host, "127.", 4) == 0 && o->host[strspn(o->host, "0123456789.")] == 0;
    return v4 || strcasecmp(o->host, "localhost") == 0 || strcmp(o->host, "[::1]") == 0;
}

static bool may_ask(const struct hub_http *h, const struct origin *o)
{
    return strcasecmp(o->scheme, "https") == 0 ||
           (h->local && strcasecmp(o->scheme, "http") == 0 && is_loopback(o));
}

bool hub_http_encode(const char *name, char *ret, size_t bytes_max)
{
    size_t n = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
                     strchr("-._~/", *c);
        if (n + 4 > bytes_max)
            return false;
        n += (size_t)snprintf(ret + n, 4, plain ? "%c" : "%%%02X", *c);
    }
    return n < bytes_max;
}

/* ---- libcurl's callbacks ---- */

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct exchange *x = arg;
    (void)purpose;
    bool public = public_address_is(&a->addr, (socklen_t)a->addrlen);
    if (x->home && !public)
        x->http->private = true;
    if (!x->home && !public && !x->http->private) {
        x->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static bool header_is(struct slice line, const char *name, char *ret, size_t bytes_max)
{
    size_t len = strlen(name);
    if (line.len <= len || line.ptr[len] != ':' || !slice_starts_any_case(line, slice_of(name)))
        return false;
    struct slice value = slice_trim(slice_sub(line, len + 1, line.len), SLICE_BLANKS);
    snprintf(ret, bytes_max, "%.*s", (int)MIN_OF(value.len, bytes_max - 1), value.ptr);
    return true;
}

/* <URL>; rel="next" */
static void note_link(struct exchange *x, const char *text)
{
    const char *from = strchr(text, '<'), *to = from ? strchr(from, '>') : NULL;
    size_t head = strlen(x->http->endpoint);
    if (!to || !strstr(to, "rel=\"next\"") || strncmp(from + 1, x->http->endpoint, head) != 0 ||
        from[1 + head] != '/')
        return;
    snprintf(x->t->next, sizeof(x->t->next), "%.*s", (int)(to - from - 1 - (long)head), from + 1 + head);
}

static size_t take_header(char *bytes, size_t size, size_t count, void *arg)
{
    struct exchange *x = arg;
    struct slice line = {bytes, size * count};
    char text[HUB_URL_BYTES];
    uint64_t seconds;
    if (slice_starts(line, SLICE("HTTP/"))) {
        x->error[0] = x->range[0] = 0;
        x->retry_given = false;
    } else if (header_is(line, "link", text, sizeof(text))) {
        note_link(x, text);
    } else if (header_is(line, "retry-after", text, sizeof(text))) {
        x->retry_given = slice_u64(slice_of(text), RETRY_S_MAX, &seconds);
        x->retry_s = x->retry_given ? (unsigned)seconds : 0;
    } else if (!header_is(line, "x-error-code", x->error, sizeof(x->error))) {
        header_is(line, "content-range", x->range, sizeof(x->range));
    }
    return line.len;
}

/* "bytes FROM-TO/TOTAL" of the requested range. */
static bool range_matches(const struct exchange *x)
{
    const struct hub_transfer *t = x->t;
    ull from, to, total;
    return sscanf(x->range, "bytes %llu-%llu/%llu", &from, &to, &total) == 3 && from == t->from &&
           to < t->from + t->bytes && to >= from && (t->file_bytes == 0 || total == t->file_bytes);
}

static long status_of(const struct exchange *x)
{
    long status = 0;
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static size_t take_bytes(char *bytes, size_t size, size_t count, void *arg)
{
    struct exchange *x = arg;
    struct hub_transfer *t = x->t;
    size_t len = size * count;
    long status = status_of(x);
    uint64_t most = t->bytes ? t->bytes : t->bytes_max;
    /* The headers of an error or a redirect say what counts. */
    if (status != 200 && status != 206) {
        x->unread += len;
        x->over = x->unread > ERROR_BYTES;
        return x->over ? CURL_WRITEFUNC_ERROR : len;
    }
    x->whole = status == 200 && t->bytes && (t->from > 0 || t->bytes != t->file_bytes);
    x->moved = status == 206 && !range_matches(x);
    x->longer = !x->whole && len > most - t->came;
    if (x->whole || x->moved || x->longer)
        return CURL_WRITEFUNC_ERROR;
    int r = t->take(t->arg, (struct slice){bytes, len});
    if (r < 0) {
        t->code = r;
        return CURL_WRITEFUNC_ERROR;
    }
    t->came += len;
    return len;
}

/* ---- one exchange ---- */

static bool add_header(struct exchange *x, const char *line)
{
    struct curl_slist *l = curl_slist_append(x->headers, line);
    x->headers = l ? l : x->headers;
    return l != NULL;
}

static bool set_headers(struct exchange *x)
{
    char line[TOKEN_MAX + 32];
    curl_slist_free_all(x->headers);
    x->headers = NULL;
    bool done = add_header(x, "Accept-Encoding: identity");
    if (x->home && x->http->token[0]) {
        snprintf(line, sizeof(line), "Authorization: Bearer %s", x->http->token);
        done = done && add_header(x, line);
        explicit_bzero(line, sizeof(line));
    }
    return done;
}

static CURLcode set_up(struct exchange *x)
{
    char range[64];
    CURL *c = x->easy;
    CURLcode r = CURLE_OK;
#define SET(option, value) r = r == CURLE_OK ? curl_easy_setopt(c, option, value) : r
    SET(CURLOPT_URL, x->url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0l);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_NOSIGNAL, 1l);
    SET(CURLOPT_QUICK_EXIT, 1l);
    SET(CURLOPT_USERAGENT, "plateau/" PLATEAU_VERSION);
    SET(CURLOPT_HTTPHEADER, x->headers);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    SET(CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES);
    SET(CURLOPT_LOW_SPEED_TIME, (long)x->http->stall_s);
    SET(CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, x);
    SET(CURLOPT_HEADERFUNCTION, take_header);
    SET(CURLOPT_HEADERDATA, x);
    SET(CURLOPT_WRITEFUNCTION, take_bytes);
    SET(CURLOPT_WRITEDATA, x);
    SET(CURLOPT_PRIVATE, x);
    if (x->t->bytes) {
        snprintf(range, sizeof(range), "%llu-%llu", (ull)x->t->from, (ull)(x->t->from + x->t->bytes - 1));
        SET(CURLOPT_RANGE, range);
    }
#undef SET
    return r;
}

static void stop(struct exchange *x)
{
    if (x->easy) {
        curl_multi_remove_handle(x->http->multi, x->easy);
        curl_easy_cleanup(x->easy);
    }
    curl_slist_free_all(x->headers);
    x->easy = NULL;
    x->headers = NULL;
}

/* Asks x->url. */
static int ask(struct exchange *x)
{
    stop(x);
    x->over = false;
    x->unread = 0;
    x->easy = curl_easy_init();
    bool asked = x->easy && set_headers(x) && set_up(x) == CURLE_OK &&
                 curl_multi_add_handle(x->http->multi, x->easy) == CURLM_OK;
    return asked ? 0 : -ENOMEM;
}

int hub_http_begin(struct hub_http *h, struct hub_transfer *t, struct err *e)
{
    struct exchange *x = h->exchanges;
    while (x->t)
        x++;
    ASSERT(x < h->exchanges + HUB_TRANSFERS_MAX);
    *x = (struct exchange){.http = h, .t = t, .home = true};
    t->came = 0;
    t->code = 0;
    t->wait_s = 0;
    t->next[0] = 0;
    t->why.text[0] = 0;
    t->state = x;
    int n = snprintf(x->url, sizeof(x->url), "%s%s", h->endpoint, t->path);
    int r = n < HUB_URL_BYTES ? ask(x) : -ENAMETOOLONG;
    if (r < 0) {
        hub_http_drop(h, t);
        return err_set(e, r, "a request to the hub could not be made");
    }
    return 0;
}

void hub_http_drop(struct hub_http *h, struct hub_transfer *t)
{
    struct exchange *x = t->state;
    ASSERT(!x || x->http == h);
    if (x) {
        stop(x);
        x->t = NULL;
    }
    t->state = NULL;
}

/* ---- how it ended ---- */

static void fail(struct exchange *x, int code, const char *why)
{
    x->t->end = HUB_END_FAILED;
    x->t->code = code;
    err_set(&x->t->why, code, "%s", why);
}

static void again(struct exchange *x, unsigned wait_s, const char *why)
{
    x->t->end = HUB_END_AGAIN;
    x->t->wait_s = wait_s;
    err_set(&x->t->why, -EAGAIN, "%s", why);
}

/* No connection, or no answer on it: the text names the host and what to do. */
static void say_unreachable(struct exchange *x, CURLcode code)
{
    char text[sizeof(x->t->why.text)];
    struct origin at = {.host = "?"};
    if (x->home)
        snprintf(text, sizeof(text),
                 "%.200s cannot be reached: %s. Check the network, or name %s in HF_ENDPOINT",
                 x->http->endpoint, curl_easy_strerror(code), x->http->mirror ? "another" : "a mirror");
    else if (origin_of(x->url, &at))
        snprintf(text, sizeof(text), "%.200s, where the hub keeps the files, cannot be reached: %s", at.host,
                 curl_easy_strerror(code));
    again(x, 0, text);
}

/* True: the next address was asked. */
static bool follow(struct exchange *x)
{
    char *url = NULL;
    struct origin next;
    curl_easy_getinfo(x->easy, CURLINFO_REDIRECT_URL, &url);
    if (!url || ++x->hops > HOPS_MAX || !origin_of(url, &next) || strlen(url) >= sizeof(x->url)) {
        fail(x, -ELOOP, "the hub redirects to no address, or too often");
    } else if (!may_ask(x->http, &next)) {
        fail(x, -EPERM, "the hub redirects to an address without https");
    } else {
        snprintf(x->url, sizeof(x->url), "%s", url);
        x->home = same_origin(&next, &x->http->origin);
        if (ask(x) == 0)
            return true;
        fail(x, -ENOMEM, "no memory for a request");
    }
    return false;
}

static void fail_status(struct exchange *x, long status)
{
    char text[128];
    bool token = x->http->token[0];
    snprintf(text, sizeof(text), "the hub answered with status %ld", status);
    if (status == 429 || status == 503)
        again(x, x->retry_given ? MAX_OF(x->retry_s, 1u) : 0, text);
    else if (status >= 500 || status == 408 || (status == 403 && !x->home))
        again(x, 0, text);
    else if (strcmp(x->error, "GatedRepo") == 0)
        fail(x, -EACCES,
             "its terms have to be accepted on its page at the hub first, by the owner of the token");
    else if (strcmp(x->error, "RevisionNotFound") == 0)
        fail(x, -ENOENT, "the hub has the model, but not this revision");
    else if (strcmp(x->error, "EntryNotFound") == 0)
        fail(x, -ENOENT, "the hub lists a file that it does not have");
    else if (strcmp(x->error, "RepoNotFound") == 0 || status == 401 || status == 403 || status == 404)
        fail(x, -ENOENT,
             token ? "the hub does not have this model, or the token may not read it"
                   : "the hub does not have this model, or it is private: set HF_TOKEN to a token that may "
                     "read it");
    else if (status == 416)
        fail(x, -ESTALE, "a file at the hub is shorter than listed");
    else
        fail(x, -EPROTO, text);
}

static void end_error(struct exchange *x, CURLcode code)
{
    if (x->whole)
        x->t->end = HUB_END_WHOLE;
    else if (x->t->code < 0)
        fail(x, x->t->code, strerror(-x->t->code));
    else if (x->moved)
        fail(x, -ESTALE, "the hub sent another range than asked for, or the size of a file is not as listed");
    else if (x->longer)
        fail(x, -ESTALE, "the hub sent more bytes than listed");
    else if (x->refused)
        fail(x, -EPERM, "the hub redirects to a private address");
    else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        fail(x, -EPERM, curl_easy_strerror(code));
    else if (status_of(x) == 0)
        say_unreachable(x, code);
    else
        again(x, 0, curl_easy_strerror(code));
}

/* False: a redirect is being followed. */
static bool finish(struct exchange *x, CURLcode code)
{
    struct hub_transfer *t = x->t;
    long status = status_of(x);
    t->end = HUB_END_OK;
    if (code != CURLE_OK && !x->over)
        end_error(x, code);
    else if (status >= 300 && status < 400 && status != 304)
        return !follow(x);
    else if (status != 200 && status != 206)
        fail_status(x, status);
    else if (t->bytes && t->came < t->bytes)
        again(x, 0, "the hub sent fewer bytes than asked for");
    return true;
}

struct hub_transfer *hub_http_poll(struct hub_http *h)
{
    int left, running;
    CURLMsg *msg;
    curl_multi_perform(h->multi, &running);
    while ((msg = curl_multi_info_read(h->multi, &left))) {
        struct exchange *x = NULL;
        CURLcode code = msg->data.result;
        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        if (finish(x, code)) {
            struct hub_transfer *t = x->t;
            hub_http_drop(h, t);
            return t;
        }
    }
    return NULL;
}

void hub_http_wait(struct hub_http *h, unsigned ms)
{
    curl_multi_poll(h->multi, NULL, 0, (int)ms, NULL);
}

int hub_http_create(const struct hub_http_opts *opts, struct hub_http **ret, struct err *e)
{
    const char *endpoint = opts->endpoint && opts->endpoint[0] ? opts->endpoint : PUBLIC_HUB;
    struct hub_http *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(e, -ENOMEM, "no memory for requests");
    snprintf(h->endpoint, sizeof(h->endpoint), "%s", endpoint);
    for (size_t len = strlen(h->endpoint); len > 0 && h->endpoint[len - 1] == '/';)
        h->endpoint[--len] = 0;
    h->stall_s = opts->stall_s;
    h->mirror = strcmp(h->endpoint, PUBLIC_HUB) != 0;
    int r = 0;
    if (!origin_of(h->endpoint, &h->origin) || strlen(endpoint) >= sizeof(h->endpoint) ||
        strpbrk(endpoint, "?#"))
        r = err_set(e, -EINVAL,
                    "HF_ENDPOINT: not an address such as https://hub.example, without a user name");
    h->local = is_loopback(&h->origin);
    if (r == 0 && !may_ask(h, &h->origin))
        r = err_set(e, -EINVAL, "HF_ENDPOINT: only https, except for this machine");
    if (r == 0 && opts->token && snprintf(h->token, sizeof(h->token), "%s", opts->token) >= TOKEN_MAX)
        r = err_set(e, -EINVAL, "the hub's token is longer than %d bytes", TOKEN_MAX - 1);
    if (r == 0 && (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(h->multi = curl_multi_init())))
        r = err_set(e, -ENOMEM, "no memory for requests");
    if (r < 0) {
        hub_http_free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void hub_http_free(struct hub_http *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < HUB_TRANSFERS_MAX; i++)
        if (h->exchanges[i].t)
            hub_http_drop(h, h->exchanges[i].t);
    if (h->multi)
        curl_multi_cleanup(h->multi);
    explicit_bzero(h, sizeof(*h));
    free(h);
}
