/* stream_client.c - libcurl's multi interface in the calling thread. Of the stream only lines "data: ..."
 * matter: no server of this API sends an event's data in several lines. */
#include "cli/chat/stream_client.h"

#include "cli/admin_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>

#define LOOK_MS 50 /* how long a stop may go unseen */

/* ---- bytes of the answer ---- */

static bool refuses(struct stream_request *r)
{
    long status = 0;
    curl_easy_getinfo(r->handle, CURLINFO_RESPONSE_CODE, &status);
    r->status = (unsigned)status;
    return status >= 400;
}

/* The sentence of an error's body, without its full stop. Returns `code`. */
static int say(struct stream_request *r, int code, const json_t *body)
{
    const char *sentence = admin_client_sentence(body);
    struct slice text = slice_of(sentence ? sentence : "the server refused");
    text.len -= text.len > 0 && text.ptr[text.len - 1] == '.';
    return err_set(&r->e, code, "%.*s", SLICE_ARGS(text));
}

static void take_line(struct stream_request *r, struct slice line)
{
    if (!slice_starts(line, SLICE("data:")))
        return;
    struct slice data = slice_trim(slice_sub(line, 5, line.len), " \r");
    if (slice_eq(data, SLICE("[DONE]"))) {
        r->done = true;
        return;
    }
    json_t *json = json_loadb(data.ptr, data.len, 0, NULL);
    if (admin_client_sentence(json))
        r->result = say(r, -EPROTO, json);
    else if (json)
        r->event(r->arg, json);
    json_decref(json);
}

/* Whole lines leave the buffer; the body of an error stays in it. */
static size_t on_bytes(char *bytes, size_t size, size_t count, void *arg)
{
    struct stream_request *r = arg;
    const size_t len = size * count;
    const bool keep = refuses(r) || r->whole;
    for (size_t from = 0; from < len;) {
        const char *end = keep ? NULL : memchr(bytes + from, '\n', len - from);
        const size_t part = end ? (size_t)(end - bytes) - from : len - from;
        buf_put(&r->line, bytes + from, part);
        if (r->line.error)
            return 0;
        from += part + (end != NULL);
        if (end) {
            take_line(r, buf_slice(&r->line));
            r->line.len = 0;
        }
    }
    return len;
}

static uint32_t count_of(const json_t *from, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(from, key));
}

bool stream_usage_of(const json_t *data, struct stream_usage *ret)
{
    const json_t *usage = json_object_get(data, "usage");
    if (!json_is_object(usage))
        return false;
    *ret = (struct stream_usage){
        .prompt_tokens = count_of(usage, "prompt_tokens"),
        .completion_tokens = count_of(usage, "completion_tokens"),
        .cached_tokens = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens")};
    return true;
}

/* ---- one request ---- */

static int begin(CURLM *multi, struct stream_request *r)
{
    r->result = 0;
    r->status = 0;
    r->done = false;
    r->e = (struct err){{0}};
    buf_init(&r->line, STREAM_LINE_BYTES_MAX, NULL);
    CURL *h = r->handle = curl_easy_init();
    if (!h)
        return err_set(&r->e, -ENOMEM, "no memory");
    int error = admin_client_prepare(r->client, h, r->path, &r->headers, &r->e);
    if (error < 0)
        return error;
    curl_easy_setopt(h, CURLOPT_POST, 1L);
    curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(r->body));
    curl_easy_setopt(h, CURLOPT_POSTFIELDS, r->body);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(h, CURLOPT_PRIVATE, r);
    return curl_multi_add_handle(multi, h) == CURLM_OK ? 0 : err_set(&r->e, -ENOMEM, "no memory");
}

static void refused(struct stream_request *r)
{
    json_t *body = json_loadb(r->line.ptr, r->line.len, 0, NULL);
    const char *code = json_string_value(json_object_get(json_object_get(body, "error"), "code"));
    r->result = say(r, code && strcmp(code, "context_length_exceeded") == 0 ? -E2BIG : -EPROTO, body);
    const size_t len = strlen(r->e.text);
    if (!r->client->socket[0])
        snprintf(r->e.text + len, sizeof(r->e.text) - len, " (status %u)", r->status);
    json_decref(body);
}

static void take_whole(struct stream_request *r)
{
    json_t *body = json_loadb(r->line.ptr, r->line.len, 0, NULL);
    if (body)
        r->event(r->arg, body);
    else
        r->result = err_set(&r->e, -EPROTO, "the answer is not JSON");
    json_decref(body);
}

static void end(struct stream_request *r, CURLcode code)
{
    if (r->result < 0)
        return;
    if (code != CURLE_OK)
        r->result = admin_client_explain(r->client, (int)code, &r->e);
    else if (refuses(r))
        refused(r);
    else if (r->whole)
        take_whole(r);
}

static void let_go(CURLM *multi, struct stream_request *r)
{
    if (r->handle)
        curl_multi_remove_handle(multi, r->handle);
    curl_easy_cleanup(r->handle);
    curl_slist_free_all(r->headers);
    buf_done(&r->line);
    r->handle = NULL;
    r->headers = NULL;
}

/* ---- all of them ---- */

static void take_ends(CURLM *multi)
{
    int left;
    CURLMsg *m;
    while ((m = curl_multi_info_read(multi, &left))) {
        struct stream_request *r = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&r);
        if (m->msg == CURLMSG_DONE && r)
            end(r, m->data.result);
    }
}

static bool run(CURLM *multi, bool (*stopped)(void))
{
    for (int running = 1; running > 0;) {
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return true;
        take_ends(multi);
        if (stopped && stopped())
            return running > 0;
        if (running > 0)
            curl_multi_poll(multi, NULL, 0, LOOK_MS, NULL);
    }
    return false;
}

int stream_client_run(struct stream_request *requests, uint32_t count, bool (*stopped)(void), struct err *e)
{
    CURLM *multi = curl_multi_init();
    if (!multi)
        return err_set(e, -ENOMEM, "no memory");
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)count);
    for (uint32_t i = 0; i < count; i++) {
        requests[i].headers = NULL;
        requests[i].result = begin(multi, &requests[i]);
    }
    const bool cut = run(multi, stopped);
    for (uint32_t i = 0; i < count; i++) {
        struct stream_request *r = &requests[i];
        if (cut && r->result == 0 && !r->done)
            r->result = err_set(&r->e, -ECANCELED, "stopped");
        let_go(multi, r);
    }
    curl_multi_cleanup(multi);
    return 0;
}
