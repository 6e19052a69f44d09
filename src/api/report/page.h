/* page.h - answers with a file of the page. It needs no key: the files hold nothing of the server. */
#ifndef PLATEAU_API_PAGE_H
#define PLATEAU_API_PAGE_H

#include <stdbool.h>

struct http_request;
struct slice;

/* Network thread. "" is the page itself. False: there is no such file, and nothing is answered. */
bool page_respond(struct http_request *r, struct slice name);

#endif
