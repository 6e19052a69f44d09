/* kern.c - which tiers may run here. The compiler's own probe knows both what the processor has and whether
 * the system saves the registers. */
#include "kernel/kern.h"

#include "kernel/kern_tiers.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Not every compiler's probe knows this one by name. It uses the registers that AVX2's answer vouches for. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

unsigned kern_cpu_flags(void)
{
    unsigned flags = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        flags |= KERN_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        flags |= KERN_CPU_AVX512;
    if ((flags & KERN_CPU_AVX512) && __builtin_cpu_supports("avx512vnni"))
        flags |= KERN_CPU_VNNI;
#endif
    return flags;
}

void kern_ops_init(struct kern_ops *ops, unsigned cpu_flags)
{
    kern_ref_fill(ops);
    kern_int_ref_fill(ops);
#if defined(__x86_64__)
    if (cpu_flags & KERN_CPU_AVX2) {
        kern_avx2_fill(ops);
        kern_int_avx2_fill(ops);
    }
    if (cpu_flags & KERN_CPU_AVX512)
        kern_avx512_fill(ops);
    if ((cpu_flags & KERN_CPU_AVX512) && (cpu_flags & KERN_CPU_VNNI))
        kern_int_vnni_fill(ops);
#endif
}
