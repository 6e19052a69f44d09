/* family_hunyuan.c - hunyuan: norms of queries and keys behind the rotation. */
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

static const struct tensor_name tensors[] = {
    {ROLE_Q_NORM, "self_attn.query_layernorm"}, {ROLE_K_NORM, "self_attn.key_layernorm"}, {ROLE_NONE, NULL}};

static const struct config_key keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_KEY_END,
};

const struct family families_hunyuan[] = {
    {.names = {"hunyuan_v1_dense"},
     .defaults = "{'max_position_embeddings': 2048}",
     .tensors = tensors,
     .keys = keys,
     .qk_norm = QK_NORM_ROTATED},
    {{NULL}},
};
