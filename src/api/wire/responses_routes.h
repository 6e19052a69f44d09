/* responses_routes.h - the routes of one stored response: /v1/responses/{id}. */
#ifndef PLATEAU_API_RESPONSES_ROUTES_H
#define PLATEAU_API_RESPONSES_ROUTES_H

#include "api/route_call.h"

/* GET, DELETE. */
route_fn responses_answer, responses_answer_delete;
/* POST .../cancel: only background responses could be cancelled. */
route_fn responses_refuse_cancel;

#endif
