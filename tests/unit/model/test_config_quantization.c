/* The quantization block of config.json: MLX's entries, other writers' methods, and refusals by name. */
#include "test_config_read.h"

#include "base/check.h"

#include <errno.h>

#define LLAMA                                                                                                \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"         \
    "\"intermediate_size\":160,\"vocab_size\":512,\"max_position_embeddings\":4096"

TEST(quantisation_has_a_global_entry_and_overrides)
{
    struct config c = reads("{" LLAMA ",\"quantization\":{\"group_size\":64,\"bits\":4,\"a.b\":{\"bits\":8},"
                            "\"c\":{\"group_size\":32,\"bits\":6,\"mode\":\"affine\"},\"d\":false},"
                            "\"quantization_config\":{\"bits\":2}}");
    uint32_t i;
    assert_true(c.quantization.present);
    assert_int_equal(c.quantization.global.bits, 4);
    assert_true(hash_map_get(&c.quantization.by_path, SLICE("a.b"), &i));
    assert_int_equal(c.quantization.entries[i].bits, 8);
    assert_int_equal(c.quantization.entries[i].group, 64);
    assert_true(hash_map_get(&c.quantization.by_path, SLICE("c"), &i));
    assert_int_equal(c.quantization.entries[i].group, 32);
    assert_false(hash_map_get(&c.quantization.by_path, SLICE("d"), &i));
    c = reads("{" LLAMA ",\"quantization_config\":{\"group_size\":128,\"bits\":3}}");
    assert_int_equal(c.quantization.global.group, 128);
    refuses("{" LLAMA ",\"quantization\":{\"group_size\":48,\"bits\":4}}", -ENOTSUP, "group_size is 48");
    refuses("{" LLAMA ",\"quantization\":{\"group_size\":32,\"bits\":7}}", -ENOTSUP, "bits is 7");
    refuses("{" LLAMA ",\"quantization\":{\"group_size\":32,\"bits\":4,\"x\":{\"bits\":1}}}", -EINVAL,
            "bits is 1");
    refuses("{" LLAMA ",\"quantization\":[]}", -EINVAL, "quantization must be an object");
}

TEST(modes_of_mlx_have_their_own_bits_and_groups)
{
    static const struct {
        const char *name;
        struct quantization_entry entry;
    } modes[] = {{"mxfp4", {4, 32, QUANTIZATION_MXFP4}},
                 {"nvfp4", {4, 16, QUANTIZATION_NVFP4}},
                 {"mxfp8", {8, 32, QUANTIZATION_MXFP8}}};
    char text[512];
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        snprintf(text, sizeof(text),
                 "{" LLAMA ",\"quantization\":{\"mode\":\"%s\",\"a\":{\"mode\":\"affine\",\"bits\":8},"
                 "\"b\":{\"group_size\":64,\"bits\":8}}}",
                 modes[i].name);
        struct config c = reads(text);
        assert_memory_equal(&c.quantization.global, &modes[i].entry, sizeof(modes[i].entry));
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(c.quantization.entries[k].bits, 8);
            assert_int_equal(c.quantization.entries[k].group, 64);
            assert_int_equal(c.quantization.entries[k].mode, QUANTIZATION_AFFINE);
        }
    }
    refuses("{" LLAMA ",\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"mxfp4\"}}", -ENOTSUP,
            "mode mxfp4 has 4 bits and a group_size of 32");
    refuses("{" LLAMA ",\"quantization\":{\"mode\":\"nf4\"}}", -ENOTSUP, "mode 'nf4'");
}

/* A quantization_config of these members. */
static const char *with(const char *members)
{
    static char text[1024];
    snprintf(text, sizeof(text), "{" LLAMA ",\"quantization_config\":{%s}}", members);
    return text;
}

TEST(methods_are_read)
{
    static const struct {
        const char *members;
        enum quantization_method method;
        uint32_t block_rows, block_columns;
    } good[] = {
        {"'quant_method':'awq','bits':4,'group_size':128,'version':'gemm','zero_point':true",
         QUANTIZATION_AWQ, 0, 0},
        {"'quant_method':'awq','w_bit':4,'q_group_size':128,'version':'GEMM'", QUANTIZATION_AWQ, 0, 0},
        {"'quant_method':'gptq','bits':8,'desc_act':false", QUANTIZATION_GPTQ, 0, 0},
        {"'quant_method':'gptq','bits':4,'checkpoint_format':'gptq_v2'", QUANTIZATION_GPTQ_V2, 0, 0},
        {"'quant_method':'gptq','bits':4,'checkpoint_format':'GPTQ_V2'", QUANTIZATION_GPTQ_V2, 0, 0},
        {"'quant_method':'gptq','bits':4,'format':'gptq_v2'", QUANTIZATION_GPTQ_V2, 0, 0},
        {"'quant_method':'gptq','bits':4,'format':'gptq','checkpoint_format':'gptq'", QUANTIZATION_GPTQ, 0,
         0},
        {"'quant_method':'gptq','bits':4,'desc_act':true,'group_size':-1", QUANTIZATION_GPTQ, 0, 0},
        {"'quant_method':'gptq','bits':4,'rotation':null,'adapter':null", QUANTIZATION_GPTQ, 0, 0},
        {"'quant_method':'fp8','fmt':'e4m3','weight_block_size':[128,64]", QUANTIZATION_SCALED, 128, 64},
        {"'quant_method':'fp8'", QUANTIZATION_SCALED, 0, 0},
        {"'quant_method':'mxfp4','modules_to_not_convert':['lm_head']", QUANTIZATION_SCALED, 0, 0},
        {"'quant_method':'modelopt','quant_algo':'NVFP4'", QUANTIZATION_SCALED, 0, 0},
        {"'quant_method':'compressed-tensors','format':'float-quantized','config_groups':{'group_0':{'"
         "weights':"
         "{'strategy':'block','block_structure':[128,128],'actorder':null}}},'sparsity_config':{}",
         QUANTIZATION_SCALED, 128, 128},
        {"'quant_method':'compressed-tensors','config_groups':{'g':{'weights':{'actorder':'weight'}}}",
         QUANTIZATION_SCALED, 0, 0},
        {"'quant_method':'compressed-tensors','config_groups':{'g':{'weights':{'actorder':'static'}}}",
         QUANTIZATION_SCALED, 0, 0},
    };
    char members[512];
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        snprintf(members, sizeof(members), "%s", good[i].members);
        for (char *p = members; *p; p++)
            *p = *p == '\'' ? '"' : *p;
        struct config c = reads(with(members));
        assert_true(c.quantization.present);
        assert_int_equal(c.quantization.method, good[i].method);
        assert_int_equal(c.quantization.block_rows, good[i].block_rows);
        assert_int_equal(c.quantization.block_columns, good[i].block_columns);
    }
}

TEST(what_is_not_supported_is_refused_by_name)
{
    static const struct {
        const char *members, *says;
    } bad[] = {
        {"'quant_method':'bitsandbytes','load_in_4bit':true", "quant_method 'bitsandbytes'"},
        {"'quant_method':'exl2','bits':4.0", "quant_method 'exl2'"},
        {"'quant_method':'hqq','group_size':64", "quant_method 'hqq'"},
        {"'quant_method':'awq','bits':3", "AWQ of 3 bits"},
        {"'quant_method':'awq','bits':4,'version':'gemv'", "version 'gemv'"},
        {"'quant_method':'awq','bits':4,'format':'gemv_fast'", "format 'gemv_fast'"},
        {"'quant_method':'awq','bits':4,'checkpoint_format':'llm-awq'", "checkpoint_format 'llm-awq'"},
        {"'quant_method':'gptq','bits':3", "GPTQ of 3 bits"},
        {"'quant_method':'gptq','bits':4,'desc_act':true", "desc_act"},
        {"'quant_method':'gptq','bits':4,'desc_act':true,'group_size':128", "desc_act"},
        {"'quant_method':'gptq','bits':4,'group_size':0", "group_size"},
        {"'quant_method':'gptq','bits':4,'rotation':'hadamard'", "rotation: GPTQ whose inputs"},
        {"'quant_method':'gptq','bits':4,'adapter':{'name':'lora','path':'x','rank':8}",
         "adapter: GPTQ with"},
        {"'quant_method':'gptq','bits':4,'format':'gptq_p'", "format 'gptq_p'"},
        {"'quant_method':'gptq','bits':4,'format':'gptq','checkpoint_format':'gptq_v2'", "two layouts"},
        {"'quant_method':'gptq','bits':4,'checkpoint_format':'marlin'", "checkpoint_format 'marlin'"},
        {"'quant_method':'gptq','bits':4,'is_marlin_format':true", "is_marlin_format"},
        {"'quant_method':'fp8','fmt':'e5m2'", "fmt 'e5m2'"},
        {"'quant_method':'fp8','weight_block_size':[128]", "weight_block_size"},
        {"'quant_method':'fp8','weight_block_size':[128,0]", "weight_block_size"},
        {"'quant_method':'fp8','weight_block_size':128", "weight_block_size"},
        {"'quant_method':'compressed-tensors','format':'marlin-24'", "format 'marlin-24'"},
        {"'quant_method':'compressed-tensors','sparsity_config':{'format':'sparse-bitmask'}",
         "sparse-bitmask"},
        {"'quant_method':'compressed-tensors','transform_config':{'config_groups':{'u':{}}}",
         "transform_config"},
        {"'quant_method':'compressed-tensors','config_groups':{'g':{'weights':{'actorder':'group'}}}",
         "actorder"},
        {"'quant_method':'compressed-tensors','config_groups':{'g':{'weights':{'actorder':'dynamic'}}}",
         "actorder 'dynamic'"},
    };
    char members[512];
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct config c;
        struct err e = {{0}};
        snprintf(members, sizeof(members), "%s", bad[i].members);
        for (char *p = members; *p; p++)
            *p = *p == '\'' ? '"' : *p;
        int r = config_parse(config_arena(), slice_of(with(members)), &c, &e);
        if (!strstr(e.text, bad[i].says))
            print_message("%s: %d %s\n", members, r, e.text);
        assert_true(r == -ENOTSUP || r == -EINVAL);
        assert_non_null(strstr(e.text, bad[i].says));
    }
}

TEST_MAIN()
