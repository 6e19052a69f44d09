/* routes.h - which path is whose, and what the handler of http calls. */
#ifndef PLATEAU_API_ROUTES_H
#define PLATEAU_API_ROUTES_H

struct http_request;
struct http_wording;

int routes_begin(void *api, struct http_request *r);
void routes_ready(void *api, struct http_request *r);
void routes_refusing(void *api, struct http_request *r, struct http_wording *w);

#endif
