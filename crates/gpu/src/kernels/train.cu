// The kernels of training beside attention and products. Rows that a product reads may be followed by further columns, of
// adapters; strides are in numbers.

// The sum of two numbers per thread of a block of four warps.
DEVICE float2 sums_of_block(float2 values, float2* shared) {
    values.x = sum_of_warp(values.x), values.y = sum_of_warp(values.y);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = values;
    __syncthreads();
    return make_float2((shared[0].x + shared[1].x) + (shared[2].x + shared[3].x),
                       (shared[0].y + shared[1].y) + (shared[2].y + shared[3].y));
}

// y[row] = x[row or rows[row]], normalised by its root mean square, times weight; the factors are kept.
KERNEL(128, 4)
train_norm(half* y, u32 stride, float* factors, const float* x, const float* weight, const u32* rows, float epsilon) {
    __shared__ float2 shared[4];
    const int EACH = (HIDDEN / 4 + 127) / 128;
    float4 part[EACH];
    AFTER_PREVIOUS;
    u32 row = blockIdx.x;
    const float4* from = reinterpret_cast<const float4*>(x + size_t(rows ? rows[row] : row) * HIDDEN);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = threadIdx.x + 128 * i;
        float4 four = part[i] = at < HIDDEN / 4 ? from[at] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        sum += (four.x * four.x + four.y * four.y) + (four.z * four.z + four.w * four.w);
    }
    float factor = rsqrtf(sums_of_block(make_float2(sum, 0.0f), shared).x / float(HIDDEN) + epsilon);
    if (threadIdx.x == 0) factors[row] = factor;
    uint2* to = reinterpret_cast<uint2*>(y + size_t(row) * stride);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = threadIdx.x + 128 * i;
        if (at >= HIDDEN / 4) continue;
        float4 by = reinterpret_cast<const float4*>(weight)[at];
        to[at] = make_uint2(pack(part[i].x * factor * by.x, part[i].y * factor * by.y),
                            pack(part[i].z * factor * by.z, part[i].w * factor * by.w));
    }
}

// dx[row or rows[row]] += the gradient of what was normalised, and the same rounded to `rounded`, where it is wanted. Each block
// adds up its rows' gradients of the weight in a row of `partial`, where that is wanted.
KERNEL(128, 4)
train_norm_back(float* dx, half* rounded, float* partial, const half* dy, u32 stride, const float* x, const float* weight,
                const float* factors, const u32* rows, u32 count) {
    __shared__ float2 shared[4];
    const int EACH = (HIDDEN / 4 + 127) / 128;
    float4 by[EACH], of_weight[EACH];
    AFTER_PREVIOUS;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = threadIdx.x + 128 * i;
        of_weight[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        by[i] = at < HIDDEN / 4 ? reinterpret_cast<const float4*>(weight)[at] : of_weight[i];
    }
    for (u32 number = blockIdx.x; number < count; number += gridDim.x) {
        size_t row = rows ? rows[number] : number;
        const float4* from = reinterpret_cast<const float4*>(x + row * HIDDEN);
        const uint2* slope = reinterpret_cast<const uint2*>(dy + size_t(number) * stride);
        float factor = factors[number];
        float4 unit[EACH], grown[EACH];
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            u32 at = threadIdx.x + 128 * i;
            unit[i] = grown[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (at >= HIDDEN / 4) continue;
            float4 four = from[at];
            uint2 pair = slope[at];
            float4 g = make_float4(low(pair.x), high(pair.x), low(pair.y), high(pair.y));
            unit[i] = make_float4(four.x * factor, four.y * factor, four.z * factor, four.w * factor);
            of_weight[i].x += g.x * unit[i].x, of_weight[i].y += g.y * unit[i].y;
            of_weight[i].z += g.z * unit[i].z, of_weight[i].w += g.w * unit[i].w;
            grown[i] = make_float4(g.x * by[i].x, g.y * by[i].y, g.z * by[i].z, g.w * by[i].w);
            sum += (grown[i].x * unit[i].x + grown[i].y * unit[i].y) + (grown[i].z * unit[i].z + grown[i].w * unit[i].w);
        }
        float mean = sums_of_block(make_float2(sum, 0.0f), shared).x / float(HIDDEN);
        float4* to = reinterpret_cast<float4*>(dx + row * HIDDEN);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            u32 at = threadIdx.x + 128 * i;
            if (at >= HIDDEN / 4) continue;
            float4 four = to[at];
            four.x += factor * (grown[i].x - unit[i].x * mean), four.y += factor * (grown[i].y - unit[i].y * mean);
            four.z += factor * (grown[i].z - unit[i].z * mean), four.w += factor * (grown[i].w - unit[i].w * mean);
            to[at] = four;
            if (rounded)
                reinterpret_cast<uint2*>(rounded + row * HIDDEN)[at] = make_uint2(pack(four.x, four.y), pack(four.z, four.w));
        }
    }
    if (!partial) return;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = threadIdx.x + 128 * i;
        if (at < HIDDEN / 4) reinterpret_cast<float4*>(partial + size_t(blockIdx.x) * HIDDEN)[at] = of_weight[i];
    }
}

// sum[i] += all rows of partial[.][i], in their order.
KERNEL(256, 4) train_add_partial(float* sum, const float* partial, u32 rows, u32 width) {
    AFTER_PREVIOUS;
    u32 at = blockIdx.x * 256 + threadIdx.x;
    if (at >= width) return;
    float all = 0.0f;
    for (u32 row = 0; row < rows; row++) all += partial[size_t(row) * width + at];
    sum[at] += all;
}

// The sums of pairs of columns over the rows of a block: blocks (64 columns, part of the rows).
KERNEL(256, 4) train_column_sums(float* partial, const half* from, u32 rows, u32 width) {
    __shared__ float2 shared[8][32];
    AFTER_PREVIOUS;
    u32 column = blockIdx.x * 64 + 2 * (threadIdx.x % 32), warp = threadIdx.x / 32;
    float2 sum = make_float2(0.0f, 0.0f);
    if (column < width) {
        for (u32 row = blockIdx.y * 8 + warp; row < rows; row += gridDim.y * 8) {
            u32 pair = *reinterpret_cast<const u32*>(from + size_t(row) * width + column);
            sum.x += low(pair), sum.y += high(pair);
        }
    }
    shared[warp][threadIdx.x % 32] = sum;
    __syncthreads();
    if (warp || column >= width) return;
    for (int i = 1; i < 8; i++) sum.x += shared[i][threadIdx.x].x, sum.y += shared[i][threadIdx.x].y;
    float* to = partial + size_t(blockIdx.y) * width + column;
    to[0] = sum.x, to[1] = sum.y;
}

// Adds the bias to a row of query, key and value, and rotates query and key. One warp for each head in turn.
KERNEL(128, 8)
train_rope(half* to, const float* qkv, const float* bias, const float2* rotations, const u32* positions, u32 heads) {
    AFTER_PREVIOUS;
    u32 row = blockIdx.x, lane = threadIdx.x % 32, width = heads + 2 * KV_HEADS;
    const float2* rotation = rotations + size_t(positions[row]) * (DIM / 2);
    for (u32 head = threadIdx.x / 32; head < width; head += 4) {
        const float* from = qkv + (size_t(row) * width + head) * DIM;
        const float* plus = bias + head * DIM;
        u32* out = reinterpret_cast<u32*>(to + (size_t(row) * width + head) * DIM);
        for (u32 at = 2 * lane; at < DIM / 2; at += 64) {
            u32 other = at + DIM / 2;
            float2 first = rotation[at], second = rotation[at + 1];
            if (head >= heads + KV_HEADS) first = second = make_float2(1.0f, 0.0f);
            float a = from[at], b = from[at + 1], c = from[other], d = from[other + 1];
            if (bias) a += plus[at], b += plus[at + 1], c += plus[other], d += plus[other + 1];
            out[at / 2] = pack(a * first.x - c * first.y, b * second.x - d * second.y);
            out[other / 2] = pack(c * first.x + a * first.y, d * second.x + b * second.y);
        }
    }
}

// y = silu(gate) * up.
KERNEL(256, 4) train_swiglu(half* y, u32 stride, const half* gate_up, u32 rows, u32 width) {
    AFTER_PREVIOUS;
    u32 words = width / 8;
    u64 at = u64(blockIdx.x) * 256 + threadIdx.x;
    if (at >= u64(rows) * words) return;
    u32 row = u32(at / words), word = u32(at % words);
    const uint4* from = reinterpret_cast<const uint4*>(gate_up) + size_t(row) * 2 * words + word;
    uint4 gate = from[0], up = from[words], out;
    auto one = [](float g, float u) { return g * u / (1.0f + exp2_of(-LOG2_E * g)); };
    auto two = [&](u32 g, u32 u) { return pack(one(low(g), low(u)), one(high(g), high(u))); };
    out.x = two(gate.x, up.x), out.y = two(gate.y, up.y), out.z = two(gate.z, up.z), out.w = two(gate.w, up.w);
    *reinterpret_cast<uint4*>(y + size_t(row) * stride + 8 * word) = out;
}

// gate_up becomes its own gradient.
KERNEL(256, 4) train_swiglu_back(half* gate_up, const half* dy, u32 stride, u32 rows, u32 width) {
    AFTER_PREVIOUS;
    u32 words = width / 8;
    u64 at = u64(blockIdx.x) * 256 + threadIdx.x;
    if (at >= u64(rows) * words) return;
    u32 row = u32(at / words), word = u32(at % words);
    uint4* place = reinterpret_cast<uint4*>(gate_up) + size_t(row) * 2 * words + word;
    uint4 slope = *reinterpret_cast<const uint4*>(dy + size_t(row) * stride + 8 * word);
    uint4 gate = place[0], up = place[words];
    auto one = [](float s, float& g, float& u) {
        float share = 1.0f / (1.0f + exp2_of(-LOG2_E * g));
        float of_gate = s * u * share * (1.0f + g * (1.0f - share)), of_up = s * g * share;
        g = of_gate, u = of_up;
    };
    auto two = [&](u32 s, u32& g, u32& u) {
        float gates[2] = {low(g), high(g)}, ups[2] = {low(u), high(u)};
        one(low(s), gates[0], ups[0]);
        one(high(s), gates[1], ups[1]);
        g = pack(gates[0], gates[1]), u = pack(ups[0], ups[1]);
    };
    two(slope.x, gate.x, up.x), two(slope.y, gate.y, up.y), two(slope.z, gate.z, up.z), two(slope.w, gate.w, up.w);
    place[0] = gate, place[words] = up;
}

// The gradient of the vectors of tokens. `lists`: for each token its number, where its rows begin in `rows`, and where they end.
KERNEL(128, 8) train_embed_back(float* table, const float* dx, const uint4* lists, const u32* rows) {
    AFTER_PREVIOUS;
    uint4 list = lists[blockIdx.x];
    float4* to = reinterpret_cast<float4*>(table + size_t(list.x) * HIDDEN);
    for (u32 at = threadIdx.x; at < HIDDEN / 4; at += 128) {
        float4 sum = to[at];
        for (u32 i = list.y; i < list.z; i++) {
            float4 four = reinterpret_cast<const float4*>(dx + size_t(rows[i]) * HIDDEN)[at];
            sum.x += four.x, sum.y += four.y, sum.z += four.z, sum.w += four.w;
        }
        to[at] = sum;
    }
}

// ---- Losses --------------------------------------------------------------------------------------------------------------

#define LOSS_THREADS 512

// What is kept of a row of logits. The host has the same struct.
struct Scored {
    float logprob, entropy;
    // Of scaled logits: the largest, in powers of two, and the sum of powers relative to it.
    float most, sum;
};

DEVICE float of_all(float value, bool largest, float* shared) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, value, step);
        value = largest ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int i = 1; i < LOSS_THREADS / 32; i++) value = largest ? fmaxf(value, shared[i]) : value + shared[i];
    return value;
}

// A row's target, and the number of its mask or NOTHING.
DEVICE bool may(const u32* mask, u32 token) { return !mask || (mask[token / 32] >> (token % 32) & 1u); }

// The log-probability of each row's target, and the entropy. `targets`: token and number of the mask.
KERNEL(LOSS_THREADS, 2)
train_score(Scored* scored, const float* all_logits, const uint2* targets, const u32* masks, u32 vocabulary, u32 stride,
            u32 mask_words, float inverse) {
    __shared__ float shared[LOSS_THREADS / 32];
    AFTER_PREVIOUS;
    const float* logits = all_logits + size_t(blockIdx.x) * stride;
    uint2 target = targets[blockIdx.x];
    const u32* mask = target.y == 0xffffffffu ? nullptr : masks + size_t(target.y) * mask_words;
    float scale = inverse * LOG2_E, most = -INFINITE;
    for (u32 at = threadIdx.x; at < vocabulary; at += LOSS_THREADS)
        if (may(mask, at)) most = fmaxf(most, logits[at] * scale);
    most = of_all(most, true, shared);
    float sum = 0.0f, weighted = 0.0f;
    for (u32 at = threadIdx.x; at < vocabulary; at += LOSS_THREADS) {
        if (!may(mask, at)) continue;
        float power = logits[at] * scale - most, share = exp2_of(power);
        sum += share;
        // Where the share is zero, the power may be minus infinity.
        weighted += share > 0.0f ? share * power : 0.0f;
    }
    sum = of_all(sum, false, shared), weighted = of_all(weighted, false, shared);
    if (threadIdx.x) return;
    float total = logf(sum);
    scored[blockIdx.x] = Scored{(logits[target.x] * scale - most) / LOG2_E - total, total - weighted / sum / LOG2_E, most, sum};
}

// The gradient of the logits: slope times what the target's log-probability changes with each.
KERNEL(LOSS_THREADS, 2)
train_slope(half* gradients, const float* all_logits, const Scored* scored, const float* slopes, const uint2* targets,
            const u32* masks, u32 vocabulary, u32 stride, u32 mask_words, float inverse) {
    AFTER_PREVIOUS;
    const float* logits = all_logits + size_t(blockIdx.x) * stride;
    half* to = gradients + size_t(blockIdx.x) * stride;
    uint2 target = targets[blockIdx.x];
    const u32* mask = target.y == 0xffffffffu ? nullptr : masks + size_t(target.y) * mask_words;
    Scored of_row = scored[blockIdx.x];
    float slope = slopes[blockIdx.x] * inverse, share = slope / of_row.sum, scale = inverse * LOG2_E;
    for (u32 at = 2 * threadIdx.x; at < stride; at += 2 * LOSS_THREADS) {
        float2 two = *reinterpret_cast<const float2*>(logits + at);
        float gradient[2] = {two.x, two.y};
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            bool inside = at + i < vocabulary && may(mask, at + i);
            gradient[i] = (at + i == target.x ? slope : 0.0f) - (inside ? share * exp2_of(gradient[i] * scale - of_row.most) : 0.0f);
        }
        *reinterpret_cast<u32*>(to + at) = pack(gradient[0], gradient[1]);
    }
}

// ---- The optimiser -------------------------------------------------------------------------------------------------------

// The sum of squares of each block's numbers.
KERNEL(256, 8) train_squares(float* partial, const float4* from, u64 count) {
    __shared__ float shared[32];
    AFTER_PREVIOUS;
    float sum = 0.0f;
    for (u64 at = u64(blockIdx.x) * 256 + threadIdx.x; at < count / 4; at += u64(gridDim.x) * 256) {
        float4 four = from[at];
        sum += (four.x * four.x + four.y * four.y) + (four.z * four.z + four.w * four.w);
    }
    sum = sum_of_block(sum, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}


// One step of AdamW on all parameters; those from `decayed` on do not decay. Gradients become zero. `rounded` gets the values
// in 16 bits.
KERNEL(256, 4)
train_adam(float4* values, float4* gradients, float4* means, float4* squares, uint2* rounded, u64 count, u64 decayed, float rate,
           float beta1, float beta2, float epsilon, float decay, float correction1, float correction2, float scale) {
    AFTER_PREVIOUS;
    for (u64 at = u64(blockIdx.x) * 256 + threadIdx.x; at < count / 4; at += u64(gridDim.x) * 256) {
        float4 value4 = values[at], gradient4 = gradients[at], mean4 = means[at], square4 = squares[at];
        float* value = &value4.x;
        float* gradient = &gradient4.x;
        float* mean = &mean4.x;
        float* square = &square4.x;
        float shrunk = 4 * at < decayed ? 1.0f - decay : 1.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float slope = gradient[i] * scale;
            mean[i] += (1.0f - beta1) * (slope - mean[i]);
            square[i] += (1.0f - beta2) * (slope * slope - square[i]);
            float step = mean[i] * correction1 / (sqrtf(square[i] * correction2) + epsilon);
            value[i] = value[i] * shrunk - rate * step;
        }
        values[at] = value4, means[at] = mean4, squares[at] = square4;
        gradients[at] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        rounded[at] = make_uint2(pack(value[0], value[1]), pack(value[2], value[3]));
    }
}

// Writes the second matrices of adapters, scaled, beside the matrices they belong to. `places`: first number of the matrix, its
// rows, columns in all and real, and where it goes with which stride.
struct Place {
    u64 from, to;
    u32 rows, columns, stride, unused;
};
KERNEL(256, 4) train_place(half* weights, const float* values, const Place* places, float scale) {
    AFTER_PREVIOUS;
    Place place = places[blockIdx.y];
    for (u32 at = blockIdx.x * 256 + threadIdx.x; at < place.rows * place.columns; at += gridDim.x * 256) {
        u32 row = at / place.columns, column = at % place.columns;
        weights[place.to + size_t(row) * place.stride + column] = narrow(scale * values[place.from + at]);
    }
}

// Rounds rows to 16 bits, into rows that may be wider.
KERNEL(256, 4) train_round(half* to, u32 stride, const float* from, u64 rows, u32 width) {
    AFTER_PREVIOUS;
    for (u64 at = u64(blockIdx.x) * 256 + threadIdx.x; at < rows * width; at += u64(gridDim.x) * 256)
        to[at / width * stride + at % width] = narrow(in_range(from[at]));
}

// Numbers of 16 bits as f32.
KERNEL(256, 4) train_widen(float* to, const half* from, u64 count) {
    AFTER_PREVIOUS;
    for (u64 at = u64(blockIdx.x) * 256 + threadIdx.x; at < count; at += u64(gridDim.x) * 256) to[at] = wide(from[at]);
}
