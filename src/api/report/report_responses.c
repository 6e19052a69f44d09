/* report_responses.c - the stores of responses and of conversations: their tools, and their turns. */
#include "api/api_state.h"
#include "api/conversations.h"
#include "api/report/gauge.h"
#include "api/report/report.h"
#include "api/responses_store.h"
#include "api/turns/prompt_parts.h"

#include "base/check.h"
#include "base/json/json_out.h"

#define OF(field) GAUGE_OF(struct responses_store_numbers, field)

static const struct gauge rows[] = {
    {OF(entries), MEMBER("responses", 3, "entries"), GAUGE("plateau_responses", "Responses in the store.")},
    {OF(bytes), MEMBER("responses", 2, "bytes"),
     GAUGE("plateau_responses_bytes", "Bytes of stored responses.")},
    {OF(bytes_max), MEMBER("responses", 1, "limit_bytes"),
     GAUGE("plateau_responses_limit_bytes", "Limit of stored responses.")},
    {OF(stored), MEMBER("responses", 4, "stored"),
     COUNTER("plateau_responses_stored_total", "Responses that were stored.")},
    {OF(refused), MEMBER("responses", 5, "refused"),
     COUNTER("plateau_responses_refused_total", "Responses that did not fit into the store.")},
    {OF(found), MEMBER("responses", 6, "found"),
     COUNTER("plateau_responses_found_total", "Requests for a response that was in the store.")},
    {OF(missed), MEMBER("responses", 7, "missed"),
     COUNTER("plateau_responses_missed_total", "Requests for a response that was not in the store.")},
    {OF(evicted), MEMBER("responses", 8, "evicted"),
     COUNTER("plateau_responses_evicted_total", "Responses evicted by the limit or by memory pressure.")},
    {OF(expired), MEMBER("responses", 9, "expired"),
     COUNTER("plateau_responses_expired_total", "Responses deleted after `--response-ttl` without use.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    (void)model;
    if (tenant || !a->responses)
        return false;
    *(struct responses_store_numbers *)ret = responses_store_numbers(a->responses);
    return true;
}

const struct gauge_table report_responses_gauges = {
    "Of stored responses", rows, COUNT_OF(rows), false, sizeof(struct responses_store_numbers), read_numbers};

void report_responses(struct api *a, struct json_out *j)
{
    struct responses_store_numbers n;
    if (read_numbers(a, NULL, 0, &n))
        gauges_put_object(&report_responses_gauges, "responses", &n, j);
    else
        json_put_null(j, "responses");
}

/* ---- conversations ---- */

#undef OF
struct conversation_numbers {
    struct conversations_numbers heads;
    struct prompt_parts_numbers turns;
};

#define OF(field) GAUGE_OF(struct conversation_numbers, field)

static const struct gauge conversation_rows[] = {
    {OF(heads.bytes_max), MEMBER("conversations", 1, "limit_bytes"),
     GAUGE("plateau_conversations_limit_bytes", "Limit of the tools of conversations.")},
    {OF(heads.bytes), MEMBER("conversations", 2, "bytes"),
     GAUGE("plateau_conversations_bytes", "Bytes of the tools of conversations.")},
    {OF(heads.entries), MEMBER("conversations", 3, "entries"),
     GAUGE("plateau_conversations", "Conversations whose tools are known.")},
    {OF(heads.kept), MEMBER("conversations", 4, "kept"),
     COUNTER("plateau_conversations_kept_total", "Turns whose tools were kept.")},
    {OF(heads.evicted), MEMBER("conversations", 5, "evicted"),
     COUNTER("plateau_conversations_evicted_total", "Conversations evicted by the limit.")},
    {OF(heads.refused), MEMBER("conversations", 6, "refused"),
     COUNTER("plateau_conversations_refused_total", "Turns whose tools did not fit.")},
    {OF(turns.bytes), MEMBER("conversations", 7, "turns_bytes"),
     GAUGE("plateau_turns_bytes", "Bytes of the table of turns, which is fixed.")},
    {OF(turns.entries_max), MEMBER("conversations", 8, "turns_limit"),
     GAUGE("plateau_turns_limit", "Turns that the table has room for.")},
    {OF(turns.entries), MEMBER("conversations", 9, "turns"),
     GAUGE("plateau_turns", "Turns with which later ones are compared.")},
    {OF(turns.compared), MEMBER("conversations", 10, "turns_compared"),
     COUNTER("plateau_turns_compared_total", "Turns that were compared with an earlier one.")},
    {OF(turns.evicted), MEMBER("conversations", 11, "turns_evicted"),
     COUNTER("plateau_turns_evicted_total", "Turns that left the table for others.")},
};

static bool read_conversations(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    struct conversation_numbers *n = ret;
    (void)model;
    if (tenant || !a->conversations || !a->parts)
        return false;
    n->heads = conversations_numbers(a->conversations);
    n->turns = prompt_parts_numbers(a->parts);
    return true;
}

const struct gauge_table report_conversations_gauges = {"Of conversations",
                                                        conversation_rows,
                                                        COUNT_OF(conversation_rows),
                                                        false,
                                                        sizeof(struct conversation_numbers),
                                                        read_conversations};

void report_conversations(struct api *a, struct json_out *j)
{
    struct conversation_numbers n;
    if (read_conversations(a, NULL, 0, &n))
        gauges_put_object(&report_conversations_gauges, "conversations", &n, j);
    else
        json_put_null(j, "conversations");
}
