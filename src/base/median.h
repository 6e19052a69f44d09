/* median.h - the middle of measured values. */
#ifndef PLATEAU_BASE_MEDIAN_H
#define PLATEAU_BASE_MEDIAN_H

#include <stdint.h>

/* Sorts values[count], count >= 1; of an even count the upper one of the middle. Any thread. */
double median_of(double *values, uint32_t count);

#endif
