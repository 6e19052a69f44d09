/* kern_avx512.c - the AVX-512 tier: what the .inc files say, in this file's instructions. Built with its own
 * flags; nothing here is shared with code that other machines run. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_code.h"
#include "tensor/codebook.h"
#include "kernel/kern_v16_avx512.h"

/* 32 registers: 16 hold chains (8 of one column suffice: latency 4, two per cycle). */
#define FEW_PANELS       8
#define TWO_PANELS       4
#define THREE_PANELS     4
#define SOME_PANELS      4
#define MORE_PANELS      2
#define MORE_COLUMNS     8
#define MANY_PANELS      2
#define MANY_COLUMNS     8
#define ATTN_GROUP_PAGES 2
#include "kernel/kern_qparam.inc"
#include "kernel/kern_words.inc"
#include "kernel/kern_matmul.inc"
#include "kernel/kern_rows.inc"
#include "kernel/kern_delta.inc"
#include "kernel/kern_ssm.inc"
#include "kernel/kern_attn.inc"
#include "kernel/kern_fill.inc"

void kern_avx512_fill(struct kern_ops *ops)
{
    tier_fill(ops, "avx512");
}
#endif
