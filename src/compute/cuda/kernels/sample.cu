/* sample.cu - samples of tokens from rows of logits (compute/row_sample.h), with the bits of sample/.
 *
 * The host's sums are made by blocks of ROW_SAMPLE_BLOCK ids, eight sums in turn, so that a block of threads
 * makes each of them, and the row's sample adds blocks in the host's order. What top_k and top_p keep is
 * found by bins of candidates: their weights as whole numbers, whose sums depend on no order. Those differ
 * from the host's sums by their rounding. A decision that is nearer than that is left to the host. */
#include "compute/cuda/kernels/common.cuh"

#include "base/sample_weight.h"

#define QUADS   (ROW_SAMPLE_BLOCK / 4)
#define THREADS CUDA_SAMPLE_THREADS
/* Bins of candidates by their distance from the best one. */
#define PER_ONE 64.f
#define BINS    1792u
/* Candidates of one bin that can be put in order. */
#define ROOM 2048u
/* Weights as whole numbers. */
#define UNIT 0x1p43

/* ---- a thread's four ids ---- */

struct quad {
    float x[4];
    uint32_t have; /* bit per id that may be sampled */
};

/* mask: NULL: no other than the valid ids. first: a multiple of 4. */
DEVICE quad quad_of(const cuda_sample &a, const float *row, const uint64_t *mask, uint32_t first)
{
    quad q = {};
    if (first >= a.vocab)
        return q;
    uint64_t ids = a.valid ? a.valid[first / 64] : ~(uint64_t)0;
    if (mask)
        ids &= mask[first / 64];
    q.have = (uint32_t)(ids >> first % 64) & 15;
    if (a.vocab % 4 == 0) {
        float4 x = *(const float4 *)(row + first);
        q.x[0] = x.x, q.x[1] = x.y, q.x[2] = x.z, q.x[3] = x.w;
        return q;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        bool is_id = first + i < a.vocab;
        q.x[i] = is_id ? row[first + i] : 0;
        q.have &= is_id ? 15 : ~(1u << i);
    }
    return q;
}

DEVICE const float *row_at(const cuda_sample &a, uint32_t row)
{
    return a.logits + (uint64_t)row * a.vocab;
}
DEVICE const uint64_t *mask_of(const cuda_sample &a, const row_sample &d)
{
    return d.mask == ROW_SAMPLE_ALL ? NULL : a.masks + (uint64_t)d.mask * ((a.vocab + 63) / 64);
}
DEVICE bool is_greedy(const row_sample &d, float largest)
{
    return d.temperature == 0 || d.top_k == 1 || !(largest < INFINITY);
}

/* ---- the largest logit of each block ---- */

/* Block: ROW_SAMPLE_BLOCK ids, a row. With a.raw only rows that want sums, of the valid ids. */
KERNEL __launch_bounds__(QUADS) plateau_sample_most(const cuda_sample a)
{
    grid_begin();
    const row_sample d = a.rows[blockIdx.y];
    if (!d.wanted || (a.raw && !d.sums))
        return;
    quad q = quad_of(a, row_at(a, blockIdx.y), a.raw ? NULL : mask_of(a, d),
                     blockIdx.x * ROW_SAMPLE_BLOCK + threadIdx.x * 4);
    float most = -INFINITY;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (q.have >> i & 1 && q.x[i] > most)
            most = q.x[i];
    most = block_max(most);
    if (threadIdx.x == 0)
        a.most[(uint64_t)blockIdx.y * a.blocks + blockIdx.x] = most;
}

DEVICE float largest_of(const cuda_sample &a, uint32_t row)
{
    float most = -INFINITY;
    for (uint32_t i = threadIdx.x; i < a.blocks; i += blockDim.x)
        most = fmaxf(most, a.most[(uint64_t)row * a.blocks + i]);
    return block_max(most);
}

/* ---- the weight of each block ---- */

/* How many of the block's threads' items come before the thread's own, and all; by all threads. */
DEVICE uint32_t place_of(uint32_t count, uint32_t *all)
{
    __shared__ uint32_t parts[32];
    uint32_t before = count, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t d = 1; d < 32; d *= 2) {
        uint32_t n = __shfl_up_sync(0xffffffffu, before, d);
        before += lane >= d ? n : 0;
    }
    __syncthreads();
    if (lane == 31)
        parts[warp] = before;
    __syncthreads();
    *all = 0;
    before -= count;
    for (uint32_t i = 0; i < blockDim.x / 32; i++) {
        before += i < warp ? parts[i] : 0;
        *all += parts[i];
    }
    return before;
}

/* Condition that makes ids candidates. */
struct scan {
    float largest, temperature, least;
    bool all; /* ids below `least` count with its weight */
};
DEVICE float below_of(const scan &s, float x)
{
    return (x - s.largest) / s.temperature;
}
DEVICE bool is_candidate(const scan &s, const quad &q, uint32_t i, float below)
{
    return (q.have >> i & 1) && (s.all || below >= s.least);
}
DEVICE scan scan_of(const row_sample &d, float largest)
{
    return {largest, d.temperature, -d.window, false};
}

/* The weights of a block's candidates, in order of id, and which they are (NULL: is not asked). By all
 * threads. Returns how many. */
DEVICE uint32_t weigh_block(const cuda_sample &a, const float *row, const uint64_t *mask, const scan &s,
                            uint32_t block, double *weights, uint32_t *ids)
{
    uint32_t first = block * ROW_SAMPLE_BLOCK + threadIdx.x * 4, some = 0, all;
    quad q = {};
    float below[4];
    if (threadIdx.x < QUADS)
        q = quad_of(a, row, mask, first);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        below[i] = below_of(s, q.x[i]);
        some += is_candidate(s, q, i, below[i]);
    }
    uint32_t at = place_of(some, &all);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (!is_candidate(s, q, i, below[i]))
            continue;
        weights[at] = weight_of(below[i] >= s.least ? below[i] : s.least);
        if (ids)
            ids[at] = first + i;
        at++;
    }
    __syncthreads();
    return all;
}

/* Block: as of sample_most. */
KERNEL __launch_bounds__(QUADS) plateau_sample_weigh(const cuda_sample a)
{
    __shared__ double weights[ROW_SAMPLE_BLOCK], sums[8];
    grid_begin();
    const row_sample d = a.rows[blockIdx.y];
    if (!d.wanted || (a.raw && !d.sums))
        return;
    float largest = largest_of(a, blockIdx.y);
    if (largest == -INFINITY || (a.raw ? !(largest < INFINITY) : is_greedy(d, largest)))
        return;
    const scan s = a.raw ? scan{largest, 1, ROW_SAMPLE_LEAST, true} : scan_of(d, largest);
    uint32_t count = weigh_block(a, row_at(a, blockIdx.y), a.raw ? NULL : mask_of(a, d), s, blockIdx.x,
                                 weights, NULL);
    if (threadIdx.x < 8) {
        double sum = 0;
        for (uint32_t i = threadIdx.x; i < count; i += 8)
            sum += weights[i];
        sums[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        a.weights[(uint64_t)blockIdx.y * a.blocks + blockIdx.x] = weight_add(sums);
}

/* ---- edits ---- */

/* Edits the row in place; each entry gets the old logit, which undo() puts back. */
DEVICE void apply(const cuda_sample &a, const row_sample &d, float *row)
{
    row_edit *e = a.edits + d.edits;
    uint32_t banned = d.bias_count, seen = banned + d.banned_count, end = seen + d.seen_count;
    for (uint32_t i = threadIdx.x; i < banned; i += blockDim.x) {
        float x = row[e[i].id];
        row[e[i].id] = x + e[i].value;
        e[i].value = x;
    }
    __syncthreads();
    for (uint32_t i = banned + threadIdx.x; i < seen; i += blockDim.x) {
        e[i].value = row[e[i].id];
        row[e[i].id] = -INFINITY;
    }
    __syncthreads();
    for (uint32_t i = seen + threadIdx.x; i < end; i += blockDim.x) {
        float x = row[e[i].id], outputs = e[i].value;
        float l = x > 0 ? x / d.repetition_penalty : x * d.repetition_penalty;
        row[e[i].id] = outputs > 0 ? l - (d.presence_penalty + d.frequency_penalty * outputs) : l;
        e[i].value = x;
    }
}
DEVICE void undo(const cuda_sample &a, const row_sample &d, float *row)
{
    const row_edit *e = a.edits + d.edits;
    const uint32_t ends[4] = {0, d.bias_count, d.bias_count + d.banned_count,
                              d.bias_count + d.banned_count + d.seen_count};
#pragma unroll
    for (uint32_t kind = 3; kind > 0; kind--) {
        for (uint32_t i = ends[kind - 1] + threadIdx.x; i < ends[kind]; i += blockDim.x)
            row[e[i].id] = e[i].value;
        __syncthreads();
    }
}

/* Block: a row. Adds the blocks' weights, and then edits the row. */
KERNEL plateau_sample_edit(const cuda_sample a)
{
    grid_begin();
    const row_sample d = a.rows[blockIdx.x];
    if (!d.wanted)
        return;
    row_sampled *ret = a.sampled + blockIdx.x;
    float largest = d.sums ? largest_of(a, blockIdx.x) : 0;
    if (d.sums && threadIdx.x == 0) {
        double sum = 0;
        const double *weights = a.weights + (uint64_t)blockIdx.x * a.blocks;
        for (uint32_t i = 0; largest > -INFINITY && largest < INFINITY && i < a.blocks; i++)
            sum += weights[i];
        ret->largest = largest;
        ret->sum = sum;
    }
    apply(a, d, a.logits + (uint64_t)blockIdx.x * a.vocab);
}

/* ---- samples ---- */

struct sampling {
    uint32_t counts[BINS];
    uint64_t sums[BINS], ranks[ROOM];
    double weights[ROW_SAMPLE_BLOCK];
    uint32_t bin, before, count, id; /* results of one thread */
    uint64_t sum_before, sum;
    double mass, rest;
    bool unknown;
};

/* The lowest id with the largest logit, which block `block` has. */
DEVICE uint32_t greedy_id(const cuda_sample &a, const float *row, const uint64_t *mask, uint32_t block,
                          float largest)
{
    uint32_t first = block * ROW_SAMPLE_BLOCK + threadIdx.x * 4;
    best mine = {0, CUDA_NONE};
    quad q = {};
    if (threadIdx.x < QUADS)
        q = quad_of(a, row, mask, first);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (q.have >> i & 1 && q.x[i] == largest)
            mine = better(mine, {0, first + i});
    return block_best(mine).index;
}

/* The sum of the blocks' weights, from id 0 on. They lie in f.ranks then, as doubles. */
DEVICE double mass_of(const cuda_sample &a, uint32_t row, sampling &f)
{
    double *weights = (double *)f.ranks;
    for (uint32_t i = threadIdx.x; i < a.blocks; i += THREADS)
        weights[i] = a.weights[(uint64_t)row * a.blocks + i];
    __syncthreads();
    if (threadIdx.x == 0) {
        double mass = 0;
        for (uint32_t i = 0; i < a.blocks; i++)
            mass += weights[i];
        f.mass = mass;
    }
    __syncthreads();
    return f.mass;
}

/* The highest token from which the cumulative weight exceeds `target`. */
DEVICE uint32_t sample_by_id(const cuda_sample &a, const float *row, const uint64_t *mask, const scan &s,
                           double target, sampling &f)
{
    const double *blocks = (const double *)f.ranks;
    uint32_t *ids = f.counts, next = a.blocks, last = 0;
    if (threadIdx.x == 0) {
        f.rest = 0;
        f.id = CUDA_NONE;
    }
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) {
            double sum = f.rest;
            f.bin = CUDA_NONE;
            while (next > 0 && f.bin == CUDA_NONE) {
                double block = blocks[--next];
                if (block == 0)
                    continue;
                last = next;
                if (sum + block <= target)
                    sum += block;
                else
                    f.bin = next;
            }
            f.rest = sum;
            f.count = last;
        }
        __syncthreads();
        /* No block is left where rounding left a crumb: the lowest candidate. */
        uint32_t block = f.bin, of = block == CUDA_NONE ? f.count : block;
        uint32_t count = weigh_block(a, row, mask, s, of, f.weights, ids);
        if (threadIdx.x == 0) {
            double sum = f.rest;
            if (block == CUDA_NONE)
                f.id = ids[0];
            for (uint32_t i = count; block != CUDA_NONE && f.id == CUDA_NONE && i-- > 0;) {
                sum += f.weights[i];
                if (sum > target)
                    f.id = ids[i];
            }
            f.rest = sum;
        }
        __syncthreads();
        if (f.id != CUDA_NONE)
            return f.id;
    }
}

/* ---- in order of weight ---- */

DEVICE uint64_t units_of(float below)
{
    return (uint64_t)(weight_of(below) * UNIT + 0.5);
}
DEVICE uint32_t bin_of(float below)
{
    return (uint32_t)(-below * PER_ONE);
}

/* The row's candidates: use(below, id). */
template <class Use>
DEVICE void each_candidate(const cuda_sample &a, const float *row, const uint64_t *mask, const scan &s,
                           const Use &use)
{
    for (uint32_t first = threadIdx.x * 4; first < a.vocab; first += THREADS * 4) {
        quad q = quad_of(a, row, mask, first);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float below = below_of(s, q.x[i]);
            if (is_candidate(s, q, i, below))
                use(below, first + i);
        }
    }
}

/* A sum of `count` weights here, and the same one on the host, differ by this at most, in units. */
DEVICE double error_of(uint32_t count, double sum)
{
    return count * (1 + sum * 0x1p-51);
}

/* Finds the first bin with which the best candidates are `count` or weigh `sum`, whichever is not 0. By the
 * first warp, for all. False: none. */
DEVICE bool find_bin(sampling &f, uint32_t count, uint64_t sum)
{
    __syncthreads();
    if (threadIdx.x == 0)
        f.bin = CUDA_NONE;
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t each = BINS / 32, first = threadIdx.x * each, own = 0, before = 0;
        uint64_t own_sum = 0, sum_before = 0;
        for (uint32_t i = first; i < first + each; i++) {
            own += f.counts[i];
            own_sum += f.sums[i];
        }
        for (uint32_t from = 0; from < 32; from++) {
            uint32_t n = __shfl_sync(0xffffffffu, own, from);
            uint64_t w = __shfl_sync(0xffffffffu, own_sum, from);
            before += from < threadIdx.x ? n : 0;
            sum_before += from < threadIdx.x ? w : 0;
        }
        bool mine = count > 0 ? before < count && before + own >= count
                              : sum_before < sum && sum_before + own_sum >= sum;
        for (uint32_t i = first; mine; i++) {
            if (count > 0 ? before + f.counts[i] >= count : sum_before + f.sums[i] >= sum) {
                f.bin = i;
                f.before = before;
                f.sum_before = sum_before;
                break;
            }
            before += f.counts[i];
            sum_before += f.sums[i];
        }
    }
    __syncthreads();
    return f.bin != CUDA_NONE;
}

/* The candidates of bin f.bin, best first. False: there is no room for them. */
DEVICE bool take_bin(const cuda_sample &a, const float *row, const uint64_t *mask, const scan &s, sampling &f)
{
    const uint32_t bin = f.bin, count = f.counts[bin];
    uint32_t all = 1;
    if (count > ROOM)
        return false;
    while (all < count)
        all *= 2;
    if (threadIdx.x == 0)
        f.count = 0;
    for (uint32_t i = count + threadIdx.x; i < all; i += THREADS)
        f.ranks[i] = UINT64_MAX;
    __syncthreads();
    each_candidate(a, row, mask, s, [&](float below, uint32_t id) {
        if (bin_of(below) == bin)
            f.ranks[atomicAdd(&f.count, 1u)] = (uint64_t)__float_as_uint(fabsf(below)) << 32 | id;
    });
    __syncthreads();
    for (uint32_t run = 2; run <= all; run *= 2) {
        for (uint32_t gap = run / 2; gap > 0; gap /= 2) {
            for (uint32_t k = threadIdx.x; k < all / 2; k += THREADS) {
                uint32_t i = k / gap * 2 * gap + k % gap;
                uint64_t x = f.ranks[i], y = f.ranks[i + gap];
                if ((x > y) == ((i & run) == 0)) {
                    f.ranks[i] = y;
                    f.ranks[i + gap] = x;
                }
            }
            __syncthreads();
        }
    }
    return true;
}
DEVICE float below_at(const sampling &f, uint32_t i)
{
    return -__uint_as_float((uint32_t)(f.ranks[i] >> 32));
}

/* How many of the best candidates weigh `goal`, which is known but for `error`: f.count of them, f.sum. Both
 * in units. False: that is not known. By all threads. */
DEVICE bool reach(const cuda_sample &a, const float *row, const uint64_t *mask, const scan &s, double goal,
                  double error, sampling &f)
{
    if (!find_bin(f, 0, (uint64_t)ceil(goal)) || !take_bin(a, row, mask, s, f))
        return false;
    if (threadIdx.x == 0) {
        uint32_t n = f.before;
        uint64_t sum = f.sum_before, last = sum;
        for (uint32_t i = 0; (double)sum < goal && i < f.counts[f.bin]; i++, n++) {
            last = sum;
            sum += units_of(below_at(f, i));
        }
        double some = error + error_of(n, (double)sum);
        f.unknown = (double)sum < goal + some || (n > 1 && (double)last > goal - some);
        f.count = n;
        f.sum = sum;
        f.id = n > f.before ? (uint32_t)f.ranks[n - f.before - 1] : CUDA_NONE;
    }
    __syncthreads();
    return !f.unknown && f.id != CUDA_NONE;
}

/* The best `count` candidates weigh f.sum. */
DEVICE bool count_best(const cuda_sample &a, const float *row, const uint64_t *mask, const scan &s,
                       uint32_t count, sampling &f)
{
    if (!find_bin(f, count, 0) || !take_bin(a, row, mask, s, f))
        return false;
    if (threadIdx.x == 0) {
        uint64_t sum = f.sum_before;
        for (uint32_t i = 0; i < count - f.before; i++)
            sum += units_of(below_at(f, i));
        f.sum = sum;
    }
    __syncthreads();
    return true;
}

/* The sample from the best candidates that top_k and top_p keep. CUDA_NONE: it is left to the host. */
DEVICE uint32_t sample_by_rank(const cuda_sample &a, const float *row, const uint64_t *mask, const scan &s,
                             const row_sample &d, bool cuts, double mass, sampling &f)
{
    double goal = mass * (double)d.top_p * UNIT, error = 0;
    uint32_t kept = d.top_k;
    if (cuts) {
        if (!count_best(a, row, mask, s, kept, f))
            return CUDA_NONE;
        error = error_of(kept, (double)f.sum);
        goal = (double)f.sum * (double)d.top_p;
    }
    if (d.top_p < 1) {
        if (!reach(a, row, mask, s, goal, error, f))
            return CUDA_NONE;
        kept = f.count;
    }
    const double weight = (double)f.sum;
    goal = d.part * weight;
    /* More than `goal`, not as much. */
    if (!reach(a, row, mask, s, floor(goal) + 1, error_of(kept, weight) + 2, f) || f.count > kept)
        return CUDA_NONE;
    return f.id;
}

DEVICE uint32_t sample_id(const cuda_sample &a, const row_sample &d, uint32_t r, const float *row,
                        const uint64_t *mask, const scan &s, sampling &f)
{
    uint32_t candidates = 0;
    bool bins = d.top_k > 0 || d.top_p < 1, cuts = false;
    if (bins) {
        for (uint32_t i = threadIdx.x; i < BINS; i += THREADS)
            f.counts[i] = 0, f.sums[i] = 0;
        __syncthreads();
        each_candidate(a, row, mask, s, [&](float below, uint32_t) {
            uint32_t bin = bin_of(below);
            atomicAdd(&f.counts[bin], 1u);
            atomicAdd((unsigned long long *)&f.sums[bin], (unsigned long long)units_of(below));
        });
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < BINS; i += THREADS)
            candidates += f.counts[i];
        candidates = (uint32_t)block_sum((double)candidates);
        cuts = d.top_k > 0 && d.top_k < candidates;
    }
    double mass = mass_of(a, r, f);
    if (cuts || d.top_p < 1)
        return sample_by_rank(a, row, mask, s, d, cuts, mass, f);
    return sample_by_id(a, row, mask, s, d.part * mass, f);
}

/* Block: a row. */
KERNEL __launch_bounds__(THREADS, 1) plateau_sample_pick(const cuda_sample a)
{
    __shared__ sampling f;
    grid_begin();
    const uint32_t r = blockIdx.x;
    const row_sample d = a.rows[r];
    if (!d.wanted)
        return;
    float *row = a.logits + (uint64_t)r * a.vocab;
    const uint64_t *mask = mask_of(a, d);
    best block = {0, CUDA_NONE};
    for (uint32_t i = threadIdx.x; i < a.blocks; i += THREADS) {
        float most = a.most[(uint64_t)r * a.blocks + i];
        if (most > -INFINITY)
            block = better(block, {most, i});
    }
    block = block_best(block);
    uint32_t id = 0;
    bool some = block.index != CUDA_NONE;
    if (some && is_greedy(d, block.value))
        id = greedy_id(a, row, mask, block.index, block.value);
    else if (some)
        id = sample_id(a, d, r, row, mask, scan_of(d, block.value), f);
    __syncthreads();
    undo(a, d, row);
    if (threadIdx.x == 0) {
        row_sampled *ret = a.sampled + r;
        ret->state = !some ? ROW_EMPTY : id == CUDA_NONE ? ROW_LEFT : ROW_SAMPLED;
        ret->id = id;
        ret->logit = some && id != CUDA_NONE ? row[id] : 0;
    }
}
