/* shared_address.h - which store a text names, and the fleet's secret. */
#ifndef PLATEAU_STORE_SHARED_ADDRESS_H
#define PLATEAU_STORE_SHARED_ADDRESS_H

#include "base/err.h"

#include <stdbool.h>

struct shared_secret;

struct shared_address {
    char path[4096]; /* the directory of file:// */
};

/* Reads file:///DIR. 0 or -EINVAL; `e` names the mistake, and never repeats a password. */
int shared_address_parse(const char *text, struct shared_address *ret, struct err *e);
/* Reads the secret of `file`; NULL: none is given. 0, -EINVAL, -EACCES (others may read it), or an error of
 * reading. */
int shared_address_secret(const char *file, struct shared_secret *ret, struct err *e);

#endif
