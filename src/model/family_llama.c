/* family_llama.c - llama, from which families differ, and its next of kin. */
#include "model/family.h"

const struct family families_llama[] = {
    {.names = {"llama"}},
    {.names = {"mistral"}},
    {{NULL}},
};
