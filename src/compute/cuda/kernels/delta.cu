/* delta.cu - the delta net in steps whose sequences have one token each and leave none pending: in bf16 mode,
 * for heads of ROWS columns and ROWS values in a column.
 *
 * Two kernels have the arithmetic and the bits of four of recurrent.cu. The second one brings a head's whole
 * state into shared memory before the kernels in front have ended. Four threads have a column. */
#include "compute/cuda/kernels/recurrent.cuh"

/* plateau_conv and plateau_delta_inputs. Block: a sequence, ROWS channels; the last one has the gates. */
extern "C" __global__ void __launch_bounds__(ROWS) plateau_delta_conv(const cuda_step s, const cuda_delta a)
{
    __shared__ float head[ROWS];
    const uint32_t t = blockIdx.x, c = blockIdx.y * ROWS + threadIdx.x, past = a.conv.taps - 1;
    grid_next();
    if (blockIdx.y + 1 == gridDim.y) {
        grid_wait();
        delta_gates(a, t);
        return;
    }
    const bool is_value = blockIdx.y >= 2 * a.key_heads;
    const cuda_seq &seq = seq_of(s, t);
    float window[TAPS_MAX], weight[TAPS_MAX], sum = 0;
    load_window(window, s, a.conv, seq, c, 0);
#pragma unroll
    for (uint32_t i = 0; i < TAPS_MAX; i++)
        weight[i] = i <= past ? a.conv.weight[(uint64_t)i * a.channels + c] : 0;
    grid_wait();
    const float u = row_of(a.conv.u, t)[c];
#pragma unroll
    for (uint32_t i = 0; i < TAPS_MAX; i++)
        if (i <= past)
            sum = fmaf(weight[i], i == past ? u : window[i], sum);
    sum = silu(sum);
    if (!is_value) {
        head[threadIdx.x] = sum;
        __syncthreads();
        sum *= delta_factor(a, head, blockIdx.y);
    }
    row_of(a.conv_out, t)[c] = sum;
    float *state = state_at(s, seq.state_out, a.conv.state_offset) + c;
#pragma unroll
    for (uint32_t i = 0; i + 1 < TAPS_MAX; i++)
        if (i < past)
            state[(uint64_t)i * a.channels] = i + 1 == past ? u : window[i + 1];
}

struct delta_room {
    float state[ROWS * ROWS], k[ROWS], q[ROWS], v[ROWS], o[ROWS];
    float sums[2][CUDA_DELTA_PARTS][ROWS]; /* partial sums of a column, with k, then with q */
};
static_assert(sizeof(delta_room) == CUDA_DELTA_ONE_SHARED, "the host knows its size");

/* A thread's part of a column of the head's state. */
struct delta_column {
    delta_room &room;
    uint32_t c, part;

    /* Returns the sum of all parts. */
    __device__ __forceinline__ float whole(float (&sums)[CUDA_DELTA_PARTS][ROWS], float sum) const
    {
        sums[part][c] = sum;
        __syncthreads();
        return (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]);
    }
    /* Returns what k reads of the column once it has decayed. */
    __device__ __forceinline__ float read(float alpha) const
    {
        const float *s = room.state + c;
        float m = 0;
#pragma unroll
        for (uint32_t i = 4 * part; i < ROWS; i += 4 * CUDA_DELTA_PARTS) {
            const float4 by = *(const float4 *)(room.k + i);
            m = fmaf(s[i * ROWS] * alpha, by.x, m);
            m = fmaf(s[(i + 1) * ROWS] * alpha, by.y, m);
            m = fmaf(s[(i + 2) * ROWS] * alpha, by.z, m);
            m = fmaf(s[(i + 3) * ROWS] * alpha, by.w, m);
        }
        return whole(room.sums[0], m);
    }
    /* Writes d along k into the decayed column, which goes to `to`, at a distance of ROWS. Returns what q
     * reads then. */
    __device__ __forceinline__ float write(float alpha, float d, float *to) const
    {
        const float *s = room.state + c;
        float o = 0;
#pragma unroll
        for (uint32_t i = 4 * part; i < ROWS; i += 4 * CUDA_DELTA_PARTS) {
            const float4 by = *(const float4 *)(room.k + i), at = *(const float4 *)(room.q + i);
            const float x[4] = {fmaf(by.x, d, s[i * ROWS] * alpha), fmaf(by.y, d, s[(i + 1) * ROWS] * alpha),
                                fmaf(by.z, d, s[(i + 2) * ROWS] * alpha),
                                fmaf(by.w, d, s[(i + 3) * ROWS] * alpha)};
            o = fmaf(x[3], at.w, fmaf(x[2], at.z, fmaf(x[1], at.y, fmaf(x[0], at.x, o))));
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                to[(i + j) * ROWS] = x[j];
        }
        return whole(room.sums[1], o);
    }
};

/* Puts the copies of a head's state on their way. NULL: zeros. */
DEVICE void bring_state(float *to, const float *from)
{
#pragma unroll
    for (uint32_t i = threadIdx.x; i < ROWS * ROWS / 4; i += CUDA_DELTA_ONE_THREADS)
        copy16_if(shared_at(to + 4 * i), from ? from + 4 * i : to, from != NULL);
}

/* plateau_delta_parts and plateau_delta_end. Block: a sequence, a value head. */
extern "C" __global__ void __launch_bounds__(CUDA_DELTA_ONE_THREADS, 3)
    plateau_delta_one(const cuda_step s, const cuda_delta a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    delta_room &room = *(delta_room *)shared;
    const uint32_t head = blockIdx.y, key = head / (a.value_heads / a.key_heads) * ROWS;
    const cuda_seq &seq = s.seq[blockIdx.x];
    const uint64_t at = a.state_offset + (uint64_t)head * sizeof(room.state);
    const delta_column column = {room, threadIdx.x % ROWS, threadIdx.x / ROWS};
    const uint32_t c = column.c, t = seq.first;
    float *out = state_at(s, seq.state_out, at) + c;
    grid_next();
    bring_state(room.state, state_at(s, seq.state_in, at));
    copies_wait_all();
    const float *pending = state_at(s, seq.state_in, a.pending_offset);
    for (uint32_t i = 0; i < seq.pending; i++, pending += a.pending_floats) {
        __syncthreads();
        if (column.part == 0)
            room.k[c] = room.q[c] = pending[a.k_at + key + c];
        __syncthreads();
        const float alpha = pending[a.alpha_at + head];
        const float m = column.read(alpha);
        column.write(alpha, pending[a.beta_at + head] * (pending[a.v_at + head * ROWS + c] - m),
                     room.state + c);
    }
    grid_wait();
    const float *x = row_of(a.conv_out, t), *gates = row_of(a.gates, t);
    const float alpha = gates[head], beta = gates[a.value_heads + head];
    __syncthreads();
    if (column.part < 3) {
        float *to = column.part == 0 ? room.q : column.part == 1 ? room.k : room.v;
        to[c] = x[column.part < 2 ? column.part * a.key_heads * ROWS + key + c
                                  : 2 * a.key_heads * ROWS + head * ROWS + c];
    }
    __syncthreads();
    const float o = column.write(alpha, beta * (room.v[c] - column.read(alpha)), out);
    if (column.part > 0)
        return;
    room.o[c] = o;
    meet_at<ROWS>(1);
    const float r = norm_of_head(a, room.o);
    const float y = a.norm[c] * (o * r) * silu(row_of(a.in, t)[a.channels + head * ROWS + c]);
    row_of(a.out, t)[head * ROWS + c] = y;
    put_rounded(a.rounded, t, head * ROWS + c, y);
}
