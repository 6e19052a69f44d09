#!/usr/bin/env python3
"""Takes a GPU's memory by the driver's API until its standard input ends, also what others give back
meanwhile: taking.py INDEX LEFT_MIB. Prints a line when only LEFT_MIB are left for the first time."""

import ctypes
import select
import sys

MOST, LEAST = 1 << 30, 2 << 20  # bytes of one allocation
LOOK_S = 0.2


def main(index, left):
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    if cuda.cuInit(0) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, index):
        sys.exit(f"CUDA has no GPU {index}.")
    told = False
    while not select.select([sys.stdin], [], [], LOOK_S if told else 0)[0]:
        taken = take(cuda, left)
        if not told:
            print(f"{taken} bytes", flush=True)
        told = True


def take(cuda, left):
    free, total, at = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    taken, size = 0, MOST
    while size >= LEAST:
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        if free.value < left + size or cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)):
            size //= 2
        else:
            taken += size
    return taken


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) << 20)
