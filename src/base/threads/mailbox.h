/* mailbox.h - messages from many threads to the one that owns something.
 *
 * A bounded first-in first-out queue of fixed-size messages. Putting never waits: full is an answer. The
 * receiver waits on the mailbox, or on its eventfd when it has other things to wait for as well. */
#ifndef PLATEAU_BASE_MAILBOX_H
#define PLATEAU_BASE_MAILBOX_H

#include "base/charge.h"

#include <stdbool.h>
#include <stdint.h>

struct mailbox;

struct mailbox_opts {
    uint32_t messages_max;
    uint32_t message_bytes;
    bool eventfd;                /* also signal a descriptor, see mailbox_fd */
    const struct charge *charge; /* for the whole queue, at creation */
};

/* Bytes charged at creation. */
size_t mailbox_bytes(const struct mailbox_opts *opts);
/* 0, -EINVAL, -ENOMEM, or what eventfd() said. */
int mailbox_create(const struct mailbox_opts *opts, struct mailbox **ret);
/* No thread may be waiting or putting. Messages still inside are lost: drain first. NULL is fine. */
void mailbox_free(struct mailbox *m);

/* Any thread. 0, -EAGAIN when full, -EPIPE when closed. */
int mailbox_put(struct mailbox *m, const void *message);
/* The receiver. False when empty. */
bool mailbox_take(struct mailbox *m, void *message);
/* The receiver. As take, but waits up to `timeout_ns` (UINT64_MAX: no limit) for a message, or for a
 * close. */
bool mailbox_wait(struct mailbox *m, void *message, uint64_t timeout_ns);
/* Wakes the receiver; from now on putting fails. Messages inside can still be taken. */
void mailbox_close(struct mailbox *m);
/* Readable while messages may be inside; -1 without `eventfd`. mailbox_fd_clear() before draining. */
int mailbox_fd(const struct mailbox *m);
void mailbox_fd_clear(struct mailbox *m);
uint32_t mailbox_count(struct mailbox *m);

#endif
