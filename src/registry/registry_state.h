/* registry_state.h - what the files of the registry share. Not for others. */
#ifndef PLATEAU_REGISTRY_REGISTRY_STATE_H
#define PLATEAU_REGISTRY_REGISTRY_STATE_H

#include "registry/loaded_model.h"
#include "registry/model_settings.h"
#include "registry/registry.h"

#include "base/threads/pace.h"
#include "base/threads/thread_stack.h"

#include <pthread.h>
#include <stdatomic.h>

/* Names, sizes and times of all files of a model's directory, as one number. 0: it cannot be read. */
struct file_stamp {
    uint64_t hash;
};

/* One model. Fields under the lock belong to the registry. */
struct entry {
    /* Constant. */
    struct registry *registry;
    struct model_settings known;
    /* Owned by the model's load or unload; there is one at most. While the model is ready: by its leases
     * and looks. */
    struct model_settings now; /* `known` with the plan that it was loaded by */
    struct loaded_model loaded;
    struct served_model served;
    struct pace pace;

    /* Any thread. */
    _Atomic uint64_t bytes_done, bytes_total;
    atomic_bool cancel;         /* the load is to stop */
    _Atomic uint64_t waited_ns; /* time that the load waited for room */
    atomic_bool has_room;       /* the load waits for no other model's memory */
    _Atomic uint64_t moved_ns;  /* time of the load's last progress */
    _Atomic(const char *) step; /* step of the load; NULL: none yet */

    /* Under the lock. */
    enum model_state state;
    uint32_t leases, looks, waiters;
    bool pinned;  /* the option, until registry_pin() */
    bool held;    /* the server's start waits for it */
    bool ordered; /* by an operator, or as a replica: its load needs no waiter */
    bool stopped; /* loading, and an operator has stopped that */
    bool closing; /* draining without leases: its memory is being freed */
    bool ending;  /* draining past its limit: its engine was asked to end */
    uint64_t last_used_ns, drain_until_ns, load_ns;
    uint64_t loads, unloads, failures;
    uint64_t ends;                   /* ended unloads, and loads that an operator stopped */
    enum unload_reason leaves;       /* draining: why */
    const struct entry *leaves_for;  /* with UNLOAD_MADE_ROOM: for this model; NULL: not known */
    enum unload_reason unloaded_why; /* reason of the last unload */
    const struct entry *unloaded_for;
    uint64_t unloaded_ns; /* when that was */
    struct registry_failure failure;
    uint64_t failed_ns;
    struct file_stamp failed_stamp; /* stamp of the files that it failed with */
    bool recheck;                   /* loading, unless the files are those of the failed load */
    bool hang_told;                 /* in the log */
    struct registry_returned returned;
    uint64_t load_bytes; /* load_bytes of the last plan */

    pthread_t thread;
    struct thread_stack stack;
    bool has_thread, thread_over; /* over: it only has to be joined */
};

struct registry_device {
    uint64_t lost_ns;   /* when the loss was seen; 0: it is not lost */
    uint64_t before_ns; /* the loss before that; 0: none */
    bool told;          /* an operator has asked for a load since */
};

struct registry {
    /* Constant. */
    struct registry_opts opts;
    struct entry *entries; /* [opts.models_max]; the first `count` are there */
    pthread_t thread;      /* the registry's own */
    struct thread_stack stack;
    bool has_thread;

    /* Any thread; it grows under the lock. What is constant in an entry was written before. */
    _Atomic uint32_t count;
    _Atomic uint64_t ends_ns; /* when the process's drain ends; 0: it does not drain */

    pthread_mutex_t room; /* one makes room at a time */
    pthread_mutex_t lock;
    pthread_cond_t wake;  /* for the registry's thread */
    pthread_cond_t ended; /* the thread of a move has been joined */
    bool poked;           /* there is something to look at; for the registry's thread */
    bool stopping, quit;
    struct registry_device devices[DOMAINS_MAX]; /* opts.devices */
};

/* Parsing JSON needs the deepest stack of a load, as in the prep threads. */
#define MOVE_STACK_BYTES ((size_t)1 << 20)

/* registry_work.c: the threads. */
void *registry_main(void *registry);

/* registry_state.c. Under the lock: the registry's thread looks at everything once more; and tells those
 * outside as well, for a state has changed. */
void registry_wake(struct registry *r);
void registry_tell(struct registry *r);
/* registry.c. Under the lock: the model is ready, and its device has not failed. */
bool registry_takes_requests(const struct entry *e);
/* Under the lock: makes a lease; ends one, whose struct the caller forgets; begins a load unless one runs. */
void registry_give_lease(struct entry *e, struct model_lease *ret);
void registry_end_lease(struct entry *e);
void registry_begin_load(struct entry *e, bool operator);

/* Under the lock: a ready model drains from now on. */
void registry_drain(struct entry *e, enum unload_reason why, uint64_t now_ns);
/* Unloads on the calling thread: the entry is closing, and this its one mover. Not under the lock. */
void registry_unload_now(struct entry *e);

/* Under the lock: sessions of a ready or draining model; zeros in other states. */
struct engine_held registry_held(const struct entry *e);

/* registry_room.c: bytes that the domain lacks before `bytes` more fit, by the driver's figures: other
 * programs have them. 0 where the driver gives no figures. */
uint64_t registry_lacks(const struct domain *domain, uint64_t bytes);

/* The device of a model, and what becomes of it. */
static inline struct device *registry_device_of(const struct entry *e)
{
    return e->registry->opts.devices[e->known.device];
}
/* Devices that have a part of it, and the index of one of them into registry_opts.devices. */
static inline uint32_t registry_device_count(const struct entry *e)
{
    return 1 + e->known.beside_count;
}
static inline uint32_t registry_device_index(const struct entry *e, uint32_t i)
{
    ASSERT(i <= e->known.beside_count);
    return i > 0 ? e->known.beside[i - 1] : e->known.device;
}
static inline struct device *registry_device_at(const struct entry *e, uint32_t i)
{
    return e->registry->opts.devices[registry_device_index(e, i)];
}
/* registry_device.c: under the lock, an operator has ordered the model. */
void registry_device_tell(const struct entry *e);
/* On the registry's thread, under the lock. True: a device of the model is lost, whatever the model knows. */
bool registry_device_is_lost(const struct entry *e, uint64_t now_ns);
/* Before a load: 0: its devices are there. -EAGAIN: later, when models have closed. -EIO: it stays off, `why`
 * says so. Releases the lock while a device begins anew. */
int registry_device_ready(const struct entry *e, uint64_t now_ns, struct registry_failure *why);

/* Under the lock. */
static inline uint64_t registry_still_ns(const struct entry *e, uint64_t now_ns)
{
    uint64_t moved_ns = atomic_load(&e->moved_ns);
    bool runs = e->state == MODEL_LOADING && e->has_thread && !e->thread_over;
    return runs && now_ns > moved_ns ? now_ns - moved_ns : 0;
}
static inline bool registry_hangs(const struct entry *e, uint64_t now_ns)
{
    uint64_t hang_ns = e->registry->opts.hang_ns;
    return hang_ns > 0 && registry_still_ns(e, now_ns) >= hang_ns;
}
static inline bool registry_is_idle(const struct entry *e)
{
    return e->state == MODEL_READY && e->leases == 0 && e->waiters == 0 && !e->held;
}
/* True while its load has a waiter or an order. */
static inline bool registry_is_wanted(const struct entry *e)
{
    return e->waiters > 0 || e->held || e->ordered;
}

#endif
