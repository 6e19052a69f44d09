/* simt_block.h - what a kernel's thread asks of its block (simt.cpp). */
#ifndef PLATEAU_TESTS_SIMT_BLOCK_H
#define PLATEAU_TESTS_SIMT_BLOCK_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

namespace simt
{

/* ---- barriers ---- */

/* All threads of the block that have not ended. */
void meet_block();
/* `count` threads, at barrier `number` of the block. */
void meet_some(uint32_t number, uint32_t count);

/* All lanes of the warp hand in `mine`; the last of them calls `task` with what all have. */
typedef void warp_task(void *const lanes[32]);
void meet_warp(void *mine, warp_task *task);
uint32_t lane();

/* ---- shared memory ---- */

/* Returns the pointer whose low half is this address. */
void *shared_pointer(uint32_t at);
template <class T> T &shared_word(uint32_t at)
{
    return *(T *)shared_pointer(at);
}

/* 16 bytes, or zeros for NULL, that are there when the thread waits. */
void copy_late(void *to, const void *from);
void copies_end();
/* Until `left` groups are on their way; CUDA's wait_all takes those too that are in no group. */
void copies_wait(uint32_t left);
void copies_wait_all();

/* ---- kernels ---- */

typedef void run_kernel(void (*kernel)(), void **arguments);

struct entry {
    const char *name;
    void (*kernel)();
    run_kernel *run;
    entry *next;
    entry(const char *name, void (*kernel)(), run_kernel *run);
};

template <class... A, size_t... I>
void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>)
{
    kernel(*(std::remove_const_t<A> *)arguments[I]...);
}
template <class... A> entry entry_of(const char *name, void (*kernel)(A...))
{
    return entry(name, (void (*)())kernel, [](void (*k)(), void **arguments) {
        call((void (*)(A...))k, arguments, std::index_sequence_for<A...>());
    });
}

} // namespace simt

#define SIMT_KERNEL(kernel) static simt::entry kernel##_entry = simt::entry_of(#kernel, kernel);

#endif
