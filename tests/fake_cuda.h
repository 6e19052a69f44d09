/* fake_cuda.h - NVIDIA's driver over plain memory, instead of cuda_driver.c and cuda_image.c.
 *
 * What is not mapped cannot be reached. The GPU is an H100 whose kernels compute nothing and are counted.
 * With TEST_SIMT it has no wgmma, and kernels run on the CPU (simt/simt.h). The n-th call that can fail does
 * so with an error of the test's choice. An error that a context does not recover from is the answer to
 * all calls until the context is destroyed. */
#ifndef PLATEAU_TESTS_FAKE_CUDA_H
#define PLATEAU_TESTS_FAKE_CUDA_H

#include "test.h"

#include "base/check.h"
#include "compute/cuda/cuda_args.h"
#include "compute/cuda/cuda_driver.h"
#include "compute/cuda/cuda_image.h"
#include "memory/domain.h"
#include "memory/units.h"

#ifdef TEST_SIMT
#include "simt/simt.h"
#endif

#include <sys/mman.h>

#define FAKE_OUT_OF_MEMORY 2
#define FAKE_NO_CONTEXT    201
#define FAKE_CAPTURE_ENDED 901
#define FAKE_LAUNCH_FAILED 719
#define FAKE_GRAPHS_MAX    64
#define FAKE_CONTEXTS_MAX  2
#define FAKE_TOTAL_BYTES   ((size_t)80 << 30)

static struct {
    unsigned calls, fail_at; /* fail_at: a number of `calls`; 0: none */
    cuda_result error, lasting;
    bool failed;     /* a call has */
    int devices;     /* 0: one */
    bool first_old;  /* the first is of compute capability 7.0 */
    bool differs;    /* the device's wgmma */
    bool makes_none; /* makes no recorded graphs, or launches none */
    bool launches_none;
    unsigned asked;        /* for either */
    int contexts, queues;  /* that there are; queues go with the context that is left */
    unsigned created;      /* contexts that ever were */
    unsigned no_context;   /* number of the context to come that cannot be made; 0: none */
    int context_room;      /* for so many contexts at once; 0: for all */
    bool is_full;          /* there is room for none */
    bool no_info;          /* the driver does not say what is free */
    size_t context_bytes;  /* that each takes of the device */
    size_t others_bytes;   /* that other programs hold, or the driver */
    int handles, mapped;   /* pieces of memory */
    int graphs, made;      /* recorded, and to be launched */
    unsigned ran, copied;  /* kernels that came into a queue, in graphs too; copies to the host */
    unsigned ropes;        /* copies of tables of angles to the device */
    void *recorded;        /* the queue that is recorded */
    unsigned recorded_run; /* kernels of it */
    unsigned graph_runs[FAKE_GRAPHS_MAX]; /* by number */
    unsigned graph_count;
    struct fake_context {
        bool made;
        void *taken; /* memory of it */
        size_t taken_bytes;
    } context[FAKE_CONTEXTS_MAX], *current;
} fake_cuda;

/* Whether this call can go on. */
static inline cuda_result fake_turn(void)
{
    if (fake_cuda.lasting != 0)
        return fake_cuda.lasting;
    if (++fake_cuda.calls != fake_cuda.fail_at)
        return 0;
    fake_cuda.failed = true;
    if (fake_cuda.error == FAKE_LAUNCH_FAILED)
        fake_cuda.lasting = fake_cuda.error;
    return fake_cuda.error;
}

/* The n-th call from now on fails. */
static inline void fake_fail(unsigned n, cuda_result error)
{
    fake_cuda.calls = 0;
    fake_cuda.fail_at = n;
    fake_cuda.error = error;
    fake_cuda.failed = false;
}

/* ---- the device ---- */

static cuda_result fake_init(unsigned flags)
{
    (void)flags;
    return 0;
}
static cuda_result fake_device_count(int *count)
{
    *count = fake_cuda.devices ? fake_cuda.devices : 1;
#ifdef TEST_SIMT
    *count = simt_is_here();
#endif
    return 0;
}
static cuda_result fake_device_get(int *device, int index)
{
    *device = index;
    return fake_turn();
}
static cuda_result fake_device_name(char *name, int bytes, int device)
{
    (void)device;
    snprintf(name, (size_t)bytes, "fake");
    return 0;
}
static cuda_result fake_device_memory(size_t *bytes, int device)
{
    (void)device;
    *bytes = FAKE_TOTAL_BYTES;
    return 0;
}
static cuda_result fake_device_attribute(int *value, int attribute, int device)
{
#ifdef TEST_SIMT
    const int major = 8, multiprocessors = SIMT_UNITS;
#else
    const int major = 9, multiprocessors = 132;
#endif
    *value = attribute == CUDA_ATTRIBUTE_MAJOR             ? (device == 0 && fake_cuda.first_old ? 7 : major)
             : attribute == CUDA_ATTRIBUTE_MINOR           ? 0
             : attribute == CUDA_ATTRIBUTE_MULTIPROCESSORS ? multiprocessors
                                                           : 227 << 10;
    return 0;
}
static cuda_result fake_context_create(void **context, unsigned flags, int device)
{
    (void)flags, (void)device;
    cuda_result r = fake_turn();
    if (r != 0)
        return r;
    if (fake_cuda.no_context > 0 && --fake_cuda.no_context == 0)
        return FAKE_OUT_OF_MEMORY;
    if (fake_cuda.is_full || (fake_cuda.context_room > 0 && fake_cuda.contexts == fake_cuda.context_room))
        return FAKE_OUT_OF_MEMORY;
    uint32_t i = 0;
    while (fake_cuda.context[i].made)
        i++;
    assert_true(i < FAKE_CONTEXTS_MAX);
    fake_cuda.current = &fake_cuda.context[i];
    fake_cuda.current->made = true;
    fake_cuda.contexts++;
    fake_cuda.created++;
    *context = fake_cuda.current;
    return 0;
}
static cuda_result fake_context_destroy(void *context)
{
    struct fake_context *c = context;
    assert_true(c >= fake_cuda.context && c < fake_cuda.context + FAKE_CONTEXTS_MAX && c->made);
    fake_cuda.contexts--;
    fake_cuda.lasting = 0;
    if (fake_cuda.contexts == 0)
        fake_cuda.queues = 0;
    if (c->taken)
        munmap(c->taken, c->taken_bytes);
    if (fake_cuda.current == c)
        fake_cuda.current = NULL;
    *c = (struct fake_context){.made = false};
    return 0;
}
static cuda_result fake_context_set(void *context)
{
    fake_cuda.current = context;
    return fake_cuda.lasting;
}
static cuda_result fake_context_limit(int limit, size_t value)
{
    (void)limit, (void)value;
    return fake_turn();
}
static cuda_result fake_module_load(void **module, const void *image)
{
    (void)image;
    *module = NULL;
    return fake_turn();
}
static cuda_result fake_module_function(void **function, void *module, const char *name)
{
    (void)module, (void)name;
    *function = NULL;
#ifdef TEST_SIMT
    *function = (void *)(uintptr_t)simt_find(name);
#endif
    return fake_turn();
}
static cuda_result fake_function_load(void *function)
{
    (void)function;
    return fake_turn();
}
static cuda_result fake_function_set(void *function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return fake_turn();
}
static cuda_result fake_error_name(cuda_result error, const char **name)
{
    *name = error == FAKE_OUT_OF_MEMORY ? "OUT_OF_MEMORY" : "ERROR";
    return 0;
}

/* ---- queues ---- */

static cuda_result fake_stream_create(void **stream, unsigned flags)
{
    (void)flags;
    cuda_result r = fake_turn();
    if (r == 0)
        *stream = &fake_cuda.graph_runs[fake_cuda.queues++]; /* any address */
    return r;
}
static cuda_result fake_stream_destroy(void *stream)
{
    (void)stream;
    fake_cuda.queues--;
    return 0;
}
static cuda_result fake_stream_query(void *stream)
{
    (void)stream;
    return fake_cuda.lasting;
}
static cuda_result fake_stream_wait(void *stream)
{
    (void)stream;
    return fake_turn();
}
static cuda_result fake_launch(const struct cuda_launch_config *config, void *function, void **arguments,
                               void **extra)
{
    (void)function, (void)arguments, (void)extra;
    cuda_result r = fake_turn();
    bool recorded = fake_cuda.recorded && config->stream == fake_cuda.recorded;
    if (r == 0)
        (*(recorded ? &fake_cuda.recorded_run : &fake_cuda.ran))++;
#ifdef TEST_SIMT
    assert_false(recorded);
    if (r == 0)
        simt_launch(
            function,
            (struct simt_grid){config->x, config->y, config->z, config->threads_x, config->shared_bytes},
            arguments);
#endif
    return r;
}
static cuda_result fake_host_task(void *stream, void (*task)(void *arg), void *arg)
{
    (void)stream;
    task(arg);
    return 0;
}

/* ---- recording ---- */

static cuda_result fake_capture_begin(void *stream, int mode)
{
    (void)mode;
#ifdef TEST_SIMT
    return FAKE_OUT_OF_MEMORY;
#endif
    cuda_result r = fake_turn();
    assert_null(fake_cuda.recorded);
    if (r == 0)
        fake_cuda.recorded = stream;
    fake_cuda.recorded_run = 0;
    return r;
}
static cuda_result fake_capture_end(void *stream, void **graph)
{
    assert_ptr_equal(stream, fake_cuda.recorded);
    cuda_result r = fake_turn();
    fake_cuda.recorded = NULL;
    if (r != 0)
        return r;
    assert_true(fake_cuda.graph_count < FAKE_GRAPHS_MAX);
    unsigned *at = &fake_cuda.graph_runs[fake_cuda.graph_count++];
    *at = fake_cuda.recorded_run;
    *graph = at;
    fake_cuda.graphs++;
    return 0;
}
static cuda_result fake_graph_make(void **made, void *graph, unsigned long long flags)
{
    (void)flags;
    cuda_result r = fake_cuda.makes_none ? FAKE_OUT_OF_MEMORY : fake_turn();
    fake_cuda.asked++;
    if (r != 0)
        return r;
    *made = graph;
    fake_cuda.made++;
    return 0;
}
static cuda_result fake_graph_launch(void *made, void *stream)
{
    (void)stream;
    cuda_result r = fake_cuda.launches_none ? FAKE_OUT_OF_MEMORY : fake_turn();
    fake_cuda.asked++;
    if (r == 0)
        fake_cuda.ran += *(unsigned *)made;
    return r;
}
static cuda_result fake_graph_unmake(void *made)
{
    assert_non_null(made);
    fake_cuda.made--;
    return 0;
}
static cuda_result fake_graph_destroy(void *graph)
{
    assert_non_null(graph);
    fake_cuda.graphs--;
    return 0;
}
static cuda_result fake_event_create(void **event, unsigned flags)
{
    (void)flags;
    *event = NULL;
    return 0;
}
static cuda_result fake_event_destroy(void *event)
{
    (void)event;
    return 0;
}
static cuda_result fake_event_record(void *event, void *stream)
{
    (void)event, (void)stream;
    return 0;
}
static cuda_result fake_event_wait(void *event)
{
    (void)event;
    return 0;
}
static cuda_result fake_event_between(float *ms, void *from, void *to)
{
    (void)from, (void)to;
    *ms = 0;
    return 0;
}

/* ---- memory ---- */

static cuda_result fake_take(cuda_address *at, size_t bytes)
{
    cuda_result r = fake_turn();
    if (r != 0)
        return r;
    struct fake_context *c = fake_cuda.current;
    assert_true(c && !c->taken);
    c->taken = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(c->taken != MAP_FAILED);
    c->taken_bytes = bytes;
    *at = (uintptr_t)c->taken;
    return 0;
}
static cuda_result fake_pin(void *at, size_t bytes, unsigned flags)
{
    (void)at, (void)bytes, (void)flags;
    return fake_turn();
}
static cuda_result fake_unpin(void *at)
{
    (void)at;
    return 0;
}
static cuda_result fake_memory_info(size_t *free_bytes, size_t *total)
{
    if (fake_cuda.no_info || !fake_cuda.current)
        return fake_cuda.lasting ? fake_cuda.lasting : FAKE_NO_CONTEXT;
    cuda_result r = fake_turn();
    *total = FAKE_TOTAL_BYTES;
    *free_bytes = FAKE_TOTAL_BYTES - fake_cuda.others_bytes -
                  (size_t)fake_cuda.contexts * fake_cuda.context_bytes -
                  (size_t)fake_cuda.handles * UNIT_BYTES;
    return r;
}
/* With a unit in front: the base is aligned. */
static cuda_result fake_reserve(cuda_address *base, size_t bytes, size_t alignment, cuda_address wanted,
                                unsigned long long flags)
{
    (void)wanted, (void)flags;
    cuda_result r = fake_turn();
    if (r != 0)
        return r;
    char *at = mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(at != MAP_FAILED);
    char *begin = (char *)ROUND_UP((uintptr_t)at, alignment);
    if (begin > at)
        munmap(at, (size_t)(begin - at));
    if (begin + bytes < at + bytes + alignment)
        munmap(begin + bytes, (size_t)(at + alignment - begin));
    *base = (uintptr_t)begin;
    return 0;
}
static cuda_result fake_unreserve(cuda_address base, size_t bytes)
{
    munmap((void *)(uintptr_t)base, bytes);
    return 0;
}
static cuda_result fake_create(uint64_t *handle, size_t bytes, const struct cuda_allocation *how,
                               unsigned long long flags)
{
    (void)how, (void)flags;
    assert_int_equal(bytes, UNIT_BYTES);
    cuda_result r = fake_turn();
    if (r == 0)
        *handle = (uint64_t)++fake_cuda.handles;
    return r;
}
static cuda_result fake_release(uint64_t handle)
{
    assert_true(handle > 0);
    fake_cuda.handles--;
    return 0;
}
static cuda_result fake_map(cuda_address at, size_t bytes, size_t offset, uint64_t handle,
                            unsigned long long flags)
{
    (void)at, (void)bytes, (void)offset, (void)handle, (void)flags;
    cuda_result r = fake_turn();
    if (r == 0)
        fake_cuda.mapped++;
    return r;
}
static cuda_result fake_unmap(cuda_address at, size_t bytes)
{
    fake_cuda.mapped--;
    assert_int_equal(mprotect((void *)(uintptr_t)at, bytes, PROT_NONE), 0);
    return 0;
}
static cuda_result fake_access(cuda_address at, size_t bytes, const struct cuda_access *list, size_t count)
{
    (void)list, (void)count;
    cuda_result r = fake_turn();
    if (r == 0)
        assert_int_equal(mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE), 0);
    return r;
}
static cuda_result fake_fill(cuda_address at, unsigned char value, size_t bytes, void *stream)
{
    (void)stream;
    cuda_result r = fake_turn();
    if (r == 0)
        memset((void *)(uintptr_t)at, value, bytes);
    return r;
}
static cuda_result fake_put(cuda_address to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    cuda_result r = fake_turn();
    if (r == 0)
        memcpy((void *)(uintptr_t)to, from, bytes);
    fake_cuda.ropes += r == 0 && bytes == sizeof(struct cuda_ropes);
    return r;
}
static cuda_result fake_get(void *to, cuda_address from, size_t bytes, void *stream)
{
    (void)stream;
    cuda_result r = fake_turn();
    if (r == 0)
        memcpy(to, (const void *)(uintptr_t)from, bytes);
    fake_cuda.copied += r == 0;
    if (r == 0 && fake_cuda.differs)
        ((char *)to)[0] ^= 1;
    return r;
}
static cuda_result fake_move(cuda_address to, cuda_address from, size_t bytes, void *stream)
{
    (void)stream;
    cuda_result r = fake_turn();
    if (r == 0)
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return r;
}
static cuda_result fake_move_between(cuda_address to, void *to_context, cuda_address from, void *from_context,
                                     size_t bytes, void *stream)
{
    (void)to_context, (void)from_context;
    return fake_move(to, from, bytes, stream);
}

/* ---- instead of cuda_driver.c and cuda_image.c ---- */

const struct cuda_driver *cuda_driver(void)
{
    static const struct cuda_driver driver = {
#define X(name, symbol, arguments) .name = fake_##name,
        CUDA_FUNCTIONS(X)
#undef X
    };
    return &driver;
}
sigset_t cuda_driver_hold_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    return none;
}
void cuda_driver_let_signals(sigset_t had)
{
    (void)had;
}
const char *cuda_driver_error(const struct cuda_driver *v, cuda_result r)
{
    const char *name;
    return v->error_name(r, &name) == 0 ? name : "";
}
const void *cuda_image(enum cuda_image image)
{
    (void)image;
    return &fake_cuda;
}

#endif
