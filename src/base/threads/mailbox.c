/* mailbox.c - a mutex, a condition and a circle of messages.
 *
 * Lock-free would be faster and is not needed: a message moves a request or a wake-up, not a token. */
#include "base/threads/mailbox.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
    uint32_t messages_max, message_bytes;
    struct charge charge;
    bool charged;
    size_t bytes;
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under `lock`. */
    uint32_t first, count;
    bool closed;
    char messages[];
};

size_t mailbox_bytes(const struct mailbox_opts *opts)
{
    return sizeof(struct mailbox) + (size_t)opts->messages_max * opts->message_bytes;
}

int mailbox_create(const struct mailbox_opts *opts, struct mailbox **ret)
{
    if (opts->messages_max == 0 || opts->message_bytes == 0)
        return -EINVAL;
    size_t bytes = mailbox_bytes(opts);
    int r = charge_take(opts->charge, bytes);
    if (r < 0)
        return r;
    struct mailbox *m = calloc(1, bytes);
    if (!m) {
        charge_give(opts->charge, bytes);
        return -ENOMEM;
    }
    m->bytes = bytes;
    m->charged = opts->charge != NULL;
    if (opts->charge)
        m->charge = *opts->charge;
    m->messages_max = opts->messages_max;
    m->message_bytes = opts->message_bytes;
    m->fd = opts->eventfd ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    pthread_mutex_init(&m->lock, NULL);
    clock_cond_init(&m->changed);
    if (opts->eventfd && m->fd < 0) {
        r = -errno;
        mailbox_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

void mailbox_free(struct mailbox *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close(m->fd);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    struct charge charge = m->charge;
    bool charged = m->charged;
    size_t bytes = m->bytes;
    free(m);
    if (charged)
        charge_give(&charge, bytes);
}

static void signal_fd(struct mailbox *m)
{
    /* The counter saturates long after it is readable: a failed write loses nothing. */
    uint64_t one = 1;
    if (m->fd >= 0 && write(m->fd, &one, sizeof(one)) < 0)
        ASSERT(errno == EAGAIN);
}

int mailbox_put(struct mailbox *m, const void *message)
{
    int r = 0;
    pthread_mutex_lock(&m->lock);
    if (m->closed) {
        r = -EPIPE;
    } else if (m->count == m->messages_max) {
        r = -EAGAIN;
    } else {
        size_t at = (size_t)((m->first + m->count) % m->messages_max) * m->message_bytes;
        memcpy(m->messages + at, message, m->message_bytes);
        m->count++;
        pthread_cond_signal(&m->changed);
        /* Inside the lock: once the receiver can see the message it may also free the mailbox. */
        signal_fd(m);
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

static bool take_locked(struct mailbox *m, void *message)
{
    if (m->count == 0)
        return false;
    memcpy(message, m->messages + (size_t)m->first * m->message_bytes, m->message_bytes);
    m->first = (m->first + 1) % m->messages_max;
    m->count--;
    return true;
}

bool mailbox_take(struct mailbox *m, void *message)
{
    pthread_mutex_lock(&m->lock);
    bool got = take_locked(m, message);
    pthread_mutex_unlock(&m->lock);
    return got;
}

bool mailbox_wait(struct mailbox *m, void *message, uint64_t timeout_ns)
{
    struct timespec until = clock_deadline(timeout_ns);
    pthread_mutex_lock(&m->lock);
    while (m->count == 0 && !m->closed) {
        if (timeout_ns == UINT64_MAX)
            pthread_cond_wait(&m->changed, &m->lock);
        else if (pthread_cond_timedwait(&m->changed, &m->lock, &until) == ETIMEDOUT)
            break;
    }
    bool got = take_locked(m, message);
    pthread_mutex_unlock(&m->lock);
    return got;
}

void mailbox_close(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    pthread_cond_broadcast(&m->changed);
    signal_fd(m);
    pthread_mutex_unlock(&m->lock);
}

int mailbox_fd(const struct mailbox *m)
{
    return m->fd;
}

void mailbox_fd_clear(struct mailbox *m)
{
    uint64_t n;
    if (m->fd >= 0 && read(m->fd, &n, sizeof(n)) < 0)
        ASSERT(errno == EAGAIN);
}

uint32_t mailbox_count(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    uint32_t n = m->count;
    pthread_mutex_unlock(&m->lock);
    return n;
}
