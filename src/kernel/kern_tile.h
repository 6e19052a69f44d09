/* kern_tile.h - AMX tiles: eight registers of at most 16 rows of 64 bytes.
 *
 * These are statements of this file and not the compiler's intrinsics. Those of gcc 12 tell it that a
 * configuration has eight bytes and that a tile is loaded without reading memory. It then drops the stores
 * that fill the rest, and the processor refuses the configuration.
 *
 * A thread configures tiles before their use and releases them after it, in the same function. A released
 * state is not saved when the system switches threads. Compilers use no tile, so nothing else is at risk. */
#ifndef PLATEAU_KERNEL_KERN_TILE_H
#define PLATEAU_KERNEL_KERN_TILE_H

#include <stddef.h>
#include <stdint.h>

/* Operand of LDTILECFG. Zeros but for these: palette 1, and of each tile used rows and bytes of a row. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static inline void tile_configure(const struct tile_config *c)
{
    __asm__ volatile("ldtilecfg %0" ::"m"(*c));
}

static inline void tile_release(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

/* Tiles that hold something seem to leave few registers for what a load or a product writes: the fewer they
 * are, the more loads and products run side by side. So a tile that is no longer needed is set to zero, which
 * takes no register. (A loop of loads and products in BF16, from L1, 16 Sapphire Rapids cores: 28
 * ns a product with eight tiles in use, 18 in the same order with zeros, 15 with four tiles in use.) */

/* `tile`, a, b and sum are literal numbers. Rows lie `stride` bytes apart. */
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TILE_LOAD(tile, base, stride)                                                                        \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"((const void *)(base)), "r"((size_t)(stride))   \
                     : "memory")
#define TILE_STORE(tile, base, stride)                                                                       \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"((void *)(base)), "r"((size_t)(stride))     \
                     : "memory")
/* sum[m][n] += sum over k of a[m][k] * b[k / 4][n][k % 4], a signed and b unsigned bytes, in 32 bits. */
#define TILE_DOT_BYTES(sum, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #sum ::)
/* sum[m][n] = sum[m][n] + (even + odd), even and odd sums over k of a[m][k] * b[k / 2][n][k % 2] in BF16, as
 * MATRIX_PAIRS has them. It reads and changes no rounding mode. */
#define TILE_DOT_BF16(sum, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum ::)

#endif
