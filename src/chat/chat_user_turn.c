/* chat_user_turn.c - a short conversation is rendered without the turn and with it. Both renderings end the
 * reply's turn alike; the second one goes on with the further turn. */
#include "chat/chat_user_turn.h"

#include "unicode/utf8.h"

#include <errno.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20)
#define REPLY          "zqreply"

static json_t *conversation(json_t *content)
{
    json_t *ret = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "zquser", "role",
                            "assistant", "content", REPLY);
    if (ret && content &&
        json_array_append_new(ret, json_pack("{s:s, s:O}", "role", "user", "content", content)) < 0) {
        json_decref(ret);
        return NULL;
    }
    return ret;
}

static int render(const struct chat_user_turn *t, struct arena *scratch, json_t *content, struct buf *ret)
{
    struct chat_template_input in = t->input;
    struct err e = {{0}};
    json_t *messages = conversation(content);
    in.messages = messages;
    in.tools = NULL;
    in.marks.count = 0;
    in.add_generation_prompt = content != NULL;
    int r =
        messages ? chat_template_render_cuts(t->template, scratch, &in, &t->limits, ret, NULL, &e) : -ENOMEM;
    json_decref(messages);
    return r == -EINVAL || r == -E2BIG || r == -EMSGSIZE ? -ENOENT : r;
}

/* The text after the reply. False: the reply is not there. */
static bool after_reply(const struct buf *text, struct slice *ret)
{
    size_t at = slice_find(buf_slice(text), SLICE(REPLY), 0);
    if (at == SIZE_MAX)
        return false;
    *ret = slice_sub(buf_slice(text), at + strlen(REPLY), text->len);
    return true;
}

int chat_user_turn_write(const struct chat_user_turn *t, struct arena *scratch, json_t *content,
                         struct buf *ret)
{
    struct buf without, with;
    struct slice end, rest;
    buf_init(&without, TEXT_BYTES_MAX, t->charge);
    buf_init(&with, TEXT_BYTES_MAX, t->charge);
    int r = render(t, scratch, NULL, &without);
    if (r == 0)
        r = render(t, scratch, content, &with);
    if (r == 0 && (!after_reply(&without, &end) || !after_reply(&with, &rest) || !slice_starts(rest, end) ||
                   rest.len == end.len || !utf8_valid(slice_sub(rest, end.len, rest.len))))
        r = -ENOENT;
    if (r == 0)
        buf_put_slice(ret, slice_sub(rest, end.len, rest.len));
    buf_done(&with);
    buf_done(&without);
    return r == 0 && ret->error ? -ENOMEM : r;
}
