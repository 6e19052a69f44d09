/* kern_shape.h - how functions of the kernels are compiled. V16_FN is part of each that calls it. SHAPED is
 * compiled anew for the constants of each call, its form and shape, as that is what makes it fast.
 *
 * With KERN_ONE_SHAPE it is compiled once, and takes them as arguments. The accesses are the same, and the
 * bits. Instrumented copies are so: those of each shape would take minutes. */
#ifndef PLATEAU_KERNEL_KERN_SHAPE_H
#define PLATEAU_KERNEL_KERN_SHAPE_H

#define V16_FN static inline __attribute__((always_inline, unused))
#if defined(KERN_ONE_SHAPE)
#define SHAPED static __attribute__((noinline, unused))
#define UNROLL
#elif defined(__clang__)
#define SHAPED V16_FN
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define SHAPED V16_FN
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
