/* kv_events.h - the pages of all prefix caches, published for routers.
 *
 * A thread owns two sockets of ZeroMQ: PUB sends messages, and ROUTER sends them again to routers that missed
 * some. Engines put records (prefix_events.h) into a ring each and never wait. The format is vLLM's since
 * 0.24 (kv_message.h).
 *
 * Messages have numbers from 0. A subscriber that does not read loses messages, and no other one does. The
 * replay buffer has the last messages.
 *
 * Bound: `buffer_bytes`, charged at the opening: a half is the replay buffer with the publisher's tables, a
 * quarter the rings, an eighth the queues of subscribers, an eighth the queues of replays. A stack and some
 * 200 KB of libzmq come on top. */
#ifndef PLATEAU_EVENTS_KV_EVENTS_H
#define PLATEAU_EVENTS_KV_EVENTS_H

#include "cache/prefix_events.h"

#include "base/charge.h"

#include <stdint.h>

struct err;
struct kv_events;
struct kv_feed;

#define KV_EVENTS_BUFFER_LEAST ((uint64_t)1 << 20)
#define KV_EVENTS_STACK_BYTES  ((size_t)256 << 10)
#define KV_EVENTS_TOPIC_MAX    256
#define KV_FEEDS_MAX           16 /* loaded models that are published */

struct kv_events_opts {
    const char *endpoint; /* tcp://HOST:PORT or ipc://PATH */
    const char *replay;   /* an address of the same kind; NULL: no replays */
    const char *topic;    /* %p is this machine's name, %m the model's; NULL: empty */
    uint64_t buffer_bytes;
    struct charge buffer, stack; /* pay for buffer_bytes, and for the stack */
};

/* Binds the sockets and starts the thread. 0, -EINVAL (an address or a topic that cannot be), -ENOPKG (no
 * libzmq), -ENOMEM, or what the system said about an address. The texts are copied. */
int kv_events_open(const struct kv_events_opts *opts, struct kv_events **ret, struct err *e);
/* All feeds are closed. NULL is fine. */
void kv_events_close(struct kv_events *ev);

/* A model's records from now on; ret: for engine_opts.events. Any thread. 0, -ENOSPC (KV_FEEDS_MAX), -ENOMEM,
 * -EINVAL (the topic with this name is longer than KV_EVENTS_TOPIC_MAX - 1), or what eventfd() said. */
int kv_feed_open(struct kv_events *ev, const char *model, struct kv_feed **ret,
                 struct prefix_events_opts *ret_opts);
/* The engine is closed. Waits until its records are published, which takes no one else's time. NULL is
 * fine. */
void kv_feed_close(struct kv_feed *f);

/* Counters since the start. */
struct kv_events_numbers {
    uint64_t messages, bytes;
    uint64_t stored, removed; /* pages */
    uint64_t cleared;         /* times that a feed lost the thread */
    uint64_t replays;
};
/* Any thread. */
void kv_events_numbers(const struct kv_events *ev, struct kv_events_numbers *ret);

#endif
