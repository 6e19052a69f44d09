/* hex.h - bytes as hexadecimal text. */
#ifndef PLATEAU_BASE_HEX_H
#define PLATEAU_BASE_HEX_H

#include <stddef.h>

/* Writes two digits in lower case for each byte, and a terminating zero: ret[2 * count + 1]. */
void hex_text(const void *bytes, size_t count, char *ret);

#endif
