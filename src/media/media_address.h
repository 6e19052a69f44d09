/* media_address.h - which addresses and URLs named by clients the server may connect to. Pure; any thread. */
#ifndef PLATEAU_MEDIA_MEDIA_ADDRESS_H
#define PLATEAU_MEDIA_MEDIA_ADDRESS_H

#include "base/slice.h"

#include <stdbool.h>
#include <sys/socket.h>

/* Returns whether it is a public address of the internet. Addresses for this machine, this network, the
 * providers' own use, multicast, documentation or tests are not. Neither are addresses with an IPv4 address
 * inside (mapped, 6to4, Teredo), but for NAT64 the address inside decides. Nor are families other than IPv4
 * and IPv6. */
bool media_address_is_public(const struct sockaddr *a, socklen_t len);

/* Returns NULL for an http or https URL that may be tried, else its fault, as the rest of a sentence ("has
 * ..."). */
const char *media_url_fault(struct slice url);

#endif
