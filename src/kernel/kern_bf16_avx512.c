/* kern_bf16_avx512.c - the products in BF16 with AVX-512, by multiply-adds in f32. vdpbf16ps rounds in
 * another order than the tiles' product and is not used. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_v16_avx512.h"

#define ONE_PANELS   4
#define TWO_PANELS   4
#define FOUR_PANELS  2
#define MANY_COLUMNS 8
#include "kernel/kern_bf16.inc"

void kern_bf16_avx512_matmul(const struct matrix *w, const struct kern_bf16_columns *c, uint32_t panel_begin,
                             uint32_t panel_end)
{
    tier_bf16_matmul(w, c, panel_begin, panel_end);
}

void kern_bf16_avx512_fill(struct kern_ops *ops)
{
    ops->bf16_tier = "avx512";
    ops->round_bf16 = tier_round;
    ops->bf16_matmul = tier_bf16_matmul;
}
#endif
