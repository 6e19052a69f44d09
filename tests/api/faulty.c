/* faulty.c - `plateau serve` with faults that a test orders; its arguments are the program's. A number
 * before them: that reservation of the start is refused. stall=WORD before them: that order from the start.
 *
 * Each line on stdin is an order, answered by a line on stdout when it holds:
 *     fail           the next step fails
 *     lose           the device is lost at the end of the next step
 *     lack           the device has no memory for the next step
 *     others N       other programs hold N bytes of each fake device, at most what is free
 *     scarce         the system has no memory for units
 *     plenty         it has again
 *     hang           steps stand still from the next one on
 *     wait           until one stands there
 *     go             they go on
 *     refuse N       the N-th reservation of memory from now on is refused; 0: none
 *     refuse N all   and those after it
 *     step NAME      that step of loads and unloads fails, until another is named; without a name: none does
 *     keep           the system takes no unit back
 *     take           it does again
 *     available N    N MiB of 64 GiB are available; 0: the system's own figures
 *     local          images may come from any address, this machine's too
 *     public         only from public ones again
 *     mute           names below .slow are queried and not answered
 *     answer         they are: there are none
 *     stall WORD     reads of files with WORD in their path do not return, as from a dead network drive
 *     stalled        until one stands there
 *     flow           they return
 *     damage account NAME   the next walk over an engine's invariants finds that account wrong
 *     damage page           a cached page with one reference too many
 *     damage table          the first sequence's table with a page of another
 *     damage holder         the engine's holder, closing while it can be asked
 *     even           speculative decoding measures 1 ms for each step, and 1 us for each pass of a drafter
 *     mallocs        N: allocations on engines' threads since they were started
 *     heap           N: allocations on all threads
 * The answer is "ok N": the number of reservations since the last such order. */
#include "base/heap_watch.h"
#include "cache/page_state.h"
#include "cli/cli.h"
#include "compute/fake/fake.h"
#include "engine/engine_state.h"
#include "host/runtime.h"
#include "media/media.h"
#include "memory/footprint.h"
#include "memory/ledger_state.h"
#include "reclaim/holders_state.h"
#include "spec/draft_length.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool fails, hangs, stands; /* under `lock`; stands: a step does */
static int step_ends;             /* under `lock`: the error of the next step's end; 0: none */
static bool mute;                 /* under `lock` */

static char failing_step[32]; /* under `lock` */

static char stalling[64]; /* under `lock`; empty: no file */
static unsigned stalled;  /* stalled reads, under `lock` */
static atomic_bool stalls;

static atomic_uint asked, refused_from;
static atomic_bool refuses_all, keeps, scarce;
static atomic_uint available_mib;

static char damage[64]; /* under `lock`; empty: none is ordered */

/* ---- damage for a walk to find ---- */

static bool damage_account(struct engine *en, const char *name)
{
    struct account *root = en->opts.parent;
    while (root->parent)
        root = root->parent;
    struct account *a = account_find(root, name);
    if (!a)
        return false;
    pthread_mutex_lock(&a->ledger->lock);
    a->n.used += 4096;
    a->n.children++; /* wrong by itself: bytes within its peak are missed first at its parent */
    pthread_mutex_unlock(&a->ledger->lock);
    return true;
}

static bool damage_page(struct engine *en)
{
    struct page_pool *p = en->pools.groups[0].pages;
    for (uint32_t share = 0; share < CACHE_SHARES; share++) {
        uint32_t page = p->shares[share].oldest;
        if (page == NONE)
            continue;
        p->pages[page].refs++;
        return true;
    }
    return false;
}

static bool damage_table(struct engine *en)
{
    if (list_empty(&en->jobs))
        return false;
    struct sched_seq *seq = &LIST_FIRST(&en->jobs, struct job, link)->seq;
    if (seq->page_count < 2)
        return false;
    seq->pages[0][0] = seq->pages[0][1];
    return true;
}

static bool damage_holder(struct engine *en)
{
    pthread_mutex_lock(&en->holder->list->lock);
    en->holder->state = HOLDER_CLOSING;
    pthread_mutex_unlock(&en->holder->list->lock);
    return true;
}

static void walk(void *arg, struct engine *en)
{
    bool done = false;
    (void)arg;
    pthread_mutex_lock(&lock);
    if (strncmp(damage, "account ", 8) == 0)
        done = damage_account(en, damage + 8);
    else if (strcmp(damage, "page") == 0)
        done = damage_page(en);
    else if (strcmp(damage, "table") == 0)
        done = damage_table(en);
    else if (strcmp(damage, "holder") == 0)
        done = damage_holder(en);
    if (done)
        damage[0] = 0;
    pthread_mutex_unlock(&lock);
}

static void set_damage(const char *what)
{
    pthread_mutex_lock(&lock);
    snprintf(damage, sizeof(damage), "%.*s", (int)strcspn(what, "\n"), what);
    pthread_mutex_unlock(&lock);
}

static int step(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    stands = hangs;
    pthread_cond_broadcast(&changed);
    while (hangs)
        pthread_cond_wait(&changed, &lock);
    stands = false;
    int r = fails ? -EIO : 0;
    fails = false;
    pthread_mutex_unlock(&lock);
    return r;
}

static int step_end(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    int r = step_ends;
    step_ends = 0;
    pthread_mutex_unlock(&lock);
    return r;
}

static void end_step_with(int error)
{
    pthread_mutex_lock(&lock);
    step_ends = error;
    pthread_mutex_unlock(&lock);
}

static int reserve(void *arg)
{
    unsigned count = atomic_fetch_add(&asked, 1) + 1, from = atomic_load(&refused_from);
    (void)arg;
    return from > 0 && (count == from || (count > from && atomic_load(&refuses_all)));
}

static int move(void *arg, const char *name)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    int r = strcmp(failing_step, name) == 0 ? -EIO : 0;
    pthread_mutex_unlock(&lock);
    return r;
}

static void set_failing_step(const char *name)
{
    pthread_mutex_lock(&lock);
    snprintf(failing_step, sizeof(failing_step), "%.*s", (int)strcspn(name, "\n"), name);
    pthread_mutex_unlock(&lock);
}

static void set_steps(bool fail, bool hang)
{
    pthread_mutex_lock(&lock);
    fails = fail;
    hangs = hang;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_standing(void)
{
    pthread_mutex_lock(&lock);
    while (!stands)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static unsigned set_refusal(unsigned from, bool all)
{
    atomic_store(&refused_from, 0);
    unsigned count = atomic_exchange(&asked, 0);
    atomic_store(&refuses_all, all);
    atomic_store(&refused_from, from);
    return count;
}

/* In place of the system's, for libcurl. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints, struct addrinfo **ret)
{
    typedef int function(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    const char *last = name ? strrchr(name, '.') : NULL;
    function *own = (function *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (!last || strcmp(last, ".slow") != 0)
        return own(name, service, hints, ret);
    pthread_mutex_lock(&lock);
    while (mute)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return EAI_NONAME;
}

/* Under `lock`. */
static bool is_stalled(int fd)
{
    char link[32], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = 0;
    return stalling[0] && strstr(path, stalling);
}

static void stand(int fd)
{
    pthread_mutex_lock(&lock);
    while (is_stalled(fd)) {
        stalled++;
        pthread_cond_broadcast(&changed);
        pthread_cond_wait(&changed, &lock);
        stalled--;
    }
    pthread_mutex_unlock(&lock);
}

/* In place of the system's. */
__attribute__((visibility("default"))) ssize_t pread(int fd, void *into, size_t len, off_t at)
{
    typedef ssize_t function(int, void *, size_t, off_t);
    function *own = (function *)dlsym(RTLD_NEXT, "pread");
    if (atomic_load(&stalls))
        stand(fd);
    return own(fd, into, len, at);
}

static void set_stalling(const char *word)
{
    pthread_mutex_lock(&lock);
    snprintf(stalling, sizeof(stalling), "%.*s", (int)strcspn(word, "\n"), word);
    atomic_store(&stalls, stalling[0] != 0);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_stalled(void)
{
    pthread_mutex_lock(&lock);
    while (stalled == 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void set_mute(bool on)
{
    pthread_mutex_lock(&lock);
    mute = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int decommit(void *arg)
{
    (void)arg;
    return atomic_load(&keeps) ? -EINVAL : 0;
}

static int commit(void *arg)
{
    (void)arg;
    return atomic_load(&scarce);
}

static void read_footprint(void *arg, struct footprint *ret)
{
    unsigned mib = atomic_load(&available_mib);
    (void)arg;
    footprint_read(ret);
    if (mib > 0)
        *ret =
            (struct footprint){.ram_bytes = (uint64_t)64 << 30, .ram_available_bytes = (uint64_t)mib << 20};
}

/* Draft lengths follow measured times: on a busy machine no draft token may be worth its time. */
static atomic_bool even;

void __real_draft_length_measure_step(struct draft_length *b, uint32_t seqs, uint32_t drafts, uint64_t ns);
void __wrap_draft_length_measure_step(struct draft_length *b, uint32_t seqs, uint32_t drafts, uint64_t ns);
void __real_draft_length_measure_draft(struct draft_length *b, uint32_t seqs, uint32_t depth, uint64_t ns);
void __wrap_draft_length_measure_draft(struct draft_length *b, uint32_t seqs, uint32_t depth, uint64_t ns);

void __wrap_draft_length_measure_step(struct draft_length *b, uint32_t seqs, uint32_t drafts, uint64_t ns)
{
    __real_draft_length_measure_step(b, seqs, drafts, atomic_load(&even) ? 1000000 : ns);
}

void __wrap_draft_length_measure_draft(struct draft_length *b, uint32_t seqs, uint32_t depth, uint64_t ns)
{
    __real_draft_length_measure_draft(b, seqs, depth, atomic_load(&even) ? 1000 * depth : ns);
}

void __real_draft_length_caught_up(struct draft_length *b, bool trial, uint64_t ns);
void __wrap_draft_length_caught_up(struct draft_length *b, bool trial, uint64_t ns);

void __wrap_draft_length_caught_up(struct draft_length *b, bool trial, uint64_t ns)
{
    __real_draft_length_caught_up(b, trial, atomic_load(&even) ? 1000 : ns);
}

static void obey(const char *order)
{
    unsigned from = 0, count = 0, mib = 0;
    unsigned long long others;
    char word[8] = "";
    if (sscanf(order, "refuse %u %7s", &from, word) >= 1)
        count = set_refusal(from, strcmp(word, "all") == 0);
    else if (sscanf(order, "available %u", &mib) == 1)
        atomic_store(&available_mib, mib);
    else if (strcmp(order, "keep\n") == 0 || strcmp(order, "take\n") == 0)
        atomic_store(&keeps, order[0] == 'k');
    else if (strcmp(order, "local\n") == 0 || strcmp(order, "public\n") == 0)
        media_allows_all_addresses = order[0] == 'l';
    else if (strcmp(order, "mute\n") == 0 || strcmp(order, "answer\n") == 0)
        set_mute(order[0] == 'm');
    else if (strncmp(order, "step ", 5) == 0)
        set_failing_step(order + 5);
    else if (strncmp(order, "stall ", 6) == 0)
        set_stalling(order + 6);
    else if (strcmp(order, "stalled\n") == 0)
        wait_stalled();
    else if (strcmp(order, "flow\n") == 0)
        set_stalling("");
    else if (strcmp(order, "lose\n") == 0)
        end_step_with(-ENODEV);
    else if (strcmp(order, "lack\n") == 0)
        end_step_with(-ENOMEM);
    else if (sscanf(order, "others %llu", &others) == 1)
        fake_set_others(others);
    else if (strcmp(order, "scarce\n") == 0 || strcmp(order, "plenty\n") == 0)
        atomic_store(&scarce, order[0] == 's');
    else if (strcmp(order, "wait\n") == 0)
        wait_standing();
    else if (strncmp(order, "damage ", 7) == 0)
        set_damage(order + 7);
    else if (strcmp(order, "even\n") == 0)
        atomic_store(&even, true);
    else if (strcmp(order, "mallocs\n") == 0)
        count = (unsigned)heap_watch_forbidden();
    else if (strcmp(order, "heap\n") == 0)
        count = (unsigned)heap_watch_seen();
    else
        set_steps(strcmp(order, "fail\n") == 0, strcmp(order, "hang\n") == 0);
    printf("ok %u\n", count);
    fflush(stdout);
}

static void *listen_to_orders(void *arg)
{
    char order[64];
    while (fgets(order, sizeof(order), stdin))
        obey(order);
    return arg;
}

int main(int argc, char **argv)
{
    static const struct runtime_faults faults = {.ledger = {reserve, NULL},
                                                 .engine = {.step = step, .step_end = step_end, .walk = walk},
                                                 .registry = {move, NULL},
                                                 .units = {.decommit = decommit, .commit = commit},
                                                 .footprint = read_footprint};
    pthread_t listener;
    sigset_t all, before;
    unsigned from = 0;
    if (argc > 1 && sscanf(argv[1], "%u", &from) == 1) {
        set_refusal(from, false);
        argc--;
        argv++;
    }
    if (argc > 1 && strncmp(argv[1], "stall=", 6) == 0) {
        set_stalling(argv[1] + 6);
        argc--;
        argv++;
    }
    if (argc < 2)
        return 2;
    runtime_faults = &faults;
    /* Signals are the server's. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int r = pthread_create(&listener, NULL, listen_to_orders, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return 2;
    pthread_detach(listener);
    return command_serve(argc - 1, argv + 1);
}
