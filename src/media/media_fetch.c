/* media_fetch.c - sources from the network: one thread, one libcurl multi handle, a bounded number of
 * transfers.
 *
 * A client chooses the host that this server connects to, so a request is no more than "give me that image".
 * Everything else is off: protocols but http and https (also after redirects), proxies, cookies, .netrc,
 * credentials, the environment. The address of each connection is checked when its socket is made: after
 * names were resolved, and again for each redirect. Bytes are counted as they arrive, whatever Content-Length
 * says. A task's sources are fetched one after the other.
 *
 * libcurl resolves a name on a thread of its own, which cannot be stopped; removing the transfer would wait
 * for it. So a transfer whose task is left meanwhile lingers without the task until the name is resolved. It
 * keeps its place, so there are never more such threads than places, and no other task waits for them. */
#include "media/media_task.h"

#include "base/public_address.h"

#include "base/check.h"
#include "base/log.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRANSFERS_MAX  16
#define REDIRECTS_MAX  3
#define CONNECT_MS_MAX 10000l
#define STACK_BYTES    ((size_t)256 << 10)
#define POLL_MS        1000

struct transfer {
    struct media_task *task; /* NULL: free, or it lingers */
    uint32_t source;         /* index of the task's source under way */
    CURL *easy;
    int sockets;  /* open now; none: its name is being resolved */
    int r;        /* why the write callback ended it: -E2BIG, -ENOMEM */
    bool refused; /* an address was refused */
};

struct fetch {
    struct media *media;
    fetch_done_fn *fetched;
    CURLM *multi;
    struct list tasks; /* tasks that wait for a transfer; guarded by the service's lock */
    bool stopping;     /* guarded by the service's lock */
    struct transfer transfers[TRANSFERS_MAX];
    pthread_t thread;
    struct thread_stack stack;
    bool runs;
};

/* ---- libcurl's callbacks ---- */

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct transfer *x = arg;
    (void)purpose;
    if (!x->task)
        return CURL_SOCKET_BAD;
    if (!media_allows_all_addresses && !public_address_is(&a->addr, (socklen_t)a->addrlen)) {
        x->refused = true;
        atomic_fetch_add(&x->task->media->addresses_refused, 1);
        return CURL_SOCKET_BAD;
    }
    int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    x->sockets += fd >= 0;
    return fd;
}

static int close_socket(void *arg, curl_socket_t fd)
{
    struct transfer *x = arg;
    x->sockets--;
    return close(fd);
}

static size_t take_bytes(char *bytes, size_t size, size_t count, void *arg)
{
    struct transfer *x = arg;
    struct media_task *t = x->task;
    if (!t)
        return CURL_WRITEFUNC_ERROR;
    struct media_bytes *b = &t->sources[x->source].bytes;
    size_t len = size * count, bytes_max = t->media->opts.bytes_max;
    if (len > bytes_max || b->len > bytes_max - len)
        x->r = -E2BIG;
    else
        x->r = media_bytes_reserve(b, b->len + len, &t->media->charge);
    if (x->r < 0)
        return CURL_WRITEFUNC_ERROR;
    memcpy(b->ptr + b->len, bytes, len);
    b->len += len;
    atomic_fetch_add(&t->bytes_fetched, len);
    atomic_fetch_add(&t->media->bytes_fetched, len);
    return len;
}

static CURLcode set_up(struct transfer *x, struct media_task *t, const char *url)
{
    const struct media_opts *o = &t->media->opts;
    CURL *c = x->easy;
    CURLcode r = CURLE_OK;
#define SET(option, value) r = r == CURLE_OK ? curl_easy_setopt(c, option, value) : r
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 1l);
    SET(CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1l);
    SET(CURLOPT_FAILONERROR, 1l);
    SET(CURLOPT_NOSIGNAL, 1l);
    SET(CURLOPT_QUICK_EXIT, 1l); /* a timeout does not wait for name resolution */
    SET(CURLOPT_USERAGENT, "plateau/" PLATEAU_VERSION);
    SET(CURLOPT_ACCEPT_ENCODING, NULL);
    SET(CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)o->bytes_max);
    SET(CURLOPT_CONNECTTIMEOUT_MS, MIN_OF(CONNECT_MS_MAX, (long)o->timeout_s * 1000));
    SET(CURLOPT_TIMEOUT_MS, (long)o->timeout_s * 1000);
    SET(CURLOPT_BUFFERSIZE, 65536l);
    SET(CURLOPT_FORBID_REUSE, 1l);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, x);
    SET(CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    SET(CURLOPT_CLOSESOCKETDATA, x);
    SET(CURLOPT_WRITEFUNCTION, take_bytes);
    SET(CURLOPT_WRITEDATA, x);
    SET(CURLOPT_PRIVATE, x);
#undef SET
    return r;
}

/* ---- one transfer ---- */

static const struct media_part *part_of(const struct media_task *t, uint32_t source)
{
    return &t->parts[t->sources[source].part];
}

static void stop_easy(struct fetch *f, struct transfer *x)
{
    if (!x->easy)
        return;
    curl_multi_remove_handle(f->multi, x->easy);
    curl_easy_cleanup(x->easy);
    x->easy = NULL;
}

/* Ends the transfer and hands its task to `fetched`. */
static void let_go(struct fetch *f, struct transfer *x)
{
    struct media_task *t = x->task;
    stop_easy(f, x);
    x->task = NULL;
    f->fetched(t);
}

/* Ends a transfer under way whose task its exchange has left: without a socket the transfer lingers. */
static void leave(struct fetch *f, struct transfer *x)
{
    struct media_task *t = x->task;
    if (x->sockets > 0)
        stop_easy(f, x);
    x->task = NULL;
    f->fetched(t);
}

static void begin_source(struct fetch *f, struct transfer *x)
{
    static const struct err none = {"no memory"};
    struct media_task *t = x->task;
    while (x->source < t->source_count && t->sources[x->source].origin != MEDIA_FROM_NETWORK)
        x->source++;
    if (x->source == t->source_count) {
        let_go(f, x);
        return;
    }
    x->r = 0;
    x->refused = false;
    x->easy = curl_easy_init();
    if (x->easy && set_up(x, t, t->sources[x->source].url) == CURLE_OK &&
        curl_multi_add_handle(f->multi, x->easy) == CURLM_OK)
        return;
    media_fail(t, part_of(t, x->source), -ENOMEM, &none);
    let_go(f, x);
}

static void fail_source(struct transfer *x, CURLcode code)
{
    struct media_task *t = x->task;
    const struct media_part *p = part_of(t, x->source);
    size_t bytes_max = t->media->opts.bytes_max;
    long status = 0;
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    if (x->r == -ENOMEM)
        media_fail(t, p, -ENOMEM, NULL);
    else if (x->r == -E2BIG || code == CURLE_FILESIZE_EXCEEDED)
        media_refuse(t, p, MEDIA_FAULT_TOO_LARGE, "has more than %zu bytes, the limit of --max-media-bytes.",
                     bytes_max);
    else if (x->refused)
        media_refuse(
            t, p, MEDIA_FAULT_NOT_ALLOWED,
            "is at an address that is not public; private, local and reserved addresses are not fetched.");
    else if (code == CURLE_HTTP_RETURNED_ERROR)
        media_refuse(t, p, MEDIA_FAULT_FETCH, "could not be fetched: its server answered with status %ld.",
                     status);
    else if (code == CURLE_OPERATION_TIMEDOUT)
        media_refuse(t, p, MEDIA_FAULT_FETCH, "could not be fetched within %u s (--media-timeout).",
                     t->media->opts.timeout_s);
    else if (code == CURLE_TOO_MANY_REDIRECTS)
        media_refuse(t, p, MEDIA_FAULT_FETCH, "was redirected more than %d times.", REDIRECTS_MAX);
    else
        media_refuse(t, p, MEDIA_FAULT_FETCH, "could not be fetched: %s.", curl_easy_strerror(code));
    LOG_INFO("media_fetch_failed", "curl=%d status=%ld error=\"%s\"", (int)code, status, t->why.message);
}

static void end_source(struct fetch *f, struct transfer *x, CURLcode code)
{
    struct media_task *t = x->task;
    if (code == CURLE_OK && t->sources[x->source].bytes.len == 0)
        code = CURLE_GOT_NOTHING;
    if (code != CURLE_OK) {
        fail_source(x, code);
        let_go(f, x);
        return;
    }
    stop_easy(f, x);
    x->source++;
    begin_source(f, x);
}

/* ---- the thread ---- */

static void read_ends(struct fetch *f)
{
    int left;
    CURLMsg *msg;
    while ((msg = curl_multi_info_read(f->multi, &left))) {
        struct transfer *x = NULL;
        CURLcode code = msg->data.result;
        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        if (x->task)
            end_source(f, x, code);
        else
            stop_easy(f, x);
    }
}

static struct media_task *next_task(struct fetch *f)
{
    struct media_task *t = NULL;
    pthread_mutex_lock(&f->media->lock);
    if (!list_empty(&f->tasks)) {
        t = LIST_FIRST(&f->tasks, struct media_task, link);
        list_remove(&t->link);
    }
    pthread_mutex_unlock(&f->media->lock);
    return t;
}

static void fill(struct fetch *f)
{
    for (size_t i = 0; i < TRANSFERS_MAX; i++) {
        struct transfer *x = &f->transfers[i];
        if (x->task && atomic_load(&x->task->stop))
            leave(f, x);
        if (x->task || x->easy)
            continue;
        struct media_task *t = next_task(f);
        if (!t)
            continue;
        atomic_store(&t->waits_since_ns, 0);
        *x = (struct transfer){.task = t};
        begin_source(f, x);
    }
}

static bool is_stopping(struct fetch *f)
{
    pthread_mutex_lock(&f->media->lock);
    bool stopping = f->stopping;
    pthread_mutex_unlock(&f->media->lock);
    return stopping;
}

static void *run(void *arg)
{
    struct fetch *f = arg;
    int running;
    while (!is_stopping(f)) {
        curl_multi_perform(f->multi, &running);
        read_ends(f);
        fill(f);
        curl_multi_poll(f->multi, NULL, 0, POLL_MS, NULL);
    }
    for (size_t i = 0; i < TRANSFERS_MAX; i++) {
        stop_easy(f, &f->transfers[i]);
        if (f->transfers[i].task)
            let_go(f, &f->transfers[i]);
    }
    return NULL;
}

void fetch_put(struct fetch *f, struct media_task *t)
{
    list_push_back(&f->tasks, &t->link);
    curl_multi_wakeup(f->multi);
}

bool fetch_take_back(struct fetch *f, struct media_task *t)
{
    if (!list_empty(&t->link)) {
        list_remove(&t->link);
        return true;
    }
    curl_multi_wakeup(f->multi);
    return false;
}

uint64_t fetch_stack_bytes(void)
{
    return thread_stack_bytes(STACK_BYTES);
}

int fetch_create(struct media *m, fetch_done_fn *fetched, struct fetch **ret)
{
    struct charge charge = account_charge(m->opts.threads ? m->opts.threads : m->opts.account);
    struct fetch *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    *ret = f;
    f->media = m;
    f->fetched = fetched;
    list_init(&f->tasks);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return -ENOMEM;
    f->multi = curl_multi_init();
    int r = f->multi ? thread_stack_init(&f->stack, STACK_BYTES, &charge) : -ENOMEM;
    if (r == 0)
        r = thread_stack_start(&f->stack, run, f, &f->thread);
    f->runs = r == 0;
    if (r == 0)
        pthread_setname_np(f->thread, "fetch");
    return r;
}

void fetch_free(struct fetch *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->media->lock);
    f->stopping = true;
    pthread_mutex_unlock(&f->media->lock);
    if (f->runs) {
        curl_multi_wakeup(f->multi);
        pthread_join(f->thread, NULL);
    }
    thread_stack_done(&f->stack);
    curl_multi_cleanup(f->multi);
    free(f);
    curl_global_cleanup();
}
