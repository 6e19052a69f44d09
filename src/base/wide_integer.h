/* wide_integer.h - the digits of integers beyond 64 bits.
 *
 * JSON values hold such an integer as the nearest double (json_source.h). So that it is written as it was
 * read, a thread may have a table: json_source notes the digits there, and what writes or compares numbers
 * looks them up by the double. A double that two different integers of one table have has no digits. */
#ifndef PLATEAU_BASE_WIDE_INTEGER_H
#define PLATEAU_BASE_WIDE_INTEGER_H

#include "base/slice.h"

#define WIDE_INTEGERS_MAX      8  /* integers of one table; further ones stay doubles */
#define WIDE_INTEGER_BYTES_MAX 40 /* 2^128 with a sign; longer ones stay doubles */

struct wide_integers {
    uint32_t count;
    struct wide_integer {
        double value;
        uint8_t len; /* 0: two integers have this double */
        char text[WIDE_INTEGER_BYTES_MAX];
    } all[WIDE_INTEGERS_MAX];
};

/* The thread's table until the next call; NULL: none. Returns the one until now. */
struct wide_integers *wide_integers_enter(struct wide_integers *table);
/* Adds an integer as JSON has it. */
void wide_integer_note(struct slice text);
/* The digits of the integer that became this double; empty: unknown. Valid while the table is. */
struct slice wide_integer_text(double value);

#endif
