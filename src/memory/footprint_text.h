/* footprint_text.h - parses the kernel's small files: text that ends in a zero byte. Pure; any thread.
 *
 * A missing or malformed number is 0; one too large for its type is the largest value of it. */
#ifndef PLATEAU_MEMORY_FOOTPRINT_TEXT_H
#define PLATEAU_MEMORY_FOOTPRINT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define FOOTPRINT_CGROUPS "/sys/fs/cgroup"

/* The number at the start of the text. */
uint64_t footprint_number(const char *text);
/* The number after `key`; and the same in KiB, as bytes. */
uint64_t footprint_field(const char *text, const char *key);
uint64_t footprint_kib(const char *text, const char *key);
/* "some avg10=0.12 ...": the first average of that line, from 0 to 100. */
double footprint_stalled(const char *text, const char *who);

/* /proc/self/cgroup: the line "0::/path" gives FOOTPRINT_CGROUPS "/path". "" without one, and when it does
 * not fit. */
void footprint_cgroup_dir(const char *text, char *ret, size_t bytes_max);
/* Version 1: the line of the controller memory, "7:memory:/path", gives FOOTPRINT_CGROUPS "/memory/path". */
void footprint_cgroup1_dir(const char *text, char *ret, size_t bytes_max);
/* Cuts `dir` to its parent cgroup, and FOOTPRINT_CGROUPS itself to "". */
void footprint_cgroup_up(char *dir);

#endif
