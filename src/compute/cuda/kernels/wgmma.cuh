/* wgmma.cuh - what products by wgmma (sm_90a) use alike. */
#ifndef PLATEAU_CUDA_WGMMA_CUH
#define PLATEAU_CUDA_WGMMA_CUH

#include "compute/cuda/kernels/mma.cuh"

#if __CUDA_ARCH_FEAT_SM90_ALL

/* ---- wgmma: 64 rows; a: a warp's 16 rows of 16 k; b: a descriptor of the columns' inputs ---- */

DEVICE void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void wgmma_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <uint32_t LEFT> DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#define OUT8(i)                                                                                              \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]),              \
        "+f"(c[i + 6]), "+f"(c[i + 7])
#define OUT64(i)                                                                                             \
    OUT8(i), OUT8(i + 8), OUT8(i + 16), OUT8(i + 24), OUT8(i + 32), OUT8(i + 40), OUT8(i + 48), OUT8(i + 56)
#define NAMES64                                                                                              \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"     \
    "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"   \
    "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES128                                                                                             \
    NAMES64                                                                                                  \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,"  \
    "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"    \
    "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define NAMES16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES32                                                                                              \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"     \
    "%27,%28,%29,%30,%31"

DEVICE void wgmma(float (&c)[16], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" NAMES16
                 "},{%16,%17,%18,%19},%20,1,1,1,0;"
                 : OUT8(0), OUT8(8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEVICE void wgmma(float (&c)[32], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32
                 "},{%32,%33,%34,%35},%36,1,1,1,0;"
                 : OUT8(0), OUT8(8), OUT8(16), OUT8(24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEVICE void wgmma(float (&c)[64], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES64
                 "},{%64,%65,%66,%67},%68,1,1,1,0;"
                 : OUT64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEVICE void wgmma(float (&c)[128], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES128
                 "},{%128,%129,%130,%131},%132,1,1,1,0;"
                 : OUT64(0), OUT64(64)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* ---- wgmma of small floats: 32 k; `add`: 0 begins with zeros ---- */

#define NAMES8 "%0,%1,%2,%3,%4,%5,%6,%7"

DEVICE void wgmma_small(float (&c)[8], const uint4 &a, uint64_t b, uint32_t add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {" NAMES8
                 "},{%8,%9,%10,%11},%12,p,1,1;\n}"
                 : OUT8(0)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(add));
}
DEVICE void wgmma_small(float (&c)[16], const uint4 &a, uint64_t b, uint32_t add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {" NAMES16
                 "},{%16,%17,%18,%19},%20,p,1,1;\n}"
                 : OUT8(0), OUT8(8)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(add));
}
DEVICE void wgmma_small(float (&c)[32], const uint4 &a, uint64_t b, uint32_t add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" NAMES32
                 "},{%32,%33,%34,%35},%36,p,1,1;\n}"
                 : OUT8(0), OUT8(8), OUT8(16), OUT8(24)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(add));
}
DEVICE void wgmma_small(float (&c)[64], const uint4 &a, uint64_t b, uint32_t add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" NAMES64
                 "},{%64,%65,%66,%67},%68,p,1,1;\n}"
                 : OUT64(0)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(add));
}

/* A lane's scales of a group of weights, of rows g and g + 8 of a panel. */
struct row_scales {
    float v[2];
};
DEVICE row_scales row_scales_of(const uint32_t raw[2], const cuda_matrix &m)
{
    row_scales s;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        s.v[i] = m.qparams == CUDA_F32    ? __uint_as_float(raw[i])
                 : m.qparams == CUDA_BF16 ? __uint_as_float(raw[i] << 16)
                                          : __half2float(__ushort_as_half((unsigned short)raw[i]));
    return s;
}
/* In shared memory the group's first scale lies at `at`. */
DEVICE row_scales row_scales_at(uint32_t at, const cuda_matrix &m)
{
    const uint32_t each = side_bytes(m), row = at + threadIdx.x % 32 / 4 * each;
    const uint32_t raw[2] = {read_word(row), read_word(row + 8 * each)};
    return row_scales_of(raw, m);
}

/* The group's products join the sums. */
template <uint32_t C> DEVICE void add_scaled(float *sum, const float (&products)[C], const row_scales &rows)
{
#pragma unroll
    for (uint32_t i = 0; i < C; i++)
        sum[i] = fmaf(products[i], rows.v[i % 4 / 2], sum[i]);
}

/* Rows of 128 bytes whose pieces of 16 change places by the row, from a multiple of 1024 on. */
DEVICE uint64_t inputs_of(uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

/* The stages go round; their barriers' phase changes with each round. */
struct turn {
    uint32_t stage, phase;
    __device__ __forceinline__ void next(uint32_t stages)
    {
        stage++;
        if (stage == stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

#endif
#endif
