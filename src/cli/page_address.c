/* page_address.c - brackets around an IPv6 address. */
#include "cli/page_address.h"

#include "cli/admin_client.h"

#include "base/err.h"
#include "base/files/small_file.h"
#include "host/socket_dir.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct page_address page_address_of(const char *host, uint16_t port, const char *key)
{
    struct page_address ret;
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
        host = "127.0.0.1";
    const bool v6 = strchr(host, ':') != NULL;
    snprintf(ret.text, sizeof(ret.text), "http://%s%s%s:%u/%s%s", v6 ? "[" : "", host, v6 ? "]" : "", port,
             key && key[0] ? "#key=" : "", key ? key : "");
    return ret;
}

int page_address_find(const struct admin_client *c, const char *key, struct page_address *ret, struct err *e)
{
    struct admin_reply reply = {0};
    int r = admin_client_order(c, "GET", "/api/status", &reply, e);
    const json_t *address = json_object_get(reply.json, "address");
    const char *host = json_string_value(json_object_get(address, "host"));
    const json_int_t port = json_integer_value(json_object_get(address, "port"));
    if (r == 0 && host && port > 0 && port <= UINT16_MAX)
        *ret = page_address_of(host, (uint16_t)port, key);
    else if (r == 0)
        r = err_set(e, -EPROTO, "%s does not say where its page is: its server is another release",
                    c->socket);
    admin_reply_done(&reply);
    return r;
}

void page_key(const char *socket, char ret[PAGE_KEY_BYTES])
{
    char path[128];
    struct small_file f = {0};
    struct err e;
    ret[0] = 0;
    socket_path_beside(socket, ".key", path, sizeof(path));
    if (small_file_read(path, PAGE_KEY_BYTES, &f, &e) == 0)
        snprintf(ret, PAGE_KEY_BYTES, "%.*s", (int)strcspn(f.bytes, "\r\n"), f.bytes);
    small_file_done(&f);
}
