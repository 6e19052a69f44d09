/* shared_redis.h - Redis or Valkey as the store of the shared tier.
 *
 * Each thread has a connection. The server's own limit and policy decide which values go. A call has a
 * second, however slowly the server sends, and what a reply says of its lengths allocates nothing above a
 * bound. Names begin with plateau. */
#ifndef PLATEAU_STORE_SHARED_REDIS_H
#define PLATEAU_STORE_SHARED_REDIS_H

#include "base/arena.h"
#include "base/err.h"
#include "store/shared_address.h"
#include "store/shared_backend.h"

#define SHARED_REDIS_REPLY_BYTES ((size_t)14 << 20) /* held by libhiredis for each thread, at most */

/* Bytes of arena. */
size_t shared_redis_arena_bytes(void);
/* 0, -ENOMEM, -ENOPKG (libhiredis is missing; `e` says it). Connects to nothing. */
int shared_redis_create(struct arena *a, const struct shared_address *at, struct shared_backend *ret,
                        struct err *e);

#endif
