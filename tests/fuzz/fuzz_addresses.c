/* Hosts, origins, URLs and addresses that clients name. Invariants: no crash; a host that counts as loopback
 * resolves to nothing but loopback by its own text; an origin matches one host only. An IPv4 address mapped
 * into NAT64 is public exactly when it is public itself; mapped in another way it never is. */
#include "media/media_address.h"
#include "base/public_address.h"
#include "base/check.h"
#include "http/http_guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_host(struct slice host)
{
    if (!http_guard_host_is_loopback(host))
        return;
    ASSERT(host.len > 0 && !memchr(host.ptr, 0, host.len) && !memchr(host.ptr, ' ', host.len));
    ASSERT(!memchr(host.ptr, '/', host.len) && !memchr(host.ptr, '@', host.len));
    ASSERT(slice_starts_any_case(host, SLICE("localhost")) || slice_starts(host, SLICE("127.")) ||
           slice_starts(host, SLICE("[")));
}

static void check_origin(struct slice origin, struct slice host)
{
    if (http_guard_origin_is_host(origin, host))
        ASSERT(origin.len == host.len + 7 || origin.len == host.len + 8);
    char own[300] = "http://";
    size_t len = host.len < 256 ? host.len : 256;
    if (len == 0)
        return;
    memcpy(own + 7, host.ptr, len);
    ASSERT(http_guard_origin_is_host((struct slice){own, 7 + len}, slice_sub(host, 0, len)));
}

static bool is_public4(const uint8_t *bytes)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    memcpy(&a.sin_addr, bytes, 4);
    return public_address_is((const struct sockaddr *)&a, sizeof(a));
}

static bool is_public6(const uint8_t *head, size_t head_bytes, const uint8_t *tail)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    memcpy(&a.sin6_addr, head, head_bytes);
    memcpy((uint8_t *)&a.sin6_addr + 12, tail, 4);
    return public_address_is((const struct sockaddr *)&a, sizeof(a));
}

static void check_address(const uint8_t *data)
{
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b}, mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint32_t host = (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
    bool public = is_public4(data);
    ASSERT(is_public6(nat64, 12, data) == public && !is_public6(mapped, 12, data));
    if (host >> 24 == 127 || host >> 24 == 10 || host >> 16 == 0xc0a8 || host >> 16 == 0xa9fe ||
        host >> 28 >= 14)
        ASSERT(!public);
    if (is_public6(data, 12, data + 12))
        ASSERT(data[0] >> 5 == 1 || memcmp(data, nat64, 12) == 0);
    struct sockaddr_storage any = {.ss_family = data[4]};
    (void)public_address_is((const struct sockaddr *)&any, data[5] % sizeof(any));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice all = {(const char *)data, size};
    size_t half = slice_find(all, SLICE("\n"), 0);
    struct slice first = slice_sub(all, 0, half),
                 second = half == SIZE_MAX ? all : slice_sub(all, half + 1, size);
    check_host(first);
    check_host(second);
    check_origin(first, second);
    const char *fault = media_url_fault(all);
    if (!fault)
        ASSERT(slice_starts_any_case(all, SLICE("http://")) || slice_starts_any_case(all, SLICE("https://")));
    if (size >= 16)
        check_address(data);
    return 0;
}
