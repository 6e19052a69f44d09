/* shared_address.h - which store a text names, and the fleet's secret. */
#ifndef PLATEAU_STORE_SHARED_ADDRESS_H
#define PLATEAU_STORE_SHARED_ADDRESS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct shared_secret;

struct shared_address {
    char path[4096]; /* the directory of file://; "": a server */
    char host[256], user[128], password[512];
    uint32_t port, database;
};

/* Reads file:///DIR, or redis://[[USER]:PASSWORD@]HOST[:PORT][/NUMBER], with %XX in user and password.
 * 0 or -EINVAL; `e` names the mistake, and never repeats a password. */
int shared_address_parse(const char *text, struct shared_address *ret, struct err *e);
/* True if the server is this machine. */
bool shared_address_is_here(const struct shared_address *a);
/* Reads the secret of `file`; NULL: none is given. 0, -EINVAL, -EACCES (others may read it), or an error of
 * reading. */
int shared_address_secret(const char *file, struct shared_secret *ret, struct err *e);

#endif
