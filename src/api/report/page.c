/* page.c - headers that let the page run its own files and reach its own server, and nothing else. */
#include "api/report/page.h"

#include "http/http_request.h"
#include "web/web.h"

#define POLICY                                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "                  \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static bool takes_gzip(const struct http_request *r)
{
    struct slice all;
    static const char word[] = "gzip";
    if (!http_request_header(r, "accept-encoding", &all))
        return false;
    const char *at = memmem(all.ptr, all.len, word, sizeof(word) - 1);
    /* Only the weight of "gzip;q=0" counts. */
    return at && !slice_starts(slice_sub(all, (size_t)(at - all.ptr), all.len), SLICE("gzip;q=0"));
}

static bool is_known(const struct http_request *r, const char *tag)
{
    struct slice known;
    return http_request_header(r, "if-none-match", &known) && slice_eq(known, slice_of(tag));
}

bool page_respond(struct http_request *r, struct slice name)
{
    struct web_file f;
    char tag[WEB_TAG_BYTES];
    if (!web_find(name.len ? name : SLICE("index.html"), &f))
        return false;
    bool gzip = takes_gzip(r);
    struct slice body = gzip ? f.gzip : f.plain;
    web_tag(body, tag);
    http_header_set(r, "etag", tag);
    http_header_set(r, "cache-control", "no-cache");
    http_header_set(r, "vary", "accept-encoding");
    http_header_set(r, "content-security-policy", POLICY);
    http_header_set(r, "x-content-type-options", "nosniff");
    http_header_set(r, "referrer-policy", "no-referrer");
    bool known = is_known(r, tag);
    if (gzip && !known)
        http_header_set(r, "content-encoding", "gzip");
    http_respond(r, known ? 304 : 200, f.type, known ? (struct slice){0} : body);
    return true;
}
