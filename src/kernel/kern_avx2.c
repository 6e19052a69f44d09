/* kern_avx2.c - the AVX2 tier: what the .inc files say, in this file's instructions. Built with its own flags; nothing
 * here is shared with code that other machines run. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_v16_avx2.h"

/* 16 registers: 8 hold chains, the others weights and the broadcast input. */
#define FEW_PANELS       4
#define SOME_PANELS      1
#define MORE_PANELS      1
#define MORE_COLUMNS     4
#define MANY_PANELS      1
#define MANY_COLUMNS     4
#define ATTN_GROUP_PAGES 1
#include "kernel/kern_matmul.inc"
#include "kernel/kern_rows.inc"
#include "kernel/kern_delta.inc"
#include "kernel/kern_attn.inc"

void kern_avx2_fill(struct kern_ops *ops)
{
    ops->tier = "avx2";
    ops->matmul = tier_matmul;
    ops->group_sums = tier_group_sums;
    ops->rmsnorm = tier_rmsnorm;
    ops->rmsnorm_gated = tier_rmsnorm_gated;
    ops->l2norm = tier_l2norm;
    ops->silu_mul = tier_silu_mul;
    ops->sigmoid_mul = tier_sigmoid_mul;
    ops->add = tier_add;
    ops->add_scaled = tier_add_scaled;
    ops->rope = tier_rope;
    ops->conv = tier_conv;
    ops->delta = tier_delta;
    ops->attn = tier_attn;
    ops->panels_few = 8;
    ops->panels_many = 4;
    ops->columns_many = CHUNK_COLUMNS;
}
#endif
