/* rng.h - random numbers as a function of (seed, counter), so that a draw depends on nothing else.
 *
 * Not for secrets: those come from rng_secret(). */
#ifndef PLATEAU_BASE_RNG_H
#define PLATEAU_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* 64 well-mixed bits of (seed, counter): two rounds of the finalizer of SplitMix64 (Steele, Lea, Flood
 * 2014). */
uint64_t rng_at(uint64_t seed, uint64_t counter);

/* As `rng_at()`, but a double in [0, 1) with 53 bits. */
double rng_uniform_at(uint64_t seed, uint64_t counter);

/* Unpredictable bytes from the kernel. Stops the program if the kernel has no source. */
void rng_secret(void *bytes, size_t len);

#endif
