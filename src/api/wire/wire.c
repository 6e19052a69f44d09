/* wire.c - the list of the dialects. */
#include "api/wire/wire.h"

#include "api/request/field.h"
#include "api/request/utility_form.h"

#include "base/check.h"

const struct wire *wire_at(size_t i)
{
#define WIRE_ADDRESS(name) &name,
    static const struct wire *const wires[] = {WIRES(WIRE_ADDRESS)};
#undef WIRE_ADDRESS
    return i < COUNT_OF(wires) ? wires[i] : NULL;
}

static bool has(const struct request_form *other, const struct request_form *form, const char *name)
{
    return other != form && other->api && strcmp(other->api, form->api) == 0 &&
           field_find(other->groups, name);
}

bool wire_has_elsewhere(const struct request_form *form, const char *name)
{
    if (!form->api || form->output != GEN_TOKENS)
        return false;
    for (size_t i = 0; wire_at(i); i++)
        if (has(&wire_at(i)->form, form, name))
            return true;
    for (int kind = 0; kind < REQUEST_KIND_COUNT; kind++)
        if (kind != REQUEST_GENERATE && has(utility_form((enum request_kind)kind), form, name))
            return true;
    return false;
}
