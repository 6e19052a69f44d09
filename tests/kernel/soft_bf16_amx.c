/* soft_bf16_amx.c - the products in BF16 of the AMX tier over tiles in plain C. */
#include "soft_tiles.h"

#include "kernel/kern_bf16_amx.c"
