/* media_address.h - which URLs named by clients the server may connect to. Pure; any thread. */
#ifndef PLATEAU_MEDIA_MEDIA_ADDRESS_H
#define PLATEAU_MEDIA_MEDIA_ADDRESS_H

#include "base/slice.h"

#include <stdbool.h>

/* Returns NULL for an http or https URL that may be tried, else its fault, as the rest of a sentence ("has
 * ..."). */
const char *media_url_fault(struct slice url);

#endif
