/* page_address.h - the address of a server's page, for a browser on the same machine. */
#ifndef PLATEAU_CLI_PAGE_ADDRESS_H
#define PLATEAU_CLI_PAGE_ADDRESS_H

#include <stdint.h>

struct admin_client;
struct err;

#define PAGE_KEY_BYTES 1025

struct page_address {
    char text[1536];
};
/* host: as --host; any address becomes 127.0.0.1. key: in the fragment, which a browser sends to no server;
 * NULL or "": none. */
struct page_address page_address_of(const char *host, uint16_t port, const char *key);

/* Finds the address of the server behind an admin socket. 0, or an error of admin_client_order(). */
int page_address_find(const struct admin_client *c, const char *key, struct page_address *ret, struct err *e);
/* That server's own admin key, from the file beside the socket; "": it has none, because the operator gave
 * one. */
void page_key(const char *socket, char ret[PAGE_KEY_BYTES]);

#endif
