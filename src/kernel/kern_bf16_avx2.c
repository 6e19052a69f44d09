/* kern_bf16_avx2.c - the products in BF16 with AVX2. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_v16_avx2.h"

/* 16 registers: a chain takes two. */
#define ONE_PANELS   2
#define TWO_PANELS   1
#define FOUR_PANELS  1
#define MANY_COLUMNS 2
#include "kernel/kern_bf16.inc"

void kern_bf16_avx2_fill(struct kern_ops *ops)
{
    ops->bf16_tier = "avx2";
    ops->round_bf16 = tier_round;
    ops->bf16_matmul = tier_bf16_matmul;
}
#endif
