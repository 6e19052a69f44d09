/* zmq_library.c - a table of names. */
#include "events/zmq_library.h"

#include "base/check.h"
#include "base/err.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define FILE_NAME "libzmq.so.5"

#define AT(function) offsetof(struct zmq_library, function)
static const struct {
    const char *name;
    size_t at;
} functions[] = {
    {"zmq_ctx_new", AT(ctx_new)},
    {"zmq_ctx_term", AT(ctx_term)},
    {"zmq_socket", AT(socket)},
    {"zmq_close", AT(close)},
    {"zmq_setsockopt", AT(setsockopt)},
    {"zmq_getsockopt", AT(getsockopt)},
    {"zmq_bind", AT(bind)},
    {"zmq_send", AT(send)},
    {"zmq_recv", AT(recv)},
    {"zmq_poll", AT(poll)},
    {"zmq_strerror", AT(strerror)},
};
_Static_assert(COUNT_OF(functions) * sizeof(void *) == sizeof(struct zmq_library), "each has its row");

int zmq_library_open(struct zmq_library *ret, struct err *e)
{
    void *library = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, -ENOPKG, "--kv-events needs " FILE_NAME " (Debian's package libzmq5): %s",
                       dlerror());
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function)
            return err_set(e, -ENOPKG, FILE_NAME " has no %s; Debian's package libzmq5 has it",
                           functions[i].name);
        memcpy((char *)ret + functions[i].at, &function, sizeof(function));
    }
    return 0;
}
