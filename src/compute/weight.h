/* weight.h - packed weights as block operations take them.
 *
 * The backend packs them (compute/backend.h) and knows how they are stored; code above the contract keeps
 * them and hands them on. The bytes lie in the memory of the device, constant once bound. A matrix is rows of
 * outputs in panels of WEIGHT_PANEL, one after the other: the first panels are the first bytes. */
#ifndef PLATEAU_COMPUTE_WEIGHT_H
#define PLATEAU_COMPUTE_WEIGHT_H

#include "compute/mode.h"
#include "memory/dev.h"

#define WEIGHT_PANEL 16u

struct weight {
    uint32_t n, k;    /* rows (outputs), columns (inputs) of one matrix */
    uint32_t experts; /* matrices of a stack, one every expert_bytes; else 1 */
    dev_ptr data;
    uint64_t expert_bytes;
    enum compute_mode mode; /* mode of its products */
    /* The backend's: how it is stored, and what its products need of their input beside it, a bit each. */
    uint8_t form, qparams, bits, codes, biases;
    uint16_t sums;
    uint32_t group, super;
};

/* Matrices that read the same input, their outputs one after the other: y = [part 0 | part 1 | ...]. Parts of
 * experts are stacks. */
#define PROJECTION_PARTS_MAX 5
struct projection {
    uint32_t in, out;
    uint32_t part_count;
    unsigned sums; /* sums of all parts */
    dev_ptr bias; /* [out] f32, of a stack [experts][out]; added to the sum of a row's products; null: none */
    struct weight parts[PROJECTION_PARTS_MAX];
};

#endif
