/* json_dumped.h - frees what json_dumps() returned. The program gives jansson allocators of its own
 * (gen/request_memory.c), so free() would get a pointer into the middle of a block. For layers that link
 * jansson. */
#ifndef PLATEAU_BASE_JSON_DUMPED_H
#define PLATEAU_BASE_JSON_DUMPED_H

#include <jansson.h>

/* NULL is fine. */
static inline void json_dumped_free(char *text)
{
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
}

#endif
