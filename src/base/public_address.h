/* public_address.h - which addresses are public ones of the internet. Pure; any thread. */
#ifndef PLATEAU_BASE_PUBLIC_ADDRESS_H
#define PLATEAU_BASE_PUBLIC_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* Returns whether it is a public address of the internet. Addresses for this machine, this network, the
 * providers' own use, multicast, documentation or tests are not. Neither are addresses with an IPv4 address
 * inside (mapped, 6to4, Teredo), but for NAT64 the address inside decides. Nor are families other than IPv4
 * and IPv6. */
bool public_address_is(const struct sockaddr *a, socklen_t len);

#endif
