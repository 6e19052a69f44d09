/* zmq_library.c - a table of names. */
#include "events/zmq_library.h"

#include "base/check.h"
#include "base/library.h"

#define AT(function) offsetof(struct zmq_library, function)
static const struct library_function functions[] = {
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
    const struct library_source source = {.file = "libzmq.so.5",
                                          .package = "libzmq5",
                                          .option = "--kv-events",
                                          .functions = functions,
                                          .function_count = COUNT_OF(functions)};
    return library_open(&source, ret, e);
}
