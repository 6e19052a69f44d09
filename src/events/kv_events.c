/* kv_events.c - the publisher's thread: rings of feeds to messages, messages to subscribers, numbers of lost
 * ones to copies of them.
 *
 * Other threads open and close a feed. The publisher reads the ring of an open feed, and no thread the ring
 * of an ended one. */
#include "events/kv_events.h"

#include "events/kv_message.h"
#include "events/kv_replay.h"
#include "events/zmq_library.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/threads/mailbox.h"
#include "base/threads/thread_stack.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LINGER_MS    100
#define GATHER_MS    1               /* records of this time share a message */
#define REPLAY_MS    5               /* between tries of a subscriber that does not read its replay */
#define REPLAYS_MAX  16              /* at the same time */
#define STILL_NS     (30 * NS_PER_S) /* a replay ends when its reader takes nothing for so long */
#define IDENTITY_MAX 256
/* The longest frame that a peer may send. */
#define FRAME_MAX 512
/* The end of a replay, instead of a number. */
static const uint8_t replay_end[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

enum feed_state { FEED_FREE, FEED_OPEN, FEED_ENDING, FEED_ENDED };

struct kv_feed {
    struct kv_events *events;
    _Atomic int state; /* enum feed_state */
    char topic[KV_EVENTS_TOPIC_MAX];
    struct mailbox *records;
    _Atomic bool lost; /* a removal was refused, and PREFIX_CLEARED has not come yet */
    _Atomic bool wants_all;
};

struct replay {
    uint8_t identity[IDENTITY_MAX];
    size_t identity_len;     /* 0: free */
    uint64_t next, moved_ns; /* moved_ns: when its reader last took a message */
};

struct kv_events {
    char topic[KV_EVENTS_TOPIC_MAX], pod[HOST_NAME_MAX + 1];
    uint32_t ring_records;
    uint64_t buffer_bytes;
    struct charge buffer;
    struct zmq_library zmq;
    void *context, *pub, *router; /* router NULL: nothing is replayed */
    int wake_fd;
    struct thread_stack stack;
    pthread_t thread;
    bool started;
    _Atomic bool stops;
    pthread_mutex_t lock; /* guards which feeds are free */
    pthread_cond_t ended; /* a feed has ended */
    struct kv_feed feeds[KV_FEEDS_MAX];
    /* The thread's. */
    struct kv_replay kept;
    struct replay replays[REPLAYS_MAX];
    struct prefix_event batch[KV_MESSAGE_RECORDS];
    uint8_t message[KV_MESSAGE_BYTES];
    double last_s;
    _Atomic uint64_t messages, bytes, stored, removed, cleared, replays_begun;
};

#define COUNT(field, n) atomic_fetch_add_explicit(&(field), (n), memory_order_relaxed)

/* ---- messages ---- */

static void write_number(uint64_t n, uint8_t ret[8])
{
    n = htobe64(n);
    memcpy(ret, &n, sizeof(n));
}

static uint64_t read_number(const uint8_t *at)
{
    uint64_t n;
    memcpy(&n, at, sizeof(n));
    return be64toh(n);
}

/* Three frames. A subscriber whose queue is full does not get them. */
static void send_message(struct kv_events *ev, struct slice topic, struct slice payload)
{
    uint8_t number[8];
    write_number(ev->kept.next, number);
    kv_replay_add(&ev->kept, topic, payload);
    ev->zmq.send(ev->pub, topic.ptr, topic.len, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    ev->zmq.send(ev->pub, number, sizeof(number), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    ev->zmq.send(ev->pub, payload.ptr, payload.len, ZMQ_DONTWAIT);
    COUNT(ev->messages, 1);
    COUNT(ev->bytes, payload.len);
}

/* To a subscriber AllBlocksCleared means the pages of all models. */
static void tell_others_again(struct kv_events *ev, const struct kv_feed *f)
{
    for (uint32_t i = 0; i < KV_FEEDS_MAX; i++)
        if (&ev->feeds[i] != f)
            atomic_store(&ev->feeds[i].wants_all, true);
}

static void publish(struct kv_events *ev, const struct kv_feed *f, uint32_t count)
{
    uint64_t by_kind[PREFIX_CLEARED + 1] = {0};
    for (uint32_t i = 0; i < count; i++)
        by_kind[ev->batch[i].kind]++;
    if (by_kind[PREFIX_CLEARED] > 0)
        tell_others_again(ev, f);
    COUNT(ev->stored, by_kind[PREFIX_STORED]);
    COUNT(ev->removed, by_kind[PREFIX_REMOVED]);
    COUNT(ev->cleared, by_kind[PREFIX_CLEARED]);
    ev->last_s = MAX_OF(ev->last_s, clock_wall_s());
    size_t len = kv_message_write(ev->batch, count, ev->last_s, ev->message);
    send_message(ev, slice_of(f->topic), (struct slice){(const char *)ev->message, len});
}

/* Publishes what the ring has. */
static void drain_feed(struct kv_events *ev, struct kv_feed *f)
{
    uint32_t count;
    mailbox_fd_clear(f->records);
    do {
        for (count = 0; count < KV_MESSAGE_RECORDS && mailbox_take(f->records, &ev->batch[count]);)
            count++;
        if (count > 0)
            publish(ev, f, count);
    } while (count == KV_MESSAGE_RECORDS);
}

/* An engine that ended while it had lost the thread cannot say so itself. */
static void end_feed(struct kv_events *ev, struct kv_feed *f)
{
    if (atomic_load(&f->lost)) {
        ev->batch[0] = (struct prefix_event){.kind = PREFIX_CLEARED};
        publish(ev, f, 1);
    }
    pthread_mutex_lock(&ev->lock);
    atomic_store(&f->state, FEED_ENDED);
    pthread_cond_broadcast(&ev->ended);
    pthread_mutex_unlock(&ev->lock);
}

static void serve_feeds(struct kv_events *ev)
{
    for (uint32_t i = 0; i < KV_FEEDS_MAX; i++) {
        struct kv_feed *f = &ev->feeds[i];
        int state = atomic_load(&f->state);
        if (state == FEED_OPEN || state == FEED_ENDING)
            drain_feed(ev, f);
        if (state == FEED_ENDING)
            end_feed(ev, f);
    }
}

/* ---- replays ---- */

/* Reads the frames of one request: identity, an empty one, a number. False: no request, or a wrong one. */
static bool read_request(struct kv_events *ev, struct replay *ret)
{
    uint8_t frame[FRAME_MAX] = {0};
    int len[4] = {0}, count = 0, more = 1;
    size_t more_bytes = sizeof(more);
    for (; more && count < 4; count++) {
        len[count] = ev->zmq.recv(ev->router, frame, sizeof(frame), ZMQ_DONTWAIT);
        if (len[count] < 0)
            return false;
        if (count == 0 && len[0] <= IDENTITY_MAX)
            memcpy(ret->identity, frame, (size_t)len[0]);
        ev->zmq.getsockopt(ev->router, ZMQ_RCVMORE, &more, &more_bytes);
    }
    while (more && ev->zmq.recv(ev->router, frame, sizeof(frame), ZMQ_DONTWAIT) >= 0)
        ev->zmq.getsockopt(ev->router, ZMQ_RCVMORE, &more, &more_bytes);
    ret->identity_len = (size_t)MIN_OF(len[0], IDENTITY_MAX);
    ret->next = read_number(frame);
    return count == 3 && len[0] > 0 && len[0] <= IDENTITY_MAX && len[1] == 0 && len[2] == 8;
}

/* Returns the replay of the same reader, else a free place, else the replay whose reader has not read for the
 * longest time. */
static struct replay *place_for(struct kv_events *ev, const struct replay *r)
{
    struct replay *found = &ev->replays[0];
    for (uint32_t i = 0; i < REPLAYS_MAX; i++) {
        struct replay *p = &ev->replays[i];
        if (p->identity_len == r->identity_len && memcmp(p->identity, r->identity, r->identity_len) == 0)
            return p;
        if (p->moved_ns < found->moved_ns)
            found = p;
    }
    return found;
}

static void take_requests(struct kv_events *ev)
{
    struct replay r;
    for (uint32_t i = 0; i < REPLAYS_MAX && read_request(ev, &r); i++) {
        r.next = MAX_OF(r.next, ev->kept.first);
        r.moved_ns = clock_now_ns();
        *place_for(ev, &r) = r;
        COUNT(ev->replays_begun, 1);
    }
}

/* Frames of one answer after its identity. False: no room now, or the asker has gone (*gone). */
static bool send_answer(struct kv_events *ev, const struct replay *p, struct slice topic,
                        const uint8_t number[8], struct slice payload, bool *gone)
{
    if (ev->zmq.send(ev->router, p->identity, p->identity_len, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        *gone = errno != EAGAIN;
        return false;
    }
    ev->zmq.send(ev->router, "", 0, ZMQ_SNDMORE);
    ev->zmq.send(ev->router, topic.ptr, topic.len, ZMQ_SNDMORE);
    ev->zmq.send(ev->router, number, 8, ZMQ_SNDMORE);
    ev->zmq.send(ev->router, payload.ptr, payload.len, 0);
    return true;
}

/* Messages that are forgotten meanwhile are left out: the reader sees a gap and asks again. */
static bool send_next(struct kv_events *ev, struct replay *p, bool *gone)
{
    struct slice topic, payload;
    uint8_t number[8];
    p->next = MAX_OF(p->next, ev->kept.first);
    if (!kv_replay_get(&ev->kept, p->next, &topic, &payload)) {
        bool sent = send_answer(ev, p, SLICE(""), replay_end, SLICE(""), gone);
        *gone |= sent;
        return false;
    }
    write_number(p->next, number);
    if (!send_answer(ev, p, topic, number, payload, gone))
        return false;
    p->next++;
    return true;
}

/* Sends as much as their queues take. A replay ends when its reader leaves or stops reading. True: something
 * is left. */
static bool serve_replays(struct kv_events *ev)
{
    bool left = false;
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < REPLAYS_MAX; i++) {
        struct replay *p = &ev->replays[i];
        bool gone = false;
        while (p->identity_len > 0 && send_next(ev, p, &gone))
            p->moved_ns = now_ns;
        if (gone || now_ns > p->moved_ns + STILL_NS)
            *p = (struct replay){0};
        left |= p->identity_len > 0;
    }
    return left;
}

/* ---- the thread ---- */

static void wait_for_work(struct kv_events *ev, bool replays)
{
    struct zmq_poll_item items[KV_FEEDS_MAX + 2];
    int count = 0;
    items[count++] = (struct zmq_poll_item){.fd = ev->wake_fd, .events = ZMQ_POLLIN};
    if (ev->router && !replays)
        items[count++] = (struct zmq_poll_item){.socket = ev->router, .events = ZMQ_POLLIN};
    for (uint32_t i = 0; i < KV_FEEDS_MAX; i++)
        if (atomic_load(&ev->feeds[i].state) == FEED_OPEN)
            items[count++] =
                (struct zmq_poll_item){.fd = mailbox_fd(ev->feeds[i].records), .events = ZMQ_POLLIN};
    ev->zmq.poll(items, count, replays ? REPLAY_MS : -1);
    ev->zmq.poll(NULL, 0, GATHER_MS);
    uint64_t ignored;
    (void)!read(ev->wake_fd, &ignored, sizeof(ignored));
}

static void *serve(void *arg)
{
    struct kv_events *ev = arg;
    bool replays = false;
    while (!atomic_load(&ev->stops)) {
        wait_for_work(ev, replays);
        serve_feeds(ev);
        if (ev->router) {
            take_requests(ev);
            replays = serve_replays(ev);
        }
    }
    return NULL;
}

static void wake(struct kv_events *ev)
{
    uint64_t one = 1;
    (void)!write(ev->wake_fd, &one, sizeof(one));
}

/* ---- opening and closing ---- */

static int bind_socket(struct kv_events *ev, int kind, const char *option, const char *endpoint,
                       uint64_t waiting_bytes, void **ret, struct err *e)
{
    int linger = LINGER_MS, yes = 1, waiting = (int)MAX_OF(waiting_bytes / KV_MESSAGE_BYTES, (uint64_t)2);
    int64_t frame = FRAME_MAX;
    if (strncmp(endpoint, "tcp://", 6) != 0 && strncmp(endpoint, "ipc://", 6) != 0)
        return err_set(e, -EINVAL, "%s %s: tcp://HOST:PORT or ipc://PATH is expected", option, endpoint);
    void *s = *ret = ev->zmq.socket(ev->context, kind);
    if (!s)
        return err_set(e, -ENOMEM, "%s: no socket: %s", option, ev->zmq.strerror(errno));
    ev->zmq.setsockopt(s, ZMQ_LINGER, &linger, sizeof(linger));
    ev->zmq.setsockopt(s, ZMQ_SNDHWM, &waiting, sizeof(waiting));
    ev->zmq.setsockopt(s, ZMQ_MAXMSGSIZE, &frame, sizeof(frame));
    ev->zmq.setsockopt(s, ZMQ_IPV6, &yes, sizeof(yes));
    if (kind == ZMQ_ROUTER)
        ev->zmq.setsockopt(s, ZMQ_ROUTER_MANDATORY, &yes, sizeof(yes));
    if (ev->zmq.bind(s, endpoint) == 0)
        return 0;
    int error = errno;
    return err_set(e, -error, "%s %s: %s", option, endpoint, ev->zmq.strerror(error));
}

static int open_sockets(struct kv_events *ev, const struct kv_events_opts *o, struct err *e)
{
    int r = zmq_library_open(&ev->zmq, e);
    if (r < 0)
        return r;
    ev->context = ev->zmq.ctx_new();
    if (!ev->context)
        return err_set(e, -ENOMEM, "--kv-events: no memory");
    uint64_t waiting = o->buffer_bytes / 8;
    r = bind_socket(ev, ZMQ_PUB, "--kv-events", o->endpoint, waiting, &ev->pub, e);
    return r == 0 && o->replay ? bind_socket(ev, ZMQ_ROUTER, "--kv-events-replay", o->replay,
                                             waiting / REPLAYS_MAX, &ev->router, e)
                               : r;
}

static int start_thread(struct kv_events *ev, const struct kv_events_opts *o, struct err *e)
{
    ev->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ev->wake_fd < 0)
        return err_set(e, -errno, "--kv-events: no descriptor: %s", strerror(errno));
    int r = thread_stack_init(&ev->stack, KV_EVENTS_STACK_BYTES, &o->stack);
    if (r == 0)
        r = thread_stack_start(&ev->stack, serve, ev, &ev->thread);
    if (r < 0)
        return err_set(e, r, "--kv-events: the thread could not be started");
    ev->started = true;
    pthread_setname_np(ev->thread, "kv events");
    return 0;
}

/* Replaces %p and %m of the template. False: another % or too long a topic. */
static bool write_topic(const struct kv_events *ev, const char *model, char ret[KV_EVENTS_TOPIC_MAX])
{
    size_t len = 0;
    for (const char *at = ev->topic; *at; at++) {
        const char one[2] = {*at, 0}, *text = one;
        if (*at == '%') {
            at++;
            if (*at != 'p' && *at != 'm')
                return false;
            text = *at == 'p' ? ev->pod : model;
        }
        size_t more = strlen(text);
        if (len + more >= KV_EVENTS_TOPIC_MAX)
            return false;
        memcpy(ret + len, text, more);
        len += more;
    }
    ret[len] = 0;
    return true;
}

static int init(struct kv_events *ev, const struct kv_events_opts *o, struct err *e)
{
    char topic[KV_EVENTS_TOPIC_MAX];
    *ev = (struct kv_events){.wake_fd = -1, .buffer_bytes = o->buffer_bytes, .buffer = o->buffer};
    pthread_mutex_init(&ev->lock, NULL);
    pthread_cond_init(&ev->ended, NULL);
    ev->ring_records = (uint32_t)(o->buffer_bytes / 4 / KV_FEEDS_MAX / sizeof(struct prefix_event));
    snprintf(ev->topic, sizeof(ev->topic), "%s", o->topic ? o->topic : "");
    if (gethostname(ev->pod, sizeof(ev->pod)) < 0)
        snprintf(ev->pod, sizeof(ev->pod), "localhost");
    if ((o->topic && strlen(o->topic) >= sizeof(ev->topic)) || !write_topic(ev, "", topic))
        return err_set(e, -EINVAL, "--kv-events-topic %s: it has %%p and %%m at most, and %d bytes", o->topic,
                       KV_EVENTS_TOPIC_MAX - 1);
    if (kv_replay_init(&ev->kept, o->buffer_bytes / 2 - sizeof(*ev)) < 0)
        return err_set(e, -ENOMEM, "--kv-events: no memory for the replay buffer");
    return 0;
}

int kv_events_open(const struct kv_events_opts *opts, struct kv_events **ret, struct err *e)
{
    ASSERT(opts->buffer_bytes >= KV_EVENTS_BUFFER_LEAST);
    if (charge_take(&opts->buffer, opts->buffer_bytes) < 0)
        return err_set(e, -ENOMEM, "--kv-events: no memory for its buffer");
    struct kv_events *ev = malloc(sizeof(*ev));
    if (!ev) {
        charge_give(&opts->buffer, opts->buffer_bytes);
        return err_set(e, -ENOMEM, "--kv-events: no memory");
    }
    int r = init(ev, opts, e);
    if (r == 0)
        r = open_sockets(ev, opts, e);
    if (r == 0)
        r = start_thread(ev, opts, e);
    if (r < 0) {
        kv_events_close(ev);
        return r;
    }
    LOG_INFO("kv_events", "endpoint=%s replay=%s", opts->endpoint, opts->replay ? opts->replay : "none");
    *ret = ev;
    return 0;
}

void kv_events_close(struct kv_events *ev)
{
    if (!ev)
        return;
    if (ev->started) {
        atomic_store(&ev->stops, true);
        wake(ev);
        pthread_join(ev->thread, NULL);
    }
    thread_stack_done(&ev->stack);
    if (ev->router)
        ev->zmq.close(ev->router);
    if (ev->pub)
        ev->zmq.close(ev->pub);
    if (ev->context)
        ev->zmq.ctx_term(ev->context);
    if (ev->wake_fd >= 0)
        close(ev->wake_fd);
    for (uint32_t i = 0; i < KV_FEEDS_MAX; i++)
        ASSERT(atomic_load(&ev->feeds[i].state) == FEED_FREE);
    kv_replay_done(&ev->kept);
    charge_give(&ev->buffer, ev->buffer_bytes);
    pthread_cond_destroy(&ev->ended);
    pthread_mutex_destroy(&ev->lock);
    free(ev);
}

/* ---- feeds ---- */

static bool feed_put(void *arg, const struct prefix_event *e)
{
    struct kv_feed *f = arg;
    bool taken = mailbox_put(f->records, e) == 0;
    if (e->kind == PREFIX_CLEARED && taken)
        atomic_store(&f->lost, false);
    else if (e->kind == PREFIX_REMOVED && !taken)
        atomic_store(&f->lost, true);
    return taken;
}

static bool feed_wants_all(void *arg)
{
    struct kv_feed *f = arg;
    return atomic_load(&f->wants_all) && atomic_exchange(&f->wants_all, false);
}

/* Under the lock. */
static int fill_feed(struct kv_events *ev, struct kv_feed *f, const char *model)
{
    f->events = ev;
    atomic_store(&f->lost, false);
    atomic_store(&f->wants_all, false);
    if (!write_topic(ev, model, f->topic))
        return -EINVAL;
    return mailbox_create(&(struct mailbox_opts){.messages_max = ev->ring_records,
                                                 .message_bytes = sizeof(struct prefix_event),
                                                 .eventfd = true},
                          &f->records);
}

int kv_feed_open(struct kv_events *ev, const char *model, struct kv_feed **ret,
                 struct prefix_events_opts *ret_opts)
{
    int r = -ENOSPC;
    pthread_mutex_lock(&ev->lock);
    for (uint32_t i = 0; i < KV_FEEDS_MAX && r == -ENOSPC; i++) {
        struct kv_feed *f = &ev->feeds[i];
        if (atomic_load(&f->state) != FEED_FREE)
            continue;
        r = fill_feed(ev, f, model);
        if (r == 0) {
            atomic_store(&f->state, FEED_OPEN);
            *ret = f;
            *ret_opts = (struct prefix_events_opts){feed_put, feed_wants_all, f};
        }
    }
    pthread_mutex_unlock(&ev->lock);
    if (r == 0)
        wake(ev);
    return r;
}

void kv_feed_close(struct kv_feed *f)
{
    if (!f)
        return;
    struct kv_events *ev = f->events;
    pthread_mutex_lock(&ev->lock);
    atomic_store(&f->state, FEED_ENDING);
    wake(ev);
    while (atomic_load(&f->state) != FEED_ENDED)
        pthread_cond_wait(&ev->ended, &ev->lock);
    mailbox_free(f->records);
    f->records = NULL;
    atomic_store(&f->state, FEED_FREE);
    pthread_mutex_unlock(&ev->lock);
}

void kv_events_numbers(const struct kv_events *ev, struct kv_events_numbers *ret)
{
#define READ(field) atomic_load_explicit(&ev->field, memory_order_relaxed)
    *ret = (struct kv_events_numbers){READ(messages), READ(bytes),   READ(stored),
                                      READ(removed),  READ(cleared), READ(replays_begun)};
#undef READ
}
