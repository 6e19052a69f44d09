/* attach.c - a task of the media service for each attachment, made as a request over HTTP makes them; the
 * images live in their task.
 *
 * The service reads files below one directory. Here that is the root: the user of the terminal may read
 * any file that the program may. The path is resolved first, for the service follows no link out of the
 * directory. */
#include "host/attach.h"

#include "host/runtime.h"
#include "host/settings.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/slice.h"
#include "vision/image.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS    (50 * NS_PER_MS) /* how long a stop may go unseen */
#define URL_BYTES  (3 * PATH_MAX + 16)
#define NAME_BYTES 200u /* bytes of the typed name in messages */

void attach_init(struct attach *a, struct runtime *rt, bool (*stopped)(void))
{
    *a = (struct attach){.rt = rt, .stopped = stopped};
}

void attach_done(struct attach *a)
{
    attach_cut(a, 0);
    media_free(a->media);
    mailbox_free(a->wake);
    *a = (struct attach){.rt = a->rt, .stopped = a->stopped};
}

void attach_cut(struct attach *a, uint32_t count)
{
    while (a->count > count) {
        struct attach_item *item = &a->items[--a->count];
        media_task_leave(item->task);
        json_decref(item->part);
    }
}

/* ---- the service ---- */

/* Any thread. A full mailbox wakes as well. */
static void wake(void *arg)
{
    struct attach *a = arg;
    mailbox_put(a->wake, &a);
}

static int open_media(struct attach *a, struct err *e)
{
    struct charge charge = account_charge(a->rt->text);
    struct media_opts opts = a->rt->settings->api.media;
    opts.on = true;
    opts.account = a->rt->media;
    opts.threads = a->rt->threads;
    opts.thread_count = 1;
    opts.allow_remote = true;
    opts.dir = "/";
    opts.done = wake;
    opts.arg = a;
    int r = 0;
    if (!a->wake)
        r = mailbox_create(&(struct mailbox_opts){4, sizeof(void *), false, &charge}, &a->wake);
    if (r < 0)
        return err_set(e, r, "no memory for a mailbox");
    return a->media ? 0 : media_create(&opts, &a->media, e);
}

static int check_image_sched(const struct attach *a, struct err *e)
{
    const struct model_shape *s = &a->rt->planning.model.shape;
    if (s->vision.present)
        return 0;
    return err_set(e, -EINVAL,
                   s->has_vision   ? "%s is loaded without its vision encoder (--max-image-pixels 0)"
                   : s->text_alone ? "of %s the text alone is computed: it takes no images"
                                   : "%s reads text only",
                   a->rt->model_id);
}

/* ---- parsing the typed name ---- */

static bool is_address(struct slice what)
{
    static const char *const heads[] = {"http://", "https://", "file://", "data:"};
    for (size_t i = 0; i < COUNT_OF(heads); i++)
        if (slice_starts(what, slice_of(heads[i])))
            return true;
    return false;
}

/* Strips the quotation marks in which terminals paste names with spaces. */
struct slice attach_unquote(struct slice s)
{
    bool quoted = s.len >= 2 && (s.ptr[0] == '\'' || s.ptr[0] == '"') && s.ptr[s.len - 1] == s.ptr[0];
    return quoted ? (struct slice){s.ptr + 1, s.len - 2} : s;
}

static void write_url(const char *path, char ret[URL_BYTES])
{
    static const char plain[] = "/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char *to = ret + sprintf(ret, "file://");
    for (; *path; path++) {
        if (strchr(plain, *path))
            *to++ = *path;
        else
            to += sprintf(to, "%%%02X", (unsigned char)*path);
    }
    *to = 0;
}

int attach_path(struct slice what, char ret[PATH_MAX], struct err *e)
{
    const char *home = getenv("HOME");
    bool at_home = what.len > 1 && what.ptr[0] == '~' && what.ptr[1] == '/' && home;
    int n = at_home ? snprintf(ret, PATH_MAX, "%s%.*s", home, (int)what.len - 1, what.ptr + 1)
                    : snprintf(ret, PATH_MAX, "%.*s", (int)what.len, what.ptr);
    return n >= 0 && n < PATH_MAX
               ? 0
               : err_set(e, -EINVAL, "the name of a file has at most %d bytes", PATH_MAX - 1);
}

static int url_of_path(struct slice what, char ret[URL_BYTES], struct err *e)
{
    char named[PATH_MAX], path[PATH_MAX];
    int r = attach_path(what, named, e);
    if (r < 0)
        return r;
    if (!realpath(named, path))
        return err_set(e, -EINVAL, "the file cannot be read: %s", strerror(errno));
    write_url(path, ret);
    return 0;
}

/* Returns a message's part for it, in the form that templates know and the API takes. */
static json_t *part_of(enum media_kind kind, struct slice what, struct err *e)
{
    const char *type = kind == MEDIA_VIDEO ? "video" : "image";
    char url[URL_BYTES];
    what = attach_unquote(what);
    if (!is_address(what)) {
        if (url_of_path(what, url, e) < 0)
            return NULL;
        what = slice_of(url);
    }
    json_t *part = json_pack("{s:s, s:s%}", "type", type, type, what.ptr, what.len);
    if (!part)
        err_set(e, -EINVAL, "the address is not valid UTF-8 text, or there is no memory for it");
    return part;
}

/* ---- reading ---- */

/* Name of the part in the service's sentences. */
static const char *const names[] = {[MEDIA_IMAGE] = "the image", [MEDIA_VIDEO] = "the video"};

/* Shortens a client's sentence for the terminal: "the image: ..." and the full stop say nothing here. */
static int fail(const struct media_failure *why, enum media_kind kind, struct err *e)
{
    struct slice text = slice_of(why->message);
    size_t head = strlen(names[kind]);
    if (why->fault == MEDIA_FAULT_MEMORY)
        return err_set(e, -ENOMEM,
                       "no memory for it: it needs %zu bytes, and all images together may have what "
                       "--media-memory says",
                       why->wanted);
    if (slice_starts(text, slice_of(names[kind])) && text.len > head + 2 && text.ptr[head] == ':')
        text = slice_sub(text, head + 2, text.len);
    text.len -= text.len > 0 && text.ptr[text.len - 1] == '.';
    return err_set(e, -EINVAL, "%.*s", SLICE_ARGS(text));
}

static int wait(struct attach *a, enum media_kind kind, const struct media_task *t, struct err *e)
{
    void *message;
    while (media_task_state(t) != MEDIA_DONE) {
        mailbox_wait(a->wake, &message, LOOK_NS);
        if ((a->stopped && a->stopped()))
            return err_set(e, -ECANCELED, "stopped before it was read");
    }
    const struct media_failure *why = media_task_failure(t);
    return why ? fail(why, kind, e) : 0;
}

static struct slice url_of(const void *owner, uint32_t index)
{
    const json_t *part = owner,
                 *url = json_object_get(part, json_string_value(json_object_get(part, "type")));
    (void)index;
    return (struct slice){json_string_value(url), json_string_length(url)};
}

static int read_part(struct attach *a, enum media_kind kind, const json_t *part, struct media_task **ret,
                     struct err *e)
{
    const struct media_input input = {
        .kind = kind, .at = names[kind], .fps = NAN, .url_count = 1, .url = url_of, .owner = part};
    struct media_failure why = {0};
    struct media_task *t = NULL;
    bool ok = media_task_create(a->media, &input, 1, &a->rt->planning.model.shape.vision, &t, &why) &&
              media_submit(t, 0, &why);
    int r = ok ? wait(a, kind, t, e) : fail(&why, kind, e);
    if (r < 0)
        media_task_leave(t);
    else
        *ret = t;
    return r;
}

static uint32_t tokens_of(const struct attach *a, const struct media_task *t)
{
    const struct model_vision *v = &a->rt->planning.model.shape.vision;
    struct media_result m = media_task_result(t, 0);
    uint32_t edge = v->patch * v->merge, tokens = 0;
    for (uint32_t i = 0; i < m.count; i++)
        tokens += (m.images[i]->width / edge) * (m.images[i]->height / edge);
    return tokens;
}

static int add(struct attach *a, enum media_kind kind, struct slice what, struct err *e)
{
    struct attach_item item = {0};
    int r = a->count < ATTACH_MAX ? open_media(a, e)
                                  : err_set(e, -E2BIG,
                                            "a conversation has at most %d images and videos; /reset "
                                            "begins a new one",
                                            ATTACH_MAX);
    if (r < 0)
        return r;
    item.part = part_of(kind, what, e);
    if (!item.part)
        return -EINVAL;
    r = read_part(a, kind, item.part, &item.task, e);
    if (r < 0)
        json_decref(item.part);
    else
        a->items[a->count++] = item;
    return r;
}

int attach_add(struct attach *a, enum media_kind kind, struct slice what, uint32_t *ret, struct err *e)
{
    int r = check_image_sched(a, e);
    if (r < 0)
        return r;
    r = add(a, kind, what, e);
    if (r < 0)
        return err_prefix(e, r, "%.*s", (int)MIN_OF(what.len, NAME_BYTES), what.ptr);
    *ret = tokens_of(a, a->items[a->count - 1].task);
    return 0;
}

/* ---- messages ---- */

json_t *attach_content(const struct attach *a, uint32_t first, struct slice text)
{
    json_t *list = json_array();
    json_t *words = json_pack("{s:s, s:s%}", "type", "text", "text", text.ptr ? text.ptr : "", text.len);
    bool ok = list && words;
    for (uint32_t i = first; ok && i < a->count; i++)
        ok = json_array_append(list, a->items[i].part) == 0;
    if (ok && json_array_append(list, words) == 0) {
        json_decref(words);
        return list;
    }
    json_decref(words);
    json_decref(list);
    return NULL;
}

uint32_t attach_count(const json_t *messages)
{
    size_t i, k;
    const json_t *message, *part;
    uint32_t count = 0;
    json_array_foreach(messages, i, message) {
        json_array_foreach(json_object_get(message, "content"), k, part)
            count += strcmp(json_string_value(json_object_get(part, "type")), "text") != 0;
    }
    return count;
}

void attach_results(const struct attach *a, uint32_t count, struct media_result ret[ATTACH_MAX])
{
    ASSERT(count <= a->count);
    for (uint32_t i = 0; i < count; i++)
        ret[i] = media_task_result(a->items[i].task, 0);
}
