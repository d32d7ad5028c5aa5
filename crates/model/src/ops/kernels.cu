// The operations on NVIDIA GPUs. `common.cu` stands before this.

// ---- rms_norm: one block for each row -------------------------------------------------------------------------------

template <typename T, int N> DEVICE void rms_norm(In<T> x, In<T> weight, Out<T> y, u32 width, float eps) {
    x += u64(blockIdx.x) * width, y += u64(blockIdx.x) * width;
    float squares = 0.0f;
    OF_BLOCK(i, width) {
        float row[N];
        load(x + i, row);
        EACH(k) squares += row[k] * row[k];
    }
    float inverse = rsqrtf(block_sums(make_float2(squares, 0.0f)).x / width + eps);
    OF_BLOCK(i, width) {
        float row[N], scale[N];
        load(x + i, row), load(weight + i, scale);
        // Rounded before the weight is applied, as the models were trained.
        EACH(k) row[k] = rounded(row[k] * inverse, x) * scale[k];
        store(y + i, row);
    }
}

// Each block takes every gridDim.x-th row and adds up its share of the weight's gradient in shared memory, where each
// thread has its own columns.
template <typename T, int N>
DEVICE void rms_norm_grad(In<T> x, In<T> weight, In<T> grad, Out<T> grad_x, Out<float> shares, u32 rows, u32 width,
                          float eps) {
    extern __shared__ __align__(16) float share[];
    OF_BLOCK(i, width) {
        float zeros[N] = {};
        store(share + i, zeros);
    }
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        u64 start = u64(row) * width;
        float2 sums = make_float2(0.0f, 0.0f);
        OF_BLOCK(i, width) {
            float of_x[N], of_grad[N], scale[N];
            load(x + start + i, of_x), load(grad + start + i, of_grad), load(weight + i, scale);
            EACH(k) {
                sums.x += of_x[k] * of_x[k];
                sums.y += of_grad[k] * scale[k] * of_x[k];
            }
        }
        sums = block_sums(sums);
        float inverse = rsqrtf(sums.x / width + eps);
        float along = sums.y / width * inverse * inverse;
        OF_BLOCK(i, width) {
            float of_x[N], of_grad[N], scale[N], sum[N];
            load(x + start + i, of_x), load(grad + start + i, of_grad), load(weight + i, scale), load(share + i, sum);
            EACH(k) {
                sum[k] += of_grad[k] * of_x[k] * inverse;
                of_grad[k] = inverse * (of_grad[k] * scale[k] - of_x[k] * along);
            }
            store(grad_x + start + i, of_grad), store(share + i, sum);
        }
    }
    OF_BLOCK(i, width) {
        float sum[N];
        load(share + i, sum);
        store(shares + u64(blockIdx.x) * width + i, sum);
    }
}

// The sums of the columns of `shares [rows, width]`: a block of 32 by 32 threads for each 32 columns.
template <typename T> DEVICE void column_sums(In<float> shares, Out<T> sums, u32 rows, u32 width) {
    __shared__ float square[32][33];
    u32 across = threadIdx.x % 32, down = threadIdx.x / 32, column = blockIdx.x * 32 + across;
    float sum = 0.0f;
    if (column < width) {
        for (u32 row = down; row < rows; row += 32) sum += shares[u64(row) * width + column];
    }
    square[down][across] = sum;
    __syncthreads();
    float total[1] = {warp_sum(square[across][down])};
    if (across == 0 && blockIdx.x * 32 + down < width) store(sums + blockIdx.x * 32 + down, total);
}

// ---- swiglu and rotary: element by element --------------------------------------------------------------------------

DEVICE float sigmoid(float value) { return 1.0f / (1.0f + expf(-value)); }

template <typename T, int N> DEVICE void swiglu(In<T> gate, In<T> up, Out<T> y, u64 count) {
    OF_GRID(i, count) {
        float of_gate[N], of_up[N];
        load(gate + i, of_gate), load(up + i, of_up);
        EACH(k) of_gate[k] *= sigmoid(of_gate[k]) * of_up[k];
        store(y + i, of_gate);
    }
}

template <typename T, int N> DEVICE void swiglu_grad(In<T> gate, In<T> up, In<T> grad, Out<T> both, u64 count) {
    OF_GRID(i, count) {
        float of_gate[N], of_up[N], of_grad[N];
        load(gate + i, of_gate), load(up + i, of_up), load(grad + i, of_grad);
        EACH(k) {
            float part = sigmoid(of_gate[k]), silu = of_gate[k] * part;
            of_gate[k] = of_grad[k] * of_up[k] * part * (1.0f + of_gate[k] * (1.0f - part));
            of_up[k] = of_grad[k] * silu;
        }
        store(both + i, of_gate), store(both + count + i, of_up);
    }
}

// `count` pairs, of which each of the heads of a token has `half`.
template <typename T, int N>
DEVICE void rotary(In<T> x, In<float> cos, In<float> sin, Out<T> y, u32 count, u32 heads, u32 half, float direction) {
    OF_GRID(i, count) {
        // Divided in 32 bits, which takes a fraction of the time.
        u32 head = u32(i) / half, pair = u32(i) % half, angle = head / heads * half + pair;
        u64 at = u64(head) * half * 2 + pair;
        float first[N], second[N], of_cos[N], of_sin[N];
        load(x + at, first), load(x + at + half, second), load(cos + angle, of_cos), load(sin + angle, of_sin);
        EACH(k) {
            float along = first[k], across = second[k], turn = of_sin[k] * direction;
            first[k] = along * of_cos[k] - across * turn;
            second[k] = across * of_cos[k] + along * turn;
        }
        store(y + at, first), store(y + at + half, second);
    }
}

// ---- masked_softmax: one warp for each row --------------------------------------------------------------------------

// The keys that a row of [B·H·T, S] sees.
struct Sight {
    u32 first, end;

    DEVICE Sight of(const u32* visible, u32 row, u32 heads, u32 queries, u32 keys) {
        u32 query = row / (heads * queries) * queries + row % queries;
        Sight sight = {visible[2 * query], min(visible[2 * query + 1], keys)};
        return sight;
    }
    __device__ bool sees(u32 key) const { return first <= key && key < end; }
    __device__ bool sees_any(u32 from, u32 count) const { return first < from + count && from < end; }
};

template <typename T, int N>
DEVICE void masked_softmax(In<T> scores, In<u32> visible, Out<T> probabilities, u32 rows, u32 heads, u32 queries,
                           u32 keys, float scale) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    Sight sight = Sight::of(visible, row, heads, queries, keys);
    scores += u64(row) * keys, probabilities += u64(row) * keys;
    float largest = -INFINITE, sum = 0.0f, values[N];
    OF_WARP(i, keys) {
        if (!sight.sees_any(i, N)) continue;
        load(scores + i, values);
        EACH(k) {
            if (sight.sees(i + k)) largest = fmaxf(largest, values[k] * scale);
        }
    }
    largest = warp_max(largest);
    OF_WARP(i, keys) {
        if (!sight.sees_any(i, N)) continue;
        load(scores + i, values);
        EACH(k) {
            if (sight.sees(i + k)) sum += expf(values[k] * scale - largest);
        }
    }
    float inverse = 1.0f / warp_sum(sum);
    OF_WARP(i, keys) {
        bool any = sight.sees_any(i, N);
        if (any) load(scores + i, values);
        EACH(k) {
            values[k] = any && sight.sees(i + k) ? expf(values[k] * scale - largest) * inverse : 0.0f;
        }
        store(probabilities + i, values);
    }
}

template <typename T, int N>
DEVICE void masked_softmax_grad(In<T> probabilities, In<T> grad, In<u32> visible, Out<T> grad_scores, u32 rows,
                                u32 heads, u32 queries, u32 keys, float scale) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    Sight sight = Sight::of(visible, row, heads, queries, keys);
    u64 start = u64(row) * keys;
    probabilities += start, grad += start, grad_scores += start;
    float mean = 0.0f, of_probability[N], of_grad[N];
    OF_WARP(i, keys) {
        if (!sight.sees_any(i, N)) continue;
        load(probabilities + i, of_probability), load(grad + i, of_grad);
        EACH(k) {
            if (sight.sees(i + k)) mean += of_probability[k] * of_grad[k];
        }
    }
    mean = warp_sum(mean);
    OF_WARP(i, keys) {
        bool any = sight.sees_any(i, N);
        if (any) load(probabilities + i, of_probability), load(grad + i, of_grad);
        EACH(k) {
            of_grad[k] = any && sight.sees(i + k) ? scale * of_probability[k] * (of_grad[k] - mean) : 0.0f;
        }
        store(grad_scores + i, of_grad);
    }
}

// ---- logprob and entropy: one block for each row --------------------------------------------------------------------

// The bits of N tokens from a multiple of N on.
template <int N> DEVICE u32 bits_of(const u32* allowed, u32 token) {
    return (allowed ? allowed[token / 32] >> (token % 32) : ALL_LANES) & ((1u << N) - 1);
}

// The sum of exp(z) with z = (logit - largest) / temperature over some tokens, and that of exp(z) · z.
struct Sums {
    float largest, powers, weighted;

    // The same relative to a larger logit.
    __device__ void rise(float to, float inverse_temperature) {
        if (powers > 0.0f) {
            float step = (largest - to) * inverse_temperature, factor = expf(step);
            weighted = factor * (weighted + step * powers);
            powers *= factor;
        }
        largest = to;
    }
    __device__ void add(const Sums& other, float inverse_temperature) {
        Sums risen = other;
        float to = fmaxf(largest, other.largest);
        rise(to, inverse_temperature), risen.rise(to, inverse_temperature);
        powers += risen.powers, weighted += risen.weighted;
    }
};

template <typename T, int N>
DEVICE Sums sums_of_thread(const T* logits, const u32* allowed, u32 vocabulary, float inverse_temperature) {
    Sums sums = {-INFINITE, 0.0f, 0.0f};
    OF_BLOCK(i, vocabulary) {
        u32 bits = bits_of<N>(allowed, i);
        if (bits == 0) continue;
        float row[N], largest = sums.largest;
        load(logits + i, row);
        EACH(k) {
            if (bits >> k & 1) largest = fmaxf(largest, row[k]);
        }
        if (largest > sums.largest) sums.rise(largest, inverse_temperature);
        // Where all so far are minus infinity, the difference from the largest would be no number.
        float center = largest == -INFINITE ? 0.0f : largest;
        EACH(k) {
            if (bits >> k & 1) {
                float z = (row[k] - center) * inverse_temperature, power = expf(z);
                sums.powers += power;
                sums.weighted += power == 0.0f ? 0.0f : power * z;
            }
        }
    }
    return sums;
}

// Thread 0 gets the sums over the row.
template <typename T>
DEVICE Sums sums_of_row(const T* logits, const u32* allowed, u32 vocabulary, float inverse_temperature) {
    __shared__ Sums of_warps[32];
    constexpr int N = Wide<T>::COUNT;
    Sums sums = wide<T>(vocabulary, logits)
                    ? sums_of_thread<T, N>(logits, allowed, vocabulary, inverse_temperature)
                    : sums_of_thread<T, 1>(logits, allowed, vocabulary, inverse_temperature);
    for (int offset = 16; offset > 0; offset /= 2) {
        Sums other;
        other.largest = __shfl_down_sync(ALL_LANES, sums.largest, offset);
        other.powers = __shfl_down_sync(ALL_LANES, sums.powers, offset);
        other.weighted = __shfl_down_sync(ALL_LANES, sums.weighted, offset);
        sums.add(other, inverse_temperature);
    }
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sums;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < blockDim.x / 32; warp++) sums.add(of_warps[warp], inverse_temperature);
    }
    return sums;
}

DEVICE bool is_allowed(const u32* allowed, u32 token, u32 vocabulary) {
    return token < vocabulary && bits_of<1>(allowed, token);
}

template <typename T> DEVICE float one(const T* from) {
    float value[1];
    load(from, value);
    return value[0];
}

template <typename T>
DEVICE void logprob(In<T> logits, In<u32> targets, In<u32> allowed, Out<float> logprobs, u32 vocabulary,
                    float inverse_temperature) {
    u32 row = blockIdx.x, target = targets[row];
    logits += u64(row) * vocabulary;
    if (allowed) allowed += u64(row) * ((vocabulary + 31) / 32);
    if (!is_allowed(allowed, target, vocabulary)) {
        if (threadIdx.x == 0) logprobs[row] = -INFINITE;
        return;
    }
    Sums sums = sums_of_row(logits, allowed, vocabulary, inverse_temperature);
    if (threadIdx.x != 0) return;
    logprobs[row] = (one(logits + target) - sums.largest) * inverse_temperature - logf(sums.powers);
}

template <typename T>
DEVICE void entropy(In<T> logits, In<u32> allowed, Out<float> entropies, u32 vocabulary, float inverse_temperature) {
    u32 row = blockIdx.x;
    if (allowed) allowed += u64(row) * ((vocabulary + 31) / 32);
    Sums sums = sums_of_row(logits + u64(row) * vocabulary, allowed, vocabulary, inverse_temperature);
    if (threadIdx.x == 0) entropies[row] = sums.powers == 0.0f ? 0.0f : logf(sums.powers) - sums.weighted / sums.powers;
}

template <typename T, int N>
DEVICE void logprob_grad(In<T> logits, In<u32> targets, In<u32> allowed, In<float> logprobs, In<float> grad,
                         Out<T> grad_logits, u32 vocabulary, float inverse_temperature) {
    u32 row = blockIdx.x, target = targets[row];
    float logprob = logprobs[row], step = grad[row] * inverse_temperature;
    logits += u64(row) * vocabulary, grad_logits += u64(row) * vocabulary;
    if (allowed) allowed += u64(row) * ((vocabulary + 31) / 32);
    // Padding, examples without weight, and targets that are not allowed.
    bool zero = step == 0.0f || logprob == -INFINITE || !is_allowed(allowed, target, vocabulary);
    float center = zero ? 0.0f : one(logits + target);
    u32 stride = gridDim.y * blockDim.x * N;
    for (u32 i = (blockIdx.y * blockDim.x + threadIdx.x) * N; i < vocabulary; i += stride) {
        u32 bits = zero ? 0 : bits_of<N>(allowed, i);
        float values[N] = {};
        if (bits != 0) load(logits + i, values);
        EACH(k) {
            float probability = expf((values[k] - center) * inverse_temperature + logprob);
            values[k] = bits >> k & 1 ? step * ((i + k == target ? 1.0f : 0.0f) - probability) : 0.0f;
        }
        store(grad_logits + i, values);
    }
}

// ---- The optimiser --------------------------------------------------------------------------------------------------

template <typename T, int N>
DEVICE void adamw_moment(Out<float> moment, In<T> grad, u64 count, float keep, float share,
                         float grad_scale, u32 squared) {
    OF_GRID(i, count) {
        float of_moment[N], of_grad[N];
        load(moment + i, of_moment), load(grad + i, of_grad);
        EACH(k) {
            float scaled = of_grad[k] * grad_scale;
            of_moment[k] = keep * of_moment[k] + share * (squared ? scaled * scaled : scaled);
        }
        store(moment + i, of_moment);
    }
}

template <typename T, int N>
DEVICE void adamw_update(Out<T> var, In<T> m, In<T> v, u64 count, float keep, float rate, float inverse_root,
                         float epsilon) {
    OF_GRID(i, count) {
        float of_var[N], of_m[N], of_v[N];
        load(var + i, of_var), load(m + i, of_m), load(v + i, of_v);
        EACH(k) {
            of_var[k] = keep * of_var[k] - rate * of_m[k] / (sqrtf(of_v[k]) * inverse_root + epsilon);
        }
        store(var + i, of_var);
    }
}

template <typename T, int N> DEVICE void squared_norm(In<T> x, Out<float> shares, u64 count) {
    float squares = 0.0f;
    OF_GRID(i, count) {
        float values[N];
        load(x + i, values);
        EACH(k) squares += values[k] * values[k];
    }
    squares = block_sums(make_float2(squares, 0.0f)).x;
    if (threadIdx.x == 0) shares[blockIdx.x] = squares;
}

// ---- add_bias and swap_axes: element by element -----------------------------------------------------------------------

// The same row is added to every row.
template <typename T, int N> DEVICE void add_bias(In<T> x, In<T> bias, Out<T> y, u32 count, u32 width) {
    OF_GRID(i, count) {
        float values[N], added[N];
        load(x + i, values), load(bias + u32(i) % width, added);
        EACH(k) values[k] += added[k];
        store(y + i, values);
    }
}

// [A, B, C, D] to [A, C, B, D], whole rows of D at a time.
template <typename T, int N> DEVICE void swap_axes(In<T> x, Out<T> y, u32 count, u32 b, u32 c, u32 d) {
    OF_GRID(i, count) {
        // Where in the result, in 32 bits, which divide in a fraction of the time.
        u32 row = u32(i) / d, within = u32(i) % d, of_b = row % b, rest = row / b, of_c = rest % c, of_a = rest / c;
        float values[N];
        load(x + (u64(of_a * b + of_b) * c + of_c) * d + within, values);
        store(y + i, values);
    }
}

// ---- sum_rows: one block for each row that has a list of places -------------------------------------------------------

// `lists` holds the rows, then where each one's list begins and the last one ends, then the places. Each team of `across`
// threads takes every so-manieth place and leaves its sum in shared memory; the first adds them up.
template <typename T, int N>
DEVICE void sum_rows(In<T> grad, In<u32> lists, Out<T> sums, u32 count, u32 width, u32 across) {
    extern __shared__ __align__(16) float of_teams[];
    const u32 *starts = lists + count, *places = starts + count + 1;
    u32 start = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    u32 team = threadIdx.x / across, teams = blockDim.x / across, lane = threadIdx.x % across;
    for (u32 i = lane * N; i < width; i += across * N) {
        float total[N] = {}, values[N];
        for (u32 at = start + team; at < end; at += teams) {
            load(grad + u64(places[at]) * width + i, values);
            EACH(k) total[k] += values[k];
        }
        EACH(k) of_teams[team * width + i + k] = total[k];
    }
    __syncthreads();
    if (team != 0) return;
    for (u32 i = lane * N; i < width; i += across * N) {
        float total[N] = {};
        for (u32 other = 0; other < teams; other++) EACH(k) total[k] += of_teams[other * width + i + k];
        store(sums + u64(lists[blockIdx.x]) * width + i, total);
    }
}

// ---- Entry points ---------------------------------------------------------------------------------------------------

#define CHOOSE(T, body, wide, ...) (wide ? body<T, Wide<T>::COUNT>(__VA_ARGS__) : body<T, 1>(__VA_ARGS__))

#define KERNELS(T, name)                                                                                               \
    extern "C" __global__ void rms_norm_##name(In<T> x, In<T> weight, Out<T> y, u32 width, float eps) {                \
        CHOOSE(T, rms_norm, wide<T>(width, x, weight, y), x, weight, y, width, eps);                                   \
    }                                                                                                                  \
    extern "C" __global__ void rms_norm_grad_##name(In<T> x, In<T> weight, In<T> grad, Out<T> grad_x,                  \
                                                    Out<float> shares, u32 rows, u32 width, float eps) {               \
        bool all_wide = wide<T>(width, x, weight, grad, grad_x, shares);                                               \
        CHOOSE(T, rms_norm_grad, all_wide, x, weight, grad, grad_x, shares, rows, width, eps);                         \
    }                                                                                                                  \
    extern "C" __global__ void column_sums_##name(In<float> shares, Out<T> sums, u32 rows, u32 width) {                \
        column_sums<T>(shares, sums, rows, width);                                                                     \
    }                                                                                                                  \
    extern "C" __global__ void swiglu_##name(In<T> gate, In<T> up, Out<T> y, u64 count) {                              \
        CHOOSE(T, swiglu, wide<T>(count, gate, up, y), gate, up, y, count);                                            \
    }                                                                                                                  \
    extern "C" __global__ void swiglu_grad_##name(In<T> gate, In<T> up, In<T> grad, Out<T> both, u64 count) {          \
        CHOOSE(T, swiglu_grad, wide<T>(count, gate, up, grad, both), gate, up, grad, both, count);                     \
    }                                                                                                                  \
    extern "C" __global__ void rotary_##name(In<T> x, In<float> cos, In<float> sin, Out<T> y, u32 count, u32 heads,    \
                                             u32 half, float direction) {                                              \
        CHOOSE(T, rotary, wide<T>(half, x, cos, sin, y), x, cos, sin, y, count, heads, half, direction);               \
    }                                                                                                                  \
    extern "C" __global__ void masked_softmax_##name(In<T> scores, In<u32> visible, Out<T> probabilities, u32 rows,    \
                                                     u32 heads, u32 queries, u32 keys, float scale) {                  \
        bool all_wide = wide<T>(keys, scores, probabilities);                                                          \
        CHOOSE(T, masked_softmax, all_wide, scores, visible, probabilities, rows, heads, queries, keys, scale);        \
    }                                                                                                                  \
    extern "C" __global__ void masked_softmax_grad_##name(In<T> probabilities, In<T> grad, In<u32> visible,            \
                                                          Out<T> grad_scores, u32 rows, u32 heads, u32 queries,        \
                                                          u32 keys, float scale) {                                     \
        bool all_wide = wide<T>(keys, probabilities, grad, grad_scores);                                               \
        CHOOSE(T, masked_softmax_grad, all_wide, probabilities, grad, visible, grad_scores, rows, heads, queries,      \
               keys, scale);                                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void logprob_##name(In<T> logits, In<u32> targets, In<u32> allowed, Out<float> logprobs,     \
                                              u32 vocabulary, float inverse_temperature) {                             \
        logprob<T>(logits, targets, allowed, logprobs, vocabulary, inverse_temperature);                               \
    }                                                                                                                  \
    extern "C" __global__ void entropy_##name(In<T> logits, In<u32>, In<u32> allowed, Out<float> entropies,            \
                                              u32 vocabulary, float inverse_temperature) {                             \
        entropy<T>(logits, allowed, entropies, vocabulary, inverse_temperature);                                       \
    }                                                                                                                  \
    extern "C" __global__ void logprob_grad_##name(In<T> logits, In<u32> targets, In<u32> allowed,                     \
                                                   In<float> logprobs, In<float> grad, Out<T> grad_logits,             \
                                                   u32 vocabulary, float inverse_temperature) {                        \
        bool all_wide = wide<T>(vocabulary, logits, grad_logits);                                                      \
        CHOOSE(T, logprob_grad, all_wide, logits, targets, allowed, logprobs, grad, grad_logits, vocabulary,           \
               inverse_temperature);                                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void adamw_moment_##name(Out<float> moment, In<T> grad, u64 count, float keep, float share,  \
                                                   float grad_scale, u32 squared) {                                    \
        bool all_wide = wide<T>(count, moment, grad);                                                                  \
        CHOOSE(T, adamw_moment, all_wide, moment, grad, count, keep, share, grad_scale, squared);                      \
    }                                                                                                                  \
    extern "C" __global__ void add_bias_##name(In<T> x, In<T> bias, Out<T> y, u32 count, u32 width) {                  \
        CHOOSE(T, add_bias, wide<T>(width, x, bias, y), x, bias, y, count, width);                                     \
    }                                                                                                                  \
    extern "C" __global__ void swap_axes_##name(In<T> x, Out<T> y, u32 count, u32 b, u32 c, u32 d) {                   \
        CHOOSE(T, swap_axes, wide<T>(d, x, y), x, y, count, b, c, d);                                                  \
    }                                                                                                                  \
    extern "C" __global__ void sum_rows_##name(In<T> grad, In<u32> lists, Out<T> sums, u32 count, u32 width,           \
                                               u32 across) {                                                           \
        CHOOSE(T, sum_rows, wide<T>(width, grad, sums), grad, lists, sums, count, width, across);                      \
    }                                                                                                                  \
    extern "C" __global__ void squared_norm_##name(In<T> x, Out<float> shares, u64 count) {                            \
        CHOOSE(T, squared_norm, wide<T>(count, x), x, shares, count);                                                  \
    }

KERNELS(float, f32)
KERNELS(bf16, bf16)

extern "C" __global__ void adamw_update_f32(Out<float> var, In<float> m, In<float> v, u64 count, float keep, float rate,
                                            float inverse_root, float epsilon) {
    bool all_wide = wide<float>(count, var, m, v);
    CHOOSE(float, adamw_update, all_wide, var, m, v, count, keep, rate, inverse_root, epsilon);
}
