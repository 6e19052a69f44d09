/* json_digest.h - hashes of JSON values, by which two turns of a conversation are compared.
 *
 * Equal values have equal hashes: the order of an object's members changes nothing. The hashes have a secret
 * seed, so that a client cannot choose values that collide. Any thread. */
#ifndef PLATEAU_API_JSON_DIGEST_H
#define PLATEAU_API_JSON_DIGEST_H

#include "base/slice.h"

#include <jansson.h>
#include <stdint.h>

/* The seed, drawn at its first use; or that of an earlier process, before the first hash. */
uint64_t json_digest_seed(void);
void json_digest_use_seed(uint64_t seed);

uint64_t json_digest_text(struct slice text);
/* NULL has a hash, too. */
uint64_t json_digest(const json_t *value);
/* As `json_digest()` of an object, but without the member `but`. */
uint64_t json_digest_but(const json_t *object, const char *but);
/* The hash of a list in which the order counts for nothing. */
uint64_t json_digest_set(const json_t *list);
/* The hash of a chain that had `before` and goes on with `next`. */
uint64_t json_digest_chain(uint64_t before, uint64_t next);

#endif
