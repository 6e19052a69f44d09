/* ptx.cuh - PTX instructions by name: launches, shared memory, asynchronous copies, tensor cores.
 *
 * Tests on a CPU replace this file (tests/simt). Only wide.cu, few.cu, their wgmma.cuh and
 * attend_wide.cu have PTX beside it: wgmma, and what blocks of a cluster share. */
#ifndef PLATEAU_CUDA_PTX_CUH
#define PLATEAU_CUDA_PTX_CUH

#include <stdint.h>

#define DEVICE static __device__ __forceinline__

/* ---- launches ---- */

/* All that earlier kernels of the queue wrote is there. Every kernel begins with it, in all threads of one
 * block at least. Before it a kernel may read only weights and what was there when the step began: the
 * batch, and pages of tokens before it. */
DEVICE void grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The next kernel may begin. */
DEVICE void grid_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* As `grid_wait()`, but in a kernel beside the one in front (cuda_product.beside). Kernels before that one
 * had ended when this one began. */
DEVICE void grid_seen()
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* ---- clusters of blocks, from compute capability 9.0 on; a block alone elsewhere ---- */

#define CLUSTERS (__CUDA_ARCH__ >= 900)

DEVICE uint32_t cluster_rank()
{
    uint32_t rank = 0;
#if CLUSTERS
    asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}
/* All threads of the cluster; what they wrote before to shared memory is there. */
DEVICE void cluster_meet()
{
#if CLUSTERS
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#else
    __syncthreads();
#endif
}
/* Where block `rank` of the cluster has the same variable in shared memory. */
template <class T> DEVICE T *far_of(T *here, uint32_t rank)
{
#if CLUSTERS
    uint64_t there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));
    return (T *)there;
#else
    return here;
#endif
}

/* ---- shared memory, by its addresses ---- */

DEVICE uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

DEVICE uint32_t read_word(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
DEVICE uint4 read_piece(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}
DEVICE void put_word(uint32_t at, uint32_t v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}
DEVICE void put_half_word(uint32_t at, uint16_t v)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(v) : "memory");
}

/* ---- copies to shared memory that go on beside the arithmetic ---- */

DEVICE void copy16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}
/* Or zeros. */
DEVICE void copy16_if(uint32_t to, const void *from, bool some)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(some ? 16 : 0));
}
/* The thread's copies since the last call are a group. */
DEVICE void copies_end()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits for all groups of the thread but the last LEFT. */
template <uint32_t LEFT> DEVICE void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
DEVICE void copies_wait_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* ---- copies by the bulk engine, from compute capability 9.0 on ---- */

#define BULK_COPIES (__CUDA_ARCH__ >= 900)
#if BULK_COPIES

/* By one thread; then a barrier of the block's. */
DEVICE void barrier_init(uint64_t *b, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(b)), "r"(arrivals));
}
DEVICE void barriers_made()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* And `bytes` more are to come. */
DEVICE void barrier_expect(uint64_t *b, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(b)), "r"(bytes)
                 : "memory");
}
DEVICE void barrier_wait(uint64_t *b, uint32_t phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(shared_at(b)),
                 "r"(phase)
                 : "memory");
}
/* Both places and `bytes` are multiples of 16. */
DEVICE void bulk_copy(void *to, const void *from, uint32_t bytes, uint64_t *b)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_at(to)),
        "l"(from), "r"(bytes), "r"(shared_at(b))
        : "memory");
}
/* As `barrier_wait()`, by all lanes of one warp alone. */
DEVICE void barrier_wait_warp(uint64_t *b, uint32_t phase)
{
    barrier_wait(b, phase);
}

#endif

/* Makes visible to wgmma and the bulk engine what threads wrote to shared memory. */
DEVICE void shared_written()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* ---- tensor cores; all lanes of a warp call ---- */

/* Four matrices of 8 x 8: lane l has the address of row l % 8 of matrix l / 8. It gets pair l % 4 of row
 * l / 4 of each matrix; turned, of column l / 4. */
DEVICE void load4(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
DEVICE void load4_turned(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Turns a matrix of 8 x 8: lane l has pair l % 4 of row l / 4, and gets that of column l / 4. */
DEVICE uint32_t turn8(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

DEVICE void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- the rest ---- */

/* The most and the least of a warp's numbers. */
DEVICE uint32_t warp_max(uint32_t x)
{
    return __reduce_max_sync(0xffffffffu, x);
}
DEVICE uint32_t warp_min(uint32_t x)
{
    return __reduce_min_sync(0xffffffffu, x);
}

/* About 2 to the power of x. */
DEVICE float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A barrier of THREADS of the block's, by its number from 1 on. */
template <uint32_t THREADS> DEVICE void meet_at(uint32_t number)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
}

/* Adds 1 and returns what was there. What blocks wrote before their calls is seen after a later call. */
DEVICE uint32_t count_up(uint32_t *at)
{
    uint32_t n;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(n) : "l"(at) : "memory");
    return n;
}

#endif
