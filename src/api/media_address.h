/* media_address.h - whom the server may connect to when a client names an address. Pure; any thread. */
#ifndef PLATEAU_API_MEDIA_ADDRESS_H
#define PLATEAU_API_MEDIA_ADDRESS_H

#include "base/slice.h"

#include <stdbool.h>
#include <sys/socket.h>

/* Whether it is one of the public internet's. What is for this machine, this network, the providers' own use,
 * groups, documentation or tests is not, nor what carries an IPv4 address inside (mapped, 6to4, Teredo; of
 * NAT64 the address inside decides), nor what is neither IPv4 nor IPv6. */
bool media_address_is_public(const struct sockaddr *a, socklen_t len);

/* NULL: an http or https URL that may be tried; else what is wrong with it, the rest of a sentence ("has
 * ..."). */
const char *media_url_fault(struct slice url);

#endif
