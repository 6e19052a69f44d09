/* responses_list.h - GET /v1/responses/{id}/input_items: a page of a stored conversation.
 *
 * A conversation has megabytes, which are searched for an id and copied: a prep thread does so. */
#ifndef PLATEAU_API_RESPONSES_LIST_H
#define PLATEAU_API_RESPONSES_LIST_H

#include <stdbool.h>

struct exchange;
struct http_request;
struct reject;
struct responses_page;
struct slice;

/* The page that the query asks for. False: `why` has the reason. Network thread. */
bool responses_list_find(const struct http_request *r, struct responses_page *ret, struct reject *why);
/* Keeps the page and the response's id from the path in x->list. False: no memory. Network thread. */
bool responses_list_begin(struct exchange *x, struct slice id, const struct responses_page *page);
/* Fills x->reply; false: the reject has the reason. Prep thread. */
bool responses_list_write(struct exchange *x);
void responses_list_done(struct exchange *x);

#endif
