/* vision_ops.h - the operations of each of the encoder's passes. Pure. */
#ifndef PLATEAU_MODEL_VISION_OPS_H
#define PLATEAU_MODEL_VISION_OPS_H

#include "compute/encode.h"

struct vision_config;
struct vision_encoder;

/* Which operations a pass consists of. */
enum vision_encoder_sequence { ENCODER_EMBED, ENCODER_KEYS, ENCODER_MIX, ENCODER_MERGE, ENCODER_SEQUENCES };

#define VISION_OPS_MAX 32
struct vision_op_list {
    uint8_t ops[VISION_OPS_MAX], count;
};

/* Lists each sequence's operations. */
void vision_ops_list(const struct vision_config *v, struct vision_op_list ret[ENCODER_SEQUENCES]);
/* The first operation of an image. */
struct op_encode vision_ops_tables(const struct vision_encoder *e);
/* The operation that the encoder has come to. */
struct op_encode vision_ops_now(const struct vision_encoder *e);

#endif
