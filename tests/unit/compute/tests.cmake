# Its own fake_cuda.h takes the place of cuda_driver.c and cuda_image.c.
plateau_test(test_row_top compute)
plateau_test(test_cuda_faults compute kernel tensor base memory)
