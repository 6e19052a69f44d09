plateau_test(test_matrix kernel tensor base memory)
plateau_test(test_kern_matmul kernel tensor base memory)
plateau_test(test_kern_int kernel tensor base memory)
# Once more with the AMX tier over tiles in plain C.
plateau_test(test_kern_int_tiles kernel tensor base memory SOURCE test_kern_int.c)
target_compile_definitions(test_kern_int_tiles PRIVATE TEST_SOFT_TILES)
target_sources(test_kern_int_tiles PRIVATE soft_int_amx.c)
set_source_files_properties(soft_int_amx.c PROPERTIES COMPILE_OPTIONS
  "-O2;-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni")
plateau_test(test_kern_rows kernel tensor base memory)
plateau_test(test_kern_ssm kernel tensor base memory)
plateau_test(test_kern_attn kernel tensor base memory)
plateau_test(test_workers kernel base memory LABELS threads)
plateau_test(test_layer_inputs model kernel tensor base memory)
