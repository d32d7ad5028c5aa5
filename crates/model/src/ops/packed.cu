// Attention of texts that stand one after another, for the gradient too. `common.cu` stands before this.
//
// A head of 32·S numbers is spread over S neighbouring threads, which add up their shares of a product. All sums are in f32.

#define BLOCK 128
// The 32 numbers of one thread, and room that keeps the threads of a row in different banks.
#define PART 32
#define PADDED 36
// Keys or queries that are scored before any is added.
#define CHUNK 8

struct Packed {
    u32 rows, heads, kv_heads;
    float scale;
};

// The thread's place: which row of the block's, and which numbers of it.
template <int S> struct Place {
    static constexpr u32 ROWS = BLOCK / S, TILE = 64 / S;
    u32 row, part, first, last;

    DEVICE Place of(u32 rows) {
        Place place;
        u32 warp = threadIdx.x / 32 * 32;
        place.part = threadIdx.x % S * PART;
        // Rows beyond the end do the work of the last, and write nothing.
        u32 start = blockIdx.x * ROWS;
        place.row = min(start + threadIdx.x / S, rows - 1);
        place.first = min(start + warp / S, rows - 1);
        place.last = min(start + (warp + 31) / S, rows - 1);
        return place;
    }
    DEVICE bool inside(u32 rows) { return blockIdx.x * ROWS + threadIdx.x / S < rows; }
};

// One row's share of a thread.
template <typename T> DEVICE void load_part(const T* from, float (&values)[PART]) {
    constexpr int N = Wide<T>::COUNT;
#pragma unroll
    for (int i = 0; i < PART; i += N) {
        float some[N];
        load(from + i, some);
        EACH(k) values[i + k] = some[k];
    }
}

template <typename T> DEVICE void store_part(T* to, const float (&values)[PART]) {
    constexpr int N = Wide<T>::COUNT;
#pragma unroll
    for (int i = 0; i < PART; i += N) {
        float some[N];
        EACH(k) some[k] = values[i + k];
        store(to + i, some);
    }
}

// A tile of rows of one head into shared memory; rows from `end` on are zeros.
template <typename T, int S>
DEVICE void load_tile(const T* from, u32 start, u32 end, u32 stride, float (&tile)[64 / S][S * PADDED]) {
    constexpr int N = Wide<T>::COUNT;
    constexpr u32 LOADS = S * PART / N;
    for (u32 i = threadIdx.x; i < 64 / S * LOADS; i += BLOCK) {
        u32 row = i / LOADS, at = i % LOADS * N;
        float values[N] = {};
        if (start + row < end) load(from + u64(start + row) * stride + at, values);
        store(&tile[row][at / PART * PADDED + at % PART], values);
    }
}

DEVICE float4 four(const float* from) { return *reinterpret_cast<const float4*>(from); }

// The product of a thread's numbers with those in shared memory, summed over the threads of a row.
template <int S> DEVICE float product(const float (&x)[PART], const float* row) {
    float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < PART; i += 4) {
        float4 y = four(row + i);
        sums.x += x[i] * y.x, sums.y += x[i + 1] * y.y, sums.z += x[i + 2] * y.z, sums.w += x[i + 3] * y.w;
    }
    float sum = sums.x + sums.y + (sums.z + sums.w);
#pragma unroll
    for (int other = 1; other < S; other *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, other);
    return sum;
}

DEVICE void add_scaled(float (&sum)[PART], float factor, const float* row) {
#pragma unroll
    for (int i = 0; i < PART; i += 4) {
        float4 y = four(row + i);
        sum[i] += factor * y.x, sum[i + 1] += factor * y.y, sum[i + 2] += factor * y.z, sum[i + 3] += factor * y.w;
    }
}

template <typename T, int S>
DEVICE void packed_attention(In<T> q, In<T> k, In<T> v, In<u32> bounds, Out<T> out, Packed sizes) {
    __shared__ __align__(16) float keys[64 / S][S * PADDED], values[64 / S][S * PADDED];
    Place<S> place = Place<S>::of(sizes.rows);
    u32 head = blockIdx.y, kv_head = head / (sizes.heads / sizes.kv_heads), width = S * PART;
    u32 q_stride = sizes.heads * width, k_stride = sizes.kv_heads * width;
    float query[PART], sum[PART] = {}, largest = -INFINITE, powers = 0.0f;
    load_part(q + u64(place.row) * q_stride + head * width + place.part, query);
    u32 begin = bounds[2 * place.row], warp_begin = bounds[2 * place.first];
    u32 start = bounds[2 * min(blockIdx.x * Place<S>::ROWS, sizes.rows - 1)];
    u32 end = min((blockIdx.x + 1) * Place<S>::ROWS, sizes.rows);
    u32 own = place.part / PART * PADDED;
    for (u32 tile = start; tile < end; tile += Place<S>::TILE) {
        __syncthreads();
        load_tile<T, S>(k + kv_head * width, tile, end, k_stride, keys);
        load_tile<T, S>(v + kv_head * width, tile, end, k_stride, values);
        __syncthreads();
        for (u32 chunk = 0; chunk < Place<S>::TILE; chunk += CHUNK) {
            if (tile + chunk + CHUNK <= warp_begin || tile + chunk > place.last) continue;
            float scores[CHUNK], most = largest;
#pragma unroll
            for (u32 i = 0; i < CHUNK; i++) {
                u32 key = tile + chunk + i;
                float score = product<S>(query, &keys[chunk + i][own]) * sizes.scale;
                scores[i] = begin <= key && key <= place.row ? score : -INFINITE;
                most = fmaxf(most, scores[i]);
            }
            if (most == -INFINITE) continue;
            float factor = __expf(largest - most);
            largest = most, powers *= factor;
#pragma unroll
            for (int i = 0; i < PART; i++) sum[i] *= factor;
#pragma unroll
            for (u32 i = 0; i < CHUNK; i++) {
                float power = __expf(scores[i] - most);
                powers += power;
                add_scaled(sum, power, &values[chunk + i][own]);
            }
        }
    }
    float inverse = 1.0f / powers;
#pragma unroll
    for (int i = 0; i < PART; i++) sum[i] *= inverse;
    if (Place<S>::inside(sizes.rows)) store_part(out + u64(place.row) * q_stride + head * width + place.part, sum);
}

// The gradient of a query; what its keys need to know of it goes to `saved`.
template <typename T, int S>
DEVICE void packed_attention_grad_q(In<T> q, In<T> k, In<T> v, In<u32> bounds, In<T> out, In<T> grad,
                                    Out<float> saved, Out<T> grads, Packed sizes) {
    __shared__ __align__(16) float keys[64 / S][S * PADDED], values[64 / S][S * PADDED];
    Place<S> place = Place<S>::of(sizes.rows);
    u32 head = blockIdx.y, kv_head = head / (sizes.heads / sizes.kv_heads), width = S * PART;
    u32 q_stride = sizes.heads * width, k_stride = sizes.kv_heads * width;
    u64 at = u64(place.row) * q_stride + head * width + place.part;
    float query[PART], slope[PART], sum[PART], largest = -INFINITE, powers = 0.0f, along = 0.0f;
    load_part(q + at, query), load_part(grad + at, slope), load_part(out + at, sum);
#pragma unroll
    for (int i = 0; i < PART; i++) along += slope[i] * sum[i], sum[i] = 0.0f;
#pragma unroll
    for (int other = 1; other < S; other *= 2) along += __shfl_xor_sync(ALL_LANES, along, other);
    u32 begin = bounds[2 * place.row], warp_begin = bounds[2 * place.first];
    u32 start = bounds[2 * min(blockIdx.x * Place<S>::ROWS, sizes.rows - 1)];
    u32 end = min((blockIdx.x + 1) * Place<S>::ROWS, sizes.rows);
    u32 own = place.part / PART * PADDED;
    for (u32 tile = start; tile < end; tile += Place<S>::TILE) {
        __syncthreads();
        load_tile<T, S>(k + kv_head * width, tile, end, k_stride, keys);
        __syncthreads();
        for (u32 chunk = 0; chunk < Place<S>::TILE; chunk += CHUNK) {
            if (tile + chunk + CHUNK <= warp_begin || tile + chunk > place.last) continue;
            float scores[CHUNK], most = largest;
#pragma unroll
            for (u32 i = 0; i < CHUNK; i++) {
                u32 key = tile + chunk + i;
                float score = product<S>(query, &keys[chunk + i][own]) * sizes.scale;
                scores[i] = begin <= key && key <= place.row ? score : -INFINITE;
                most = fmaxf(most, scores[i]);
            }
            if (most == -INFINITE) continue;
            powers *= __expf(largest - most), largest = most;
#pragma unroll
            for (u32 i = 0; i < CHUNK; i++) powers += __expf(scores[i] - most);
        }
    }
    float level = largest + __logf(powers);
    for (u32 tile = start; tile < end; tile += Place<S>::TILE) {
        __syncthreads();
        load_tile<T, S>(k + kv_head * width, tile, end, k_stride, keys);
        load_tile<T, S>(v + kv_head * width, tile, end, k_stride, values);
        __syncthreads();
        for (u32 chunk = 0; chunk < Place<S>::TILE; chunk += CHUNK) {
            if (tile + chunk + CHUNK <= warp_begin || tile + chunk > place.last) continue;
#pragma unroll
            for (u32 i = 0; i < CHUNK; i++) {
                u32 key = tile + chunk + i;
                float score = product<S>(query, &keys[chunk + i][own]) * sizes.scale;
                float of_share = product<S>(slope, &values[chunk + i][own]);
                float share = begin <= key && key <= place.row ? __expf(score - level) : 0.0f;
                add_scaled(sum, share * (of_share - along) * sizes.scale, &keys[chunk + i][own]);
            }
        }
    }
    if (!Place<S>::inside(sizes.rows)) return;
    store_part(grads + at, sum);
    if (place.part == 0) {
        u64 query_number = u64(place.row) * sizes.heads + head;
        saved[2 * query_number] = level, saved[2 * query_number + 1] = along;
    }
}

// The gradients of a key and its value, from all queries of its text that come after it.
template <typename T, int S>
DEVICE void packed_attention_grad_kv(In<T> q, In<T> k, In<T> v, In<u32> bounds, In<T> grad, In<float> saved,
                                     Out<T> grads, Packed sizes) {
    __shared__ __align__(16) float queries[64 / S][S * PADDED], slopes[64 / S][S * PADDED];
    __shared__ float levels[64 / S], alongs[64 / S];
    Place<S> place = Place<S>::of(sizes.rows);
    u32 kv_head = blockIdx.y, group = sizes.heads / sizes.kv_heads, width = S * PART;
    u32 q_stride = sizes.heads * width, k_stride = sizes.kv_heads * width;
    u64 at = u64(place.row) * k_stride + kv_head * width + place.part;
    float key[PART], value[PART], of_key[PART] = {}, of_value[PART] = {};
    load_part(k + at, key), load_part(v + at, value);
    u32 seen_until = bounds[2 * place.row + 1], warp_until = bounds[2 * place.last + 1];
    u32 start = blockIdx.x * Place<S>::ROWS;
    u32 end = bounds[2 * (min((blockIdx.x + 1) * Place<S>::ROWS, sizes.rows) - 1) + 1];
    u32 own = place.part / PART * PADDED;
    for (u32 head = kv_head * group; head < (kv_head + 1) * group; head++) {
        for (u32 tile = start; tile < end; tile += Place<S>::TILE) {
            __syncthreads();
            load_tile<T, S>(q + head * width, tile, end, q_stride, queries);
            load_tile<T, S>(grad + head * width, tile, end, q_stride, slopes);
            if (threadIdx.x < Place<S>::TILE && tile + threadIdx.x < end) {
                u64 query_number = u64(tile + threadIdx.x) * sizes.heads + head;
                levels[threadIdx.x] = saved[2 * query_number], alongs[threadIdx.x] = saved[2 * query_number + 1];
            }
            __syncthreads();
            for (u32 chunk = 0; chunk < Place<S>::TILE; chunk += CHUNK) {
                if (tile + chunk + CHUNK <= place.first || tile + chunk >= warp_until) continue;
#pragma unroll
                for (u32 i = 0; i < CHUNK; i++) {
                    u32 query = tile + chunk + i;
                    float score = product<S>(key, &queries[chunk + i][own]) * sizes.scale;
                    float of_share = product<S>(value, &slopes[chunk + i][own]);
                    bool sees = place.row <= query && query < seen_until;
                    float share = sees ? __expf(score - levels[chunk + i]) : 0.0f;
                    float of_score = sees ? share * (of_share - alongs[chunk + i]) * sizes.scale : 0.0f;
                    add_scaled(of_value, share, &slopes[chunk + i][own]);
                    add_scaled(of_key, of_score, &queries[chunk + i][own]);
                }
            }
        }
    }
    if (!Place<S>::inside(sizes.rows)) return;
    grads += u64(sizes.rows) * q_stride;
    store_part(grads + at, of_key);
    store_part(grads + u64(sizes.rows) * k_stride + at, of_value);
}

#define PACKED(T, name, S)                                                                                             \
    extern "C" __global__ void __launch_bounds__(BLOCK) packed_attention_##S##_##name(                                 \
        In<T> q, In<T> k, In<T> v, In<u32> bounds, Out<T> out, u32 rows, u32 heads, u32 kv_heads, float scale) {       \
        packed_attention<T, S>(q, k, v, bounds, out, Packed{rows, heads, kv_heads, scale});                            \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK) packed_attention_grad_q_##S##_##name(                          \
        In<T> q, In<T> k, In<T> v, In<u32> bounds, In<T> out, In<T> grad, Out<float> saved, Out<T> grads, u32 rows,    \
        u32 heads, u32 kv_heads, float scale) {                                                                        \
        packed_attention_grad_q<T, S>(q, k, v, bounds, out, grad, saved, grads, Packed{rows, heads, kv_heads, scale}); \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK) packed_attention_grad_kv_##S##_##name(                         \
        In<T> q, In<T> k, In<T> v, In<u32> bounds, In<T> grad, In<float> saved, Out<T> grads, u32 rows, u32 heads,     \
        u32 kv_heads, float scale) {                                                                                   \
        packed_attention_grad_kv<T, S>(q, k, v, bounds, grad, saved, grads, Packed{rows, heads, kv_heads, scale});     \
    }

PACKED(float, f32, 1)
PACKED(float, f32, 2)
PACKED(float, f32, 4)
PACKED(bf16, bf16, 1)
PACKED(bf16, bf16, 2)
PACKED(bf16, bf16, 4)
