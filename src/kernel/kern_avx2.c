/* kern_avx2.c - the AVX2 tier: what the .inc files say, in this file's instructions. Built with its own
 * flags; nothing here is shared with code that other machines run. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_code.h"
#include "tensor/codebook.h"
#include "kernel/kern_v16_avx2.h"

/* 16 registers: 8 hold chains, the others weights and the broadcast input. */
#define FEW_PANELS       4
#define TWO_PANELS       2
#define THREE_PANELS     1
#define SOME_PANELS      1
#define MORE_PANELS      1
#define MORE_COLUMNS     4
#define MANY_PANELS      1
#define MANY_COLUMNS     4
#define ATTN_GROUP_PAGES 1
#include "kernel/kern_qparam.inc"
#include "kernel/kern_words.inc"
#include "kernel/kern_matmul.inc"
#include "kernel/kern_rows.inc"
#include "kernel/kern_delta.inc"
#include "kernel/kern_ssm.inc"
#include "kernel/kern_attn.inc"
#include "kernel/kern_fill.inc"

void kern_avx2_fill(struct kern_ops *ops)
{
    tier_fill(ops, "avx2");
}
#endif
