/* model_finder.h - looks for models that came while the server runs: after a pull, and at a reload.
 *
 * Searches read disks, which are slow or never answer, so they have a thread. It runs only while there is
 * something to look for, and only it adds to the list of models. A reload during a search is one more search
 * after it. At the end a search that hangs cannot be joined: the process ends without it. */
#ifndef PLATEAU_HOST_MODEL_FINDER_H
#define PLATEAU_HOST_MODEL_FINDER_H

#include "base/threads/thread_stack.h"
#include "hub/hub_name.h"

struct models;

/* Stack of the finder's thread, in `threads` while it looks. It is as deep as a load's: headers are JSON. */
#define MODEL_FINDER_STACK_BYTES ((size_t)1 << 20)

struct model_finder {
    /* Constant. */
    struct models *models;
    struct registry *registry;
    struct account *threads;
    /* On the finder's thread: the search for a pulled model is over. id: its name; NULL: it is not
     * served, and `why` has the reason. */
    void (*pulled)(void *arg, const char *id, const char *why);
    void *arg;

    int ended_fd; /* an eventfd: call model_finder_ended() */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    /* Under the lock. */
    struct hub_name name; /* with wants_pulled */
    bool wants_all, wants_pulled, stopping;
    bool runs; /* the thread has not said that it ends */

    /* Owned by the thread that asks. */
    struct thread_stack stack;
    pthread_t thread;
    bool has_thread;
};

/* `f` has its constant members. 0 or -EMFILE. */
int model_finder_init(struct model_finder *f);
/* Looks for all, or for what a pull has put into the hub's cache; `pulled` is called in each case. They
 * return at once. Network thread. */
void model_finder_search(struct model_finder *f);
void model_finder_search_for(struct model_finder *f, const struct hub_name *name);
/* Joins a thread that is over, and gives its stack back. Network thread. */
void model_finder_ended(struct model_finder *f);
/* Begins no further search. False: one has not ended within `ns`. Zeroed is fine. */
bool model_finder_stop(struct model_finder *f, uint64_t ns);

#endif
