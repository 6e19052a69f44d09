/* kern.c - which tiers may run here. The compiler's own probe knows both what the processor has and whether
 * the system saves the registers. */
#include "kernel/kern.h"

#include "kernel/kern_tiers.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Not every compiler's probe knows this one by name. It uses the registers that AVX2's answer vouches for. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* The registers that the system saves when it switches threads. */
static uint64_t saved_registers(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

/* Not every compiler's probe knows this one either. */
static bool has_avx_vnni(void)
{
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}

/* A process asks for tiles before its threads may use them. The system then gives each thread that uses them
 * room for 8 KiB more. Old systems and filters of system calls refuse. */
static bool may_use_tiles(void)
{
    enum { ASK_PERMISSION = 0x1023, TILE_CONFIG = 17, TILE_DATA = 18 };
    const uint64_t both = (uint64_t)1 << TILE_CONFIG | (uint64_t)1 << TILE_DATA;
    return (saved_registers() & both) == both && syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0;
}

/* KERN_CPU_AMX, KERN_CPU_AMX_BF16. */
static unsigned amx_flags(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_TILE) || !(d & AMX_INT8) || !may_use_tiles())
        return 0;
    return KERN_CPU_AMX | (d & AMX_BF16 ? KERN_CPU_AMX_BF16 : 0);
}
#endif

unsigned kern_cpu_flags(void)
{
    unsigned flags = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        flags |= KERN_CPU_AVX2;
    if ((flags & KERN_CPU_AVX2) && has_avx_vnni())
        flags |= KERN_CPU_AVX_VNNI;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        flags |= KERN_CPU_AVX512;
    if ((flags & KERN_CPU_AVX512) && __builtin_cpu_supports("avx512vnni"))
        flags |= KERN_CPU_VNNI;
    if (flags & KERN_CPU_VNNI)
        flags |= amx_flags();
#endif
    return flags;
}

void kern_ops_init(struct kern_ops *ops, unsigned cpu_flags)
{
    kern_ref_fill(ops);
    kern_int_ref_fill(ops);
    kern_bf16_ref_fill(ops);
#if defined(__x86_64__)
    if (cpu_flags & KERN_CPU_AVX2) {
        kern_avx2_fill(ops);
        kern_int_avx2_fill(ops);
        kern_bf16_avx2_fill(ops);
        if (cpu_flags & KERN_CPU_AVX_VNNI)
            kern_int_avxvnni_fill(ops);
    }
    if (cpu_flags & KERN_CPU_AVX512) {
        kern_avx512_fill(ops);
        kern_bf16_avx512_fill(ops);
    }
    if ((cpu_flags & KERN_CPU_AVX512) && (cpu_flags & KERN_CPU_VNNI)) {
        kern_int_vnni_fill(ops);
        if (cpu_flags & KERN_CPU_AMX)
            kern_int_amx_fill(ops);
        if (cpu_flags & KERN_CPU_AMX_BF16)
            kern_bf16_amx_fill(ops);
    }
#endif
}
