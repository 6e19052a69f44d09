/* ptx.cuh - PTX instructions by name: launches, shared memory, asynchronous copies, tensor cores.
 *
 * Tests on a CPU replace this file (tests/simt). Only wide.cu and attend_wide.cu have PTX beside it: wgmma,
 * bulk copies and their barriers. */
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

DEVICE void expect(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
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

DEVICE void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- the rest ---- */

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
