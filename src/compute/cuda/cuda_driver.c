/* cuda_driver.c - libcuda.so.1, by dlopen. The library stays loaded: it does not bear being unloaded. */
#include "compute/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static struct cuda_driver driver;
static bool works;

static bool find(void *library, const char *symbol, void *function, size_t bytes)
{
    void *at = dlsym(library, symbol);
    memcpy(function, &at, bytes); /* ISO C has no cast from an object's address to a function's */
    return at != NULL;
}

sigset_t cuda_driver_hold_signals(void)
{
    sigset_t all, had;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &had);
    return had;
}

void cuda_driver_let_signals(sigset_t had)
{
    pthread_sigmask(SIG_SETMASK, &had, NULL);
}

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    bool all = library != NULL;
#define X(name, symbol, arguments) all = all && find(library, symbol, &driver.name, sizeof(driver.name));
    CUDA_FUNCTIONS(X)
#undef X
    sigset_t signals = cuda_driver_hold_signals();
    works = all && driver.init(0) == 0;
    cuda_driver_let_signals(signals);
}

const struct cuda_driver *cuda_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_driver);
    return works ? &driver : NULL;
}

const char *cuda_driver_error(const struct cuda_driver *v, cuda_result r)
{
    const char *name = NULL;
    return v->error_name(r, &name) == 0 && name ? name : "an unknown error";
}
