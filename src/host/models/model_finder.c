#include "host/models/model_finder.h"

#include "host/models/models.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/ledger.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

int model_finder_init(struct model_finder *f)
{
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->ended);
    f->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return f->ended_fd < 0 ? -errno : 0;
}

/* ---- on its thread ---- */

static void look_for_pulled(struct model_finder *f, const struct hub_name *name)
{
    char id[MODEL_ID_BYTES];
    struct err e = {{0}};
    int r = models_search_again(f->models, f->registry, name, id, &e);
    f->pulled(f->arg, r < 0 ? NULL : id, e.text);
}

static void look_for_all(struct model_finder *f)
{
    char id[MODEL_ID_BYTES];
    struct err e = {{0}};
    models_search_again(f->models, f->registry, NULL, id, &e);
}

static void *find_main(void *arg)
{
    struct model_finder *f = arg;
    uint64_t one = 1;
    pthread_mutex_lock(&f->lock);
    while ((f->wants_all || f->wants_pulled) && !f->stopping) {
        bool pulled = f->wants_pulled;
        struct hub_name name = f->name;
        *(pulled ? &f->wants_pulled : &f->wants_all) = false;
        pthread_mutex_unlock(&f->lock);
        if (pulled)
            look_for_pulled(f, &name);
        else
            look_for_all(f);
        pthread_mutex_lock(&f->lock);
    }
    f->runs = false;
    pthread_cond_broadcast(&f->ended);
    /* Full means that the network thread has not looked yet: it will. */
    ssize_t n = write(f->ended_fd, &one, sizeof(one));
    (void)n;
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- the network thread ---- */

static void join(struct model_finder *f)
{
    if (!f->has_thread)
        return;
    pthread_join(f->thread, NULL);
    thread_stack_done(&f->stack);
    f->has_thread = false;
}

static int start(struct model_finder *f)
{
    struct charge charge = account_charge(f->threads);
    join(f); /* it has said that it ends */
    int r = thread_stack_init(&f->stack, MODEL_FINDER_STACK_BYTES, &charge);
    if (r == 0 && (r = thread_stack_start(&f->stack, find_main, f, &f->thread)) < 0)
        thread_stack_done(&f->stack);
    if (r == 0)
        pthread_setname_np(f->thread, "find");
    f->has_thread = r == 0;
    return r;
}

/* Sets *wish; `name` goes with it. False: no thread. */
static bool ask(struct model_finder *f, bool *wish, const struct hub_name *name)
{
    pthread_mutex_lock(&f->lock);
    bool runs = f->runs;
    if (name)
        f->name = *name;
    *wish = f->runs = true;
    pthread_mutex_unlock(&f->lock);
    int r = runs ? 0 : start(f);
    if (r == 0)
        return true;
    LOG_WARN("models_not_searched", "error=\"there is no memory for the thread that looks for models\"");
    pthread_mutex_lock(&f->lock);
    *wish = f->runs = false;
    pthread_mutex_unlock(&f->lock);
    return false;
}

void model_finder_search(struct model_finder *f)
{
    ask(f, &f->wants_all, NULL);
}

void model_finder_search_for(struct model_finder *f, const struct hub_name *name)
{
    if (!ask(f, &f->wants_pulled, name))
        f->pulled(f->arg, NULL, "there is no memory for the thread that looks for it");
}

void model_finder_ended(struct model_finder *f)
{
    uint64_t count;
    if (read(f->ended_fd, &count, sizeof(count)) < 0)
        return;
    pthread_mutex_lock(&f->lock);
    bool runs = f->runs;
    pthread_mutex_unlock(&f->lock);
    if (!runs)
        join(f);
}

bool model_finder_stop(struct model_finder *f, uint64_t ns)
{
    struct timespec until = clock_deadline(ns);
    int late = 0;
    if (!f->models)
        return true;
    pthread_mutex_lock(&f->lock);
    f->stopping = true;
    while (f->runs && late == 0)
        late = pthread_cond_timedwait(&f->ended, &f->lock, &until);
    bool over = !f->runs;
    pthread_mutex_unlock(&f->lock);
    if (over) {
        join(f);
        close(f->ended_fd);
    } else {
        LOG_WARN("search_left",
                 "reason=\"a directory of models does not answer: the process ends without the search\"");
    }
    return over;
}
