/* cache_miss.h - why a turn found less in the prefix cache than an earlier turn of its conversation could
 * have left, as headers, reports and replies say it.
 *
 * A turn could have found the prompt of the earlier turn, less two pages, which the generation prompt and the
 * last page take. Network thread. */
#ifndef PLATEAU_API_CACHE_MISS_H
#define PLATEAU_API_CACHE_MISS_H

#include <stdbool.h>

struct cache_miss; /* trace.h */
struct exchange;
struct json_out;

#define CACHE_MISS_TEXT_BYTES 320 /* cache_miss_text() */

/* Finds why. False: the engine has not admitted the request yet, and nothing changes. */
bool cache_miss_find(const struct exchange *x, struct cache_miss *ret);
/* "messages[5];at=content;character=128;within=64;side=client;lost=4096": printable ASCII without spaces.
 * Empty where nothing was lost. */
void cache_miss_text(const struct cache_miss *m, char ret[CACHE_MISS_TEXT_BYTES]);
/* An object, or null where nothing was lost. `type` is Anthropic's word for it. */
void cache_miss_write(const struct cache_miss *m, const char *key, struct json_out *j);

/* Puts cache_miss_reason, a member of `usage`, where the request wants it. */
void cache_miss_write_usage(const struct exchange *x, struct json_out *j);
/* Puts diagnostics, a member of a message of Anthropic's. */
void cache_miss_write_diagnostics(const struct exchange *x, struct json_out *j);

#endif
