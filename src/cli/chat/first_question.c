#include "cli/chat/first_question.h"

#include "base/check.h"
#include "host/models/catalog_names.h"

#include <string.h>

struct first_question first_question_of(const char *id)
{
    static const struct {
        const char *id;
        struct first_question q;
    } known[] = {
        {CATALOG_BUNDLED,
         {"The bundled model has 30 million parameters and knows Unix commands.", "What does ls do?"}},
        {CATALOG_STARTER,
         {"SmolLM2 has 135 million parameters.", "How do I list files in a directory on Linux?"}},
    };
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (strcmp(known[i].id, id) == 0)
            return known[i].q;
    return (struct first_question){NULL, "How do I list files on Linux?"};
}

bool first_question_is_toy(const char *id)
{
    return strcmp(id, CATALOG_BUNDLED) == 0;
}
