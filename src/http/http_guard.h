/* http_guard.h - what keeps a web page from using a server that listens on loopback only.
 *
 * A page from elsewhere can make the browser send requests here, under a name that resolves to 127.0.0.1 (DNS
 * rebinding) or across origins. Its Host or its Origin gives it away. */
#ifndef PLATEAU_HTTP_HTTP_GUARD_H
#define PLATEAU_HTTP_HTTP_GUARD_H

#include "base/slice.h"

/* "localhost", an address of 127/8 or "[::1]", each with or without a port. */
bool http_guard_host_is_loopback(struct slice host);
/* The origin is http:// or https:// and then exactly `host` (letters in any case). */
bool http_guard_origin_is_host(struct slice origin, struct slice host);

#endif
