/* hub_parts.c - the parts of files over all connections: the earliest unfinished file first, and sums of
 * files that are complete in steps between the transfers, so that no connection waits for a sum. */
#include "hub/hub_blob.h"
#include "hub/hub_work.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define WAIT_MS    50
#define NOTE_BYTES ((uint64_t)1 << 20)

struct slot {
    struct hub_transfer t;
    struct hub_work *work;
    struct hub_blob *blob; /* NULL: free */
    uint32_t part;
    struct hub_retry retry;
    bool runs;
    uint64_t noted;
};

struct parts {
    struct hub_work *work;
    bool weights;
    struct slot slots[HUB_TRANSFERS_MAX];
    uint32_t first; /* files before it are done */
    struct hub_blob *checked;
    const struct hub_blob *was_wrong; /* its sum was wrong once */
};

static int take(void *arg, struct slice bytes)
{
    struct slot *s = arg;
    int r = hub_blob_write(s->blob, s->part, bytes);
    s->work->shown.fetched += bytes.len;
    s->work->shown.retries = NULL;
    if (r == 0 && s->blob->done[s->part] - s->noted >= NOTE_BYTES) {
        hub_blob_note(s->blob, s->part);
        s->noted = s->blob->done[s->part];
    }
    return r;
}

static bool is_mine(const struct parts *p, const struct hub_blob *b)
{
    return !b->present && hub_file_is_weights(b->file) == p->weights;
}

static bool is_busy(const struct parts *p, const struct hub_blob *b, uint32_t part)
{
    for (size_t i = 0; i < HUB_TRANSFERS_MAX; i++)
        if (p->slots[i].blob == b && p->slots[i].part == part)
            return true;
    return false;
}

static bool is_complete(const struct hub_blob *b)
{
    return b->done && hub_blob_done(b) == b->file->bytes;
}

/* The next part without a transfer. 1, 0 (none is left), or an error of opening its file. */
static int next_part(struct parts *p, struct hub_blob **blob, uint32_t *part, struct err *e)
{
    for (uint32_t i = p->first; i < p->work->list.count; i++) {
        struct hub_blob *b = &p->work->blobs[i];
        if (!is_mine(p, b)) {
            p->first += i == p->first;
            continue;
        }
        int r = hub_blob_open(b, e);
        if (r < 0)
            return r;
        for (*part = 0; *part < b->parts; ++*part) {
            *blob = b;
            if (b->done[*part] < hub_blob_part_bytes(b, *part) && !is_busy(p, b, *part))
                return 1;
        }
    }
    return 0;
}

static int begin(struct parts *p, struct slot *s, struct err *e)
{
    struct hub_transfer *t = &s->t;
    uint64_t done = s->blob->done[s->part];
    t->from = s->part * HUB_PART_BYTES + done;
    t->bytes = hub_blob_part_bytes(s->blob, s->part) - done;
    t->bytes_max = t->file_bytes = s->blob->file->bytes;
    if (s->blob->whole)
        t->bytes = 0;
    t->take = take;
    t->arg = s;
    s->noted = done;
    int r = hub_work_path(p->work, s->blob->file->name, t->path, e);
    if (r == 0)
        r = hub_http_begin(p->work->http, t, e);
    s->runs = r == 0;
    return r;
}

/* Gives a part to a free slot. 1, 0 (none is left), or an error of opening its file. */
static int assign(struct parts *p, struct slot *s, struct err *e)
{
    struct hub_blob *blob;
    uint32_t part;
    int r = next_part(p, &blob, &part, e);
    if (r <= 0)
        return r;
    s->work = p->work;
    s->blob = blob;
    s->part = part;
    s->retry = (struct hub_retry){0};
    return 1;
}

static int fill(struct parts *p, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < HUB_TRANSFERS_MAX && r >= 0; i++) {
        struct slot *s = &p->slots[i];
        if (!s->blob)
            r = assign(p, s, e);
        if (r >= 0 && s->blob && !s->runs && clock_now_ns() >= s->retry.not_before_ns)
            r = begin(p, s, e);
    }
    return MIN_OF(r, 0);
}

static void release(struct parts *p, struct slot *s)
{
    if (s->runs)
        hub_http_drop(p->work->http, &s->t);
    if (s->blob && s->blob->done)
        hub_blob_note(s->blob, s->part);
    s->runs = false;
    s->blob = NULL;
}

/* The hub has no ranges of this file: all of it comes in one part. */
static int take_whole(struct parts *p, struct hub_blob *b, struct err *e)
{
    for (size_t i = 0; i < HUB_TRANSFERS_MAX; i++)
        if (p->slots[i].blob == b)
            release(p, &p->slots[i]);
    return hub_blob_restart(b, true, e);
}

static int ended(struct parts *p, struct slot *s, struct err *e)
{
    struct hub_transfer *t = &s->t;
    s->runs = false;
    hub_blob_note(s->blob, s->part);
    if (t->end == HUB_END_WHOLE)
        return take_whole(p, s->blob, e);
    if (t->end == HUB_END_FAILED)
        return err_set(e, t->code, "%s: %s", s->blob->file->name, t->why.text);
    bool all = s->blob->done[s->part] == hub_blob_part_bytes(s->blob, s->part);
    if (all) {
        /* Also after an error: a transfer can time out in the moment in which its last byte comes. */
        release(p, s);
        return 0;
    }
    bool whole = s->blob->whole;
    int r = whole ? hub_blob_restart(s->blob, true, e) : 0;
    if (r == 0 && !hub_retry_again(&s->retry, t, !whole))
        r = err_set(e, -EAGAIN, "%s: %s", s->blob->file->name,
                    t->why.text[0] ? t->why.text : "the hub sent too few bytes");
    p->work->shown.retries = t->why.text;
    return r;
}

/* A file whose sum is wrong is fetched once more. */
static int wrong_sum(struct parts *p, struct hub_blob *b, struct err *e)
{
    bool twice = p->was_wrong == b;
    p->was_wrong = b;
    int r = hub_blob_restart(b, b->whole, e);
    if (r < 0 || !twice)
        return r;
    return err_set(e, -EBADMSG, "%s: the bytes that came do not have the sum that the hub lists, twice",
                   b->file->name);
}

/* A transfer of it has not ended yet, though all its bytes may be there. */
static bool is_fetched(const struct parts *p, const struct hub_blob *b)
{
    for (size_t i = 0; i < HUB_TRANSFERS_MAX; i++)
        if (p->slots[i].blob == b)
            return true;
    return false;
}

/* Sums some of a file that is complete. 1: there is more to do. */
static int check(struct parts *p, struct err *e)
{
    for (uint32_t i = p->first; !p->checked && i < p->work->list.count; i++) {
        struct hub_blob *b = &p->work->blobs[i];
        if (is_mine(p, b) && is_complete(b) && !is_fetched(p, b))
            p->checked = b;
    }
    if (!p->checked)
        return 0;
    int r = hub_blob_check(p->checked, e);
    if (r > 0)
        return 1;
    struct hub_blob *b = p->checked;
    p->checked = NULL;
    if (r == -EBADMSG)
        r = wrong_sum(p, b, e);
    else if (r == 0) {
        p->work->here += b->file->bytes;
        p->work->shown.files_done++;
    }
    return r < 0 ? r : 1;
}

static bool is_idle(const struct parts *p)
{
    for (size_t i = 0; i < HUB_TRANSFERS_MAX; i++)
        if (p->slots[i].blob)
            return false;
    return true;
}

int hub_work_fetch(struct hub_work *w, bool weights, struct err *e)
{
    struct parts *p = calloc(1, sizeof(*p));
    int r = p ? 0 : -ENOMEM;
    if (p) {
        p->work = w;
        p->weights = weights;
    }
    w->shown.phase = "fetch";
    while (r == 0) {
        struct hub_transfer *t;
        r = fill(p, e);
        if (r < 0 || (is_idle(p) && (r = check(p, e)) <= 0))
            break;
        int busy = r > 0 ? r : check(p, e);
        r = MIN_OF(busy, 0);
        while (r == 0 && (t = hub_http_poll(w->http)))
            r = ended(p, t->arg, e);
        if (r == 0)
            r = hub_work_show(w);
        if (r == 0 && busy == 0)
            hub_http_wait(w->http, WAIT_MS);
    }
    for (size_t i = 0; p && i < HUB_TRANSFERS_MAX; i++)
        release(p, &p->slots[i]);
    w->shown.retries = NULL;
    free(p);
    return r;
}
