/* test_kern_ssm.c - the state space recurrence: every tier against double, and in any cut of tokens, columns
 * and pending inputs bit for bit. */
#include "test_rng.h"
#include "kern_test.h"

enum { TOKENS = 11, N = 37, P = 103, STRIDE = P + 2 * N + 3, GATES = 5, STATE = N * P };

struct ssm_data {
    struct rng r;
    float *conv;  /* [TOKENS][STRIDE]: x | b | c */
    float *gates; /* [TOKENS][GATES]: dt, decay */
    float *before, *scratch;
};

static struct ssm_data make_data(uint64_t seed)
{
    struct ssm_data d = {.r = {seed, 0}};
    d.conv = random_values(&d.r, (size_t)TOKENS * STRIDE, -0.5f, 0.5f);
    d.gates = random_values(&d.r, (size_t)TOKENS * GATES, 0.4f, 1);
    d.before = random_values(&d.r, STATE, -1, 1);
    d.scratch = random_values(&d.r, KERN_SSM_SCRATCH(N), 0, 0);
    return d;
}

static void drop_data(struct ssm_data *d)
{
    free(d->conv);
    free(d->gates);
    free(d->before);
    free(d->scratch);
}

/* From token `at` on, with the `pending` ones before it to be applied first. */
static struct kern_ssm part(const struct ssm_data *d, uint32_t at, uint32_t pending, uint32_t tokens,
                            float *y)
{
    const float *conv = d->conv + (size_t)at * STRIDE, *gates = d->gates + (size_t)at * GATES;
    const float *held = conv - (size_t)pending * STRIDE, *held_gates = gates - (size_t)pending * GATES;
    /* Held inputs have one stride: their gates are copied into a row of their own. */
    static float rows[TOKENS * STRIDE];
    for (uint32_t t = 0; t < pending; t++) {
        memcpy(rows + (size_t)t * STRIDE, held + (size_t)t * STRIDE, (P + N) * sizeof(float));
        memcpy(rows + (size_t)t * STRIDE + P + N, held_gates + (size_t)t * GATES, 2 * sizeof(float));
    }
    return (struct kern_ssm){.x = conv,
                             .b = conv + P,
                             .c = conv + P + N,
                             .dt = gates,
                             .decay = gates + 1,
                             .y = y + (size_t)at * P,
                             .pending = {rows, rows + P, rows + P + N, rows + P + N + 1, pending, STRIDE},
                             .scratch = d->scratch,
                             .skip = 0.7f,
                             .tokens = tokens,
                             .n = N,
                             .p = P,
                             .stride = STRIDE,
                             .gate_stride = GATES,
                             .y_stride = P};
}

/* The recurrence of one column in double. */
static void in_double(const struct ssm_data *d, bool zeros, uint32_t j, double y[TOKENS])
{
    double s[N];
    for (uint32_t i = 0; i < N; i++)
        s[i] = zeros ? 0 : (double)d->before[i * P + j];
    for (uint32_t t = 0; t < TOKENS; t++) {
        const float *x = d->conv + (size_t)t * STRIDE, *gates = d->gates + (size_t)t * GATES;
        y[t] = (double)0.7f * (double)x[j];
        for (uint32_t i = 0; i < N; i++) {
            s[i] = s[i] * (double)gates[1] + (double)x[P + i] * (double)gates[0] * (double)x[j];
            y[t] += s[i] * (double)x[P + N + i];
        }
    }
}

TEST(the_recurrence_holds_in_every_tier)
{
    struct ssm_data d = make_data(21);
    float *after = random_values(&d.r, STATE, 0, 0), *y = random_values(&d.r, (size_t)TOKENS * P, 0, 0);
    float *want = random_values(&d.r, (size_t)TOKENS * P, 0, 0), *last = random_values(&d.r, STATE, 0, 0);
    for (uint32_t zeros = 0; zeros < 2; zeros++) {
        EACH_TIER(ops)
        {
            struct kern_ssm a = part(&d, 0, 0, TOKENS, y);
            a.state_in = zeros ? NULL : d.before;
            a.state_out = after;
            ops->ssm(&a, 0, P);
            for (uint32_t j = 0; ops == tiers_ && j < P; j++) {
                double exact[TOKENS];
                in_double(&d, zeros, j, exact);
                /* |S| stays below 4 and |c| below 0.5: N + 4 roundings a token, carried through all. */
                for (uint32_t t = 0; t < TOKENS; t++)
                    assert_within((double)y[t * P + j], exact[t], (t + 1) * (N + 4) * EPS * 0.5 * N * 4,
                                  ops->tier);
            }
            if (ops == tiers_) {
                memcpy(want, y, (size_t)TOKENS * P * sizeof(float));
                memcpy(last, after, STATE * sizeof(float));
            }
            assert_same_bits(y, want, (size_t)TOKENS * P, ops->tier);
            assert_same_bits(after, last, STATE, ops->tier);
        }
    }
    float *all[] = {after, y, want, last};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
    drop_data(&d);
}

/* Cuts of every length: one token takes another path than several. */
TEST(any_cut_gives_the_same_bits)
{
    struct ssm_data d = make_data(22);
    float *state = random_values(&d.r, STATE, 0, 0), *last = random_values(&d.r, STATE, 0, 0);
    float *y = random_values(&d.r, (size_t)TOKENS * P, 0, 0),
          *want = random_values(&d.r, (size_t)TOKENS * P, 0, 0);
    EACH_TIER(ops)
    {
        struct kern_ssm whole = part(&d, 0, 0, TOKENS, want);
        whole.state_in = d.before;
        whole.state_out = last;
        ops->ssm(&whole, 0, P);
        for (uint32_t length = 1; length < TOKENS; length++) {
            for (uint32_t at = 0; at < TOKENS; at += length) {
                struct kern_ssm a = part(&d, at, 0, MIN_OF(length, TOKENS - at), y);
                a.state_in = at ? state : d.before;
                a.state_out = state;
                ops->ssm(&a, 0, 32);
                ops->ssm(&a, 32, P);
            }
            assert_same_bits(y, want, (size_t)TOKENS * P, ops->tier);
            assert_same_bits(state, last, STATE, ops->tier);
        }
    }
    float *all[] = {state, last, y, want};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
    drop_data(&d);
}

/* Token by token gives the states that steps with pending inputs must leave, bit for bit. */
TEST(the_recurrence_goes_on_from_held_inputs)
{
    enum { HELD = 5 };
    struct ssm_data d = make_data(23);
    float *states = random_values(&d.r, (size_t)(TOKENS + 1) * STATE, 0, 0);
    float *y = random_values(&d.r, (size_t)TOKENS * P, 0, 0),
          *want = random_values(&d.r, (size_t)TOKENS * P, 0, 0);
    float *state[2] = {random_values(&d.r, STATE, 0, 0), random_values(&d.r, STATE, 0, 0)};
    EACH_TIER(ops)
    {
        memcpy(states, d.before, STATE * sizeof(float));
        for (uint32_t t = 0; t < TOKENS; t++) {
            struct kern_ssm one = part(&d, t, 0, 1, want);
            one.state_in = states + (size_t)t * STATE;
            one.state_out = states + (size_t)(t + 1) * STATE;
            ops->ssm(&one, 0, P);
        }
        for (uint32_t held = 1; held <= HELD; held++) {
            for (uint32_t accepted = 1; accepted <= held; accepted++) {
                uint32_t at = 0, pending = 0;
                const float *in = d.before;
                for (uint32_t i = 0; at + held <= TOKENS; i++) {
                    struct kern_ssm step = part(&d, at, pending, held, y);
                    step.keep_pending = true;
                    step.state_in = in;
                    step.state_out = state[i % 3 == 2];
                    ops->ssm(&step, 0, 32);
                    ops->ssm(&step, 32, P);
                    assert_same_bits(step.y, want + (size_t)at * P, (size_t)held * P, ops->tier);
                    assert_same_bits(step.state_out, states + (size_t)at * STATE, STATE,
                                     "state before what is pending");
                    in = step.state_out;
                    pending = accepted;
                    at += accepted;
                }
                struct kern_ssm rest = part(&d, at, pending, TOKENS - at, y);
                if (rest.tokens == 0)
                    continue;
                rest.state_in = in;
                rest.state_out = state[accepted % 2];
                ops->ssm(&rest, 0, P);
                assert_same_bits(rest.y, want + (size_t)at * P, (size_t)rest.tokens * P, ops->tier);
                assert_same_bits(rest.state_out, states + (size_t)TOKENS * STATE, STATE, "state behind all");
            }
        }
    }
    float *all[] = {states, y, want, state[0], state[1]};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
    drop_data(&d);
}

TEST_MAIN()
