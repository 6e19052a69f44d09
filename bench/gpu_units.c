/* gpu_units.c - commit units beside a step: a thread computes prompts, this one commits and decommits. And
 * the memory of recorded steps, by the driver's figure. */
#include "gpu_units.h"

#include "compute/cuda/cuda_driver.h"

#include "base/clock.h"
#include "base/median.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct row_sample;

enum { UNITS = 128, ROUNDS = 4 };

struct steps {
    struct bench_rows *rows;
    atomic_bool over;
    atomic_uint begun;
};

static void *run_steps(void *arg)
{
    struct steps *s = arg;
    while (!atomic_load(&s->over)) {
        atomic_fetch_add(&s->begun, 1);
        bench_rows_prefill(s->rows);
    }
    return NULL;
}

static double microseconds_since(uint64_t begun)
{
    return (double)(clock_now_ns() - begun) / 1e3;
}

static void print_times(const char *what, double *us, uint32_t count)
{
    double median = median_of(us, count); /* sorted now */
    printf(" %s %.1f us (p99 %.1f)", what, median, us[count - 1 - count / 100]);
}

/* One unit after the other, then all of them back. */
static int time_units(const struct domain *d, dev_ptr at, const char *when)
{
    double commits[ROUNDS * UNITS], decommits[ROUNDS * UNITS];
    int r = 0;
    for (uint32_t i = 0; i < ROUNDS && r == 0; i++) {
        for (uint32_t u = 0; u < UNITS && r == 0; u++) {
            uint64_t begun = clock_now_ns();
            r = domain_commit(d, dev_add(at, u * UNIT_BYTES), UNIT_BYTES);
            commits[i * UNITS + u] = microseconds_since(begun);
        }
        for (uint32_t u = 0; u < UNITS && r == 0; u++) {
            uint64_t begun = clock_now_ns();
            r = domain_decommit(d, dev_add(at, u * UNIT_BYTES), UNIT_BYTES);
            decommits[i * UNITS + u] = microseconds_since(begun);
        }
    }
    if (r < 0)
        return r;
    printf("  a unit of 2 MiB, %s:", when);
    print_times("commit", commits, ROUNDS * UNITS);
    print_times("decommit", decommits, ROUNDS * UNITS);
    printf("\n");
    return 0;
}

static int time_beside_steps(const struct domain *d, dev_ptr at, struct bench_rows *rows)
{
    struct steps s = {.rows = rows};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_steps, &s) != 0)
        return -1;
    while (atomic_load(&s.begun) < 2)
        ;
    int r = time_units(d, at, "beside steps");
    atomic_store(&s.over, true);
    pthread_join(thread, NULL);
    printf("  %u steps ran\n", atomic_load(&s.begun));
    return r;
}

int gpu_units_print(const struct domain *d, struct bench_rows *rows)
{
    dev_ptr at;
    int r = domain_reserve(d, UNITS * UNIT_BYTES, false, &at);
    if (r < 0)
        return r;
    r = time_units(d, at, "alone");
    if (r == 0)
        r = time_beside_steps(d, at, rows);
    (void)domain_release(d, at, UNITS * UNIT_BYTES);
    return r;
}

static size_t free_bytes(void)
{
    size_t free = 0, total = 0;
    (void)cuda_driver()->memory_info(&free, &total);
    return free;
}

void gpu_graphs_print(struct bench_rows *rows, uint32_t count)
{
    size_t before = free_bytes();
    printf("  recorded steps, KiB of the driver's:");
    for (uint32_t n = 1; n <= count; n++) {
        for (uint32_t i = 0; i < GPU_GRAPH_STEPS; i++)
            bench_rows_decode(rows, n);
        printf(" %zd", ((ssize_t)before - (ssize_t)free_bytes()) / 1024);
    }
    printf("\n");
}
