/* client_ids.c - values that would need quotes in a line of the log, or escapes in JSON, are not taken. */
#include "api/access/client_ids.h"

#include "base/slice.h"
#include "http/http_request.h"

#include <string.h>

static bool is_id_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("-_.:/+@", c));
}

static bool is_id(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_id_char(s.ptr[i]))
            return false;
    return s.len > 0 && s.len < CLIENT_ID_BYTES;
}

/* "00-TRACE-PARENT-FLAGS", in small hexadecimal digits. */
static bool is_trace(struct slice s)
{
    static const char form[] = "hh-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
    if (s.len != sizeof(form) - 1)
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (form[i] == '-' ? s.ptr[i] != '-'
                           : slice_hex(s.ptr[i]) < 0 || (s.ptr[i] >= 'A' && s.ptr[i] <= 'F'))
            return false;
    return true;
}

_Static_assert(CLIENT_TRACE_BYTES == 2 + 1 + 32 + 1 + 16 + 1 + 2 + 1, "a traceparent and a zero");

void client_ids_read(const struct http_request *r, struct client_ids *ret)
{
    struct slice value;
    *ret = (struct client_ids){{0}, {0}};
    if (http_request_header(r, "x-request-id", &value) && is_id(value))
        memcpy(ret->request, value.ptr, value.len);
    if (http_request_header(r, "traceparent", &value) && is_trace(value))
        memcpy(ret->trace, value.ptr, value.len);
}

void client_ids_return(const struct client_ids *ids, const char *own, struct http_request *r)
{
    http_header_set(r, "x-request-id", ids->request[0] ? ids->request : own);
    if (ids->trace[0])
        http_header_set(r, "traceparent", ids->trace);
}
