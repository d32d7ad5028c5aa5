// Attention of training, on tensor cores: rows of many texts in a row, forwards and backwards. A row sees those of its own text up to
// itself, and all rows of the text that its own continues: so a prompt is computed once for all its replies.
//
// `qkv`: rows of query, key and value after rotation. Matrices in shared memory have rows of DIM numbers and 16 bytes that
// keep rows apart in the banks.

#define TRAIN_WARPS 4
#define SPAN 64
#define HEADS (KV_HEADS * GROUP)
#define WIDTH ((HEADS + 2 * KV_HEADS) * DIM)
#define ROW_WORDS (DIM / 8 + 1)
#define SPAN_WORDS (SPAN * ROW_WORDS)

// A block's rows and what they see or are seen by. The host has the same struct.
struct Stretch {
    // Its first row; the rows of its text; the rows of the text that it continues, or that continue it.
    u32 row, start, end, other_start, other_end, unused0, unused1, unused2;
};

// Copies rows to shared memory; zeros for rows from `end` on.
DEVICE void fetch_rows(uint4* to, const half* from, u32 stride, u32 start, u32 end) {
    for (u32 at = threadIdx.x; at < SPAN * (DIM / 8); at += 32 * TRAIN_WARPS) {
        u32 row = at / (DIM / 8), word = at % (DIM / 8);
        bool inside = start + row < end;
        copy_async_or_zero(to + row * ROW_WORDS + word, from + size_t(inside ? start + row : 0) * stride + 8 * word, inside);
    }
}

// sums (16 x 8 COUNT) += 16 rows of a matrix times 8 COUNT rows of another, transposed.
template <int COUNT> DEVICE void multiply_rows(float (&sums)[COUNT][4], const uint4* left, const uint4* right) {
    u32 lane = threadIdx.x % 32;
    const uint4* row_left = left + (lane % 16) * ROW_WORDS + lane / 16;
    const uint4* row_right = right + (lane / 16 * 8 + lane % 8) * ROW_WORDS + lane / 8 % 2;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        uint4 a = load_matrices(row_left + 2 * tile);
#pragma unroll
        for (int pair = 0; pair < COUNT / 2; pair++) {
            uint4 b = load_matrices(row_right + pair * 16 * ROW_WORDS + 2 * tile);
            multiply(sums[2 * pair], a, b.x, b.y);
            multiply(sums[2 * pair + 1], a, b.z, b.w);
        }
    }
}

// sums (16 x DIM) += shares (16 x 8 COUNT) times 8 COUNT rows of a matrix.
template <int COUNT> DEVICE void multiply_shares(float (&sums)[2 * TILES][4], const float (&shares)[COUNT][4], const uint4* rows) {
    u32 lane = threadIdx.x % 32;
    const uint4* row = rows + (lane % 16) * ROW_WORDS + lane / 16;
#pragma unroll
    for (int pair = 0; pair < COUNT / 2; pair++) {
        const float* one = shares[2 * pair];
        const float* two = shares[2 * pair + 1];
        uint4 a = make_uint4(pack(one[0], one[1]), pack(one[2], one[3]), pack(two[0], two[1]), pack(two[2], two[3]));
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            uint4 b = load_transposed(row + pair * 16 * ROW_WORDS + 2 * tile);
            multiply(sums[2 * tile], a, b.x, b.y);
            multiply(sums[2 * tile + 1], a, b.z, b.w);
        }
    }
}

template <int COUNT> DEVICE void clear(float (&sums)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.0f;
}

// Which keys the blocks for queries visit: spans of the other text, then of their own.
struct Spans {
    u32 others, count, start, end;
};

DEVICE Spans spans_of(const Stretch& stretch) {
    Spans spans;
    spans.others = (stretch.other_end - stretch.other_start + SPAN - 1) / SPAN;
    u32 last = min(stretch.row + SPAN, stretch.end);
    spans.count = spans.others + (last - stretch.start + SPAN - 1) / SPAN;
    return spans;
}

DEVICE void go_to(Spans& spans, const Stretch& stretch, u32 number) {
    bool other = number < spans.others;
    spans.start = other ? stretch.other_start + number * SPAN : stretch.start + (number - spans.others) * SPAN;
    spans.end = other ? stretch.other_end : min(stretch.row + SPAN, stretch.end);
}

// Blocks (stretch of queries, head). `logs`: of each head and row, the logarithm of its total, in powers of two.
KERNEL(32 * TRAIN_WARPS, 2)
train_attend(half* out, u32 out_stride, float* logs, const half* qkv, const Stretch* stretches, u32 rows) {
    extern __shared__ uint4 shared[];
    AFTER_PREVIOUS;
    Stretch stretch = stretches[blockIdx.x];
    u32 head = blockIdx.y, warp = threadIdx.x / 32, of_eight = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
    const half* keys = qkv + (HEADS + head / GROUP) * DIM;
    const half* values = keys + KV_HEADS * DIM;
    Spans spans = spans_of(stretch);
    uint4* queries = shared + 4 * SPAN_WORDS;
    auto fetch = [&](u32 number) {
        go_to(spans, stretch, number);
        uint4* to = shared + number % 2 * 2 * SPAN_WORDS;
        fetch_rows(to, keys, WIDTH, spans.start, spans.end);
        fetch_rows(to + SPAN_WORDS, values, WIDTH, spans.start, spans.end);
        end_copies();
    };
    fetch_rows(queries, qkv + head * DIM, WIDTH, stretch.row, stretch.end);
    fetch(0);
    float sums[2 * TILES][4], most[2] = {-INFINITE, -INFINITE}, total[2] = {0.0f, 0.0f};
    clear(sums);
    u32 row[2] = {stretch.row + warp * 16 + of_eight, stretch.row + warp * 16 + of_eight + 8};
    const float scale = LOG2_E * rsqrtf(float(DIM));
    for (u32 number = 0; number < spans.count; number++) {
        if (number + 1 < spans.count) {
            fetch(number + 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        go_to(spans, stretch, number);
        const uint4* at = shared + number % 2 * 2 * SPAN_WORDS;
        float scores[SPAN / 8][4];
        clear(scores);
        multiply_rows<SPAN / 8>(scores, queries + warp * 16 * ROW_WORDS, at);
        bool other = number < spans.others;
#pragma unroll
        for (int tile = 0; tile < SPAN / 8; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 key = spans.start + 8 * tile + 2 * pair + i % 2;
                bool seen = key < spans.end && (other || key <= row[i / 2]);
                scores[tile][i] = seen ? scores[tile][i] * scale : -INFINITE;
            }
#pragma unroll
        for (int half_of = 0; half_of < 2; half_of++) {
            float largest = most[half_of];
#pragma unroll
            for (int tile = 0; tile < SPAN / 8; tile++)
                largest = fmaxf(largest, fmaxf(scores[tile][2 * half_of], scores[tile][2 * half_of + 1]));
            largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
            // Rows beyond the text may see nothing.
            float base = largest == -INFINITE ? 0.0f : largest, factor = exp2_of(most[half_of] - base), sum = 0.0f;
            most[half_of] = largest;
#pragma unroll
            for (int tile = 0; tile < SPAN / 8; tile++)
#pragma unroll
                for (int i = 2 * half_of; i < 2 * half_of + 2; i++)
                    sum += scores[tile][i] = exp2_of(scores[tile][i] - base);
            total[half_of] = total[half_of] * factor + sum;
#pragma unroll
            for (int tile = 0; tile < 2 * TILES; tile++)
                sums[tile][2 * half_of] *= factor, sums[tile][2 * half_of + 1] *= factor;
        }
        multiply_shares<SPAN / 8>(sums, scores, at + SPAN_WORDS);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        total[i] += __shfl_xor_sync(ALL_LANES, total[i], 1);
        total[i] += __shfl_xor_sync(ALL_LANES, total[i], 2);
        if (row[i] >= stretch.end) continue;
        float factor = 1.0f / total[i];
        u32* to = reinterpret_cast<u32*>(out + size_t(row[i]) * out_stride + head * DIM) + pair;
#pragma unroll
        for (int tile = 0; tile < 2 * TILES; tile++) to[4 * tile] = pack(sums[tile][2 * i] * factor, sums[tile][2 * i + 1] * factor);
        if (pair == 0) logs[size_t(head) * rows + row[i]] = most[i] + log2f(total[i]);
    }
}

// deltas[head][row] = the gradient of a head's output times the output. One warp for each head in turn.
KERNEL(128, 8) train_attend_delta(float* deltas, const half* out, u32 out_stride, const half* slopes, u32 slope_stride, u32 rows) {
    AFTER_PREVIOUS;
    u32 row = blockIdx.x, lane = threadIdx.x % 32;
    for (u32 head = threadIdx.x / 32; head < HEADS; head += 4) {
        const u32* a = reinterpret_cast<const u32*>(out + size_t(row) * out_stride + head * DIM);
        const u32* b = reinterpret_cast<const u32*>(slopes + size_t(row) * slope_stride + head * DIM);
        float sum = 0.0f;
        for (u32 at = lane; at < DIM / 2; at += 32) sum += low(a[at]) * low(b[at]) + high(a[at]) * high(b[at]);
        sum = sum_of_warp(sum);
        if (lane == 0) deltas[size_t(head) * rows + row] = sum;
    }
}

// Writes rows of gradients of rotated vectors, rotated back. Tiles i and i + TILES of a lane hold both numbers of a pair.
DEVICE void write_rotated_back(half* to, const float (&sums)[2 * TILES][4], int i, float scale, const float2* rotation) {
    u32* out = reinterpret_cast<u32*>(to) + threadIdx.x % 4;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        float2 first = rotation[8 * tile + 2 * (threadIdx.x % 4)], second = rotation[8 * tile + 2 * (threadIdx.x % 4) + 1];
        float a = sums[tile][2 * i] * scale, b = sums[tile][2 * i + 1] * scale;
        float c = sums[tile + TILES][2 * i] * scale, d = sums[tile + TILES][2 * i + 1] * scale;
        out[4 * tile] = pack(a * first.x + c * first.y, b * second.x + d * second.y);
        out[4 * (tile + TILES)] = pack(c * first.x - a * first.y, d * second.x - b * second.y);
    }
}

// The gradient of queries: blocks (stretch of queries, head).
KERNEL(32 * TRAIN_WARPS, 2)
train_attend_back_queries(half* dqkv, const half* qkv, const half* slopes, u32 slope_stride, const float* logs,
                          const float* deltas, const Stretch* stretches, const float2* rotations, const u32* positions, u32 rows) {
    extern __shared__ uint4 shared[];
    AFTER_PREVIOUS;
    Stretch stretch = stretches[blockIdx.x];
    u32 head = blockIdx.y, warp = threadIdx.x / 32, of_eight = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
    const half* keys = qkv + (HEADS + head / GROUP) * DIM;
    const half* values = keys + KV_HEADS * DIM;
    Spans spans = spans_of(stretch);
    uint4* queries = shared + 4 * SPAN_WORDS;
    uint4* of_out = queries + SPAN_WORDS;
    auto fetch = [&](u32 number) {
        go_to(spans, stretch, number);
        uint4* to = shared + number % 2 * 2 * SPAN_WORDS;
        fetch_rows(to, keys, WIDTH, spans.start, spans.end);
        fetch_rows(to + SPAN_WORDS, values, WIDTH, spans.start, spans.end);
        end_copies();
    };
    fetch_rows(queries, qkv + head * DIM, WIDTH, stretch.row, stretch.end);
    fetch_rows(of_out, slopes + head * DIM, slope_stride, stretch.row, stretch.end);
    fetch(0);
    float sums[2 * TILES][4];
    clear(sums);
    u32 row[2] = {stretch.row + warp * 16 + of_eight, stretch.row + warp * 16 + of_eight + 8};
    float log[2], delta[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        bool inside = row[i] < stretch.end;
        log[i] = inside ? logs[size_t(head) * rows + row[i]] : 0.0f;
        delta[i] = inside ? deltas[size_t(head) * rows + row[i]] : 0.0f;
    }
    const float scale = LOG2_E * rsqrtf(float(DIM));
    for (u32 number = 0; number < spans.count; number++) {
        if (number + 1 < spans.count) {
            fetch(number + 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        go_to(spans, stretch, number);
        const uint4* at = shared + number % 2 * 2 * SPAN_WORDS;
        float scores[SPAN / 8][4], of_shares[SPAN / 8][4];
        clear(scores);
        clear(of_shares);
        multiply_rows<SPAN / 8>(scores, queries + warp * 16 * ROW_WORDS, at);
        multiply_rows<SPAN / 8>(of_shares, of_out + warp * 16 * ROW_WORDS, at + SPAN_WORDS);
        bool other = number < spans.others;
#pragma unroll
        for (int tile = 0; tile < SPAN / 8; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 key = spans.start + 8 * tile + 2 * pair + i % 2;
                bool seen = row[i / 2] < stretch.end && key < spans.end && (other || key <= row[i / 2]);
                float share = seen ? exp2_of(scores[tile][i] * scale - log[i / 2]) : 0.0f;
                scores[tile][i] = share * (of_shares[tile][i] - delta[i / 2]);
            }
        multiply_shares<SPAN / 8>(sums, scores, at);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (row[i] < stretch.end)
            write_rotated_back(dqkv + size_t(row[i]) * WIDTH + head * DIM, sums, i, rsqrtf(float(DIM)),
                               rotations + size_t(positions[row[i]]) * (DIM / 2));
}

// The gradients of keys and values: blocks (stretch of keys, key head). They visit the queries of all heads of the key head: those of the
// own text from the first key on, then those of texts that continue it.
KERNEL(32 * TRAIN_WARPS, 2)
train_attend_back_keys(half* dqkv, const half* qkv, const half* slopes, u32 slope_stride, const float* logs, const float* deltas,
                       const Stretch* stretches, const float2* rotations, const u32* positions, u32 rows) {
    extern __shared__ uint4 shared[];
    __shared__ float log_of[2][SPAN], delta_of[2][SPAN];
    AFTER_PREVIOUS;
    Stretch stretch = stretches[blockIdx.x];
    u32 kv_head = blockIdx.y, warp = threadIdx.x / 32, of_eight = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
    uint4* keys = shared + 4 * SPAN_WORDS;
    uint4* values = keys + SPAN_WORDS;
    u32 own = (stretch.end - stretch.row + SPAN - 1) / SPAN;
    u32 count = (own + (stretch.other_end - stretch.other_start + SPAN - 1) / SPAN) * GROUP;
    u32 start, end;
    auto at_number = [&](u32 number) {
        u32 span = number / GROUP;
        start = span < own ? stretch.row + span * SPAN : stretch.other_start + (span - own) * SPAN;
        end = span < own ? stretch.end : stretch.other_end;
    };
    auto fetch = [&](u32 number) {
        at_number(number);
        u32 head = kv_head * GROUP + number % GROUP;
        uint4* to = shared + number % 2 * 2 * SPAN_WORDS;
        fetch_rows(to, qkv + head * DIM, WIDTH, start, end);
        fetch_rows(to + SPAN_WORDS, slopes + head * DIM, slope_stride, start, end);
        if (threadIdx.x < SPAN) {
            bool inside = start + threadIdx.x < end;
            log_of[number % 2][threadIdx.x] = inside ? logs[size_t(head) * rows + start + threadIdx.x] : 0.0f;
            delta_of[number % 2][threadIdx.x] = inside ? deltas[size_t(head) * rows + start + threadIdx.x] : 0.0f;
        }
        end_copies();
    };
    const half* own_keys = qkv + (HEADS + kv_head) * DIM;
    fetch_rows(keys, own_keys, WIDTH, stretch.row, stretch.end);
    fetch_rows(values, own_keys + KV_HEADS * DIM, WIDTH, stretch.row, stretch.end);
    fetch(0);
    float of_keys[2 * TILES][4], of_values[2 * TILES][4];
    clear(of_keys);
    clear(of_values);
    u32 row[2] = {stretch.row + warp * 16 + of_eight, stretch.row + warp * 16 + of_eight + 8};
    const float scale = LOG2_E * rsqrtf(float(DIM));
    for (u32 number = 0; number < count; number++) {
        if (number + 1 < count) {
            fetch(number + 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        at_number(number);
        bool other = number / GROUP >= own;
        const uint4* queries = shared + number % 2 * 2 * SPAN_WORDS;
        // Half of the queries at a time, so that everything stays in registers.
#pragma unroll 1
        for (u32 part = 0; part < SPAN; part += 32) {
            float shares[4][4], of_shares[4][4];
            clear(shares);
            clear(of_shares);
            const uint4* at = queries + part * ROW_WORDS;
            multiply_rows<4>(shares, keys + warp * 16 * ROW_WORDS, at);
            multiply_rows<4>(of_shares, values + warp * 16 * ROW_WORDS, at + SPAN_WORDS);
#pragma unroll
            for (int tile = 0; tile < 4; tile++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 place = part + 8 * tile + 2 * pair + i % 2, query = start + place;
                    bool seen = query < end && row[i / 2] < stretch.end && (other || row[i / 2] <= query);
                    float share = seen ? exp2_of(shares[tile][i] * scale - log_of[number % 2][place]) : 0.0f;
                    shares[tile][i] = share;
                    of_shares[tile][i] = share * (of_shares[tile][i] - delta_of[number % 2][place]);
                }
            multiply_shares<4>(of_values, shares, at + SPAN_WORDS);
            multiply_shares<4>(of_keys, of_shares, at);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (row[i] >= stretch.end) continue;
        half* to = dqkv + size_t(row[i]) * WIDTH + (HEADS + kv_head) * DIM;
        write_rotated_back(to, of_keys, i, rsqrtf(float(DIM)), rotations + size_t(positions[row[i]]) * (DIM / 2));
        u32* out = reinterpret_cast<u32*>(to + KV_HEADS * DIM) + pair;
#pragma unroll
        for (int tile = 0; tile < 2 * TILES; tile++) out[4 * tile] = pack(of_values[tile][2 * i], of_values[tile][2 * i + 1]);
    }
}
