#include "api/turns/agent_key.h"

#include "api/exchange.h"
#include "api/request/json_digest.h"

#include "chat/chat_history.h"
#include "engine/job_spec.h"

#include <string.h>

static uint64_t first_message(const struct gen_request *r)
{
    const json_t *each;
    size_t i;
    json_array_foreach(r->messages, i, each)
        if (chat_history_has_role(each, "user"))
            return json_digest(each) | 1;
    return 0;
}

uint64_t agent_key_find(const struct exchange *x)
{
    const struct gen_request *r = &x->request.gen;
    uint8_t id[16];
    _Static_assert(sizeof(id) == sizeof(x->gen.id), "a session has the id of its request");
    if (r->output != GEN_TOKENS || !r->messages || (r->prompt_only && !r->opens_session))
        return 0;
    memcpy(id, r->opens_session ? (const void *)&x->gen.id : r->session_id, sizeof(id));
    if (r->opens_session || r->has_session)
        return job_session_agent(id);
    return r->agent ? r->agent : first_message(r);
}
