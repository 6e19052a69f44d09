/* role.c - the names of llama, and of the blocks that it does not have, as Hugging Face and MLX write
 * them. */
#include "tensor/role.h"

#include "base/check.h"
#include "tensor/tensor_naming.h"

static const char *const names[TENSOR_ROLES] = {
    [ROLE_EMBEDDING] = "embed_tokens",
    [ROLE_FINAL_NORM] = "norm",
    [ROLE_POSITIONS] = "embeddings.position_embeddings",
    [ROLE_TOKEN_TYPES] = "embeddings.token_type_embeddings",
    [ROLE_EMBEDDING_NORM] = "embeddings.LayerNorm",
    [ROLE_SCORE] = "score",
    [ROLE_HEAD] = "lm_head",
    [ROLE_MIXER_NORM] = "input_layernorm",
    [ROLE_MIXER_NORM_AFTER] = "post_attention_layernorm",
    [ROLE_MLP_NORM] = "post_attention_layernorm",
    [ROLE_MLP_NORM_AFTER] = "post_feedforward_layernorm",
    [ROLE_LAYER_SCALE] = "layer_scalar",
    [ROLE_LAYER_INPUT_TABLE] = "embed_tokens_per_layer",
    [ROLE_LAYER_INPUT_MODEL] = "per_layer_model_projection",
    [ROLE_LAYER_INPUT_NORM] = "per_layer_projection_norm",
    [ROLE_LAYER_INPUT_GATE] = "per_layer_input_gate",
    [ROLE_LAYER_INPUT_OUT] = "per_layer_projection",
    [ROLE_LAYER_INPUT_NORM_AFTER] = "post_per_layer_input_norm",
    [ROLE_Q] = "self_attn.q_proj",
    [ROLE_K] = "self_attn.k_proj",
    [ROLE_V] = "self_attn.v_proj",
    [ROLE_O] = "self_attn.o_proj",
    [ROLE_QKV] = "self_attn.qkv_proj",
    [ROLE_ATTENTION_GATE] = "self_attn.gate_proj",
    [ROLE_Q_NORM] = "self_attn.q_norm",
    [ROLE_K_NORM] = "self_attn.k_norm",
    [ROLE_SINKS] = "self_attn.sinks",
    [ROLE_LATENT_Q_A] = "self_attn.q_a_proj",
    [ROLE_LATENT_Q_NORM] = "self_attn.q_a_layernorm",
    [ROLE_LATENT_Q_B] = "self_attn.q_b_proj",
    [ROLE_LATENT_KV_A] = "self_attn.kv_a_proj_with_mqa",
    [ROLE_LATENT_KV_NORM] = "self_attn.kv_a_layernorm",
    [ROLE_LATENT_KV_B] = "self_attn.kv_b_proj",
    [ROLE_LATENT_K] = "self_attn.embed_q",
    [ROLE_LATENT_V] = "self_attn.unembed_out",
    [ROLE_DELTA_QKV] = "linear_attn.in_proj_qkv",
    [ROLE_DELTA_Z] = "linear_attn.in_proj_z",
    [ROLE_DELTA_QKVZ] = "linear_attn.in_proj_qkvz",
    [ROLE_DELTA_BA] = "linear_attn.in_proj_ba",
    [ROLE_DELTA_B] = "linear_attn.in_proj_b",
    [ROLE_DELTA_A] = "linear_attn.in_proj_a",
    [ROLE_DELTA_CONV] = "linear_attn.conv1d",
    [ROLE_DELTA_DECAY] = "linear_attn.A_log",
    [ROLE_DELTA_DT_BIAS] = "linear_attn.dt_bias",
    [ROLE_DELTA_NORM] = "linear_attn.norm",
    [ROLE_DELTA_OUT] = "linear_attn.out_proj",
    [ROLE_KDA_CONV_Q] = "self_attn.q_conv1d",
    [ROLE_KDA_CONV_K] = "self_attn.k_conv1d",
    [ROLE_KDA_CONV_V] = "self_attn.v_conv1d",
    [ROLE_KDA_DECAY] = "self_attn.f_proj",
    [ROLE_KDA_DECAY_LOW] = "self_attn.f_a_proj",
    [ROLE_KDA_DECAY_HIGH] = "self_attn.f_b_proj",
    [ROLE_KDA_GATE] = "self_attn.g_proj",
    [ROLE_KDA_GATE_LOW] = "self_attn.g_a_proj",
    [ROLE_KDA_GATE_HIGH] = "self_attn.g_b_proj",
    [ROLE_SSM_IN] = "mamba.in_proj",
    [ROLE_SSM_CONV] = "mamba.conv1d",
    [ROLE_SSM_CONV_BIAS] = "mamba.conv1d.bias",
    [ROLE_SSM_DECAY] = "mamba.A_log",
    [ROLE_SSM_DT_BIAS] = "mamba.dt_bias",
    [ROLE_SSM_SKIP] = "mamba.D",
    [ROLE_SSM_NORM] = "mamba.norm",
    [ROLE_SSM_OUT] = "mamba.out_proj",
    [ROLE_SHORT_CONV_IN] = "conv.in_proj",
    [ROLE_SHORT_CONV] = "conv.conv",
    [ROLE_SHORT_CONV_BIAS] = "conv.conv.bias",
    [ROLE_SHORT_CONV_OUT] = "conv.out_proj",
    [ROLE_GATE] = "mlp.gate_proj",
    [ROLE_UP] = "mlp.up_proj",
    [ROLE_DOWN] = "mlp.down_proj",
    [ROLE_GATE_UP] = "mlp.gate_up_proj",
    [ROLE_XIELU_ABOVE] = "mlp.act_fn.alpha_p",
    [ROLE_XIELU_BELOW] = "mlp.act_fn.alpha_n",
    [ROLE_XIELU_BETA] = "mlp.act_fn.beta",
    [ROLE_XIELU_EPS] = "mlp.act_fn.eps",
    [ROLE_ROUTER] = "mlp.gate",
    [ROLE_ROUTER_CORRECTION] = "mlp.gate.e_score_correction_bias",
    [ROLE_EXPERT_GATE] = "mlp.experts.#.gate_proj",
    [ROLE_EXPERT_UP] = "mlp.experts.#.up_proj",
    [ROLE_EXPERT_DOWN] = "mlp.experts.#.down_proj",
    [ROLE_EXPERTS_GATE_UP] = "mlp.experts.gate_up_proj",
    [ROLE_EXPERTS_DOWN_FUSED] = "mlp.experts.down_proj",
    [ROLE_EXPERTS_GATE] = "mlp.switch_mlp.gate_proj",
    [ROLE_EXPERTS_UP] = "mlp.switch_mlp.up_proj",
    [ROLE_EXPERTS_DOWN] = "mlp.switch_mlp.down_proj",
    [ROLE_EXPERTS_LATENT_IN] = "mlp.fc1_latent_proj",
    [ROLE_EXPERTS_LATENT_OUT] = "mlp.fc2_latent_proj",
    [ROLE_SHARED_SCALE] = "mlp.shared_expert_gate",
    [ROLE_SHARED_GATE] = "mlp.shared_expert.gate_proj",
    [ROLE_SHARED_UP] = "mlp.shared_expert.up_proj",
    [ROLE_SHARED_GATE_UP] = "mlp.shared_expert.gate_up_proj",
    [ROLE_SHARED_DOWN] = "mlp.shared_expert.down_proj",
    [ROLE_ROUTER_NORM] = "router.scale",
    [ROLE_EXPERT_SCALE] = "router.per_expert_scale",
    [ROLE_EXPERTS_NORM] = "pre_feedforward_layernorm_2",
    [ROLE_EXPERTS_NORM_AFTER] = "post_feedforward_layernorm_2",
    [ROLE_MLP_RESULT_NORM] = "post_feedforward_layernorm_1",
    [ROLE_MTP_PAIR] = "fc",
    [ROLE_MTP_NORM_EMBEDDING] = "pre_fc_norm_embedding",
    [ROLE_MTP_NORM_HIDDEN] = "pre_fc_norm_hidden",
    [ROLE_MTP_NORM] = "norm",
};

const char *role_name(const struct tensor_name *own, enum tensor_role role, uint32_t turn)
{
    uint32_t found = 0;
    ASSERT(role > ROLE_NONE && role < TENSOR_ROLES);
    for (; own && own->role != ROLE_NONE; own++) {
        if (own->role == role && found++ == turn)
            return own->name;
    }
    return found == 0 && turn == 0 ? names[role] : NULL;
}

const char *tensor_naming_of(const struct tensor_naming *n, enum tensor_role role)
{
    ASSERT(role > ROLE_NONE && role < TENSOR_ROLES);
    for (const struct tensor_name *own = n->own; own && own->role != ROLE_NONE; own++) {
        if (own->role == role)
            return own->name;
    }
    return n->names[role] ? n->names[role] : "-";
}

bool role_is_exact(enum tensor_role role)
{
    return role == ROLE_ROUTER || role == ROLE_SHARED_SCALE || role == ROLE_DELTA_BA ||
           role == ROLE_DELTA_B || role == ROLE_DELTA_A || role == ROLE_KDA_DECAY_LOW ||
           role == ROLE_KDA_DECAY_HIGH;
}
