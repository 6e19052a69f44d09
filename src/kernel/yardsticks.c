/* yardsticks.c - measured by the workers that do the work, with the loads and the arithmetic of the kernels'
 * tiers. Functions of one instruction set are called only where the processor has it. */
#include "kernel/yardsticks.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "kernel/kern.h"
#include "memory/footprint.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { REPEATS = 7 };

double yardsticks_seconds(void (*fn)(void *arg), void *arg)
{
    double samples[REPEATS];
    uint32_t calls = 1;
    uint64_t begin = clock_now_ns();
    fn(arg);
    uint64_t first = clock_now_ns() - begin;
    if (first < 5 * NS_PER_MS)
        calls = (uint32_t)(5 * NS_PER_MS / (first + 1)) + 1;
    for (uint32_t i = 0; i < REPEATS; i++) {
        begin = clock_now_ns();
        for (uint32_t j = 0; j < calls; j++)
            fn(arg);
        samples[i] = (double)(clock_now_ns() - begin) / (double)NS_PER_S / calls;
    }
    return median_of(samples, REPEATS);
}

size_t yardsticks_cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : 0;
}

int yardsticks_init(struct yardsticks *y, struct workers *w, size_t least)
{
    struct footprint f;
    footprint_read(&f);
    const size_t wanted = MAX_OF(least, 4 * yardsticks_cache_bytes());
    const size_t bytes = MIN_OF(wanted, f.ram_available_bytes / 3) & ~(((size_t)2 << 20) - 1);
    if (bytes == 0)
        return -ENOMEM;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -ENOMEM;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0x3c, bytes);
    *y = (struct yardsticks){
        .workers = w, .cpu_flags = kern_cpu_flags(), .memory = p, .bytes = bytes, .cached = bytes < wanted};
    return 0;
}

void yardsticks_done(struct yardsticks *y)
{
    if (y->memory)
        munmap(y->memory, y->bytes);
    *y = (struct yardsticks){0};
}

static _Atomic uint64_t sink; /* results that must not be optimised away */

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void read_avx512(const char *p, size_t bytes)
{
    __m512i s[4] = {0};
    for (size_t i = 0; i + 256 <= bytes; i += 256) {
        for (uint32_t j = 0; j < 4; j++)
            s[j] = _mm512_xor_si512(s[j], _mm512_load_si512((const void *)(p + i + 64 * j)));
    }
    s[0] = _mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3]));
    sink += (uint64_t)_mm512_reduce_add_epi64(s[0]);
}

/* 8 chains hide a latency of 4 with two units; 12 leave no doubt. */
__attribute__((target("avx512f"))) static void fma_avx512(uint32_t rounds)
{
    __m512 s[12], x = _mm512_set1_ps(0.5f);
    for (uint32_t j = 0; j < 12; j++)
        s[j] = _mm512_set1_ps((float)j);
    for (uint32_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (uint32_t j = 0; j < 12; j++)
            s[j] = _mm512_fmadd_ps(s[j], x, x);
        __asm__ volatile("" : "+v"(x));
    }
    for (uint32_t j = 1; j < 12; j++)
        s[0] = _mm512_add_ps(s[0], s[j]);
    sink += (uint64_t)_mm512_reduce_add_ps(s[0]);
}

__attribute__((target("avx2,fma"))) static void fma_avx2(uint32_t rounds)
{
    __m256 s[12], x = _mm256_set1_ps(0.5f);
    for (uint32_t j = 0; j < 12; j++)
        s[j] = _mm256_set1_ps((float)j);
    for (uint32_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (uint32_t j = 0; j < 12; j++)
            s[j] = _mm256_fmadd_ps(s[j], x, x);
        __asm__ volatile("" : "+x"(x));
    }
    for (uint32_t j = 1; j < 12; j++)
        s[0] = _mm256_add_ps(s[0], s[j]);
    sink += (uint64_t)_mm256_cvtss_f32(s[0]);
}
#endif

static void read_plain(const char *p, size_t bytes)
{
    const uint64_t *words = (const uint64_t *)p;
    uint64_t s[8] = {0};
    for (size_t i = 0; i + 8 <= bytes / 8; i += 8) {
        for (uint32_t j = 0; j < 8; j++)
            s[j] ^= words[i + j];
    }
    for (uint32_t j = 0; j < 8; j++)
        sink += s[j];
}

#define READ_TILE ((size_t)1 << 20)

static void read_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct yardsticks *b = arg;
    const char *p = b->memory + tile * READ_TILE;
    (void)worker;
#if defined(__x86_64__)
    if (b->cpu_flags & KERN_CPU_AVX512) {
        read_avx512(p, READ_TILE);
        return;
    }
#endif
    read_plain(p, READ_TILE);
}

static void read_one(void *arg)
{
    const struct yardsticks *b = arg;
    for (uint32_t tile = 0; tile < b->bytes / READ_TILE; tile++)
        read_tile(arg, tile, 0);
}

static void read_all(void *arg)
{
    const struct yardsticks *b = arg;
    workers_run(b->workers, read_tile, arg, (uint32_t)(b->bytes / READ_TILE));
}

enum { FMA_ROUNDS = 1000000 };

double yardsticks_fma_flop(const struct yardsticks *y)
{
    uint32_t lanes = y->cpu_flags & KERN_CPU_AVX512 ? 16 : y->cpu_flags & KERN_CPU_AVX2 ? 8 : 0;
    return 2.0 * 12 * FMA_ROUNDS * lanes * 4 * workers_count(y->workers);
}

static void fma_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct yardsticks *b = arg;
    (void)tile;
    (void)worker;
#if defined(__x86_64__)
    if (b->cpu_flags & KERN_CPU_AVX512)
        fma_avx512(FMA_ROUNDS);
    else if (b->cpu_flags & KERN_CPU_AVX2)
        fma_avx2(FMA_ROUNDS);
#endif
}

static void fma_all(void *arg)
{
    const struct yardsticks *b = arg;
    workers_run(b->workers, fma_tile, arg, 4 * workers_count(b->workers));
}

void yardsticks_measure(struct yardsticks *y)
{
    y->read_one_bytes_s = (double)y->bytes / yardsticks_seconds(read_one, y);
    y->read_bytes_s = (double)y->bytes / yardsticks_seconds(read_all, y);
    y->peak_flop_s = yardsticks_fma_flop(y) > 0 ? yardsticks_fma_flop(y) / yardsticks_seconds(fma_all, y) : 0;
}

static double once(void (*fn)(void *arg), const struct yardsticks *y)
{
    uint64_t begin = clock_now_ns();
    fn((void *)y);
    return (double)(clock_now_ns() - begin) / (double)NS_PER_S;
}

double yardsticks_read_once(const struct yardsticks *y)
{
    return once(read_all, y);
}

double yardsticks_fma_once(const struct yardsticks *y)
{
    return once(fma_all, y);
}
