plateau_test(test_matrix kernel tensor base memory)
plateau_test(test_kern_matmul kernel tensor base memory)
plateau_test(test_kern_rows kernel tensor base memory)
plateau_test(test_kern_attn kernel tensor base memory)
