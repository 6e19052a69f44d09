/* sim_sched [domains] STEPS SEED [WORLD] - the scheduler, the prefix index and their pools against made-up
 * traffic, in virtual time.
 *
 * A run is a number of worlds of WORLD_STEPS steps. Requests arrive in bursts and with choices, have
 * priorities and cuts, are cancelled in every state, and are read fast, slowly or not at all. Accounts refuse
 * memory; steps fail; units are trimmed; pages and snapshots move; tokens wait for data that their
 * computation needs. Prefixes are evicted, and read again from a tier that is late, fails and forgets.
 *
 * Every invariant is checked after every step. A step must read exactly the content that its sequence's own
 * tokens give, alone. So a page that two sequences write, a wrong prefix, or a page moved or dropped during
 * use is found at once. Every request ends exactly once and within a bound. A failure prints the command that
 * replays its world.
 *
 * `domains`: two domains of memory, the machine's with 1 GiB and a device's with 64 MiB. The pools of a world
 * are in one of them, and the other is full. The host cannot follow the device's addresses; some of its
 * commits fail, and some of its units are not taken back. */
#include "cache/tier_io.h"
#include "sim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COVERED_STEPS 100000 /* this many steps cover every event below */

struct sim sim;
static const char *program;

static const char *const outcome_names[] = {"done",       "cancelled", "timeout", "no_memory",
                                            "step_error", "too_slow",  "refused"};

typedef unsigned long long ull;

static void print_replay(int sig)
{
    char line[300];
    int n =
        snprintf(line, sizeof(line), "failed in step %llu of world %llu; again with:  %s%s %llu %llu %llu\n",
                 (ull)(sim.step % WORLD_STEPS), (ull)sim.world, program, sim.domains ? " domains" : "",
                 (ull)sim.steps, (ull)sim.seed, (ull)sim.world);
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        _exit(1);
    signal(sig, SIG_DFL);
    raise(sig);
}

static uint32_t live_count(const struct world *w)
{
    uint32_t n = 0;
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        n += w->requests[i].live;
    return n;
}

static void act(struct world *w)
{
    clients_act(w);
    world_trouble(w);
    step(w);
}

static void run_world(uint64_t index)
{
    static struct world world;
    struct world *w = &world;
    uint64_t steps = MIN_OF(sim.steps - index * WORLD_STEPS, (uint64_t)WORLD_STEPS);
    double load = 0.05;
    sim.world = index;
    world_open(w, rng_at(sim.seed, index), index);
    for (uint64_t i = 0; i < steps; i++, sim.step++) {
        if (chance(w, 0.01))
            load = chance(w, 0.3) ? 0 : rng_uniform(&w->rng) * 0.25;
        while (chance(w, load))
            arrive(w);
        act(w);
    }
    w->calm = true;
    for (uint64_t i = 0; live_count(w) > 0; i++) {
        ASSERT(i < 64 * (uint64_t)w->tokens_limit * w->opts.seqs_max);
        act(w);
    }
    world_close(w);
}

static void print_run(void)
{
    printf(
        "steps=%llu seed=%llu tokens=%llu decoded=%llu cached=%llu preemptions=%llu moves=%llu trimmed=%llu "
        "evictions=%llu reclaims=%llu past_window=%llu copied=%llu waits=%llu ends_ready=%llu "
        "longest_wait_s=%.1f "
        "share_of_bound=%.3f\n",
        (ull)sim.step, (ull)sim.seed, (ull)sim.tokens, (ull)sim.decode_tokens, (ull)sim.cached_tokens,
        (ull)sim.preemptions, (ull)sim.moves, (ull)sim.units_trimmed, (ull)sim.evictions, (ull)sim.reclaims,
        (ull)sim.left_behind, (ull)sim.copied, (ull)sim.waits, (ull)sim.ends_ready, sim.wait_max_s,
        sim.share_max);
    printf("drafts=%llu right=%llu last_of_page=%llu\n", (ull)sim.drafts, (ull)sim.drafts_accepted,
           (ull)sim.boundaries_drafted);
    printf("tenants: plans_with_parked=%llu parked_cancelled=%llu\n", (ull)sim.parks,
           (ull)sim.parked_cancelled);
    printf("tier: stored=%llu reads=%llu of_windows=%llu fetched=%llu with_windows=%llu failed=%llu\n",
           (ull)sim.stored, (ull)sim.reads, (ull)sim.window_reads, (ull)sim.fetched_tokens,
           (ull)sim.fetched_windows, (ull)sim.fetches_failed);
    if (sim.domains)
        printf("domains: worlds_on_device=%llu\n", (ull)sim.device_worlds);
    for (size_t i = 0; i < OUTCOMES; i++)
        printf("%s=%llu ", outcome_names[i], (ull)sim.outcomes[i]);
    printf("removed: queued=%llu prefilling=%llu decoding=%llu preempted=%llu paused=%llu fetching=%llu\n",
           (ull)sim.phases_cancelled[SCHED_QUEUED], (ull)sim.phases_cancelled[SCHED_PREFILLING],
           (ull)sim.phases_cancelled[SCHED_DECODING], (ull)sim.phases_cancelled[SCHED_PREEMPTED],
           (ull)sim.paused_cancelled, (ull)sim.phases_cancelled[SCHED_FETCHING]);
}

/* With fewer reads, a seed whose disks are mostly sound and fast may have no arrival or failure, and no
 * client that leaves during a read. */
#define SURE_READS 150
/* Copies of a last page are rare among tokens that come from the cache. */
#define RARE_TOKENS 40000

/* A simulation in which some event never happens does not test it. */
static bool is_covered(void)
{
    bool sure = sim.reads >= SURE_READS;
    bool all = sim.cached_tokens && sim.preemptions && sim.moves && sim.units_trimmed && sim.evictions &&
               sim.reclaims && sim.left_behind && (sim.copied || sim.cached_tokens < RARE_TOKENS) &&
               sim.paused_cancelled && sim.drafts > sim.drafts_accepted && sim.boundaries_drafted &&
               sim.waits && sim.ends_ready && sim.parks && sim.parked_cancelled &&
               ((sim.fetched_tokens && sim.fetches_failed) || !sure) &&
               (sim.fetched_windows || sim.window_reads < SURE_READS);
    for (size_t i = 0; i < OUTCOMES; i++)
        all = all && sim.outcomes[i] > 0;
    for (enum sched_phase p = SCHED_QUEUED; p <= SCHED_PREEMPTED; p++)
        all = all && (sim.phases_cancelled[p] > 0 || (p == SCHED_FETCHING && !sure));
    return all;
}

int main(int argc, char **argv)
{
    program = argv[0];
    sim.domains = argc > 1 && strcmp(argv[1], "domains") == 0;
    argc -= sim.domains;
    argv += sim.domains;
    sim.steps = argc > 1 ? strtoull(argv[1], NULL, 10) : COVERED_STEPS;
    sim.seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t worlds = DIV_UP(sim.steps, (uint64_t)WORLD_STEPS), from = 0;
    if (argc > 3) {
        from = strtoull(argv[3], NULL, 10);
        worlds = MIN_OF(from + 1, worlds);
    }
    signal(SIGABRT, print_replay);
    signal(SIGSEGV, print_replay);
    for (uint64_t i = from; i < worlds; i++)
        run_world(i);
    print_run();
    if (sim.step >= COVERED_STEPS && !is_covered()) {
        fprintf(stderr, "something above is 0: this run does not try what it should\n");
        return 1;
    }
    return 0;
}
