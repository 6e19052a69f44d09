plateau_test(test_matrix kernel tensor base memory)
plateau_test(test_kern_matmul kernel tensor base memory)
plateau_test(test_kern_int kernel tensor base memory)
# Once more with the AMX tier over tiles in plain C, and AVX-VNNI's products in AVX-512's encoding, with one function
# for all shapes (kern_shape.h). What the program serves has -O2, which takes twice as long to compile.
plateau_test(test_kern_int_tiles kernel tensor base memory SOURCE test_kern_int.c)
target_compile_definitions(test_kern_int_tiles PRIVATE TEST_SOFT_TILES)
target_sources(test_kern_int_tiles PRIVATE soft_int_amx.c soft_int_avxvnni.c)
set_source_files_properties(soft_int_amx.c soft_int_avxvnni.c PROPERTIES COMPILE_OPTIONS
  "-O1;-g1;-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni")
set_source_files_properties(soft_int_avxvnni.c PROPERTIES COMPILE_DEFINITIONS KERN_ONE_SHAPE)
if(PLATEAU_SANITIZE)
  set_source_files_properties(soft_int_amx.c PROPERTIES COMPILE_DEFINITIONS KERN_ONE_SHAPE)
  # The AVX2 and VNNI tiers show the same code to the sanitizers.
  set_property(SOURCE soft_int_avxvnni.c APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=${PLATEAU_SANITIZE})
endif()
plateau_test(test_kern_bf16 kernel tensor base memory)
# Once more with the AMX tier over tiles in plain C.
plateau_test(test_kern_bf16_tiles kernel tensor base memory SOURCE test_kern_bf16.c)
target_compile_definitions(test_kern_bf16_tiles PRIVATE TEST_SOFT_TILES)
target_sources(test_kern_bf16_tiles PRIVATE soft_bf16_amx.c)
set_source_files_properties(soft_bf16_amx.c PROPERTIES COMPILE_OPTIONS
  "-O2;-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl")
plateau_test(test_kern_rows kernel tensor base memory)
plateau_test(test_kern_ssm kernel tensor base memory)
plateau_test(test_kern_attn kernel tensor base memory)
plateau_test(test_workers kernel base memory LABELS threads)
plateau_test(test_layer_inputs model kernel tensor base memory)
plateau_test(test_attention_ranges model kernel tensor base memory LABELS threads)
# Runs where a GPU is (tools/gpu-check).
plateau_test(test_cuda_products model kernel tensor base memory)
plateau_test(test_cuda_sample model kernel tensor base memory)
plateau_simt_test(test_cuda_sample model kernel tensor base memory)
plateau_test(test_cuda_layer model kernel tensor base memory)
plateau_test(test_cuda_experts model kernel tensor base memory)
plateau_test(test_cuda_attention model kernel tensor base memory)
plateau_test(test_cuda_recurrent model kernel tensor base memory)
plateau_test(test_cuda_encode model kernel tensor base memory)
foreach(name products layer experts attention recurrent encode)
  plateau_simt_test(test_cuda_${name} model kernel tensor base memory)
endforeach()
# Its fake_cuda.h takes the place of cuda_driver.c and cuda_image.c.
plateau_test(test_cuda_held compute kernel tensor base memory)
plateau_checked_kernel(address test_matrix test_kern_matmul test_kern_int test_kern_bf16 test_kern_rows test_kern_ssm test_kern_attn test_layer_inputs)
