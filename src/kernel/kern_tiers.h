/* kern_tiers.h - the functions that fill the table. Inside kernel/ only. */
#ifndef PLATEAU_KERNEL_KERN_TIERS_H
#define PLATEAU_KERNEL_KERN_TIERS_H

#include "kernel/kern.h"

/* Every entry but those of integer products and of products in BF16. */
void kern_ref_fill(struct kern_ops *ops);
/* The entries these tiers have; the machine must have the tier's instructions before one is called. */
void kern_avx2_fill(struct kern_ops *ops);
void kern_avx512_fill(struct kern_ops *ops);

/* The entries of integer products; the reference has no other. A later tier may call an earlier one's
 * products for shapes that it does not make faster, if it also keeps that tier's quantised rows. */
void kern_int_ref_fill(struct kern_ops *ops);
void kern_int_avx2_fill(struct kern_ops *ops);
void kern_int_avxvnni_fill(struct kern_ops *ops);
void kern_int_vnni_fill(struct kern_ops *ops);
kern_int_matmul_fn kern_int_vnni_matmul;
/* Over the entries of the VNNI tier. */
void kern_int_amx_fill(struct kern_ops *ops);

/* The entries of products in BF16. All tiers read the same rows. */
void kern_bf16_ref_fill(struct kern_ops *ops);
void kern_bf16_avx2_fill(struct kern_ops *ops);
void kern_bf16_avx512_fill(struct kern_ops *ops);
kern_bf16_matmul_fn kern_bf16_avx512_matmul;
/* Over the entries of the AVX-512 tier. */
void kern_bf16_amx_fill(struct kern_ops *ops);

#endif
