/* schema_state.h - a way that is being expanded. For schema_state.c and schema_expand.c. */
#ifndef PLATEAU_SCHEMA_SCHEMA_STATE_H
#define PLATEAU_SCHEMA_SCHEMA_STATE_H

#include "schema/schema_work.h"

/* A literal, and those that led to it. */
struct schema_chain {
    lit_id lit;
    const struct schema_chain *above;
};

struct schema_open_choice {
    struct schema_choice choice;
    const struct schema_chain *above;
    const struct schema_open_choice *next;
};

struct schema_state {
    struct schema_alternative way;
    struct schema_chain *todo; /* [first, count): not read yet */
    uint32_t first, count, capacity;
    const struct schema_lits *seen;
    const struct schema_open_choice *choices;
    const struct schema_chain *now; /* the literal that is being read */
};

#endif
