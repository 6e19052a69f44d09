/* soft_int_avxvnni.c - the integer products of the AVX-VNNI tier for tests on machines that have AVX512-VNNI
 * alone: the same instruction in that encoding. */
#define DOT_WORDS _mm256_dpwssd_epi32

#include "kernel/kern_int_avxvnni.c"
