/* responses_content.c - the parts of a message or of a call's output, as parts that templates expect. */
#include "api/request/field.h"
#include "api/request/known_types.h"
#include "api/wire/responses.h"

#include "gen/reject.h"
#include "unicode/utf8.h"

#include <openssl/evp.h>
#include <stdio.h>

static bool append(const struct responses_conversion *c, json_t *list, json_t *v)
{
    return json_array_append_new(list, v) == 0 || responses_no_memory(c);
}

static bool add_text(const struct responses_conversion *c, json_t *parts, json_t *text)
{
    return append(c, parts, field_text_part(text));
}

bool responses_add_words(const struct responses_conversion *c, json_t *parts, struct slice words)
{
    json_t *text = json_stringn(words.ptr ? words.ptr : "", words.len);
    bool ok = text ? add_text(c, parts, text) : responses_no_memory(c);
    json_decref(text);
    return ok;
}

/* ---- images ---- */

static bool add_media(struct responses_conversion *c, json_t *parts, json_t *entry)
{
    json_t **media = &c->request->gen.media;
    if (!*media)
        *media = json_array();
    if (!*media) {
        json_decref(entry);
        return responses_no_memory(c);
    }
    return append(c, *media, entry) && append(c, parts, json_pack("{ss}", "type", "image"));
}

static bool add_image(struct responses_conversion *c, json_t *parts, const json_t *part)
{
    json_t *url = json_object_get(part, "image_url");
    if (json_is_object(url))
        url = json_object_get(url, "url");
    if (!json_is_string(url))
        return reject_unsupported(c->why, c->at,
                                  "%s: an image must have an image_url, a URL or data URL; file_id is not "
                                  "supported.",
                                  c->at);
    json_t *image = json_pack("{sssO}", "type", "image", "image", url);
    json_t *entry = image ? request_media_read(image, c->at, c->why) : NULL;
    json_decref(image);
    if (!entry)
        return c->why->kind ? false : responses_no_memory(c);
    return add_media(c, parts, entry);
}

/* ---- files ---- */

/* The base64 of a data URL with text; empty: it is not one. */
static struct slice text_data(const json_t *data)
{
    struct slice url = {json_string_value(data), json_string_length(data)};
    size_t at = slice_find(url, SLICE(";base64,"), 0);
    if (!slice_starts(url, SLICE("data:text/")) || at == SIZE_MAX)
        return (struct slice){0};
    return slice_sub(url, at + strlen(";base64,"), url.len);
}

/* False: not base64 of UTF-8. */
static bool decode_text(struct slice chars, struct buf *ret)
{
    unsigned char bytes[3072];
    size_t padding = slice_ends(chars, SLICE("==")) ? 2 : slice_ends(chars, SLICE("=")) ? 1 : 0;
    for (size_t at = 0; at < chars.len; at += 4096) {
        struct slice piece = slice_sub(chars, at, 4096);
        int n = piece.len % 4 == 0 ? EVP_DecodeBlock(bytes, (const unsigned char *)piece.ptr, (int)piece.len)
                                   : -1;
        size_t drop = at + 4096 >= chars.len ? padding : 0;
        if (n < 0 || (size_t)n < drop)
            return false;
        buf_put(ret, bytes, (size_t)n - drop);
    }
    return utf8_valid(buf_slice(ret));
}

/* Texts only: other files would have to be rendered. */
static bool add_file(const struct responses_conversion *c, json_t *parts, const json_t *part)
{
    struct charge charge = request_memory_charge(c->memory);
    struct slice data = text_data(json_object_get(part, "file_data"));
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    bool ok = data.len > 0 && decode_text(data, &text);
    if (text.error)
        ok = responses_no_memory(c);
    else if (!ok)
        reject_unsupported(c->why, c->at,
                           "%s: a file must have file_data, a data URL of text in UTF-8 with base64 "
                           "(data:text/plain;base64,...); PDF, file_id and file_url are not supported. Send "
                           "the text or images.",
                           c->at);
    ok = ok && responses_add_words(c, parts, buf_slice(&text));
    buf_done(&text);
    return ok;
}

/* ---- parts ---- */

static bool add_left_out(const struct responses_conversion *c, json_t *parts, const json_t *part,
                         const char *type)
{
    json_t *text = known_type_text(part, type);
    bool ok = text ? add_text(c, parts, text) : responses_no_memory(c);
    json_decref(text);
    known_type_note(c->request, &responses_part_types, type);
    return ok;
}

static bool add_part(struct responses_conversion *c, json_t *parts, json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const struct known_type *row = type ? known_type_find(&responses_part_types, type) : NULL;
    json_t *text = json_object_get(part, type && strcmp(type, "refusal") == 0 ? "refusal" : "text");
    if (!row || (row->kind == TYPE_TEXT && !json_is_string(text)))
        return reject_value(c->why, c->at, "%s must be a part with a type; a text must be a string.", c->at);
    if (row->fate == TYPE_REFUSED)
        return known_type_refuse(row, c->at, type, c->why);
    if (row->kind == TYPE_TEXT)
        return add_text(c, parts, text);
    if (row->kind == TYPE_IMAGE)
        return add_image(c, parts, part);
    return row->kind == TYPE_DOCUMENT ? add_file(c, parts, part) : add_left_out(c, parts, part, type);
}

bool responses_add_content(struct responses_conversion *c, json_t *parts, json_t *content)
{
    size_t i, end = strlen(c->at);
    json_t *part;
    if (json_is_string(content))
        return add_text(c, parts, content);
    if (!json_is_array(content))
        return reject_value(c->why, c->at, "%s must have content: a string or a list of parts.", c->at);
    json_array_foreach(content, i, part) {
        snprintf(c->at + end, sizeof(c->at) - end, ".content[%zu]", i);
        if (!add_part(c, parts, part))
            return false;
        const json_t *all = c->request->gen.messages;
        size_t last = json_array_size(all) - 1;
        if (json_object_get(json_array_get(all, last), "content") == parts)
            request_mark_part(c->request, last, parts, part);
    }
    c->at[end] = 0;
    return true;
}
