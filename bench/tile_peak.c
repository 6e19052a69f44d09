/* tile_peak.c - the units' instructions alone, on registers, by all workers. */
#include "tile_peak.h"

#include "base/check.h"
#include "base/clock.h"
#include "kernel/kern.h"

#if defined(__x86_64__)
#include "kernel/kern_tile.h"
#include "kernel/workers.h"

#include <immintrin.h>

enum { ROUNDS = 200000, CHAINS = 12, TILE_CHAINS = 4, TILES_EACH = 4 };

static _Atomic int64_t sink; /* results that must not be optimised away */

__attribute__((target("avx512f,avx512vnni"))) static void vnni(void)
{
    __m512i s[CHAINS], x = _mm512_set1_epi8(1);
    for (uint32_t j = 0; j < CHAINS; j++)
        s[j] = _mm512_set1_epi32((int)j);
    for (uint32_t i = 0; i < ROUNDS; i++) {
#pragma GCC unroll 12
        for (uint32_t j = 0; j < CHAINS; j++)
            s[j] = _mm512_dpbusd_epi32(s[j], x, x);
        __asm__ volatile("" : "+v"(x));
    }
    for (uint32_t j = 1; j < CHAINS; j++)
        s[0] = _mm512_add_epi32(s[0], s[j]);
    sink += _mm512_reduce_add_epi32(s[0]);
}

/* Four sums, two tiles on each side. */
static void tiles_int8(void)
{
    struct tile_config config = {.palette = 1};
    for (uint32_t i = 0; i < 8; i++) {
        config.rows[i] = 16;
        config.row_bytes[i] = 64;
    }
    tile_configure(&config);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_ZERO(4);
    TILE_ZERO(5);
    TILE_ZERO(6);
    TILE_ZERO(7);
    for (uint32_t i = 0; i < ROUNDS / 4; i++) {
        TILE_DOT_BYTES(0, 4, 6);
        TILE_DOT_BYTES(1, 5, 6);
        TILE_DOT_BYTES(2, 4, 7);
        TILE_DOT_BYTES(3, 5, 7);
    }
    tile_release();
}

static void peak_tile(void *arg, uint32_t tile, uint32_t worker)
{
    (void)tile;
    (void)worker;
    if (*(enum peak_unit *)arg == PEAK_VNNI)
        vnni();
    else
        tiles_int8();
}

enum peak_unit peak_of_integers(const struct yardsticks *y)
{
    if (y->cpu_flags & KERN_CPU_AMX)
        return PEAK_TILES_INT8;
    return y->cpu_flags & KERN_CPU_VNNI ? PEAK_VNNI : PEAK_NONE;
}

double peak_once(const struct yardsticks *y, enum peak_unit unit)
{
    uint64_t begin = clock_now_ns();
    ASSERT(unit != PEAK_NONE);
    workers_run(y->workers, peak_tile, &unit, TILES_EACH * workers_count(y->workers));
    return (double)(clock_now_ns() - begin) / (double)NS_PER_S;
}

double peak_operations(const struct yardsticks *y, enum peak_unit unit)
{
    double round = unit == PEAK_VNNI ? 2.0 * CHAINS * 64 : 2.0 * 16 * 16 * 64;
    return round * ROUNDS * TILES_EACH * workers_count(y->workers);
}
#else
enum peak_unit peak_of_integers(const struct yardsticks *y)
{
    (void)y;
    return PEAK_NONE;
}

double peak_once(const struct yardsticks *y, enum peak_unit unit)
{
    (void)y;
    ASSERT(unit != PEAK_NONE);
    return 0;
}

double peak_operations(const struct yardsticks *y, enum peak_unit unit)
{
    (void)y;
    ASSERT(unit != PEAK_NONE);
    return 0;
}
#endif

const char *peak_name(enum peak_unit unit)
{
    static const char *const names[] = {"none", "AVX512-VNNI int8", "AMX int8"};
    return names[unit];
}
