/* shared_redis.c - commands of Redis through libhiredis.
 *
 * The library's own loop has no end for a server that sends a byte now and then, and no bound for a reply.
 * Therefore the loop stands here: the library fills its buffer 16 KiB at a time, and the clock is read after
 * each. The library allocates an array as long as its head says, before an element has come. Therefore its
 * allocators are called through bounds. */
#include "store/shared_redis.h"

#include "store/hiredis_library.h"
#include "store/shared_value.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hex.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>

#define CALL_NS    NS_PER_S
#define READ_BYTES (16 << 10)                             /* one read of the library */
#define PART_BYTES (SHARED_VALUE_BYTES + READ_BYTES + 64) /* a value that has not come whole */
#define PREFIX     "plateau:"
#define NAME_BYTES (sizeof(PREFIX) + 64)

_Static_assert(SHARED_BATCH_MAX *(SHARED_VALUE_BYTES + 64) + 2 * (PART_BYTES + (1 << 20)) <=
                   SHARED_REDIS_REPLY_BYTES,
               "a reply of values, and the library's buffer while it grows by 1 MiB at most");

/* Allocators of a connection's replies: the library's, and those with bounds. */
struct redis_makers {
    struct hiredis_makers own, bounded;
};

struct shared_redis {
    struct hiredis_library lib;
    struct redis_makers makers[SHARED_THREADS];
    struct shared_address at;
    struct hiredis_context *connections[SHARED_THREADS];
};

typedef char redis_name[NAME_BYTES];

static void name_of(const struct prefix_key *key, redis_name ret)
{
    _Static_assert(NAME_BYTES == 8 + 64 + 1, "a zero ends it");
    memcpy(ret, PREFIX, sizeof(PREFIX) - 1);
    hex_text(key->bytes, sizeof(key->bytes), ret + sizeof(PREFIX) - 1);
}

static void disconnect(struct shared_redis *d, uint32_t thread)
{
    ASSERT(thread < SHARED_THREADS);
    if (d->connections[thread])
        d->lib.free(d->connections[thread]);
    d->connections[thread] = NULL;
}

/* ---- one exchange ---- */

static int say(struct shared_redis *d, struct hiredis_context *c, int argc, const char **argv,
               const size_t *lens)
{
    return d->lib.append(c, argc, argv, lens) == 0 ? 0 : -ENOMEM;
}

static int flush(struct shared_redis *d, struct hiredis_context *c, uint64_t until_ns)
{
    int done = 0;
    ASSERT(c && until_ns > 0);
    while (!done) {
        if (clock_now_ns() >= until_ns)
            return -ETIMEDOUT;
        if (d->lib.write(c, &done) != 0)
            return errno == EAGAIN ? -ETIMEDOUT : -ENOTCONN;
    }
    return 0;
}

/* ---- bounds of replies ---- */

static void *bounded_string(const struct hiredis_task *t, char *text, size_t len)
{
    const struct redis_makers *m = t->arg;
    return len <= SHARED_VALUE_BYTES ? m->own.string(t, text, len) : NULL;
}

/* No command's reply has more elements, or arrays in an array. */
static void *bounded_array(const struct hiredis_task *t, int elements)
{
    const struct redis_makers *m = t->arg;
    bool fits = !t->parent && elements >= 0 && elements <= SHARED_BATCH_MAX;
    return fits ? m->own.array(t, elements) : NULL;
}

/* No reply has come yet. */
static void bound_replies(struct redis_makers *m, struct hiredis_reader *reader)
{
    ASSERT(reader && reader->makers && !reader->reply);
    m->own = *reader->makers;
    m->bounded = m->own;
    m->bounded.string = bounded_string;
    m->bounded.array = bounded_array;
    reader->makers = &m->bounded;
    reader->arg = m;
}

/* Returns the next reply, or NULL with *error. */
static struct hiredis_reply *receive(struct shared_redis *d, struct hiredis_context *c, uint64_t until_ns,
                                     int *error)
{
    void *reply = NULL;
    *error = -EPROTO;
    while (d->lib.next(c, &reply) == 0) {
        if (reply)
            return reply;
        *error = clock_now_ns() >= until_ns             ? -ETIMEDOUT
                 : c->reader->buffer_bytes > PART_BYTES ? -EMSGSIZE
                                                        : 0;
        if (*error < 0)
            return NULL;
        if (d->lib.read(c) != 0) {
            *error = clock_now_ns() >= until_ns || errno == EAGAIN ? -ETIMEDOUT : -ENOTCONN;
            return NULL;
        }
        *error = -EPROTO;
    }
    return NULL;
}

/* The meaning of an error that the server sends. */
static int refusal_of(const struct hiredis_reply *r)
{
    static const struct {
        const char *begins;
        int error;
    } rows[] = {{"OOM", -ENOSPC},
                {"READONLY", -EROFS},
                {"MISCONF", -EROFS},
                {"NOAUTH", -EACCES},
                {"WRONGPASS", -EACCES},
                {"NOPERM", -EACCES},
                {"ERR invalid password", -EACCES},
                {"ERR AUTH", -EACCES},
                {"LOADING", -EBUSY}};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (r->str && strncmp(r->str, rows[i].begins, strlen(rows[i].begins)) == 0)
            return rows[i].error;
    return -EIO;
}

/* A command with one reply, which has to be `type`. Returns what the reply's integer is, or an error. */
static int ask(struct shared_redis *d, struct hiredis_context *c, int argc, const char **argv,
               const size_t *lens, int type)
{
    uint64_t until_ns = clock_now_ns() + CALL_NS;
    int r = say(d, c, argc, argv, lens);
    if (r == 0)
        r = flush(d, c, until_ns);
    struct hiredis_reply *reply = r == 0 ? receive(d, c, until_ns, &r) : NULL;
    if (!reply)
        return r;
    r = reply->type == type            ? (int)(reply->integer & 0x7fffffff)
        : reply->type == HIREDIS_ERROR ? refusal_of(reply)
                                       : -EPROTO;
    d->lib.free_reply(reply);
    return r;
}

static int ask_texts(struct shared_redis *d, struct hiredis_context *c, int argc, const char **argv, int type)
{
    size_t lens[4];
    ASSERT(argc <= (int)COUNT_OF(lens));
    for (int i = 0; i < argc; i++)
        lens[i] = strlen(argv[i]);
    return ask(d, c, argc, argv, lens, type);
}

/* ---- connections ---- */

static int log_in(struct shared_redis *d, struct hiredis_context *c)
{
    const char *user[] = {"AUTH", d->at.user, d->at.password}, *alone[] = {"AUTH", d->at.password};
    char number[16];
    const char *select[] = {"SELECT", number};
    const char *ping[] = {"PING"};
    snprintf(number, sizeof(number), "%u", d->at.database);
    int r = 0;
    if (d->at.password[0])
        r = d->at.user[0] ? ask_texts(d, c, 3, user, HIREDIS_STATUS)
                          : ask_texts(d, c, 2, alone, HIREDIS_STATUS);
    if (r == 0 && d->at.database > 0)
        r = ask_texts(d, c, 2, select, HIREDIS_STATUS);
    return r == 0 ? ask_texts(d, c, 1, ping, HIREDIS_STATUS) : r;
}

static int redis_ready(void *arg, uint32_t thread)
{
    struct shared_redis *d = arg;
    struct timeval second = {1, 0};
    ASSERT(thread < SHARED_THREADS);
    disconnect(d, thread);
    errno = 0;
    struct hiredis_context *c = d->lib.connect(d->at.host, (int)d->at.port, second);
    if (!c)
        return -ENOMEM;
    d->connections[thread] = c;
    int r = c->err ? (errno > 0 ? -errno : -ENOTCONN) : 0;
    if (r == 0) {
        (void)fcntl(c->fd, F_SETFD, FD_CLOEXEC);
        d->lib.set_timeout(c, second);
        bound_replies(&d->makers[thread], c->reader);
        r = log_in(d, c);
    }
    if (r < 0)
        disconnect(d, thread);
    return r;
}

static int connection_of(struct shared_redis *d, uint32_t thread, struct hiredis_context **ret)
{
    int r = d->connections[thread] ? 0 : redis_ready(d, thread);
    *ret = d->connections[thread];
    return r;
}

/* After a failure the connection may be in the middle of a reply. A refusal is a whole one. */
static int end(struct shared_redis *d, uint32_t thread, int r)
{
    bool whole = r == 0 || r == -ENOSPC || r == -EROFS || r == -EACCES || r == -EBUSY;
    if (!whole)
        disconnect(d, thread);
    return r;
}

/* ---- values ---- */

static int report(const struct hiredis_reply *all, uint32_t count, shared_found_fn *found, void *found_arg)
{
    if (all->type == HIREDIS_ERROR)
        return refusal_of(all);
    if (all->type != HIREDIS_ARRAY || all->elements != count)
        return -EPROTO;
    for (uint32_t i = 0; i < count; i++)
        if (all->element[i] && all->element[i]->type == HIREDIS_STRING)
            found(found_arg, i, all->element[i]->str, all->element[i]->len);
    return 0;
}

static int redis_get(void *arg, uint32_t thread, const struct prefix_key *names, uint32_t count,
                     shared_found_fn *found, void *found_arg)
{
    struct shared_redis *d = arg;
    redis_name texts[SHARED_BATCH_MAX];
    const char *argv[SHARED_BATCH_MAX + 1] = {"MGET"};
    size_t lens[SHARED_BATCH_MAX + 1] = {4};
    struct hiredis_context *c;
    uint64_t until_ns = clock_now_ns() + CALL_NS;
    int r = connection_of(d, thread, &c);
    ASSERT(count > 0 && count <= SHARED_BATCH_MAX);
    for (uint32_t i = 0; i < count; i++) {
        name_of(&names[i], texts[i]);
        argv[i + 1] = texts[i];
        lens[i + 1] = NAME_BYTES - 1;
    }
    if (r == 0)
        r = say(d, c, (int)count + 1, argv, lens);
    if (r == 0)
        r = flush(d, c, until_ns);
    struct hiredis_reply *reply = r == 0 ? receive(d, c, until_ns, &r) : NULL;
    if (!reply)
        return end(d, thread, r);
    r = report(reply, count, found, found_arg);
    d->lib.free_reply(reply);
    return end(d, thread, r);
}

/* All questions go out before the first answer is read. */
static int redis_has(void *arg, uint32_t thread, const struct prefix_key *names, uint32_t count, bool *ret)
{
    struct shared_redis *d = arg;
    struct hiredis_context *c;
    uint64_t until_ns = clock_now_ns() + CALL_NS;
    int r = connection_of(d, thread, &c);
    ASSERT(count > 0 && count <= SHARED_QUERY_MAX);
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        redis_name text;
        name_of(&names[i], text);
        r = say(d, c, 2, (const char *[]){"EXISTS", text}, (const size_t[]){6, NAME_BYTES - 1});
    }
    if (r == 0)
        r = flush(d, c, until_ns);
    int refused = 0;
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        struct hiredis_reply *reply = receive(d, c, until_ns, &r);
        if (!reply)
            break;
        r = 0;
        ret[i] = reply->type == HIREDIS_INTEGER && reply->integer == 1;
        if (reply->type == HIREDIS_ERROR)
            refused = refusal_of(reply);
        else if (reply->type != HIREDIS_INTEGER)
            r = -EPROTO;
        d->lib.free_reply(reply);
    }
    return end(d, thread, r < 0 ? r : refused);
}

static int redis_put(void *arg, uint32_t thread, const struct prefix_key *name, const char *value, size_t len)
{
    struct shared_redis *d = arg;
    struct hiredis_context *c;
    redis_name text;
    int r = connection_of(d, thread, &c);
    ASSERT(len > 0 && len <= SHARED_VALUE_BYTES);
    name_of(name, text);
    if (r == 0)
        r = ask(d, c, 3, (const char *[]){"SET", text, value}, (const size_t[]){3, NAME_BYTES - 1, len},
                HIREDIS_STATUS);
    return end(d, thread, r);
}

static void redis_drop(void *arg, uint32_t thread, const struct prefix_key *name)
{
    struct shared_redis *d = arg;
    struct hiredis_context *c;
    redis_name text;
    name_of(name, text);
    if (connection_of(d, thread, &c) == 0) {
        int r =
            ask(d, c, 2, (const char *[]){"DEL", text}, (const size_t[]){3, NAME_BYTES - 1}, HIREDIS_INTEGER);
        (void)end(d, thread, MIN_OF(r, 0));
    }
}

static void redis_close(void *arg)
{
    struct shared_redis *d = arg;
    for (uint32_t i = 0; i < SHARED_THREADS; i++)
        disconnect(d, i);
    explicit_bzero(d->at.password, sizeof(d->at.password));
}

size_t shared_redis_arena_bytes(void)
{
    return sizeof(struct shared_redis) + 64;
}

int shared_redis_create(struct arena *a, const struct shared_address *at, struct shared_backend *ret,
                        struct err *e)
{
    struct shared_redis *d = ARENA_NEW(a, struct shared_redis);
    int r = d ? hiredis_library_open(&d->lib, e) : -ENOMEM;
    if (r < 0)
        return r;
    d->at = *at;
    *ret = (struct shared_backend){.arg = d,
                                   .query_max = SHARED_QUERY_MAX,
                                   .ready = redis_ready,
                                   .get = redis_get,
                                   .put = redis_put,
                                   .has = redis_has,
                                   .drop = redis_drop,
                                   .close = redis_close};
    return 0;
}
