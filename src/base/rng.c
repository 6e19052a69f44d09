/* rng.c - a counter function instead of a state that must be carried, saved and restored. */
#include "base/rng.h"

#include "base/check.h"

#include <sys/random.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

uint64_t rng_at(uint64_t seed, uint64_t counter)
{
    const uint64_t golden = 0x9E3779B97F4A7C15ull;
    return mix(mix(seed + golden) ^ (counter + 1) * golden);
}

double rng_uniform_at(uint64_t seed, uint64_t counter)
{
    return (double)(rng_at(seed, counter) >> 11) * 0x1p-53;
}

void rng_secret(void *bytes, size_t len)
{
    char *p = bytes;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        ASSERT(n > 0);
        p += n;
        len -= (size_t)n;
    }
}
