// Attention over paged keys and values, on tensor cores. Scores are computed as keys x queries, so that their columns are
// queries: a page of 16 positions is one tile high, and 8 queries are one tile wide.

// The sums over the positions that a warp has seen, for 8 x COLUMNS queries.
template <int COLUMNS> struct Sums {
    float most[COLUMNS][2], total[COLUMNS][2], values[TILES][COLUMNS][4];

    DEVICE_MEMBER void clear() {
#pragma unroll
        for (int column = 0; column < COLUMNS; column++) {
#pragma unroll
            for (int i = 0; i < 2; i++) most[column][i] = -INFINITE, total[column][i] = 0.0f;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int i = 0; i < 4; i++) values[tile][column][i] = 0.0f;
        }
    }

    // Adds up the shares of a lane's positions.
    DEVICE_MEMBER void join_totals() {
#pragma unroll
        for (int column = 0; column < COLUMNS; column++)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int step = 4; step < 32; step *= 2)
                    total[column][i] += __shfl_xor_sync(ALL_LANES, total[column][i], step);
    }

    // Takes in the scores of a page. `shares` become the right operand of the product with the values.
    DEVICE_MEMBER void add_scores(float (&scores)[COLUMNS][4], u32 (&shares)[COLUMNS][2]) {
#pragma unroll
        for (int column = 0; column < COLUMNS; column++) {
            float factor[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float largest = fmaxf(scores[column][i], scores[column][i + 2]);
#pragma unroll
                for (int step = 4; step < 32; step *= 2)
                    largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, step));
                largest = fmaxf(largest, most[column][i]);
                factor[i] = exp2_of(most[column][i] - largest);
                most[column][i] = largest;
                scores[column][i] = exp2_of(scores[column][i] - largest);
                scores[column][i + 2] = exp2_of(scores[column][i + 2] - largest);
                total[column][i] = total[column][i] * factor[i] + scores[column][i] + scores[column][i + 2];
            }
            if (__any_sync(ALL_LANES, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    values[tile][column][0] *= factor[0], values[tile][column][1] *= factor[1];
                    values[tile][column][2] *= factor[0], values[tile][column][3] *= factor[1];
                }
            }
            shares[column][0] = transposed(pack(scores[column][0], scores[column][1]));
            shares[column][1] = transposed(pack(scores[column][2], scores[column][3]));
        }
    }
};

// The queries as right operand: `row` is where lane / 4 finds its query, or null.
DEVICE void load_query(u32 (&query)[TILES][2], const half* row) {
    u32 pair = threadIdx.x % 4;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const u32* from = reinterpret_cast<const u32*>(row + 16 * tile) + pair;
        query[tile][0] = row ? from[0] : 0u;
        query[tile][1] = row ? from[4] : 0u;
    }
}

// ---- One query position for each text ----------------------------------------------------------------------------------

#define DECODE_WARPS 4
#define DECODE_COLUMNS ((GROUP + 7) / 8)
// Positions that a block attends to. It is fixed, so that a result does not depend on what else is computed.
#define SPLIT 512

// The block (text x key head, part) attends to a part of the text. The last block of a text joins the parts.
// `partial`: for each part and key head, GROUP x (DIM sums, largest score, total).
KERNEL(32 * DECODE_WARPS, 3)
attend_decode(half* out, const half* q, const uint4* keys, const uint4* values, const u32* rows, const u32* positions,
              const u32* tables, const u32* blocks, const u32* parts_before, float* partial, u32* tickets) {
    __shared__ float sums[DECODE_WARPS][GROUP][DIM];
    __shared__ float mosts[DECODE_WARPS][GROUP], totals[DECODE_WARPS][GROUP];
    __shared__ u32 is_last;
    AFTER_PREVIOUS;
    u32 text = blockIdx.x / KV_HEADS, head = blockIdx.x % KV_HEADS;
    u32 row = rows[text], count = positions[row] + 1;
    u32 first = blockIdx.y * SPLIT;
    if (first >= count) return;
    u32 parts = (count + SPLIT - 1) / SPLIT;
    u32 end = min(first + SPLIT, count);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, of_eight = lane / 4, pair = lane % 4;
    const u32* pages = blocks + tables[row];

    u32 query[DECODE_COLUMNS][TILES][2];
#pragma unroll
    for (int column = 0; column < DECODE_COLUMNS; column++) {
        u32 of_group = 8 * column + of_eight;
        const half* from = q + (size_t(row) * KV_HEADS * GROUP + head * GROUP + of_group) * DIM;
        load_query(query[column], of_group < GROUP ? from : nullptr);
    }
    Sums<DECODE_COLUMNS> state;
    state.clear();

    u32 page = first / PAGE + warp, pages_end = (end + PAGE - 1) / PAGE;
    uint4 key[TILES], value[TILES];
    size_t here = 0;
    if (page < pages_end) {
        here = (size_t(pages[page]) * KV_HEADS + head) * PAGE_WORDS + lane;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) key[tile] = __ldcs(keys + here + 32 * tile);
    }
    while (page < pages_end) {
        u32 next = page + DECODE_WARPS;
        u32 next_block = next < pages_end ? pages[next] : 0u;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) value[tile] = __ldcs(values + here + 32 * tile);
        float scores[DECODE_COLUMNS][4] = {};
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int column = 0; column < DECODE_COLUMNS; column++)
                multiply(scores[column], key[tile], query[column][tile][0], query[column][tile][1]);
        here = (size_t(next_block) * KV_HEADS + head) * PAGE_WORDS + lane;
        if (next < pages_end) {
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) key[tile] = __ldcs(keys + here + 32 * tile);
        }
        if (page * PAGE + PAGE > end) {
#pragma unroll
            for (int column = 0; column < DECODE_COLUMNS; column++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (page * PAGE + of_eight + i / 2 * 8 >= end) scores[column][i] = -INFINITE;
        }
        u32 shares[DECODE_COLUMNS][2];
        state.add_scores(scores, shares);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int column = 0; column < DECODE_COLUMNS; column++)
                multiply(state.values[tile][column], value[tile], shares[column][0], shares[column][1]);
        page = next;
    }

    // Join the warps.
    state.join_totals();
#pragma unroll
    for (int column = 0; column < DECODE_COLUMNS; column++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 of_group = 8 * column + 2 * pair + i;
            if (of_group >= GROUP) continue;
            if (of_eight == 0) mosts[warp][of_group] = state.most[column][i], totals[warp][of_group] = state.total[column][i];
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                sums[warp][of_group][16 * tile + of_eight] = state.values[tile][column][i];
                sums[warp][of_group][16 * tile + of_eight + 8] = state.values[tile][column][i + 2];
            }
        }
    }
    __syncthreads();
    const u32 STRIDE = DIM + 2;
    half* to = out + (size_t(row) * KV_HEADS + head) * GROUP * DIM;
    float* parts_of = partial + (size_t(parts_before[text]) * KV_HEADS + size_t(head) * parts) * GROUP * STRIDE;
    for (u32 at = threadIdx.x; at < GROUP * DIM / 2; at += 32 * DECODE_WARPS) {
        u32 of_group = 2 * at / DIM, dim = 2 * at % DIM;
        float most = mosts[0][of_group];
#pragma unroll
        for (int i = 1; i < DECODE_WARPS; i++) most = fmaxf(most, mosts[i][of_group]);
        float total = 0.0f, a = 0.0f, b = 0.0f;
#pragma unroll
        for (int i = 0; i < DECODE_WARPS; i++) {
            float factor = exp2_of(mosts[i][of_group] - most);
            total += factor * totals[i][of_group];
            a += factor * sums[i][of_group][dim], b += factor * sums[i][of_group][dim + 1];
        }
        if (parts == 1) {
            reinterpret_cast<u32*>(to)[at] = pack(a / total, b / total);
        } else {
            float* part = parts_of + (size_t(blockIdx.y) * GROUP + of_group) * STRIDE;
            part[dim] = a, part[dim + 1] = b;
            if (dim == 0) part[DIM] = most, part[DIM + 1] = total;
        }
    }
    if (parts == 1) return;

    // Join the parts.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(tickets + blockIdx.x, 1u) == parts - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (threadIdx.x == 0) tickets[blockIdx.x] = 0;
    for (u32 at = threadIdx.x; at < GROUP * DIM / 2; at += 32 * DECODE_WARPS) {
        u32 of_group = 2 * at / DIM, dim = 2 * at % DIM;
        const volatile float* part = parts_of + of_group * STRIDE;
        float most = -INFINITE;
        for (u32 i = 0; i < parts; i++) most = fmaxf(most, part[i * GROUP * STRIDE + DIM]);
        float total = 0.0f, a = 0.0f, b = 0.0f;
        for (u32 i = 0; i < parts; i++) {
            const volatile float* one = part + i * GROUP * STRIDE;
            float factor = exp2_of(one[DIM] - most);
            total += factor * one[DIM + 1];
            a += factor * one[dim], b += factor * one[dim + 1];
        }
        reinterpret_cast<u32*>(to)[at] = pack(a / total, b / total);
    }
}

// ---- Runs of positions of a text ---------------------------------------------------------------------------------------

#define PROMPT_WARPS 8
#define PROMPT_COLUMNS 2
#define STAGE_PAGES 4
// Queries of a block: a run's positions times GROUP heads, numbered position by position.
#define PROMPT_QUERIES (PROMPT_WARPS * PROMPT_COLUMNS * 8)

// The block (tile, key head) attends for some queries of a run. `tiles`: row of the run's first position, positions of the
// run, first query of the tile.
KERNEL(32 * PROMPT_WARPS, 2)
attend_prompt(half* out, const half* q, const uint4* keys, const uint4* values, const uint4* tiles, const u32* positions,
              const u32* tables, const u32* blocks) {
    extern __shared__ uint4 stages[];
    const u32 STAGE = 2 * STAGE_PAGES * PAGE_WORDS;
    AFTER_PREVIOUS;
    uint4 tile_of = tiles[blockIdx.x];
    u32 row = tile_of.x, count = tile_of.y, start = tile_of.z, head = blockIdx.y;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, of_eight = lane / 4, pair = lane % 4;
    u32 position = positions[row];
    const u32* pages = blocks + tables[row];
    u32 pages_end = (position + min((start + PROMPT_QUERIES - 1) / GROUP, count - 1)) / PAGE + 1;
    u32 query_of = start + warp * PROMPT_COLUMNS * 8;
    // The first and the last position that a query of this warp sees as its last.
    u32 nearest = position + min(query_of / GROUP, count - 1);
    u32 farthest = position + min((query_of + PROMPT_COLUMNS * 8 - 1) / GROUP, count - 1);

    auto fetch = [&](u32 stage) {
        for (u32 at = threadIdx.x; at < STAGE; at += 32 * PROMPT_WARPS) {
            u32 page = stage * STAGE_PAGES + at / (2 * PAGE_WORDS);
            if (page >= pages_end) break;
            u32 word = at % (2 * PAGE_WORDS);
            size_t base = (size_t(pages[page]) * KV_HEADS + head) * PAGE_WORDS;
            const uint4* from = word < PAGE_WORDS ? keys + base + word : values + base + word - PAGE_WORDS;
            copy_async(stages + stage % 2 * STAGE + at, from);
        }
        end_copies();
    };

    fetch(0);
    u32 query[PROMPT_COLUMNS][TILES][2];
#pragma unroll
    for (int column = 0; column < PROMPT_COLUMNS; column++) {
        u32 number = query_of + 8 * column + of_eight, at = number / GROUP;
        const half* from = q + (size_t(row + at) * KV_HEADS * GROUP + head * GROUP + number % GROUP) * DIM;
        load_query(query[column], at < count ? from : nullptr);
    }
    // The last positions that the queries of this lane see.
    u32 last[PROMPT_COLUMNS][2];
#pragma unroll
    for (int column = 0; column < PROMPT_COLUMNS; column++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            last[column][i] = position + min((query_of + 8 * column + 2 * pair + i) / GROUP, count - 1);
    Sums<PROMPT_COLUMNS> state;
    state.clear();

    u32 stage_count = (pages_end + STAGE_PAGES - 1) / STAGE_PAGES;
    for (u32 stage = 0; stage < stage_count; stage++) {
        if (stage + 1 < stage_count) {
            fetch(stage + 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        for (u32 i = 0; i < STAGE_PAGES; i++) {
            u32 page = stage * STAGE_PAGES + i;
            if (page * PAGE > farthest) break;
            const uint4* key = stages + stage % 2 * STAGE + i * 2 * PAGE_WORDS + lane;
            const uint4* value = key + PAGE_WORDS;
            float scores[PROMPT_COLUMNS][4] = {};
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                uint4 one = key[32 * tile];
#pragma unroll
                for (int column = 0; column < PROMPT_COLUMNS; column++)
                    multiply(scores[column], one, query[column][tile][0], query[column][tile][1]);
            }
            if (page * PAGE + PAGE - 1 > nearest) {
#pragma unroll
                for (int column = 0; column < PROMPT_COLUMNS; column++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        if (page * PAGE + of_eight + j / 2 * 8 > last[column][j % 2]) scores[column][j] = -INFINITE;
            }
            u32 shares[PROMPT_COLUMNS][2];
            state.add_scores(scores, shares);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                uint4 one = value[32 * tile];
#pragma unroll
                for (int column = 0; column < PROMPT_COLUMNS; column++)
                    multiply(state.values[tile][column], one, shares[column][0], shares[column][1]);
            }
        }
        __syncthreads();
    }

    state.join_totals();
#pragma unroll
    for (int column = 0; column < PROMPT_COLUMNS; column++) {
        float a = 1.0f / state.total[column][0], b = 1.0f / state.total[column][1];
        u32 number = query_of + 8 * column + of_eight, at = number / GROUP;
        half* to = out + (size_t(row + at) * KV_HEADS * GROUP + head * GROUP + number % GROUP) * DIM;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            float* sums = state.values[tile][column];
            u32 first = transposed(pack(sums[0] * a, sums[1] * b)), second = transposed(pack(sums[2] * a, sums[3] * b));
            if (at < count) {
                reinterpret_cast<u32*>(to + 16 * tile)[pair] = first;
                reinterpret_cast<u32*>(to + 16 * tile)[pair + 4] = second;
            }
        }
    }
}
