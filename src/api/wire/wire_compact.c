/* wire_compact.c - OpenAI's /v1/responses/compact: a conversation becomes its messages of the user and a
 * summary.
 *
 * The newest of these messages stay, as far as they leave most of the context free. The reply is whole. */
#include "api/exchange.h"
#include "api/reject_http.h"
#include "api/reply.h"
#include "api/request/compaction_words.h"
#include "api/responses_store.h"
#include "api/wire/responses.h"
#include "api/wire/wire.h"

#include "base/json/json_out.h"
#include "gen/gen.h"
#include "gen/reject.h"

/* Bytes of messages that stay for each token of the context: about a quarter of it. */
#define KEPT_BYTES 1

/* The last items of the list that have at most `bytes_max` bytes together. */
static struct slice newest(struct slice list, size_t bytes_max)
{
    const struct slice between = SLICE(RESPONSES_BETWEEN);
    size_t from = list.len > bytes_max ? slice_find(list, between, list.len - bytes_max) : 0;
    if (from == SIZE_MAX)
        return SLICE("");
    return slice_sub(list, from > 0 ? from + between.len : 0, list.len);
}

static void part(void *arg, const struct reply_part *p)
{
    struct reply *r = arg;
    if (p->kind == PART_TEXT)
        buf_put_slice(&r->content, p->text);
}

static void refuse_empty(struct exchange *x, struct buf *ret)
{
    struct reject why = {0};
    compaction_refuse(&why);
    x->status = reject_status(&why);
    reject_write(&why, x->id_text, ret);
}

static void write_whole(struct exchange *x, struct buf *ret)
{
    const struct reply *r = &x->replies[0];
    if (r->content.len == 0) {
        refuse_empty(x, ret);
        return;
    }
    struct json_out j = json_out_object(ret);
    json_put_format(&j, "id", "resp_%s", x->id_text);
    json_put_string(&j, "object", x->wire->object);
    json_put_i64(&j, "created_at", x->gen.created_s);
    json_open_array(&j, "output");
    json_put_items(&j, newest(buf_slice(&x->request.kept), (size_t)x->gen.model->max_model_len * KEPT_BYTES));
    responses_write_summary(x, 0, buf_slice(&r->content), NULL, &j);
    json_close(&j);
    responses_write_usage(x, &j);
    json_end(&j);
}

const struct wire wire_compact = {
    .route = "/v1/responses/compact",
    .frame = &openai_frame,
    .form = {.groups = responses_groups,
             .output = GEN_TOKENS,
             .parses = true,
             .compacts = true,
             .check = responses_check_compact,
             .convert = responses_convert},
    .id_prefix = "resp",
    .object = "response.compaction",
    .chunk_object = "response.compaction",
    .part = part,
    .whole = write_whole,
};
