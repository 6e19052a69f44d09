/* ptx.cuh - the functions of src/compute/cuda/kernels/ptx.cuh in C++ (simt.h). */
#ifndef PLATEAU_CUDA_PTX_CUH
#define PLATEAU_CUDA_PTX_CUH

#include "cuda_bf16.h"

#include <immintrin.h>

#define DEVICE static __device__ __forceinline__

/* Kernels run one after the other. */
DEVICE void grid_wait()
{
}
DEVICE void grid_seen()
{
}
DEVICE void grid_next()
{
}

/* A block is alone. */
#define CLUSTERS 0
DEVICE uint32_t cluster_rank()
{
    return 0;
}
DEVICE void cluster_meet()
{
    __syncthreads();
}
template <class T> DEVICE T *far_of(T *here, uint32_t)
{
    return here;
}

/* ---- shared memory ---- */

DEVICE uint32_t shared_at(const void *p)
{
    return (uint32_t)(uintptr_t)p;
}
DEVICE uint32_t read_word(uint32_t at)
{
    return simt::shared_word<uint32_t>(at);
}
DEVICE uint4 read_piece(uint32_t at)
{
    return simt::shared_word<uint4>(at);
}
DEVICE void put_word(uint32_t at, uint32_t v)
{
    simt::shared_word<uint32_t>(at) = v;
}
DEVICE void put_half_word(uint32_t at, uint16_t v)
{
    simt::shared_word<uint16_t>(at) = v;
}

DEVICE void copy16(uint32_t to, const void *from)
{
    simt::copy_late(simt::shared_pointer(to), from);
}
DEVICE void copy16_if(uint32_t to, const void *from, bool some)
{
    simt::copy_late(simt::shared_pointer(to), some ? from : NULL);
}
DEVICE void copies_end()
{
    simt::copies_end();
}
template <uint32_t LEFT> DEVICE void copies_wait()
{
    simt::copies_wait(LEFT);
}
DEVICE void copies_wait_all()
{
    simt::copies_wait_all();
}

/* ---- the bulk engine: a copy is there when those who wait for its barrier have all come ---- */

#define BULK_COPIES 1

struct simt_copy {
    uint64_t *b;
    void *to;
    const void *from;
    uint32_t bytes;
};
static simt_copy simt_bulk[64];
static uint32_t simt_bulk_count;

/* Ends the copies of a barrier, or drops them. */
static inline void simt_end_copies(uint64_t *b, bool drop)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < simt_bulk_count; i++) {
        const simt_copy c = simt_bulk[i];
        if (c.b != b)
            simt_bulk[left++] = c;
        else if (!drop)
            memcpy(c.to, c.from, c.bytes);
    }
    simt_bulk_count = left;
}

DEVICE void barrier_init(uint64_t *b, uint32_t)
{
    *b = 0;
    simt_end_copies(b, true);
}
DEVICE void barriers_made()
{
}
DEVICE void barrier_expect(uint64_t *b, uint32_t bytes)
{
    *b = bytes;
}
DEVICE void barrier_wait(uint64_t *b, uint32_t)
{
    simt::meet_block();
    simt_end_copies(b, false);
}
DEVICE void barrier_wait_warp(uint64_t *b, uint32_t)
{
    simt::meet_warp(b, [](void *const *lanes) { simt_end_copies((uint64_t *)lanes[0], false); });
}
/* The place holds NaNs until then. */
DEVICE void bulk_copy(void *to, const void *from, uint32_t bytes, uint64_t *b)
{
    memset(to, 0xff, bytes);
    simt_bulk[simt_bulk_count++] = {b, to, from, bytes};
}
DEVICE void shared_written()
{
}

/* ---- tensor cores ---- */

struct simt_matrices {
    uint32_t *r, at;
};
template <bool TURNED> DEVICE void simt_load4(uint32_t r[4], uint32_t at)
{
    simt_matrices mine = {r, at};
    simt::meet_warp(&mine, [](void *const *lanes) {
        const uint4 *rows[32];
        for (uint32_t i = 0; i < 32; i++)
            rows[i] = &simt::shared_word<const uint4>(((const simt_matrices *)lanes[i])->at);
        for (uint32_t i = 0; i < 32; i++)
            for (uint32_t m = 0; m < 4; m++) {
                uint16_t pair[2];
                for (uint32_t j = 0; j < 2; j++)
                    pair[j] = TURNED ? ((const uint16_t *)rows[8 * m + i % 4 * 2 + j])[i / 4]
                                     : ((const uint16_t *)rows[8 * m + i / 4])[i % 4 * 2 + j];
                ((const simt_matrices *)lanes[i])->r[m] = pair[0] | (uint32_t)pair[1] << 16;
            }
    });
}
DEVICE void load4(uint32_t r[4], uint32_t at)
{
    simt_load4<false>(r, at);
}
DEVICE void load4_turned(uint32_t r[4], uint32_t at)
{
    simt_load4<true>(r, at);
}

struct simt_operands {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};
/* Multiplies for a warp: c[i][j] += a[i][k] * b[k][j], for one k after the other. */
static inline void simt_multiply(void *const *lanes)
{
    float a[16][16];
    alignas(32) float b[16][8], c[16][8];
    for (uint32_t i = 0; i < 32; i++) {
        const simt_operands *o = (const simt_operands *)lanes[i];
        uint32_t g = i / 4, t = i % 4 * 2;
        for (uint32_t h = 0; h < 2; h++) {
            for (uint32_t j = 0; j < 4; j++)
                a[g + j % 2 * 8][t + j / 2 * 8 + h] = __uint_as_float(o->a[j] >> 16 * h << 16);
            for (uint32_t j = 0; j < 2; j++) {
                b[t + j * 8 + h][g] = __uint_as_float(o->b[j] >> 16 * h << 16);
                c[g + j * 8][t + h] = o->c[2 * j + h];
            }
        }
    }
    for (uint32_t i = 0; i < 16; i++) {
        __m256 sums = _mm256_load_ps(c[i]);
        for (uint32_t k = 0; k < 16; k++)
            sums = _mm256_fmadd_ps(_mm256_set1_ps(a[i][k]), _mm256_load_ps(b[k]), sums);
        _mm256_store_ps(c[i], sums);
    }
    for (uint32_t i = 0; i < 32; i++) {
        float *to = ((const simt_operands *)lanes[i])->c;
        for (uint32_t j = 0; j < 4; j++)
            to[j] = c[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2];
    }
}
DEVICE uint32_t turn8(uint32_t x)
{
    uint32_t lane = simt::lane(), row = lane / 4, y = 0;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t from = __shfl_sync(0xffffffffu, x, (lane % 4 * 2 + i) * 4 + row / 2);
        y |= (from >> row % 2 * 16 & 0xffff) << 16 * i;
    }
    return y;
}
DEVICE void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    simt_operands mine = {c, a, {b0, b1}};
    simt::meet_warp(&mine, simt_multiply);
}

/* ---- the rest ---- */

DEVICE uint32_t warp_max(uint32_t x)
{
    for (uint32_t d = 16; d > 0; d /= 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, x, d);
        x = other > x ? other : x;
    }
    return x;
}
DEVICE uint32_t warp_min(uint32_t x)
{
    return ~warp_max(~x);
}

DEVICE float power_of_two(float x)
{
    float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y;
}
template <uint32_t THREADS> DEVICE void meet_at(uint32_t number)
{
    simt::meet_some(number, THREADS);
}
DEVICE uint32_t count_up(uint32_t *at)
{
    return (*at)++;
}

#endif
