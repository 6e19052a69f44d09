/* responses_place.c - what all files that convert a request of Responses share. */
#include "api/wire/responses.h"

#include "gen/request_memory.h"

bool responses_no_memory(const struct responses_place *p)
{
    return request_memory_reject(p->memory, p->why);
}
