/* kv_replay.c - a ring by growing positions: position p lies at p % bytes_max. A message that would wrap
 * begins at the next multiple. */
#include "events/kv_replay.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

struct kv_kept {
    uint64_t at; /* position */
    uint32_t topic_len, payload_len;
};

int kv_replay_init(struct kv_replay *r, size_t bytes_max)
{
    uint32_t entries = (uint32_t)MIN_OF(bytes_max / 16 / sizeof(struct kv_kept), UINT32_MAX);
    size_t bytes = bytes_max - entries * sizeof(struct kv_kept);
    *r = (struct kv_replay){.bytes = malloc(bytes),
                            .bytes_max = bytes,
                            .table = calloc(entries, sizeof(struct kv_kept)),
                            .table_max = entries};
    return r->bytes && r->table ? 0 : -ENOMEM;
}

void kv_replay_done(struct kv_replay *r)
{
    free(r->bytes);
    free(r->table);
    *r = (struct kv_replay){0};
}

static struct kv_kept *kept_of(const struct kv_replay *r, uint64_t number)
{
    ASSERT(number >= r->first && number < r->next);
    return &r->table[number % r->table_max];
}

static size_t bytes_of(const struct kv_kept *k)
{
    return (size_t)k->topic_len + k->payload_len;
}

/* The position after the newest message. */
static uint64_t end_of(const struct kv_replay *r)
{
    if (r->first == r->next)
        return 0;
    const struct kv_kept *k = kept_of(r, r->next - 1);
    return k->at + bytes_of(k);
}

void kv_replay_add(struct kv_replay *r, struct slice topic, struct slice payload)
{
    struct kv_kept k = {end_of(r), (uint32_t)topic.len, (uint32_t)payload.len};
    ASSERT(2 * bytes_of(&k) <= r->bytes_max);
    if (k.at % r->bytes_max + bytes_of(&k) > r->bytes_max)
        k.at = ROUND_UP(k.at, (uint64_t)r->bytes_max);
    while (r->first < r->next && (kept_of(r, r->first)->at + r->bytes_max < k.at + bytes_of(&k) ||
                                  r->next - r->first >= r->table_max))
        r->first++;
    r->next++;
    *kept_of(r, r->next - 1) = k;
    uint8_t *to = r->bytes + k.at % r->bytes_max;
    memcpy(to, topic.ptr, topic.len);
    memcpy(to + topic.len, payload.ptr, payload.len);
}

bool kv_replay_get(const struct kv_replay *r, uint64_t number, struct slice *topic, struct slice *payload)
{
    if (number < r->first || number >= r->next)
        return false;
    const struct kv_kept *k = kept_of(r, number);
    const char *at = (const char *)r->bytes + k->at % r->bytes_max;
    *topic = (struct slice){at, k->topic_len};
    *payload = (struct slice){at + k->topic_len, k->payload_len};
    return true;
}
