/* first_question.h - what to ask a model so that its first answer is a good one. Pure. */
#ifndef PLATEAU_CLI_FIRST_QUESTION_H
#define PLATEAU_CLI_FIRST_QUESTION_H

#include <stdbool.h>

struct first_question {
    const char *about;    /* its size and field; NULL: unknown */
    const char *question; /* with a good answer */
};

/* By the model's id. */
struct first_question first_question_of(const char *id);
/* Whether the model is the bundled one, which a better one beside it replaces where none was named. */
bool first_question_is_toy(const char *id);

#endif
