/* heap_hooks.c - the malloc family with the counting of heap_watch.h; empty unless PLATEAU_DEBUG or
 * PLATEAU_HEAP_HOOKS is defined.
 *
 * A sanitizer's allocator calls the hook that is installed here. ThreadSanitizer's does so for unaligned
 * allocations only: functions in front of its own see the aligned ones. In builds without a sanitizer,
 * these functions stand before the allocator's: the program's own come first for every library. They pass on
 * to jemalloc by names that are only jemalloc's, and without it to the names under which glibc exports its
 * own allocator; looking the next malloc up with dlsym would allocate. free() and malloc_usable_size() stay
 * the allocator's own. */
#if defined(PLATEAU_DEBUG) || defined(PLATEAU_HEAP_HOOKS)

#include "base/heap_watch.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifdef __SANITIZE_THREAD__
#define THREAD_SANITIZED 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#endif

#define HOOK __attribute__((visibility("default"), used))

extern const bool heap_hooks_are_here;
const bool heap_hooks_are_here = true;

#ifdef SANITIZED

int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *, size_t),
                                              void (*freed)(const volatile void *));

static void on_malloc(const volatile void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
    heap_watch_see();
}

static void on_free(const volatile void *at)
{
    (void)at;
}

__attribute__((constructor)) static void install(void)
{
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}

#ifdef THREAD_SANITIZED
/* NAME of the program calls the sanitizer's NAME, which is a weak symbol beside __interceptor_NAME. */
#define ALIGNED(type, name, parameters, arguments)                                                           \
    type name parameters;                                                                                    \
    type __interceptor_##name parameters;                                                                    \
    HOOK type name parameters                                                                                \
    {                                                                                                        \
        heap_watch_see();                                                                                    \
        return __interceptor_##name arguments;                                                               \
    }

ALIGNED(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
ALIGNED(void *, memalign, (size_t alignment, size_t bytes), (alignment, bytes))
ALIGNED(void *, valloc, (size_t bytes), (bytes))
ALIGNED(void *, pvalloc, (size_t bytes), (bytes))
ALIGNED(int, posix_memalign, (void **ret, size_t alignment, size_t bytes), (ret, alignment, bytes))
#endif

#else

#ifdef PLATEAU_HAS_JEMALLOC
#include <jemalloc/jemalloc.h>

/* jemalloc's functions with flags want a size; malloc(0) is a pointer of its own. */
static void *allocate(size_t alignment, size_t bytes, int flags)
{
    heap_watch_see();
    if (alignment > 1)
        flags |= MALLOCX_ALIGN(alignment);
    void *p = mallocx(bytes ? bytes : 1, flags);
    if (!p)
        errno = ENOMEM;
    return p;
}

static void *allocate_zeroed(size_t bytes)
{
    return allocate(1, bytes, MALLOCX_ZERO);
}

static void *reallocate(void *at, size_t bytes)
{
    heap_watch_see();
    void *p = rallocx(at, bytes ? bytes : 1, 0);
    if (!p)
        errno = ENOMEM;
    return p;
}
#else
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void *allocate(size_t alignment, size_t bytes, int flags)
{
    (void)flags;
    heap_watch_see();
    return alignment > 1 ? __libc_memalign(alignment, bytes) : __libc_malloc(bytes);
}

static void *allocate_zeroed(size_t bytes)
{
    heap_watch_see();
    return __libc_calloc(1, bytes);
}

static void *reallocate(void *at, size_t bytes)
{
    heap_watch_see();
    return __libc_realloc(at, bytes);
}
#endif

void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *at, size_t bytes);
void *reallocarray(void *at, size_t count, size_t bytes);
void *aligned_alloc(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes);
void *valloc(size_t bytes);
void *pvalloc(size_t bytes);
int posix_memalign(void **ret, size_t alignment, size_t bytes);

#define SYSTEM_PAGE ((size_t)4096)

HOOK void *malloc(size_t bytes)
{
    return allocate(1, bytes, 0);
}

HOOK void *calloc(size_t count, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return allocate_zeroed(all);
}

HOOK void *realloc(void *at, size_t bytes)
{
    return at ? reallocate(at, bytes) : allocate(1, bytes, 0);
}

HOOK void *reallocarray(void *at, size_t count, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(at, all);
}

HOOK void *aligned_alloc(size_t alignment, size_t bytes)
{
    return allocate(alignment, bytes, 0);
}

HOOK void *memalign(size_t alignment, size_t bytes)
{
    return allocate(alignment, bytes, 0);
}

HOOK void *valloc(size_t bytes)
{
    return allocate(SYSTEM_PAGE, bytes, 0);
}

HOOK void *pvalloc(size_t bytes)
{
    return allocate(SYSTEM_PAGE, (bytes + SYSTEM_PAGE - 1) / SYSTEM_PAGE * SYSTEM_PAGE, 0);
}

HOOK int posix_memalign(void **ret, size_t alignment, size_t bytes)
{
    int before = errno;
    void *p = allocate(alignment, bytes, 0);
    errno = before;
    if (!p)
        return ENOMEM;
    *ret = p;
    return 0;
}

#endif
#else
typedef int heap_hooks_are_empty;
#endif
