/* hiredis_library.c - a table of names. */
#include "store/hiredis_library.h"

#include "base/check.h"
#include "base/err.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define FILE_NAME "libhiredis.so.0.14"

#define AT(function) offsetof(struct hiredis_library, function)
static const struct {
    const char *name;
    size_t at;
} functions[] = {
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
    void *library = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, -ENOPKG,
                       "--shared-cache redis:// needs " FILE_NAME " (Debian's package libhiredis0.14): %s",
                       dlerror());
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function)
            return err_set(e, -ENOPKG, FILE_NAME " has no %s; Debian's package libhiredis0.14 has it",
                           functions[i].name);
        memcpy((char *)ret + functions[i].at, &function, sizeof(function));
    }
    return 0;
}
