/* public_address.c - lists of the address ranges that are not public, from IANA's registries of
 * special-purpose addresses.
 *
 * Who connects checks the address of each connection right before it is made. So a name that resolves to
 * another address the second time, or a redirect, gains nothing. Of IPv6 only the range assigned to the
 * public (2000::/3) can pass, and NAT64 with a public IPv4 address inside. */
#include "base/public_address.h"

#include "base/check.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

struct block {
    uint8_t bytes[16];
    unsigned bits;
};

static const struct block blocks4[] = {
    {{0}, 8},             /* this network, and unspecified */
    {{10}, 8},            /* private */
    {{100, 64}, 10},      /* providers' NAT */
    {{127}, 8},           /* this machine */
    {{169, 254}, 16},     /* link-local, with clouds' metadata services */
    {{172, 16}, 12},      /* private */
    {{192, 0, 0}, 24},    /* protocols' own */
    {{192, 0, 2}, 24},    /* documentation */
    {{192, 31, 196}, 24}, /* AS112 */
    {{192, 52, 193}, 24}, /* AMT */
    {{192, 88, 99}, 24},  /* 6to4 relays */
    {{192, 168}, 16},     /* private */
    {{192, 175, 48}, 24}, /* AS112 */
    {{198, 18}, 15},      /* benchmarks */
    {{198, 51, 100}, 24}, /* documentation */
    {{203, 0, 113}, 24},  /* documentation */
    {{224}, 4},           /* multicast */
    {{240}, 4},           /* reserved, and broadcast */
};

static const struct block blocks6[] = {
    {{0x20, 0x01, 0x00}, 23},             /* protocols' own: Teredo, benchmarks, ORCHID */
    {{0x20, 0x01, 0x0d, 0xb8}, 32},       /* documentation */
    {{0x20, 0x02}, 16},                   /* 6to4: an IPv4 address inside */
    {{0x26, 0x20, 0x00, 0x4f, 0x80}, 48}, /* AS112 */
    {{0x3f, 0xff, 0x00}, 20},             /* documentation */
};

static const struct block public6 = {{0x20}, 3};
static const struct block nat64 = {{0x00, 0x64, 0xff, 0x9b}, 96};

static bool is_in(const uint8_t *address, const struct block *b)
{
    unsigned whole = b->bits / 8, rest = b->bits % 8;
    if (memcmp(address, b->bytes, whole) != 0)
        return false;
    return rest == 0 || ((address[whole] ^ b->bytes[whole]) >> (8 - rest)) == 0;
}

static bool is_public4(const uint8_t *address)
{
    for (size_t i = 0; i < COUNT_OF(blocks4); i++)
        if (is_in(address, &blocks4[i]))
            return false;
    return true;
}

static bool is_public6(const uint8_t *address)
{
    /* NAT64, by which a network without IPv4 reaches it: the address inside decides. */
    if (is_in(address, &nat64))
        return is_public4(address + 12);
    for (size_t i = 0; i < COUNT_OF(blocks6); i++)
        if (is_in(address, &blocks6[i]))
            return false;
    return is_in(address, &public6);
}

bool public_address_is(const struct sockaddr *a, socklen_t len)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (len >= sizeof(four) && a->sa_family == AF_INET) {
        memcpy(&four, a, sizeof(four));
        return is_public4((const uint8_t *)&four.sin_addr);
    }
    if (len >= sizeof(six) && a->sa_family == AF_INET6) {
        memcpy(&six, a, sizeof(six));
        return six.sin6_scope_id == 0 && is_public6(six.sin6_addr.s6_addr);
    }
    return false;
}
