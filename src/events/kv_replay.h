/* kv_replay.h - the last messages, by number.
 *
 * Bound: the bytes given at creation, a sixteenth of them for the table. One thread. */
#ifndef PLATEAU_EVENTS_KV_REPLAY_H
#define PLATEAU_EVENTS_KV_REPLAY_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_kept;

struct kv_replay {
    uint8_t *bytes; /* [bytes_max], a ring */
    size_t bytes_max;
    struct kv_kept *table; /* [table_max]: message n at n % table_max */
    uint32_t table_max;
    uint64_t first, next; /* numbers of the oldest message, and of the next one */
};

/* bytes_max: at least twice the largest message. 0 or -ENOMEM; kv_replay_done() in either case. */
int kv_replay_init(struct kv_replay *r, size_t bytes_max);
void kv_replay_done(struct kv_replay *r);
/* Keeps message number r->next, and forgets the oldest ones for it. */
void kv_replay_add(struct kv_replay *r, struct slice topic, struct slice payload);
/* Its texts are good until the next add. False: it is forgotten, or not there yet. */
bool kv_replay_get(const struct kv_replay *r, uint64_t number, struct slice *topic, struct slice *payload);

#endif
