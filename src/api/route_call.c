/* route_call.c - the reply that several routes share. */
#include "api/route_call.h"

#include "base/buf.h"
#include "base/json/json_out.h"
#include "http/http_request.h"

void route_respond_deleted(const struct call *c, struct slice id, const char *object)
{
    struct buf body;
    buf_init(&body, 4096, NULL);
    struct json_out j = json_out_object(&body);
    json_put_text(&j, "id", id);
    json_put_string(&j, "object", object);
    json_put_bool(&j, "deleted", true);
    json_end(&j);
    http_respond(c->http, 200, "application/json", buf_slice(&body));
    buf_done(&body);
}
