// The small kernels of a step: one block for each row.

// A token whose top bit is set stands for the token that was drawn as that number in the previous step.
#define OF_DRAW 0x80000000u

// x[row] = the vector of its token.
KERNEL(128, 8) embed(float* x, const half* table, const u32* tokens, const u32* drawn, u32 hidden, u32 vocabulary) {
    AFTER_PREVIOUS;
    u32 row = blockIdx.x, token = tokens[row];
    if (token & OF_DRAW) token = drawn[token & ~OF_DRAW];
    // A draw that failed has no token; what is computed after it is dropped.
    if (token >= vocabulary) token = 0;
    const uint2* from = reinterpret_cast<const uint2*>(table + size_t(token) * hidden);
    float4* to = reinterpret_cast<float4*>(x + size_t(row) * hidden);
    for (u32 at = threadIdx.x; at < hidden / 4; at += 128) {
        uint2 four = from[at];
        to[at] = make_float4(low(four.x), high(four.x), low(four.y), high(four.y));
    }
}

// y[row] = x[row or rows[row]], normalised by its root mean square, times weight.
KERNEL(128, 4) rms_norm(half* y, const float* x, const float* weight, const u32* rows, float epsilon) {
    __shared__ float shared[32];
    // Numbers that a thread holds, four at a time.
    const int EACH = (HIDDEN / 4 + 127) / 128;
    float4 part[EACH], by[EACH];
    u32 row = blockIdx.x;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = threadIdx.x + 128 * i;
        by[i] = at < HIDDEN / 4 ? reinterpret_cast<const float4*>(weight)[at] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    AFTER_PREVIOUS;
    const float4* from = reinterpret_cast<const float4*>(x + size_t(rows ? rows[row] : row) * HIDDEN);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = threadIdx.x + 128 * i;
        float4 four = part[i] = at < HIDDEN / 4 ? from[at] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        sum += (four.x * four.x + four.y * four.y) + (four.z * four.z + four.w * four.w);
    }
    float factor = rsqrtf(sum_of_block(sum, shared) / float(HIDDEN) + epsilon);
    uint2* to = reinterpret_cast<uint2*>(y + size_t(row) * HIDDEN);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 at = threadIdx.x + 128 * i;
        if (at >= HIDDEN / 4) continue;
        to[at] = make_uint2(pack(part[i].x * factor * by[i].x, part[i].y * factor * by[i].y),
                            pack(part[i].z * factor * by[i].z, part[i].w * factor * by[i].w));
    }
}

// x[row] += bias.
KERNEL(128, 8) add_bias(float* x, const float* bias, u32 hidden) {
    AFTER_PREVIOUS;
    for (u32 at = threadIdx.x; at < hidden; at += 128) x[size_t(blockIdx.x) * hidden + at] += bias[at];
}

// Adds the bias to query, key and value of a row, normalises (QK_NORM) and rotates query and key, writes the query, scaled
// for base-2 softmax, to q and key and value to their pages. One warp for each head in turn.
KERNEL(128, 8)
rope_store(half* q, half* keys, half* values, const float* qkv, const float* bias, const float* q_norm, const float* k_norm,
           const float2* rotations, const u32* positions, const u32* tables, const u32* blocks, u32 heads, float epsilon) {
    AFTER_PREVIOUS;
    u32 row = blockIdx.x, lane = threadIdx.x % 32;
    u32 position = positions[row];
    size_t page = size_t(blocks[tables[row] + position / PAGE]) * KV_HEADS;
    u32 place = position % PAGE, width = heads + 2 * KV_HEADS;
    for (u32 head = threadIdx.x / 32; head < width; head += 4) {
        const float* from = qkv + (size_t(row) * width + head) * DIM;
        const float* plus = bias + head * DIM;
        if (head >= heads + KV_HEADS) {
            half* to = values + (page + head - heads - KV_HEADS) * PAGE * DIM;
            for (u32 at = lane; at < DIM; at += 32) {
                float value = from[at] + (bias ? plus[at] : 0.0f);
                to[at / 16 * 256 + in_tile(at % 16, place)] = narrow(value);
            }
            continue;
        }
        // A lane holds dimensions 2 i, 2 i + 1 and those half a head further.
        const int EACH = (DIM / 4 + 31) / 32;
        float part[EACH][4], sum = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            u32 at = 2 * (lane + 32 * i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u32 dim = at + j % 2 + j / 2 * (DIM / 2);
                part[i][j] = at < DIM / 2 ? from[dim] + (bias ? plus[dim] : 0.0f) : 0.0f;
                sum += part[i][j] * part[i][j];
            }
        }
        if (QK_NORM) {
            float factor = rsqrtf(sum_of_warp(sum) / DIM + epsilon);
            const float* by = head < heads ? q_norm : k_norm;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                u32 at = 2 * (lane + 32 * i);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    u32 dim = at + j % 2 + j / 2 * (DIM / 2);
                    if (at < DIM / 2) part[i][j] *= factor * by[dim];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            u32 at = 2 * (lane + 32 * i);
            if (at >= DIM / 2) continue;
            float2 first = rotations[size_t(position) * (DIM / 2) + at];
            float2 second = rotations[size_t(position) * (DIM / 2) + at + 1];
            float a = part[i][0] * first.x - part[i][2] * first.y, b = part[i][1] * second.x - part[i][3] * second.y;
            float c = part[i][2] * first.x + part[i][0] * first.y, d = part[i][3] * second.x + part[i][1] * second.y;
            if (head < heads) {
                float scale = LOG2_E * rsqrtf(float(DIM));
                u32* to = reinterpret_cast<u32*>(q + (size_t(row) * heads + head) * DIM);
                to[at / 2] = pack(a * scale, b * scale);
                to[(at + DIM / 2) / 2] = pack(c * scale, d * scale);
            } else {
                half* to = keys + (page + head - heads) * PAGE * DIM;
                u32 other = at + DIM / 2;
                *reinterpret_cast<u32*>(to + at / 16 * 256 + in_tile(place, at % 16)) = pack(a, b);
                *reinterpret_cast<u32*>(to + other / 16 * 256 + in_tile(place, other % 16)) = pack(c, d);
            }
        }
    }
}

// y = silu(gate) * up, for rows of gate and up, side by side.
KERNEL(256, 4) swiglu(half* y, const half* gate_up, u32 rows, u32 width) {
    AFTER_PREVIOUS;
    u32 words = width / 8;
    u64 at = u64(blockIdx.x) * 256 + threadIdx.x;
    if (at >= u64(rows) * words) return;
    u32 row = u32(at / words), word = u32(at % words);
    const uint4* from = reinterpret_cast<const uint4*>(gate_up) + size_t(row) * 2 * words + word;
    uint4 gate = from[0], up = from[words], out;
    auto one = [](float g, float u) { return in_range(in_range(g) * in_range(u) / (1.0f + exp2_of(-LOG2_E * in_range(g)))); };
    auto two = [&](u32 g, u32 u) { return pack(one(low(g), low(u)), one(high(g), high(u))); };
    out.x = two(gate.x, up.x), out.y = two(gate.y, up.y), out.z = two(gate.z, up.z), out.w = two(gate.w, up.w);
    reinterpret_cast<uint4*>(y)[at] = out;
}

// Rounds weights.
KERNEL(256, 4) round_to(half* to, const float* from, u64 count) {
    AFTER_PREVIOUS;
    for (u64 at = u64(blockIdx.x) * 256 + threadIdx.x; at < count; at += u64(gridDim.x) * 256) to[at] = narrow(in_range(from[at]));
}

DEVICE u32 mixed(u32 bits, u32 factor, u32 shift) { return (bits ^ (bits >> shift)) * factor; }

// Random weights between -most and most, for measurements.
KERNEL(256, 4) fill_random(half* to, u64 count, float most, u32 seed) {
    AFTER_PREVIOUS;
    for (u64 at = u64(blockIdx.x) * 256 + threadIdx.x; at < count; at += u64(gridDim.x) * 256) {
        u32 bits = mixed(mixed(u32(at) * 0x9e3779b9u + seed + u32(at >> 32), 0x21f0aaadu, 16), 0x735a2d97u, 15);
        to[at] = narrow((float(bits >> 8) / 8388608.0f - 1.0f) * most);
    }
}

// Rows of a matrix and of an adapter, added up: to = base + scale * second * first. One block for each row.
KERNEL(256, 4)
merge_adapter(half* to, const half* base, const float* second, const float* first, u32 width, u32 rank, float scale) {
    AFTER_PREVIOUS;
    size_t row = blockIdx.x;
    for (u32 at = threadIdx.x; at < width; at += 256) {
        float sum = 0.0f;
        for (u32 i = 0; i < rank; i++) sum += second[row * rank + i] * first[size_t(i) * width + at];
        to[row * width + at] = narrow(in_range(wide(base[row * width + at]) + scale * sum));
    }
}
