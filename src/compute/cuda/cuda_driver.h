/* cuda_driver.h - NVIDIA's driver, opened at run time: the functions of its API that the backend calls.
 *
 * Nothing of CUDA is needed to build the host part. Types and constants are the driver API's own, which are
 * stable across its versions; names ending in _v2 are what its header calls without the ending. */
#ifndef PLATEAU_COMPUTE_CUDA_DRIVER_H
#define PLATEAU_COMPUTE_CUDA_DRIVER_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

typedef int cuda_result; /* 0: success */
typedef uint64_t cuda_address;

struct cuda_location {
    int type, id;
};
struct cuda_allocation {
    int type, handle_types;
    struct cuda_location location;
    void *reserved;
    struct {
        uint8_t compression, rdma;
        uint16_t usage;
        uint8_t rest[4];
    } flags;
};
struct cuda_access {
    struct cuda_location location;
    int flags;
};
struct cuda_launch_attribute {
    int id, reserved;
    union {
        int value;
        char room[64];
    };
};
struct cuda_launch_config {
    unsigned x, y, z, threads_x, threads_y, threads_z, shared_bytes;
    void *stream;
    struct cuda_launch_attribute *attributes;
    unsigned attribute_count;
};
enum {
    CUDA_ALLOCATION_PINNED = 1,
    CUDA_LOCATION_DEVICE = 1,
    CUDA_ACCESS_READ_WRITE = 3,
    CUDA_LIMIT_STACK = 0,
    CUDA_CONTEXT_BLOCKING = 4, /* a thread that waits sleeps */
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_SLEEPS = 1, /* who waits for it sleeps, and does not spin */
    CUDA_EVENT_UNTIMED = 2,
    CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
    CUDA_ATTRIBUTE_SHARED_UNIT = 81,
    CUDA_ATTRIBUTE_SHARED_BLOCK = 97,
    CUDA_FUNCTION_SHARED_MAX = 8,
    CUDA_FUNCTION_CARVEOUT = 9,
    CUDA_ATTRIBUTE_MAJOR = 75,
    CUDA_ATTRIBUTE_MINOR = 76,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_LAUNCH_PROGRAMMATIC = 6,
    CUDA_CAPTURE_RELAXED = 2,
};

#define CUDA_FUNCTIONS(X)                                                                                    \
    X(init, "cuInit", (unsigned flags))                                                                      \
    X(device_count, "cuDeviceGetCount", (int *count))                                                        \
    X(device_get, "cuDeviceGet", (int *device, int index))                                                   \
    X(device_name, "cuDeviceGetName", (char *name, int bytes, int device))                                   \
    X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                                    \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                     \
    X(context_create, "cuCtxCreate_v2", (void **context, unsigned flags, int device))                        \
    X(context_destroy, "cuCtxDestroy_v2", (void *context))                                                   \
    X(context_set, "cuCtxSetCurrent", (void *context))                                                       \
    X(context_limit, "cuCtxSetLimit", (int limit, size_t value))                                             \
    X(module_load, "cuModuleLoadData", (void **module, const void *image))                                   \
    X(module_function, "cuModuleGetFunction", (void **function, void *module, const char *name))             \
    X(function_load, "cuFuncLoad", (void *function))                                                         \
    X(stream_create, "cuStreamCreate", (void **stream, unsigned flags))                                      \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                                  \
    X(stream_query, "cuStreamQuery", (void *stream))                                                         \
    X(stream_wait, "cuStreamSynchronize", (void *stream))                                                    \
    X(function_set, "cuFuncSetAttribute", (void *function, int attribute, int value))                        \
    X(take, "cuMemAlloc_v2", (cuda_address * at, size_t bytes))                                              \
    X(launch, "cuLaunchKernelEx",                                                                            \
      (const struct cuda_launch_config *config, void *function, void **arguments, void **extra))             \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *stream, int mode))                                    \
    X(capture_end, "cuStreamEndCapture", (void *stream, void **graph))                                       \
    X(graph_make, "cuGraphInstantiateWithFlags", (void **made, void *graph, unsigned long long flags))       \
    X(graph_launch, "cuGraphLaunch", (void *made, void *stream))                                             \
    X(graph_unmake, "cuGraphExecDestroy", (void *made))                                                      \
    X(graph_destroy, "cuGraphDestroy", (void *graph))                                                        \
    X(event_create, "cuEventCreate", (void **event, unsigned flags))                                         \
    X(event_destroy, "cuEventDestroy_v2", (void *event))                                                     \
    X(event_record, "cuEventRecord", (void *event, void *stream))                                            \
    X(event_between, "cuEventElapsedTime", (float *ms, void *from, void *to))                                \
    X(event_wait, "cuEventSynchronize", (void *event))                                                       \
    X(host_task, "cuLaunchHostFunc", (void *stream, void (*task)(void *arg), void *arg))                     \
    X(pin, "cuMemHostRegister_v2", (void *at, size_t bytes, unsigned flags))                                 \
    X(unpin, "cuMemHostUnregister", (void *at))                                                              \
    X(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                       \
    X(reserve, "cuMemAddressReserve",                                                                        \
      (cuda_address * base, size_t bytes, size_t alignment, cuda_address wanted, unsigned long long flags))  \
    X(unreserve, "cuMemAddressFree", (cuda_address base, size_t bytes))                                      \
    X(create, "cuMemCreate",                                                                                 \
      (uint64_t * handle, size_t bytes, const struct cuda_allocation *how, unsigned long long flags))        \
    X(release, "cuMemRelease", (uint64_t handle))                                                            \
    X(map, "cuMemMap",                                                                                       \
      (cuda_address at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags))             \
    X(unmap, "cuMemUnmap", (cuda_address at, size_t bytes))                                                  \
    X(access, "cuMemSetAccess",                                                                              \
      (cuda_address at, size_t bytes, const struct cuda_access *list, size_t count))                         \
    X(fill, "cuMemsetD8Async", (cuda_address at, unsigned char value, size_t bytes, void *stream))           \
    X(put, "cuMemcpyHtoDAsync_v2", (cuda_address to, const void *from, size_t bytes, void *stream))          \
    X(get, "cuMemcpyDtoHAsync_v2", (void *to, cuda_address from, size_t bytes, void *stream))                \
    X(move, "cuMemcpyDtoDAsync_v2", (cuda_address to, cuda_address from, size_t bytes, void *stream))        \
    X(move_between, "cuMemcpyPeerAsync",                                                                     \
      (cuda_address to, void *to_context, cuda_address from, void *from_context, size_t bytes,               \
       void *stream))                                                                                        \
    X(error_name, "cuGetErrorName", (cuda_result error, const char **name))

struct cuda_driver {
#define X(name, symbol, arguments) cuda_result(*name) arguments;
    CUDA_FUNCTIONS(X)
#undef X
};

/* The process's driver, initialised; NULL without a working driver. Any thread. It stays open. */
const struct cuda_driver *cuda_driver(void);
/* Around calls that start threads of the driver: a signal to the process would otherwise end in one of
 * those. */
sigset_t cuda_driver_hold_signals(void);
void cuda_driver_let_signals(sigset_t had);
/* "CUDA_ERROR_..." */
const char *cuda_driver_error(const struct cuda_driver *v, cuda_result r);

#endif
