/* nearest.h - the known name that a misspelled word is closest to, for "did you mean". Pure; any thread. */
#ifndef PLATEAU_CLI_NEAREST_H
#define PLATEAU_CLI_NEAREST_H

#include "base/slice.h"

#define NEAREST_WORD_BYTES 64 /* longer words are close to nothing */

struct nearest {
    struct slice word;
    const char *name; /* the closest so far; NULL: no name is close enough */
    unsigned distance;
};

struct nearest nearest_begin(struct slice word);
/* Letters in either case are equal, and so are '-' and '_'. A swap of two neighbours is one edit. A name
 * is close when at most a third of the word's characters were edited (one, of a short word), or when it
 * starts with the word. The first of several equally close names stays. `name` is borrowed. */
void nearest_try(struct nearest *n, const char *name);
/* " (did you mean HEAD + name?)", or "" without a close name. */
struct nearest_text {
    char text[96];
};
struct nearest_text nearest_question(const struct nearest *n, const char *head);

#endif
