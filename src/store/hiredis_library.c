/* hiredis_library.c - a table of names. */
#include "store/hiredis_library.h"

#include "base/check.h"
#include "base/library.h"

#define AT(function) offsetof(struct hiredis_library, function)
static const struct library_function functions[] = {
    {"redisConnectWithTimeout", AT(connect)},
    {"redisSetTimeout", AT(set_timeout)},
    {"redisAppendCommandArgv", AT(append)},
    {"redisBufferWrite", AT(write)},
    {"redisBufferRead", AT(read)},
    {"redisGetReplyFromReader", AT(next)},
    {"freeReplyObject", AT(free_reply)},
    {"redisFree", AT(free)},
};
_Static_assert(COUNT_OF(functions) * sizeof(void *) == sizeof(struct hiredis_library), "each has its row");

int hiredis_library_open(struct hiredis_library *ret, struct err *e)
{
    const struct library_source source = {.file = "libhiredis.so.0.14",
                                          .package = "libhiredis0.14",
                                          .option = "--shared-cache redis://",
                                          .functions = functions,
                                          .function_count = COUNT_OF(functions)};
    return library_open(&source, ret, e);
}
