/* hub_work.c - retries. A request counts as failed only while no byte came: a line that breaks every
 * minute brings a file nevertheless. */
#include "hub/hub_work.h"

#include "hub/hub_blob.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <stdio.h>

#define TRIES_MAX      5
#define PLAN_TRIES_MAX 2
#define WAIT_S_MAX     30
#define SHOW_NS        (100 * NS_PER_MS)
#define POLL_MS        50

bool hub_retry_again(struct hub_retry *r, const struct hub_transfer *t, bool resumes)
{
    uint64_t jitter;
    if (resumes && t->came > 0)
        *r = (struct hub_retry){0};
    if (++r->tries >= TRIES_MAX)
        return false;
    uint64_t wait_ns = MIN_OF(1u << (r->tries - 1), WAIT_S_MAX) * NS_PER_S;
    rng_secret(&jitter, sizeof(jitter));
    wait_ns = t->wait_s ? t->wait_s * NS_PER_S : wait_ns / 2 + jitter % wait_ns;
    if (resumes && t->came > 0)
        wait_ns = 0;
    r->not_before_ns = clock_now_ns() + wait_ns;
    return true;
}

int hub_work_show(struct hub_work *w)
{
    uint64_t now = clock_now_ns();
    if (now - w->shown_ns < SHOW_NS || !w->opts->progress)
        return 0;
    w->shown_ns = now;
    w->shown.bytes_done = w->here;
    for (uint32_t i = 0; w->blobs && i < w->list.count; i++)
        if (!w->blobs[i].present)
            w->shown.bytes_done += hub_blob_done(&w->blobs[i]);
    return w->opts->progress(w->opts->arg, &w->shown) ? -ECANCELED : 0;
}

int hub_work_path(const struct hub_work *w, const char *name, char ret[HUB_URL_BYTES], struct err *e)
{
    char encoded[3 * HUB_FILE_BYTES_MAX + 4];
    if (!hub_http_encode(name, encoded, sizeof(encoded)) ||
        snprintf(ret, HUB_URL_BYTES, "/%s/resolve/%s/%s", w->opts->name.id, w->list.commit, encoded) >=
            HUB_URL_BYTES)
        return err_set(e, -ENAMETOOLONG, "the name of a file is too long");
    return 0;
}

/* Waits with the progress shown. */
static int rest(struct hub_work *w, uint64_t until_ns)
{
    int r = 0;
    while (r == 0 && clock_now_ns() < until_ns) {
        hub_http_wait(w->http, POLL_MS);
        r = hub_work_show(w);
    }
    return r;
}

static int run_one(struct hub_work *w, struct hub_transfer *t, struct err *e)
{
    int r = hub_http_begin(w->http, t, e);
    while (r == 0 && !hub_http_poll(w->http)) {
        hub_http_wait(w->http, POLL_MS);
        r = hub_work_show(w);
    }
    hub_http_drop(w->http, t);
    return r;
}

int hub_work_get(struct hub_work *w, struct hub_transfer *t, void (*restart)(void *arg), struct err *e)
{
    struct hub_retry retry = {0};
    for (;;) {
        int r = run_one(w, t, e);
        if (r < 0)
            return r;
        const bool all = t->bytes > 0 && t->came == t->bytes; /* and then it timed out */
        if (t->end == HUB_END_OK || (t->end == HUB_END_AGAIN && all))
            return 0;
        if (t->end == HUB_END_WHOLE)
            return err_set(e, -ENOTSUP, "the hub serves no ranges");
        if (t->end == HUB_END_FAILED)
            return err_set(e, t->code, "%s", t->why.text);
        /* A plan waits for a person, a pull for a line that comes back. */
        const bool again = hub_retry_again(&retry, t, t->bytes > 0);
        if (!again || (w->opts->plans_only && retry.tries >= PLAN_TRIES_MAX))
            return err_set(e, -EAGAIN, "%s", t->why.text);
        if (t->bytes > 0) {
            t->from += t->came;
            t->bytes -= t->came;
        } else if (restart) {
            restart(t->arg);
        }
        w->shown.retries = t->why.text;
        r = rest(w, retry.not_before_ns);
        w->shown.retries = NULL;
        if (r < 0)
            return r;
    }
}
