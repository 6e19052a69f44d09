/* mapped_file.c - ranges in a table of atomics, which the signal's handler reads.
 *
 * The handler maps one page of zeros over the page that faulted: the access is repeated and goes on. */
#include "base/files/mapped_file.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define PAGE ((uintptr_t)4096)

static struct {
    _Atomic uintptr_t from, to; /* to 0: free; 1: being filled */
    atomic_bool damaged;
} ranges[MAPPED_FILES_MAX];

static struct sigaction before;
static atomic_flag installing = ATOMIC_FLAG_INIT;

static bool replace_page(uintptr_t at)
{
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        if (at < atomic_load(&ranges[i].from) || at >= atomic_load(&ranges[i].to))
            continue;
        void *page = (void *)(at & ~(PAGE - 1));
        if (mmap(page, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            return false;
        atomic_store(&ranges[i].damaged, true);
        return true;
    }
    return false;
}

/* A fault elsewhere ends the process as it did before: the access is repeated under the old action. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    const int kept = errno;
    if (!replace_page((uintptr_t)info->si_addr))
        sigaction(signal, &before, NULL);
    errno = kept;
}

/* Also after somebody else's handler took the place of ours. */
static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER}, now;
    sigemptyset(&action.sa_mask);
    while (atomic_flag_test_and_set(&installing))
        sched_yield();
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction != on_fault) {
        before = now;
        (void)sigaction(SIGBUS, &action, NULL);
    }
    atomic_flag_clear(&installing);
}

static int take_slot(void)
{
    for (int i = 0; i < MAPPED_FILES_MAX; i++) {
        uintptr_t none = 0;
        if (atomic_compare_exchange_strong(&ranges[i].to, &none, 1))
            return i;
    }
    return -1;
}

static int map(struct mapped_file *m, uint64_t from, size_t bytes, struct err *e)
{
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, m->file.fd, (off_t)from);
    if (at == MAP_FAILED)
        return err_set(e, -errno, "cannot be mapped: %s", strerror(errno));
    m->at = at;
    m->bytes = bytes;
    atomic_store(&ranges[m->slot].damaged, false);
    atomic_store(&ranges[m->slot].from, (uintptr_t)at);
    atomic_store(&ranges[m->slot].to, (uintptr_t)at + bytes);
    return 0;
}

int mapped_file_open(const struct regular_file *f, uint64_t from, size_t bytes, struct mapped_file *ret,
                     struct err *e)
{
    struct mapped_file m = {.file = *f, .slot = -1};
    ASSERT(from % PAGE == 0 && bytes > 0 && bytes % PAGE == 0 && !f->inside);
    if (from > f->bytes || bytes > f->bytes - from)
        return err_set(e, -EINVAL, "has no %zu bytes at %llu", bytes, (unsigned long long)from);
    install();
    m.file.fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
    if (m.file.fd < 0)
        return err_set(e, -errno, "cannot be mapped: %s", strerror(errno));
    m.slot = take_slot();
    int r = m.slot >= 0 ? map(&m, from, bytes, e)
                        : err_set(e, -ENFILE, "more than %d files are mapped", MAPPED_FILES_MAX);
    if (r < 0) {
        if (m.slot >= 0)
            atomic_store(&ranges[m.slot].to, 0);
        regular_file_close(&m.file);
        return r;
    }
    *ret = m;
    return 0;
}

int mapped_file_check(const struct mapped_file *m, struct err *e)
{
    if (atomic_load(&ranges[m->slot].damaged))
        return err_set(e, -EIO, "was cut or could not be read while it was mapped");
    return regular_file_check(&m->file, NULL) == 0
               ? 0
               : err_set(e, -EIO, "was changed or cut while it was mapped");
}

void mapped_file_close(struct mapped_file *m)
{
    if (!m->at)
        return;
    munmap(m->at, m->bytes);
    atomic_store(&ranges[m->slot].from, 0);
    atomic_store(&ranges[m->slot].to, 0);
    regular_file_close(&m->file);
    *m = (struct mapped_file){0};
}
