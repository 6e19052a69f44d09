/* http_guard.c - strict on purpose: accepts only plain loopback names. */
#include "http/http_guard.h"

#include <arpa/inet.h>

/* Cuts ":port" off. False when the text after the name is not a port. */
static bool cut_port(struct slice *host)
{
    size_t name_len = host->len;
    if (host->len > 0 && host->ptr[0] == '[') {
        size_t end = slice_find(*host, SLICE("]"), 0);
        if (end == SIZE_MAX)
            return false;
        name_len = end + 1;
    } else {
        size_t colon = slice_find(*host, SLICE(":"), 0);
        if (colon != SIZE_MAX)
            name_len = colon;
    }
    struct slice rest = slice_sub(*host, name_len, host->len);
    *host = slice_sub(*host, 0, name_len);
    uint64_t port;
    return rest.len == 0 || (rest.ptr[0] == ':' && slice_u64(slice_sub(rest, 1, rest.len), 65535, &port));
}

static bool is_loopback_address(struct slice name)
{
    char text[INET6_ADDRSTRLEN];
    bool v6 = name.len >= 2 && name.ptr[0] == '[' && name.ptr[name.len - 1] == ']';
    if (v6)
        name = slice_sub(name, 1, name.len - 2);
    if (name.len == 0 || name.len >= sizeof(text) || memchr(name.ptr, 0, name.len))
        return false;
    memcpy(text, name.ptr, name.len);
    text[name.len] = 0;
    struct in_addr a4;
    struct in6_addr a6;
    if (v6)
        return inet_pton(AF_INET6, text, &a6) == 1 && IN6_IS_ADDR_LOOPBACK(&a6);
    return inet_pton(AF_INET, text, &a4) == 1 && ntohl(a4.s_addr) >> 24 == 127;
}

bool http_guard_host_is_loopback(struct slice host)
{
    return cut_port(&host) && (slice_eq_any_case(host, SLICE("localhost")) || is_loopback_address(host));
}

bool http_guard_origin_is_host(struct slice origin, struct slice host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        struct slice scheme = slice_of(schemes[i]);
        if (slice_eq_any_case(slice_sub(origin, 0, scheme.len), scheme))
            return host.len > 0 && slice_eq_any_case(slice_sub(origin, scheme.len, origin.len), host);
    }
    return false;
}
