/* hex.h - bytes as hexadecimal text. */
#ifndef PLATEAU_BASE_HEX_H
#define PLATEAU_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

#define HEX_SECRET_MAX 32

/* Writes two digits in lower case for each byte, and a terminating zero: ret[2 * count + 1]. */
void hex_text(const void *bytes, size_t count, char *ret);

/* As `hex_text()`, but writes `count` bytes of rng_secret(), at most HEX_SECRET_MAX: an id or a key. */
void hex_secret(size_t count, char *ret);

/* Reads `count` bytes from 2 * count digits in lower case. False at the first other character; `ret` then has
 * the bytes before it. slice_hex() reads a digit in either case. */
bool hex_bytes(const char *text, size_t count, void *ret);

#endif
