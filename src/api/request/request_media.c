/* request_media.c - an image or a video in the forms that clients send.
 *
 * The forms of OpenAI, its Responses API, Hugging Face and Qwen differ in the place of the address: under the
 * type's own name, as a string or as an object with a "url". Other keys of such a part are refused unless
 * they are supported, or known to change nothing. A client that limits an image's size or cuts a video relies
 * on that. `detail` only concerns OpenAI's own sizes: each model reads an image at its own size. */
#include "api/request/request.h"

#include "base/check.h"
#include "gen/reject.h"

#include <math.h>

#define FPS_MAX 1000.0

static const struct {
    const char *type;
    enum media_kind kind;
} types[] = {
    {"image_url", MEDIA_IMAGE}, {"input_image", MEDIA_IMAGE}, {"image", MEDIA_IMAGE},
    {"video_url", MEDIA_VIDEO}, {"input_video", MEDIA_VIDEO}, {"video", MEDIA_VIDEO},
};

/* COUNT_OF(types): not a part with media. */
static size_t type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    size_t i = 0;
    while (i < COUNT_OF(types) && !(type && strcmp(type, types[i].type) == 0))
        i++;
    return i;
}

bool request_is_media(const json_t *part)
{
    return type_of(part) < COUNT_OF(types);
}

const char *request_media_type(const json_t *part)
{
    return types[type_of(part)].kind == MEDIA_VIDEO ? "video" : "image";
}

/* Keys that may have the address. */
static const char *const names[][3] = {
    [MEDIA_IMAGE] = {"image_url", "image", "url"}, [MEDIA_VIDEO] = {"video_url", "video", "url"}};

static const char *const rates[] = {"fps", "sample_fps"}; /* keys of videos */

static bool is_among(const char *key, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(key, list[i]) == 0)
            return true;
    return false;
}

/* Checks the keys of a part, or of the object with its address. */
static bool check_keys(const json_t *holder, enum media_kind kind, const char *at, struct reject *why)
{
    /* Names of the part, claims about the type of its bytes, and cache lifetimes for others. */
    static const char *const known[] = {
        "type",   "detail", "id",        "uuid",       "name",          "filename",
        "format", "index",  "mime_type", "media_type", "cache_control", "prompt_cache_breakpoint"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)holder, key, v) {
        bool ok = json_is_null(v) || is_among(key, known, COUNT_OF(known)) ||
                  is_among(key, names[kind], COUNT_OF(names[kind])) ||
                  (kind == MEDIA_VIDEO && is_among(key, rates, COUNT_OF(rates)));
        if (!ok)
            return reject_unsupported(why, at, "%s: \"%.64s\" is not supported; leave it out.", at, key);
    }
    return true;
}

/* Any word: none has an effect. */
static bool check_detail(const json_t *holder, const char *at, struct reject *why)
{
    const json_t *v = json_object_get(holder, "detail");
    return !v || json_is_null(v) || json_is_string(v) ||
           reject_value(why, at, "%s: detail must be a string.", at);
}

/* The value of the one address key of the part; NULL: no such key, or several, and `why` has the error. */
static json_t *find_value(const json_t *part, enum media_kind kind, const char *at, struct reject *why)
{
    json_t *found = NULL;
    for (size_t i = 0; i < COUNT_OF(names[kind]); i++) {
        json_t *v = json_object_get(part, names[kind][i]);
        if (!v || json_is_null(v))
            continue;
        if (found) {
            reject_value(why, at, "%s has more than one URL (\"%s\" is another).", at, names[kind][i]);
            return NULL;
        }
        found = v;
    }
    return found;
}

static json_t *address_of(json_t *v)
{
    json_t *url = json_is_object(v) ? json_object_get(v, "url") : v;
    return json_is_string(url) && json_string_length(url) > 0 ? url : NULL;
}

/* New references to the addresses of frames. NULL: an element is not an address, or no memory. */
static json_t *read_frames(const json_t *frames, const char *at, struct reject *why)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(frames); i++) {
        json_t *address = address_of(json_array_get(frames, i));
        if (!address)
            reject_value(why, at, "%s: frame %zu must be the URL of an image, a string.", at, i);
        if (!address || json_array_append(list, address) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* A new reference; NULL with the error, or without one when memory is short. */
static json_t *read_source(json_t *value, enum media_kind kind, const char *at, struct reject *why)
{
    const char *what = kind == MEDIA_VIDEO ? "video" : "image";
    json_t *address = address_of(value);
    if (kind == MEDIA_VIDEO && json_is_array(value) && json_array_size(value) > 0)
        return read_frames(value, at, why);
    if (!address)
        reject_value(why, at,
                     "%s has no %s URL: a string, or an object with \"url\" (a data URL, or one that the "
                     "server's options allow).",
                     at, what);
    return json_incref(address);
}

static bool read_fps(const json_t *holder, const char *at, double *ret, struct reject *why)
{
    for (size_t i = 0; i < COUNT_OF(rates); i++) {
        const json_t *v = json_object_get(holder, rates[i]);
        if (!v || json_is_null(v))
            continue;
        double fps = json_number_value(v);
        if (!json_is_number(v) || !(fps > 0 && fps <= FPS_MAX))
            return reject_value(why, at, "%s: %s must be a number above 0 and at most %.0f.", at, rates[i],
                                FPS_MAX);
        *ret = fps;
    }
    return true;
}

json_t *request_media_read(const json_t *part, const char *at, struct reject *why)
{
    enum media_kind kind = types[type_of(part)].kind;
    json_t *value = find_value(part, kind, at, why);
    double fps = -1;
    if (why->kind || !check_keys(part, kind, at, why) || !check_keys(value, kind, at, why) ||
        !check_detail(part, at, why) || !check_detail(value, at, why) || !read_fps(value, at, &fps, why) ||
        !read_fps(part, at, &fps, why))
        return NULL;
    json_t *source = read_source(value, kind, at, why);
    if (!source)
        return NULL;
    json_t *entry = json_pack("{sisssOsf}", "kind", (int)kind, "at", at, "source", source, "fps", fps);
    json_decref(source);
    return entry;
}
