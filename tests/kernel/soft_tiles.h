/* soft_tiles.h - tiles in plain C, in place of kern_tile.h, for tests on machines without AMX. What the
 * processor refuses stops the program. */
#ifndef PLATEAU_KERNEL_KERN_TILE_H
#define PLATEAU_KERNEL_KERN_TILE_H

#include "base/check.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

struct soft_tiles {
    bool configured;
    struct tile_config config;
    uint8_t tiles[8][16][64];
};
static _Thread_local struct soft_tiles soft_tiles;

static inline void tile_configure(const struct tile_config *c)
{
    static const uint8_t zeros[14];
    ASSERT(c->palette == 1 && c->start_row == 0 && memcmp(c->reserved, zeros, 14) == 0);
    for (uint32_t i = 0; i < 16; i++) {
        ASSERT(c->rows[i] <= (i < 8 ? 16 : 0) && c->row_bytes[i] <= (i < 8 ? 64 : 0));
        ASSERT((c->rows[i] == 0) == (c->row_bytes[i] == 0));
    }
    soft_tiles = (struct soft_tiles){.configured = true, .config = *c};
}

static inline void tile_release(void)
{
    soft_tiles = (struct soft_tiles){0};
}

static inline void soft_use(uint32_t tile)
{
    ASSERT(soft_tiles.configured && soft_tiles.config.rows[tile] > 0);
}

static inline void soft_zero(uint32_t tile)
{
    soft_use(tile);
    memset(soft_tiles.tiles[tile], 0, sizeof soft_tiles.tiles[tile]);
}

static inline void soft_load(uint32_t tile, const char *base, size_t stride)
{
    soft_zero(tile);
    for (uint32_t i = 0; i < soft_tiles.config.rows[tile]; i++)
        memcpy(soft_tiles.tiles[tile][i], base + i * stride, soft_tiles.config.row_bytes[tile]);
}

static inline void soft_store(uint32_t tile, char *base, size_t stride)
{
    soft_use(tile);
    for (uint32_t i = 0; i < soft_tiles.config.rows[tile]; i++)
        memcpy(base + i * stride, soft_tiles.tiles[tile][i], soft_tiles.config.row_bytes[tile]);
}

/* sum is [m][n], a [m][k], b [k][n] of elements of four bytes. */
static inline void soft_shapes(uint32_t sum, uint32_t a, uint32_t b)
{
    const struct tile_config *c = &soft_tiles.config;
    soft_use(sum);
    soft_use(a);
    soft_use(b);
    ASSERT(sum != a && sum != b && a != b);
    ASSERT(c->row_bytes[a] % 4 == 0 && c->row_bytes[b] % 4 == 0 && c->row_bytes[a] / 4 == c->rows[b]);
    ASSERT(c->rows[sum] == c->rows[a] && c->row_bytes[sum] == c->row_bytes[b]);
}

static inline void soft_dot_bytes(uint32_t sum, uint32_t a, uint32_t b)
{
    soft_shapes(sum, a, b);
    for (uint32_t m = 0; m < soft_tiles.config.rows[sum]; m++) {
        for (uint32_t n = 0; n < soft_tiles.config.row_bytes[sum] / 4u; n++) {
            int32_t s;
            memcpy(&s, &soft_tiles.tiles[sum][m][n * 4], 4);
            for (uint32_t k = 0; k < soft_tiles.config.row_bytes[a]; k++)
                s += (int8_t)soft_tiles.tiles[a][m][k] * soft_tiles.tiles[b][k / 4][n * 4 + k % 4];
            memcpy(&soft_tiles.tiles[sum][m][n * 4], &s, 4);
        }
    }
}

static inline float soft_flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* BF16 as f32; a denormal is zero. */
static inline float soft_bf16(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, 2);
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, 4);
    return soft_flushed(f);
}

static inline void soft_dot_bf16(uint32_t sum, uint32_t a, uint32_t b)
{
    soft_shapes(sum, a, b);
    for (uint32_t m = 0; m < soft_tiles.config.rows[sum]; m++) {
        for (uint32_t n = 0; n < soft_tiles.config.row_bytes[sum] / 4u; n++) {
            float s, chains[2] = {0, 0};
            memcpy(&s, &soft_tiles.tiles[sum][m][n * 4], 4);
            for (uint32_t k = 0; k < soft_tiles.config.row_bytes[a] / 2u; k++)
                chains[k % 2] = soft_flushed(fmaf(soft_bf16(&soft_tiles.tiles[a][m][k * 2]),
                                                  soft_bf16(&soft_tiles.tiles[b][k / 2][n * 4 + k % 2 * 2]),
                                                  chains[k % 2]));
            s = soft_flushed(soft_flushed(s) + soft_flushed(chains[0] + chains[1]));
            memcpy(&soft_tiles.tiles[sum][m][n * 4], &s, 4);
        }
    }
}

#define TILE_ZERO(tile)                soft_zero(tile)
#define TILE_LOAD(tile, base, stride)  soft_load(tile, (const char *)(base), stride)
#define TILE_STORE(tile, base, stride) soft_store(tile, (char *)(base), stride)
#define TILE_DOT_BYTES(sum, a, b)      soft_dot_bytes(sum, a, b)
#define TILE_DOT_BF16(sum, a, b)       soft_dot_bf16(sum, a, b)

#endif
