/* wire_session.c - POST /v1/sessions: computes a conversation's prompt, and keeps it until a deadline.
 *
 * The fields are those of chat completions, and a ttl. The reply is whole. */
#include "api/exchange.h"
#include "api/reply.h"
#include "api/request/field.h"
#include "api/wire/wire.h"

#include "base/json/json_out.h"
#include "gen/choice.h"
#include "gen/reject.h"

#include <string.h>

#define TTL_DEFAULT_S 3600

static bool read_ttl(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    r->gen.session_ttl_s = field_ttl_s(v);
    return r->gen.session_ttl_s > 0 ||
           reject_value(why, f->name, "ttl must be a time such as \"30m\" or \"12h\", at most a day.");
}

static bool read_tier(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *tier = json_is_string(v) ? json_string_value(v) : "";
    r->gen.session_below = strcmp(tier, "ssd") == 0;
    return r->gen.session_below || strcmp(tier, "memory") == 0 ||
           reject_value(why, f->name, "tier must be \"memory\" or \"ssd\".");
}

static bool check(struct request *r, struct reject *why)
{
    if (!r->gen.messages)
        return reject_value(why, "messages", "messages is missing.");
    if (r->stream || r->gen.n > 1)
        return reject_value(why, r->stream ? "stream" : "n", "A session has no stream, and no choices.");
    r->gen.prompt_only = r->gen.opens_session = true;
    if (r->gen.session_ttl_s == 0)
        r->gen.session_ttl_s = TTL_DEFAULT_S;
    return fields_openai_check(r, why);
}

static const struct field fields[] = {
    {"ttl", read_ttl},
    {"tier", read_tier},
    {"follow", field_tristate, FIELD_AT(gen.session_follows)},
};

static const struct field_group own_fields = {fields, COUNT_OF(fields)};
static const struct field_group *const groups[] = {&own_fields, &fields_openai_conversation, &fields_openai,
                                                   &fields_generation, NULL};

static void part(void *arg, const struct reply_part *p)
{
    (void)arg, (void)p;
}

static void write_whole(struct exchange *x, struct buf *ret)
{
    const struct stream_finish *f = &x->replies[0].choice->finish;
    const struct gen_request *r = &x->request.gen;
    struct json_out j = json_out_object(ret);
    json_put_format(&j, "id", "sess_%s", x->id_text);
    JSON_PUT_STRINGS(&j, {"object", "session"}, {"model", x->gen.model->id});
    json_put_i64(&j, "created_at", x->gen.created_s);
    json_put_i64(&j, "expires_at", x->gen.created_s + r->session_ttl_s);
    json_put_bool(&j, "follow", r->session_follows);
    json_put_string(&j, "tier", r->session_below ? "ssd" : "memory");
    JSON_PUT_U64S(&j, {"tokens", f->leased_tokens}, {"bytes", f->leased_bytes},
                  {"prompt_tokens", f->prompt_tokens}, {"cached_tokens", f->cached_tokens});
    json_end(&j);
}

const struct wire wire_session = {
    .route = "/v1/sessions",
    .frame = &openai_frame,
    .form = {.groups = groups,
             .output = GEN_TOKENS,
             .parses = true,
             .check = check,
             .convert = request_convert_messages},
    .id_prefix = "sess",
    .object = "session",
    .chunk_object = "session",
    .part = part,
    .whole = write_whole,
};
