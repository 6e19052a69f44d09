/* simt.cpp - a block of threads: fibers, their barriers, and the memory that they share.
 *
 * This library holds nothing else in thread-local memory than what kernels call __shared__: the linker's
 * table says where that lies. A fiber is made once and runs its thread of block after block. */
#include "simt/simt.h"
#include "simt/cuda/cuda_words.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#define WARP          32u
#define THREADS_MAX   1024u
#define BARRIERS      16u
#define STACK_BYTES   ((size_t)128 << 10)
#define SHARED_MAX    ((size_t)227 << 10)
#define UNINITIALISED 0xff /* floats and bf16 of these bytes are NaN */

uint3 threadIdx, blockIdx, blockDim, gridDim;

/* The launch's own, by the names that kernels give it. */
alignas(1024) thread_local uint8_t shared[SHARED_MAX];
extern thread_local float columns[SHARED_MAX / sizeof(float)] __attribute__((alias("shared")));
/* What a compiler calls in front of their uses: they need no constructor. */
extern "C" void its_constructor(void) asm("_ZTH6shared");
extern "C" void its_constructor(void)
{
}
extern "C" void other_constructor(void) asm("_ZTH7columns");
extern "C" void other_constructor(void)
{
}

/* Leaves its place in *from and goes on at `to`. */
extern "C" void simt_hop(void **from, void *to);
#define HOP_SAVES 6 /* registers of the caller's, below the address that it returns to */
asm(".text\n"
    ".type simt_hop, @function\n"
    "simt_hop:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n"
    "mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
    "ret\n"
    ".size simt_hop, . - simt_hop\n");

namespace simt
{
namespace
{

/* ---- state ---- */

struct meeting {
    uint32_t arrived, turn;
};

struct warp {
    meeting here;
    void *lanes[WARP];
    warp_task *task;
};

struct copy {
    void *to;
    const void *from;
    uint32_t group;
};

struct fiber {
    void *place; /* on its stack: where it goes on */
    void *stack; /* NULL: not made yet */
    bool ended;
    const meeting *waits; /* until its turn is another; NULL: it can run */
    uint32_t turn;
    uint32_t group; /* that its next copies are in */
    std::vector<copy> copies;
};

/* Of the launch. */
struct {
    const entry *kernel;
    void **arguments;
    uint32_t number, threads, left; /* threads that have not ended */
} launch;

fiber fibers[THREADS_MAX];
warp warps[THREADS_MAX / WARP];
meeting all, barriers[BARRIERS];
fiber *running;
void *scheduler; /* on the process's stack: where it goes on */
uint64_t random_state;

[[noreturn]] void stop(const char *what)
{
    fprintf(stderr, "simt: %s, launch %u, block %u %u %u, thread %u: %s\n", launch.kernel->name,
            launch.number, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, what);
    abort();
}

uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* ---- fibers ---- */

/* The running thread waits until it is resumed. */
void pause()
{
    simt_hop(&running->place, scheduler);
}

void run_threads()
{
    for (;;) {
        launch.kernel->run(launch.kernel->kernel, launch.arguments);
        running->ended = true;
        launch.left--;
        if (all.arrived > 0 && all.arrived == launch.left) {
            all.arrived = 0;
            all.turn++;
        }
        pause();
    }
}

/* Its first hop returns to run_threads(). */
void make(fiber *f)
{
    f->stack =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED || mprotect(f->stack, 4096, PROT_NONE) != 0)
        stop("no stack");
    void **top = (void **)((char *)f->stack + STACK_BYTES) - 2;
    *top = (void *)run_threads;
    f->place = top - HOP_SAVES;
}

/* Thread `index` runs until it waits or ends. */
void resume(uint32_t index)
{
    fiber *f = &fibers[index];
    running = f;
    f->waits = NULL;
    threadIdx = {index, 0, 0};
    if (!f->stack)
        make(f);
    simt_hop(&scheduler, f->place);
}

/* ---- the order of threads ---- */

/* One turn of each lane that can run. Returns whether any could. */
bool step_warp(uint32_t warp, bool down)
{
    bool any = false;
    for (uint32_t i = 0; i < WARP; i++) {
        uint32_t index = warp * WARP + (down ? WARP - 1 - i : i);
        fiber *f = &fibers[index];
        if (f->ended || (f->waits && f->waits->turn == f->turn))
            continue;
        resume(index);
        any = true;
    }
    return any;
}

/* Up, down or at random: 0, 1, 2. */
void order(std::vector<uint32_t> &list, uint32_t how)
{
    uint32_t n = (uint32_t)list.size();
    for (uint32_t i = 0; i < n; i++)
        list[i] = how == 1 ? n - 1 - i : i;
    for (uint32_t i = n; how == 2 && i > 1; i--)
        std::swap(list[i - 1], list[random_below(i)]);
}

/* A warp runs as far as it can; at random only a few steps. */
void run_block(uint32_t how)
{
    std::vector<uint32_t> list(launch.threads / WARP);
    order(list, how);
    while (launch.left > 0) {
        bool any = false;
        for (uint32_t w : list) {
            uint32_t steps = how == 2 ? 1 + random_below(6) : UINT32_MAX;
            for (; steps > 0 && step_warp(w, how == 1 || (how == 2 && random_below(2))); steps--)
                any = true;
        }
        if (!any)
            stop("its threads wait for each other");
        if (how == 2)
            order(list, how);
    }
}

/* ---- memory ---- */

/* Thread-local memory of this library. */
struct block_memory {
    uint8_t *at;
    size_t bytes;
};
int find_memory(struct dl_phdr_info *info, size_t, void *ret)
{
    uint8_t *at = (uint8_t *)info->dlpi_tls_data;
    for (int i = 0; at && i < info->dlpi_phnum; i++) {
        size_t bytes = info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_TLS && shared >= at && shared < at + bytes) {
            *(block_memory *)ret = {at, bytes};
            return 1;
        }
    }
    return 0;
}

/* A block finds NaNs, also beyond the launch's own memory. */
void begin_memory(uint32_t bytes)
{
    static block_memory m;
    if (!m.at && dl_iterate_phdr(find_memory, &m) == 0)
        stop("its shared memory is not found");
    memset(m.at, UNINITIALISED, (size_t)(shared - m.at) + bytes);
    memset(shared + SHARED_MAX, UNINITIALISED, (size_t)(m.at + m.bytes - (shared + SHARED_MAX)));
}

/* Stops if a block wrote past the launch's own memory. */
void check_memory(uint32_t bytes)
{
    for (uint32_t i = bytes; i < SHARED_MAX; i++)
        if (shared[i] != UNINITIALISED)
            stop("a byte past its shared memory was written");
}

/* ---- launches ---- */

void begin_block(uint32_t bytes)
{
    begin_memory(bytes);
    launch.left = launch.threads;
    all = {};
    memset(barriers, 0, sizeof(barriers));
    for (uint32_t w = 0; w < launch.threads / WARP; w++)
        warps[w].here = {};
    for (uint32_t i = 0; i < launch.threads; i++) {
        fibers[i].ended = false;
        fibers[i].waits = NULL;
        fibers[i].group = 0;
        fibers[i].copies.clear();
    }
}

void wait_for(meeting *m)
{
    running->waits = m;
    running->turn = m->turn;
    pause();
}

/* True: the last one is here, and all go on. */
bool arrive(meeting *m, uint32_t count)
{
    if (++m->arrived < count)
        return false;
    m->arrived = 0;
    m->turn++;
    return true;
}

entry *entries;

} // namespace

/* ---- what threads call ---- */

void meet_block()
{
    if (!arrive(&all, launch.left))
        wait_for(&all);
}

void meet_some(uint32_t number, uint32_t count)
{
    if (number == 0 || number >= BARRIERS || count > launch.threads)
        stop("no such barrier");
    if (!arrive(&barriers[number], count))
        wait_for(&barriers[number]);
}

uint32_t lane()
{
    return threadIdx.x % WARP;
}

void meet_warp(void *mine, warp_task *task)
{
    warp *w = &warps[threadIdx.x / WARP];
    if (w->here.arrived > 0 && w->task != task)
        stop("lanes of its warp do different things");
    w->task = task;
    w->lanes[lane()] = mine;
    if (w->here.arrived + 1 == WARP)
        task(w->lanes);
    if (!arrive(&w->here, WARP))
        wait_for(&w->here);
}

void *shared_pointer(uint32_t at)
{
    int32_t from = (int32_t)(at - (uint32_t)(uintptr_t)shared);
    return (void *)((uintptr_t)shared + (uintptr_t)(intptr_t)from);
}

void copy_late(void *to, const void *from)
{
    memset(to, UNINITIALISED, 16);
    running->copies.push_back({to, from, running->group});
}

void copies_end()
{
    running->group++;
}

/* Those of the groups before `end`. */
static void bring(uint32_t end)
{
    std::vector<copy> &list = running->copies;
    size_t i = 0;
    for (; i < list.size() && list[i].group < end; i++) {
        if (((uintptr_t)list[i].to | (uintptr_t)list[i].from) % 16 != 0)
            stop("a copy is not aligned");
        if (list[i].from)
            memcpy(list[i].to, list[i].from, 16);
        else
            memset(list[i].to, 0, 16);
    }
    list.erase(list.begin(), list.begin() + (ptrdiff_t)i);
}

void copies_wait(uint32_t left)
{
    bring(running->group > left ? running->group - left : 0);
}

void copies_wait_all()
{
    bring(UINT32_MAX);
}

entry::entry(const char *its_name, void (*its_kernel)(), run_kernel *its_run)
    : name(its_name), kernel(its_kernel), run(its_run), next(entries)
{
    entries = this;
}

} // namespace simt

/* ---- what the driver calls ---- */

bool simt_is_here(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const struct simt_kernel *simt_find(const char *name)
{
    for (const simt::entry *e = simt::entries; e; e = e->next)
        if (strcmp(e->name, name) == 0)
            return (const struct simt_kernel *)e;
    return (const struct simt_kernel *)new simt::entry(name, NULL, NULL);
}

namespace simt
{
namespace
{

void launch_here(const struct simt_kernel *k, struct simt_grid grid, void **arguments)
{
    launch.kernel = (const entry *)k;
    launch.arguments = arguments;
    launch.threads = grid.threads;
    uint32_t how = launch.number++ % 3;
    if (!launch.kernel->run)
        stop("no such kernel here: tests/simt/CMakeLists.txt");
    if (grid.threads == 0 || grid.threads > THREADS_MAX || grid.threads % WARP != 0 ||
        grid.shared_bytes > SHARED_MAX)
        stop("no such block");
    blockDim = {grid.threads, 1, 1};
    gridDim = {grid.x, grid.y, grid.z};
    std::vector<uint32_t> blocks(grid.x * grid.y * grid.z);
    order(blocks, how);
    memset(shared, UNINITIALISED, SHARED_MAX);
    for (uint32_t b : blocks) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        begin_block(grid.shared_bytes);
        run_block(how);
    }
    check_memory(grid.shared_bytes);
}

/* The thread that runs all launches, and the one that it is given: what blocks share is that thread's. */
struct {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    bool made, given, done;
    const struct simt_kernel *kernel;
    struct simt_grid grid;
    void **arguments;
} hand;

void *run_launches(void *)
{
    pthread_mutex_lock(&hand.lock);
    for (;;) {
        while (!hand.given)
            pthread_cond_wait(&hand.changed, &hand.lock);
        launch_here(hand.kernel, hand.grid, hand.arguments);
        hand.given = false;
        hand.done = true;
        pthread_cond_broadcast(&hand.changed);
    }
    return NULL;
}

} /* namespace */
} /* namespace simt */

void simt_launch(const struct simt_kernel *k, struct simt_grid grid, void **arguments)
{
    using namespace simt;
    pthread_t thread;
    pthread_mutex_lock(&hand.lock);
    if (!hand.made && pthread_create(&thread, NULL, run_launches, NULL) != 0)
        stop("no thread");
    hand.made = true;
    while (hand.given || hand.done)
        pthread_cond_wait(&hand.changed, &hand.lock);
    hand.kernel = k, hand.grid = grid, hand.arguments = arguments;
    hand.given = true;
    pthread_cond_broadcast(&hand.changed);
    while (!hand.done)
        pthread_cond_wait(&hand.changed, &hand.lock);
    hand.done = false;
    pthread_cond_broadcast(&hand.changed);
    pthread_mutex_unlock(&hand.lock);
}
