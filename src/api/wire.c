/* wire.c - the dialects. */
#include "api/wire.h"

const struct wire *wire_of(enum request_kind kind)
{
    static const struct wire *const wires[REQUEST_KIND_COUNT] = {
        [REQUEST_CHAT] = &wire_chat, [REQUEST_COMPLETION] = &wire_completion};
    return wires[kind];
}
