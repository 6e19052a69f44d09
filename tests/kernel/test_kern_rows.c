/* test_kern_rows.c - operations on rows, the convolution and the delta rule: every tier against double, and
 * in any cut of tokens and lanes bit for bit. */
#include "test_rng.h"
#include "kern_test.h"

static const uint32_t sizes[] = {1, 2, 15, 16, 17, 31, 64, 100, 127, 257};

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double squares(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* The factor of a norm: a sum of squares of at most n / 64 + 12 roundings, halved by the root, and five
 * more. */
static double norm_bound(uint32_t n)
{
    return (n / 64 + 12 + 10) * EPS;
}

TEST(norms_hold_in_every_tier)
{
    struct rng r = {1, 0};
    for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t n = sizes[i];
        float *x = random_values(&r, n, -3, 3), *w = random_values(&r, n, -2, 2),
              *z = random_values(&r, n, -9, 9);
        float *y = random_values(&r, n, 0, 0);
        double rms = 1 / sqrt(squares(x, n) / n + 1e-5), l2 = 0.25 / sqrt(squares(x, n) + 1e-5);
        EACH_TIER(ops)
        {
            ops->rmsnorm(y, x, w, n, 1e-5f);
            for (uint32_t j = 0; j < n; j++) {
                double want = (double)w[j] * (double)x[j] * rms;
                assert_within((double)y[j], want, norm_bound(n) * fabs(want), ops->tier);
            }
            ops->rmsnorm_gated(y, x, z, w, n, 1e-5f);
            for (uint32_t j = 0; j < n; j++) {
                double want = (double)w[j] * (double)x[j] * rms * (double)z[j] * sigmoid((double)z[j]);
                assert_within((double)y[j], want, (norm_bound(n) + 8 * EPS) * fabs(want), ops->tier);
            }
            memcpy(y, x, n * sizeof(float)); /* in place */
            ops->l2norm(y, y, n, 1e-5f, 0.25f);
            for (uint32_t j = 0; j < n; j++) {
                double want = (double)x[j] * l2;
                assert_within((double)y[j], want, norm_bound(n) * fabs(want), ops->tier);
            }
        }
        free(x);
        free(w);
        free(z);
        free(y);
    }
}

TEST(gates_hold_in_every_tier)
{
    struct rng r = {2, 0};
    for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t n = sizes[i];
        float *a = random_values(&r, n, -30, 30), *b = random_values(&r, n, -2, 2),
              *y = random_values(&r, n, 0, 0);
        EACH_TIER(ops)
        {
            /* An exponential within three roundings, of an argument that is exact; an addition, a division, a
             * product: six of half a spacing. */
            ops->silu_mul(y, a, b, n);
            for (uint32_t j = 0; j < n; j++) {
                double want = (double)a[j] * sigmoid((double)a[j]) * (double)b[j];
                assert_within((double)y[j], want, 3 * EPS * fabs(want), ops->tier);
            }
            ops->sigmoid_mul(y, b, a, n);
            for (uint32_t j = 0; j < n; j++) {
                double want = (double)b[j] * sigmoid((double)a[j]);
                assert_within((double)y[j], want, 3 * EPS * fabs(want), ops->tier);
            }
            memcpy(y, b, n * sizeof(float));
            ops->add(y, a, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(y[j] == b[j] + a[j]);
            memcpy(y, b, n * sizeof(float));
            ops->add_scaled(y, a, 0.3f, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(y[j] == fmaf(0.3f, a[j], b[j]));
        }
        free(a);
        free(b);
        free(y);
    }
}

/* A softplus within four roundings, a bound's sigmoid within six of half a spacing; an exponential passes the
 * error of its argument on. */
TEST(decays_hold_in_every_tier)
{
    struct rng r = {31, 0};
    const float decays[] = {-0.01f, -1, -13}, bounds[] = {0, -5};
    for (uint32_t i = 0; i < COUNT_OF(sizes) * 6; i++) {
        uint32_t n = sizes[i / 6];
        const float decay = decays[i % 3], bound = bounds[i / 3 % 2];
        float *a = random_values(&r, n, -30, 30), *bias = random_values(&r, n, -2, 2),
              *y = random_values(&r, n, 0, 0);
        EACH_TIER(ops)
        {
            ops->decays(y, a, bias, decay, bound, n);
            for (uint32_t j = 0; j < n; j++) {
                const float x = a[j] + bias[j];
                const double rate = bound != 0 ? (double)bound * sigmoid(-(double)decay * (double)x)
                                               : (double)decay * log1p(exp((double)x));
                assert_within((double)y[j], exp(rate),
                              (3 + (6 + fabs((double)decay * (double)x)) * fabs(rate)) * EPS * exp(rate) +
                                  2e-38,
                              ops->tier);
            }
        }
        free(a);
        free(bias);
        free(y);
    }
    EACH_TIER(ops)
    {
        float a[4] = {-1000, 1000, NAN, INFINITY}, bias[4] = {0}, y[4];
        ops->decays(y, a, bias, -1, 0, 4);
        assert_true(y[0] == 1 && y[1] < 1e-37f && isnan(y[2]) && y[3] < 1e-37f);
        ops->decays(y, a, bias, -1, -2, 4);
        assert_true(y[0] == 1 && fabsf(y[1] - expf(-2)) < 1e-6f && isnan(y[2]));
    }
}

static double clip(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

TEST(the_clipped_swiglu_holds_in_every_tier)
{
    const float alpha = 1.702f, limit = 7;
    struct rng r = {21, 0};
    for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t n = sizes[i];
        float *a = random_values(&r, n, -30, 30), *b = random_values(&r, n, -12, 12),
              *y = random_values(&r, n, 0, 0), *again = random_values(&r, n, 0, 0);
        EACH_TIER(ops)
        {
            /* The argument is rounded once, which an exponential passes on; the sum with 1 once more. */
            ops->swiglu_clip(y, a, b, n, alpha, limit);
            for (uint32_t j = 0; j < n; j++) {
                double gate = clip((double)a[j], -1e9, 7), u = (double)alpha * gate;
                double want = (clip((double)b[j], -7, 7) + 1) * gate * sigmoid(u);
                assert_within((double)y[j], want, (0.5 * fabs(u) + 4) * EPS * fabs(want), ops->tier);
            }
            memcpy(again, a, n * sizeof(float)); /* in place */
            ops->swiglu_clip(again, again, b, n, alpha, limit);
            assert_same_bits(again, y, n, ops->tier);
        }
        float *all[] = {a, b, y, again};
        for (uint32_t j = 0; j < COUNT_OF(all); j++)
            free(all[j]);
    }
    EACH_TIER(ops)
    {
        float a[6] = {NAN, 2, INFINITY, -INFINITY, 1000, -1000}, b[6] = {2, NAN, INFINITY, 1, -INFINITY, 1};
        float y[6];
        ops->swiglu_clip(y, a, b, 6, alpha, limit);
        assert_true(isnan(y[0]) && isnan(y[1]));
        assert_within((double)y[2], 56, 1e-3, ops->tier);
        assert_within((double)y[4], -42, 1e-3, ops->tier);
        assert_within((double)y[5], 0, 1e-30, ops->tier);
    }
}

TEST(the_clipped_silu_holds_in_every_tier)
{
    struct rng r = {22, 0};
    for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t n = sizes[i];
        float *a = random_values(&r, n, -30, 30), *b = random_values(&r, n, -12, 12),
              *y = random_values(&r, n, 0, 0), *again = random_values(&r, n, 0, 0);
        EACH_TIER(ops)
        {
            ops->silu_clip(y, a, b, n, 7);
            for (uint32_t j = 0; j < n; j++) {
                double want = clip((double)a[j] * sigmoid((double)a[j]), -1e9, 7) * clip((double)b[j], -7, 7);
                assert_within((double)y[j], want, 5 * EPS * fabs(want), ops->tier);
            }
            memcpy(again, b, n * sizeof(float)); /* in place */
            ops->silu_clip(again, a, again, n, 7);
            assert_same_bits(again, y, n, ops->tier);
        }
        float *all[] = {a, b, y, again};
        for (uint32_t j = 0; j < COUNT_OF(all); j++)
            free(all[j]);
    }
    EACH_TIER(ops)
    {
        float a[3] = {NAN, 2, INFINITY}, b[3] = {2, NAN, -INFINITY}, y[3];
        ops->silu_clip(y, a, b, 3, 7);
        assert_true(isnan(y[0]) && isnan(y[1]) && y[2] == -49);
    }
}

/* |x| stays below 30. Each term is rounded a few times; below -1/2 e^x and x are subtracted. */
TEST(xielu_holds_in_every_tier)
{
    const float p[3] = {0.7f, 1.3f, 0.5f};
    struct rng r = {23, 0};
    for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t n = sizes[i];
        const float span = i % 2 ? 30 : 0.6f;
        float *x = random_values(&r, n, -span, span), *y = random_values(&r, n, 0, 0),
              *again = random_values(&r, n, 0, 0);
        EACH_TIER(ops)
        {
            ops->xielu(y, x, n, p);
            for (uint32_t j = 0; j < n; j++) {
                double v = (double)x[j], above = v > 0 ? (double)p[0] * v * v : 0,
                       below = v > 0 ? 0 : (double)p[1] * (expm1(v) - v), line = (double)p[2] * v;
                double far = v < -0.5 ? (double)p[1] * (2 + fabs(v)) : 0;
                assert_within((double)y[j], above + below + line,
                              4 * EPS * (above + fabs(below) + fabs(line) + far) + 1e-30, ops->tier);
            }
            memcpy(again, x, n * sizeof(float)); /* in place */
            ops->xielu(again, again, n, p);
            assert_same_bits(again, y, n, ops->tier);
        }
        float *all[] = {x, y, again};
        for (uint32_t j = 0; j < COUNT_OF(all); j++)
            free(all[j]);
    }
    EACH_TIER(ops)
    {
        float x[4] = {NAN, 0, 2, -100}, y[4];
        ops->xielu(y, x, 4, p);
        assert_true(isnan(y[0]) && y[1] == 0);
        assert_within((double)y[2], 3.8, 1e-5, ops->tier);
        assert_within((double)y[3], 1.3 * 99 - 50, 1e-3, ops->tier);
    }
}

TEST(layernorm_holds_in_every_tier)
{
    struct rng r = {12, 0};
    for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t n = sizes[i];
        float *x = random_values(&r, n, -1, 5), *w = random_values(&r, n, -2, 2),
              *b = random_values(&r, n, -2, 2);
        float *y = random_values(&r, n, 0, 0), *again = random_values(&r, n, 0, 0);
        double mean = 0, variance = 0;
        for (uint32_t j = 0; j < n; j++)
            mean += (double)x[j] / n;
        for (uint32_t j = 0; j < n; j++)
            variance += ((double)x[j] - mean) * ((double)x[j] - mean) / n;
        double factor = 1 / sqrt(variance + 1e-6);
        EACH_TIER(ops)
        {
            ops->layernorm(y, x, w, b, n, 1e-6f);
            for (uint32_t j = 0; j < n; j++) {
                double distance = (double)x[j] - mean, want = distance * factor * (double)w[j] + (double)b[j];
                /* The mean errs by its sum's roundings of values up to 5; the factor by a norm's, and by what
                 * a wrong mean adds. */
                double off = (n / 64 + 8) * 5 * EPS * factor;
                double bound =
                    fabs((double)w[j]) * (off + (norm_bound(n) + off) * (fabs(distance) * factor + off));
                assert_within((double)y[j], want, bound + 2 * EPS * (fabs(want) + fabs((double)b[j])),
                              ops->tier);
            }
            memcpy(again, x, n * sizeof(float)); /* in place */
            ops->layernorm(again, again, w, b, n, 1e-6f);
            assert_same_bits(again, y, n, ops->tier);
            ops->layernorm(again, x, w, NULL, n, 1e-6f);
            for (uint32_t j = 0; j < n; j++) {
                double distance = (double)x[j] - mean, want = distance * factor * (double)w[j];
                double off = (n / 64 + 8) * 5 * EPS * factor;
                double bound =
                    fabs((double)w[j]) * (off + (norm_bound(n) + off) * (fabs(distance) * factor + off));
                assert_within((double)again[j], want, bound + 2 * EPS * fabs(want), ops->tier);
            }
        }
        float *all[] = {x, w, b, y, again};
        for (uint32_t j = 0; j < COUNT_OF(all); j++)
            free(all[j]);
    }
}

TEST(the_square_of_the_positive_part_is_the_same_in_every_tier)
{
    struct rng r = {14, 0};
    for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t n = sizes[i];
        float *x = random_values(&r, n, -9, 9), *y = random_values(&r, n, 0, 0);
        EACH_TIER(ops)
        {
            ops->relu_square(y, x, n);
            for (uint32_t j = 0; j < n; j++) {
                double v = x[j] > 0 ? (double)x[j] : 0;
                assert_true(y[j] == (float)(v * v));
            }
        }
        free(x);
        free(y);
    }
    EACH_TIER(ops)
    {
        float x[4] = {-1000, INFINITY, NAN, -0.0f};
        ops->relu_square(x, x, 4); /* in place */
        assert_true(x[0] == 0 && isinf(x[1]) && isnan(x[2]) && x[3] == 0);
    }
}

TEST(gelus_hold_in_every_tier)
{
    struct rng r = {13, 0};
    for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t n = sizes[i];
        float *x = random_values(&r, n, -9, 9), *y = random_values(&r, n, 0, 0);
        EACH_TIER(ops)
        {
            ops->gelu_tanh(y, x, n);
            for (uint32_t j = 0; j < n; j++) {
                double v = (double)x[j], u = 2 * sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
                /* Five roundings of the argument, which an exponential passes on; six after it. Differences
                 * below 1e-37 do not count. */
                assert_within((double)y[j], v * sigmoid(u),
                              (2.5 * fabs(u) + 3) * EPS * fabs(v * sigmoid(u)) + 1e-37, ops->tier);
            }
            ops->gelu_erf(y, x, n);
            for (uint32_t j = 0; j < n; j++) {
                double v = (double)x[j], want = v * 0.5 * erfc(-v * sqrt(0.5)),
                       tail = fabs(v) * 0.5 * erfc(fabs(v) * sqrt(0.5));
                /* The fit, the roundings of its sum (of terms below 4 together 12) and of z^2, and one of the
                 * result. */
                assert_within((double)y[j], want,
                              (1.2e-7 + (10 + 1.5 * v * v) * EPS) * tail + EPS * fabs(want) + 1e-37,
                              ops->tier);
            }
        }
        free(x);
        free(y);
    }
    EACH_TIER(ops)
    {
        float x[4] = {-1000, 1000, NAN, 0}, y[4];
        ops->gelu_tanh(y, x, 4);
        assert_true(fabsf(y[0]) < 1e-30f && y[1] == 1000 && isnan(y[2]) && y[3] == 0);
        ops->gelu_erf(y, x, 4);
        assert_true(fabsf(y[0]) < 1e-30f && y[1] == 1000 && isnan(y[2]) && y[3] == 0);
    }
}

TEST(gates_saturate_and_keep_nan)
{
    EACH_TIER(ops)
    {
        float a[4] = {-1000, 1000, NAN, -90}, b[4] = {1, 1, 1, 1}, y[4];
        ops->silu_mul(y, a, b, 4);
        assert_within((double)y[0], 0, 1e-30, ops->tier);
        assert_true(y[1] == 1000);
        assert_true(isnan(y[2]));
        assert_within((double)y[3], 0, 1e-30, ops->tier);
        ops->sigmoid_mul(y, b, a, 4);
        assert_within((double)y[0], 0, 1e-30, ops->tier);
        assert_true(y[1] == 1 && isnan(y[2]));
    }
}

TEST(a_lane_does_not_matter)
{
    struct rng r = {3, 0};
    float *a = random_values(&r, 200, -20, 20), *b = random_values(&r, 200, -2, 2), whole[200], part[200];
    EACH_TIER(ops)
    {
        ops->silu_mul(whole, a, b, 200);
        for (uint32_t from = 0; from < 40; from++) {
            ops->silu_mul(part, a + from, b + from, 53);
            assert_same_bits(part, whole + from, 53, ops->tier);
        }
        ops->decays(whole, a, b, -0.7f, 0, 200);
        for (uint32_t from = 0; from < 40; from++) {
            ops->decays(part, a + from, b + from, -0.7f, 0, 53);
            assert_same_bits(part, whole + from, 53, ops->tier);
        }
    }
    free(a);
    free(b);
}

TEST(rope_turns_halves_in_every_tier)
{
    struct rng r = {4, 0};
    for (uint32_t half = 1; half < 70; half += 7) {
        float *x = random_values(&r, half * 2, -2, 2), *y = random_values(&r, half * 2, 0, 0);
        float *c = random_values(&r, half, -1, 1), *s = random_values(&r, half, -1, 1);
        EACH_TIER(ops)
        {
            memcpy(y, x, half * 2 * sizeof(float));
            ops->rope(y, c, s, half);
            for (uint32_t j = 0; j < half; j++) {
                double low = (double)x[j], high = (double)x[j + half], cosine = (double)c[j],
                       sine = (double)s[j];
                assert_within((double)y[j], low * cosine - high * sine, 8 * EPS, ops->tier);
                assert_within((double)y[j + half], high * cosine + low * sine, 8 * EPS, ops->tier);
            }
        }
        free(x);
        free(y);
        free(c);
        free(s);
    }
}

enum { CONV_TOKENS = 23, CONV_CHANNELS = 83 };

static struct kern_conv conv_part(struct kern_conv a, uint32_t first, uint32_t tokens)
{
    a.u += first * a.u_stride;
    a.y += first * a.y_stride;
    a.tokens = tokens;
    if (first > 0)
        a.state_in = a.state_out;
    return a;
}

/* Token t of channel c, in double; *size: of its terms together. */
static double conv_double(const struct kern_conv *a, uint32_t t, uint32_t c, double *size)
{
    uint32_t past = a->conv_width - 1;
    double sum = a->bias ? (double)a->bias[c] : 0;
    *size = fabs(sum);
    for (uint32_t i = 0; i < a->conv_width; i++) {
        uint32_t at = t + i; /* index in the previous inputs, then in the tokens */
        double x = at >= past    ? (double)a->u[(at - past) * CONV_CHANNELS + c]
                   : a->state_in ? (double)a->state_in[at * CONV_CHANNELS + c]
                                 : 0;
        sum += (double)a->w[i * CONV_CHANNELS + c] * x;
        *size += fabs((double)a->w[i * CONV_CHANNELS + c] * x);
    }
    return sum;
}

static void check_conv(const struct kern_conv *a, const char *tier)
{
    for (uint32_t t = 0; t < CONV_TOKENS; t++) {
        for (uint32_t c = 0; c < CONV_CHANNELS; c++) {
            double size, sum = conv_double(a, t, c, &size);
            /* silu's slope is below 1.1. */
            assert_within((double)a->y[t * CONV_CHANNELS + c], a->linear ? sum : sum * sigmoid(sum),
                          (1.1 * (a->conv_width + 1) + (a->linear ? 0 : 6)) * EPS * size, tier);
        }
    }
}

TEST(convolution_holds_in_every_tier_and_cut)
{
    struct rng r = {5, 0};
    for (uint32_t form = 0; form < 8 * 4; form++) {
        uint32_t conv_width = 1 + form % 8, past = conv_width - 1;
        float *u = random_values(&r, CONV_TOKENS * CONV_CHANNELS, -2, 2);
        float *w = random_values(&r, (size_t)conv_width * CONV_CHANNELS, -1, 1);
        float *bias = random_values(&r, CONV_CHANNELS, -1, 1);
        float *state = random_values(&r, (size_t)past * CONV_CHANNELS, -2, 2);
        float *after = random_values(&r, (size_t)past * CONV_CHANNELS, 0, 0);
        float *whole = random_values(&r, CONV_TOKENS * CONV_CHANNELS, 0, 0);
        float *cut = random_values(&r, CONV_TOKENS * CONV_CHANNELS, 0, 0);
        struct kern_conv a = {.y = whole,
                              .u = u,
                              .w = w,
                              .bias = form / 8 % 2 ? bias : NULL,
                              .linear = form / 16,
                              .state_in = conv_width % 2 ? state : NULL,
                              .state_out = after,
                              .tokens = CONV_TOKENS,
                              .channels = CONV_CHANNELS,
                              .conv_width = conv_width,
                              .y_stride = CONV_CHANNELS,
                              .u_stride = CONV_CHANNELS};
        EACH_TIER(ops)
        {
            a.y = whole;
            ops->conv(&a, 0, CONV_CHANNELS);
            check_conv(&a, ops->tier);
            assert_same_bits(after, u + (CONV_TOKENS - past) * CONV_CHANNELS, (size_t)past * CONV_CHANNELS,
                             "last inputs");
            a.y = cut;
            static const uint32_t cuts[] = {0, 1, 3, 14, CONV_TOKENS};
            for (uint32_t i = 0; i + 1 < COUNT_OF(cuts); i++) {
                struct kern_conv part = conv_part(a, cuts[i], cuts[i + 1] - cuts[i]);
                ops->conv(&part, 0, 48);
                ops->conv(&part, 48, CONV_CHANNELS);
            }
            assert_same_bits(cut, whole, CONV_TOKENS * CONV_CHANNELS, ops->tier);
        }
        float *all[] = {u, w, bias, state, after, whole, cut};
        for (uint32_t i = 0; i < COUNT_OF(all); i++)
            free(all[i]);
    }
}

/* Steps that leave inputs pending; the next step applies some or all of them, in place and from one state to
 * another. */
TEST(convolution_goes_on_from_held_inputs)
{
    enum { PAST = 3, HELD = 4 };
    struct rng r = {15, 0};
    float *u = random_values(&r, CONV_TOKENS * CONV_CHANNELS, -2, 2);
    float *w = random_values(&r, (PAST + 1) * CONV_CHANNELS, -1, 1);
    float *before = random_values(&r, PAST * CONV_CHANNELS, -2, 2);
    float *state[2] = {random_values(&r, PAST * CONV_CHANNELS, 0, 0),
                       random_values(&r, PAST * CONV_CHANNELS, 0, 0)};
    float *whole = random_values(&r, CONV_TOKENS * CONV_CHANNELS, 0, 0);
    float *y = random_values(&r, CONV_TOKENS * CONV_CHANNELS, 0, 0);
    EACH_TIER(ops)
    {
        struct kern_conv a = {.y = whole,
                              .u = u,
                              .w = w,
                              .state_in = before,
                              .state_out = state[0],
                              .tokens = CONV_TOKENS,
                              .channels = CONV_CHANNELS,
                              .conv_width = PAST + 1,
                              .y_stride = CONV_CHANNELS,
                              .u_stride = CONV_CHANNELS,
                              .pending_stride = CONV_CHANNELS};
        ops->conv(&a, 0, CONV_CHANNELS);
        for (uint32_t accepted = 1; accepted <= HELD; accepted++) {
            uint32_t at = 0;
            a.state_in = before;
            a.pending = 0;
            for (uint32_t i = 0; at + HELD <= CONV_TOKENS; i++) {
                a.state_out = state[i % 3 == 2];
                a.keep_pending = true;
                a.pending_u = u + (size_t)(at - a.pending) * CONV_CHANNELS;
                a.u = u + (size_t)at * CONV_CHANNELS;
                a.y = y + (size_t)at * CONV_CHANNELS;
                a.tokens = HELD;
                ops->conv(&a, 0, 48);
                ops->conv(&a, 48, CONV_CHANNELS);
                assert_same_bits(a.y, whole + (size_t)at * CONV_CHANNELS, HELD * CONV_CHANNELS, ops->tier);
                for (uint32_t back = 1; back <= PAST; back++) {
                    const float *row = at >= back ? u + (size_t)(at - back) * CONV_CHANNELS
                                                  : before + (size_t)(PAST + at - back) * CONV_CHANNELS;
                    assert_same_bits(a.state_out + (size_t)(PAST - back) * CONV_CHANNELS, row, CONV_CHANNELS,
                                     "state");
                }
                a.pending = accepted;
                at += accepted;
                a.state_in = a.state_out;
            }
            a.keep_pending = false;
            a.pending_u = u + (size_t)(at - a.pending) * CONV_CHANNELS;
            a.u = u + (size_t)at * CONV_CHANNELS;
            a.y = y + (size_t)at * CONV_CHANNELS;
            a.tokens = CONV_TOKENS - at;
            ops->conv(&a, 0, CONV_CHANNELS);
            assert_same_bits(a.y, whole + (size_t)at * CONV_CHANNELS, (size_t)a.tokens * CONV_CHANNELS,
                             ops->tier);
            assert_same_bits(a.state_out, u + (CONV_TOKENS - PAST) * CONV_CHANNELS, PAST * CONV_CHANNELS,
                             "last inputs");
        }
    }
    float *all[] = {u, w, before, state[0], state[1], whole, y};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
}

enum { DELTA_TOKENS = 9, DELTA_DK = 37, DELTA_DV = 103 };

/* The recurrence of one column in double. */
static void delta_double(const struct kern_delta *a, const float *state, uint32_t c, double o[DELTA_TOKENS])
{
    double s[DELTA_DK];
    for (uint32_t i = 0; i < DELTA_DK; i++)
        s[i] = state ? (double)state[i * DELTA_DV + c] : 0;
    for (uint32_t t = 0; t < DELTA_TOKENS; t++) {
        const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride;
        double m = 0;
        for (uint32_t i = 0; i < DELTA_DK; i++) {
            s[i] *= (double)a->alpha[t * a->gate_stride + (a->channels ? i : 0)];
            m += s[i] * (double)k[i];
        }
        double d = (double)a->beta[t * a->gate_stride] * ((double)a->v[t * a->v_stride + c] - m);
        o[t] = 0;
        for (uint32_t i = 0; i < DELTA_DK; i++) {
            s[i] += (double)k[i] * d;
            o[t] += s[i] * (double)q[i];
        }
    }
}

TEST(delta_rule_holds_in_every_tier_and_cut)
{
    struct rng r = {6, 0};
    float *q = random_values(&r, DELTA_TOKENS * DELTA_DK, -0.2f, 0.2f);
    float *k = random_values(&r, DELTA_TOKENS * DELTA_DK, -0.2f, 0.2f);
    float *v = random_values(&r, DELTA_TOKENS * DELTA_DV, -1, 1),
          *alpha = random_values(&r, DELTA_TOKENS * DELTA_DK, 0.5f, 1);
    float *beta = random_values(&r, DELTA_TOKENS * DELTA_DK, 0, 1),
          *state = random_values(&r, DELTA_DK * DELTA_DV, -1, 1);
    float *after = random_values(&r, DELTA_DK * DELTA_DV, 0, 0),
          *first = random_values(&r, DELTA_DK * DELTA_DV, 0, 0);
    float *whole = random_values(&r, DELTA_TOKENS * DELTA_DV, 0, 0);
    float *want = random_values(&r, DELTA_TOKENS * DELTA_DV, 0, 0);
    for (uint32_t form = 0; form < 4; form++) {
        const bool zeros = form % 2 != 0, channels = form > 1;
        const uint32_t gates = channels ? DELTA_DK : 1;
        EACH_TIER(ops)
        {
            struct kern_delta a = {.q = q,
                                   .k = k,
                                   .v = v,
                                   .alpha = alpha,
                                   .beta = beta,
                                   .o = whole,
                                   .state_in = zeros ? NULL : state,
                                   .channels = channels,
                                   .state_out = after,
                                   .tokens = DELTA_TOKENS,
                                   .dk = DELTA_DK,
                                   .dv = DELTA_DV,
                                   .qk_stride = DELTA_DK,
                                   .v_stride = DELTA_DV,
                                   .gate_stride = gates,
                                   .o_stride = DELTA_DV};
            ops->delta(&a, 0, DELTA_DV);
            if (ops == tiers_) {
                for (uint32_t c = 0; c < DELTA_DV; c++) {
                    double o[DELTA_TOKENS];
                    delta_double(&a, a.state_in, c, o);
                    /* |S| stays below 4, |q| and |k| below 0.2: 2 dk + 4 roundings a token, carried through
                     * all of them. */
                    for (uint32_t t = 0; t < DELTA_TOKENS; t++)
                        assert_within((double)whole[t * DELTA_DV + c], o[t],
                                      (t + 1) * (2 * DELTA_DK + 4) * EPS * 0.2 * DELTA_DK * 4, ops->tier);
                }
                memcpy(want, whole, DELTA_TOKENS * DELTA_DV * sizeof(float));
                memcpy(first, after, DELTA_DK * DELTA_DV * sizeof(float));
            }
            assert_same_bits(whole, want, DELTA_TOKENS * DELTA_DV, ops->tier);
            assert_same_bits(after, first, DELTA_DK * DELTA_DV, ops->tier);
            /* Token by token, in two shares of columns. */
            for (uint32_t t = 0; t < DELTA_TOKENS; t++) {
                struct kern_delta one = a;
                one.tokens = 1;
                one.q += t * DELTA_DK;
                one.k += t * DELTA_DK;
                one.v += t * DELTA_DV;
                one.alpha += t * gates;
                one.beta += t * gates;
                one.o += t * DELTA_DV;
                if (t > 0)
                    one.state_in = after;
                ops->delta(&one, 0, 32);
                ops->delta(&one, 32, DELTA_DV);
            }
            assert_same_bits(whole, want, DELTA_TOKENS * DELTA_DV, ops->tier);
            assert_same_bits(after, first, DELTA_DK * DELTA_DV, ops->tier);
            /* No token: the state passes through. */
            a.tokens = 0;
            a.state_in = state;
            ops->delta(&a, 0, DELTA_DV);
            assert_same_bits(after, state, DELTA_DK * DELTA_DV, ops->tier);
        }
    }
    float *all[] = {q, k, v, alpha, beta, state, after, first, whole, want};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
}

/* From token `at` on, with the `pending` ones before it to be applied first. */
static struct kern_delta delta_at(struct kern_delta a, uint32_t at, uint32_t pending, uint32_t tokens)
{
    uint32_t first = at - pending;
    a.pending = (struct kern_delta_pending){a.k + first * a.qk_stride,
                                            a.v + first * a.v_stride,
                                            a.alpha + first * a.gate_stride,
                                            a.beta + first * a.gate_stride,
                                            pending,
                                            a.qk_stride};
    a.q += at * a.qk_stride;
    a.k += at * a.qk_stride;
    a.v += at * a.v_stride;
    a.alpha += at * a.gate_stride;
    a.beta += at * a.gate_stride;
    a.o += at * a.o_stride;
    a.tokens = tokens;
    return a;
}

/* Token by token gives the states that steps with pending inputs must leave, bit for bit. */
TEST(delta_rule_goes_on_from_held_inputs)
{
    enum { STRIDE = DELTA_DV + 3, HELD = 3, STATE = DELTA_DK * DELTA_DV };
    struct rng r = {16, 0};
    float *q = random_values(&r, DELTA_TOKENS * STRIDE, -0.2f, 0.2f),
          *k = random_values(&r, DELTA_TOKENS * STRIDE, -0.2f, 0.2f);
    float *v = random_values(&r, DELTA_TOKENS * STRIDE, -1, 1),
          *alpha = random_values(&r, DELTA_TOKENS * STRIDE, 0.5f, 1);
    float *beta = random_values(&r, DELTA_TOKENS * STRIDE, 0, 1), *before = random_values(&r, STATE, -1, 1);
    float *want = random_values(&r, (DELTA_TOKENS + 1) * STATE, 0, 0),
          *o = random_values(&r, DELTA_TOKENS * DELTA_DV, 0, 0);
    float *want_o = random_values(&r, DELTA_TOKENS * DELTA_DV, 0, 0);
    float *state[2] = {random_values(&r, STATE, 0, 0), random_values(&r, STATE, 0, 0)};
    float *scratch = random_values(&r, KERN_DELTA_SCRATCH(DELTA_DK), 0, 0);
    for (uint32_t form = 0; form < 4; form++) {
        const bool zeros = form % 2 != 0;
        EACH_TIER(ops)
        {
            struct kern_delta a = {.q = q,
                                   .k = k,
                                   .v = v,
                                   .alpha = alpha,
                                   .beta = beta,
                                   .o = want_o,
                                   .channels = form > 1,
                                   .scratch = scratch,
                                   .dk = DELTA_DK,
                                   .dv = DELTA_DV,
                                   .qk_stride = STRIDE,
                                   .v_stride = STRIDE,
                                   .gate_stride = STRIDE,
                                   .o_stride = DELTA_DV};
            memcpy(want, before, STATE * sizeof(float));
            for (uint32_t t = 0; zeros && t < STATE; t++)
                want[t] = 0;
            for (uint32_t t = 0; t < DELTA_TOKENS; t++) {
                struct kern_delta one = delta_at(a, t, 0, 1);
                one.state_in = want + (size_t)t * STATE;
                one.state_out = want + (size_t)(t + 1) * STATE;
                ops->delta(&one, 0, DELTA_DV);
            }
            for (uint32_t accepted = 1; accepted <= HELD; accepted++) {
                uint32_t at = 0, pending = 0;
                const float *in = zeros ? NULL : before;
                a.o = o;
                for (uint32_t i = 0; at + HELD <= DELTA_TOKENS; i++) {
                    struct kern_delta step = delta_at(a, at, pending, HELD);
                    step.keep_pending = true;
                    step.state_in = in;
                    step.state_out = state[i % 3 == 2];
                    ops->delta(&step, 0, 32);
                    ops->delta(&step, 32, DELTA_DV);
                    assert_same_bits(step.o, want_o + (size_t)at * DELTA_DV, HELD * DELTA_DV, ops->tier);
                    assert_same_bits(step.state_out, want + (size_t)at * STATE, STATE,
                                     "state before what is pending");
                    in = step.state_out;
                    pending = accepted;
                    at += accepted;
                }
                struct kern_delta rest = delta_at(a, at, pending, DELTA_TOKENS - at);
                if (rest.tokens == 0)
                    continue;
                rest.state_in = in;
                rest.state_out = state[accepted % 2];
                ops->delta(&rest, 0, DELTA_DV);
                assert_same_bits(rest.o, want_o + (size_t)at * DELTA_DV, (size_t)rest.tokens * DELTA_DV,
                                 ops->tier);
                assert_same_bits(rest.state_out, want + (size_t)DELTA_TOKENS * STATE, STATE,
                                 "state behind all");
            }
        }
    }
    float *all[] = {q, k, v, alpha, beta, before, want, o, want_o, state[0], state[1], scratch};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
}

TEST_MAIN()
