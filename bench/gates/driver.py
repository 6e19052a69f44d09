"""A GPU as its driver sees it, by NVML: what the server's own figures are compared with."""

import ctypes
import time

from common import Beside

APART = 2 << 20  # bytes by which figures of memory may differ: one commit unit
LIBRARY = "libnvidia-ml.so.1"
CLOCK_SM = 1


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Rates(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class Driver:
    """GPU number N of `cuda:N`, counted as NVML does: CUDA_VISIBLE_DEVICES is not looked at."""

    def __init__(self, device):
        try:
            self.nvml = ctypes.CDLL(LIBRARY)
        except OSError:
            raise SystemExit(f"There is no {LIBRARY}: this gate needs an NVIDIA driver.")
        self.handle = ctypes.c_void_p()
        index = int(device.partition(":")[2])
        if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.handle)):
            raise SystemExit(f"NVML has no GPU {index}.")

    def _ask(self, function, answer, *more):
        if getattr(self.nvml, function)(self.handle, *more, ctypes.byref(answer)):
            raise SystemExit(f"{function} failed.")
        return answer

    def used(self):
        """Bytes, of all processes."""
        return self._ask("nvmlDeviceGetMemoryInfo", Memory()).used

    def busy(self):
        """Per cent of the last sample period in which a kernel ran."""
        return self._ask("nvmlDeviceGetUtilizationRates", Rates()).gpu

    def clock(self):
        """MHz of the multiprocessors."""
        return self._ask("nvmlDeviceGetClockInfo", ctypes.c_uint(), CLOCK_SM).value

    def watts(self):
        return self._ask("nvmlDeviceGetPowerUsage", ctypes.c_uint()).value / 1000


class Most(Beside):
    """The most memory that the driver had in use while this ran, for a `with` block."""

    def __init__(self, driver):
        super().__init__()
        self.driver, self.bytes = driver, 0

    def run(self):
        while not self.over.is_set():
            self.bytes = max(self.bytes, self.driver.used())
            time.sleep(0.001)


def seconds_until(holds, seconds):
    """When it began to hold, at most `seconds` from now; None: it did not."""
    began = time.monotonic()
    while (now := time.monotonic()) - began <= seconds:
        if holds():
            return now - began
        time.sleep(0.005)
    return None
