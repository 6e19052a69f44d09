/* cuda_probe.c - whether wgmma has the bits of mma.sync on this device: tried when it is opened.
 *
 * NVIDIA does not promise it. Without it all numbers of columns are multiplied by mma.sync. */
#include "compute/cuda/cuda_args.h"
#include "compute/cuda/cuda_device.h"

#include "base/log.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define COLUMNS 256u
#define ROWS    CUDA_TILE_ROWS
#define K       2048u
#define UNITS   (K / CUDA_UNIT)

#define WEIGHT_BYTES ((uint64_t)ROWS * K * 2)
#define INPUT_BYTES  ((uint64_t)COLUMNS * K * 2)
#define SUM_BYTES    ((uint64_t)COLUMNS * ROWS * sizeof(float))
#define PART_BYTES   ((uint64_t)ROWS * CUDA_FEW_ROW_BYTES(COLUMNS))
_Static_assert(WEIGHT_BYTES + INPUT_BYTES + 2 * SUM_BYTES + PART_BYTES + 8 <= CUDA_STAGING_BYTES,
               "there is room");

/* Fills in values of both signs, between 2^-8 and 2. */
static void fill(uint16_t *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t r = rng_at(20, i);
        values[i] = (uint16_t)((r & 0x807f) | (119 + (r >> 20) % 9) << 7);
    }
}

/* The wide kernels' clusters have a block without rows. */
static bool run(struct cuda_device *d, enum cuda_kernel kernel, struct cuda_tiles *t, bool wide)
{
    uint32_t columns = kernel == CUDA_KERNEL_wide16_1 ? CUDA_WIDE_COLUMNS_1 : CUDA_WIDE_COLUMNS_8;
    uint32_t stage = (columns + CUDA_TILE_ROWS) * 2 * CUDA_UNIT;
    t->columns = columns;
    struct cuda_grid grid = {COLUMNS / columns, wide ? CUDA_WIDE_DOWN : 1, 1,
                             wide ? CUDA_WIDE_THREADS : CUDA_THREADS, t->stages * stage + (wide ? 1024 : 0)};
    if (kernel == CUDA_KERNEL_few16_1 || kernel == CUDA_KERNEL_few16_8)
        grid = cuda_few_grid(d, t, kernel == CUDA_KERNEL_few16_1);
    void *arguments[] = {t};
    return cuda_ok(d, cuda_launch(d, d->stream, kernel, grid, arguments), "probe");
}

/* False: it could not be tried. */
static bool compare(struct cuda_device *d, enum cuda_kernel tiles, enum cuda_kernel wide)
{
    uint64_t x = d->repacking + WEIGHT_BYTES, y = x + INPUT_BYTES;
    struct cuda_tiles t = {.w = {.data = (const uint8_t *)(uintptr_t)d->repacking,
                                 .n = ROWS,
                                 .k = K,
                                 .experts = 1,
                                 .form = CUDA_FRAGMENTS,
                                 .bits = 16},
                           .x = {(uint16_t *)(uintptr_t)x, COLUMNS, 0},
                           .count = COLUMNS,
                           .stages = 4,
                           .y = {(float *)(uintptr_t)y, ROWS, ROWS}};
    struct cuda_tiles second = t;
    char *sums = d->staging;
    second.y.at += SUM_BYTES / sizeof(float);
    second.parts = second.y.at + SUM_BYTES / sizeof(float);
    second.meet = (uint32_t *)(second.parts + PART_BYTES / sizeof(float));
    bool ok =
        cuda_ok(d, d->driver->fill((uintptr_t)second.meet, 0, 2 * sizeof(uint32_t), d->stream), "probe") &&
        run(d, tiles, &t, false) && run(d, wide, &second, true) &&
        cuda_ok(d, d->driver->get(sums, y, 2 * SUM_BYTES, d->stream), "probe") &&
        cuda_ok(d, d->driver->stream_wait(d->stream), "probe");
    d->wide &= ok && memcmp(sums, sums + SUM_BYTES, SUM_BYTES) == 0;
    return ok;
}

int cuda_probe(struct cuda_device *d)
{
    d->wide = d->hopper;
    if (!d->hopper)
        return 0;
    fill((uint16_t *)(void *)d->staging, (WEIGHT_BYTES + INPUT_BYTES) / 2);
    bool ok = cuda_ok(d, d->driver->put(d->repacking, d->staging, WEIGHT_BYTES + INPUT_BYTES, d->stream),
                      "probe") &&
              cuda_ok(d, d->driver->stream_wait(d->stream), "probe") &&
              compare(d, CUDA_KERNEL_tiles16_1, CUDA_KERNEL_few16_1) &&
              compare(d, CUDA_KERNEL_tiles16_8, CUDA_KERNEL_few16_8) &&
              compare(d, CUDA_KERNEL_tiles16_1, CUDA_KERNEL_wide16_1) &&
              compare(d, CUDA_KERNEL_tiles16_8, CUDA_KERNEL_wide16_8);
    if (ok && !d->wide)
        LOG_WARN("device_slow",
                 "device=%s reason=\"wgmma differs from mma.sync: all products are by the "
                 "latter\"",
                 d->name);
    return ok ? 0 : -EIO;
}
