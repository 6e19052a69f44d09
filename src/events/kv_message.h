/* kv_message.h - records of a prefix cache as one message of KV events.
 *
 * Format: msgpack, as vLLM publishes it since 0.24: [seconds since 1970, [events], 0]. An event is a map with
 * "type": BlockStored, BlockRemoved or AllBlocksCleared. Hashes are integers. Pages of one chain share a
 * BlockStored. */
#ifndef PLATEAU_EVENTS_KV_MESSAGE_H
#define PLATEAU_EVENTS_KV_MESSAGE_H

#include "cache/prefix_events.h"

#include "base/slice.h"

#define KV_MESSAGE_RECORDS 16
#define KV_MESSAGE_BYTES   ((size_t)6 << 10) /* no message has more */

/* Writes records[count], 1 to KV_MESSAGE_RECORDS, into ret[KV_MESSAGE_BYTES]. Returns its bytes. */
size_t kv_message_write(const struct prefix_event *records, uint32_t count, double seconds, uint8_t *ret);

#endif
