// What the kernels share. All files are one translation unit, compiled at run time without any header. The host defines:
//   DIM      the width of a head, a multiple of 16
//   GROUP    query heads that share a key head
//   KV_HEADS key heads
//   HIDDEN   the width of the residual stream, a multiple of 8
//   HALF     1: matrices are f16; 0: bf16
//   QK_NORM  1 if query and key are normalised before they are rotated
//
// A page holds the keys, or the values, of sixteen positions of one key head: DIM / 16 tiles of 16 x 16 numbers. A tile lies
// in the order in which the tensor cores take it as their left operand: lane l of a warp holds the 16 bytes l of the tile.
// So a warp reads a tile with one load of 512 bytes in a row, and no shuffling is needed. In a tile of keys the rows are
// positions and the columns dimensions; in a tile of values the rows are dimensions and the columns positions.

#define INFINITE __int_as_float(0x7f800000)
#define PAGE 16
#define TILES (DIM / 16)
// 16-byte words of a page.
#define PAGE_WORDS (2 * DIM)
#define LOG2_E 1.4426950408889634f

// Where the number in a row and column of a tile lies, in numbers.
DEVICE u32 in_tile(u32 row, u32 column) {
    u32 lane = (row % 8) * 4 + (column % 8) / 2;
    return lane * 8 + ((column / 8) * 2 + row / 8) * 2 + column % 2;
}

DEVICE float sum_of_warp(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
}

// The sum over all threads of a block of at most 32 warps, in an order that depends on their number alone.
DEVICE float sum_of_block(float value, float* shared) {
    value = sum_of_warp(value);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0.0f;
    return sum_of_warp(sum);
}

// The number nearest to a value that 16 bits can hold. bf16 holds all.
DEVICE float in_range(float value) { return HALF ? fminf(fmaxf(value, -65504.0f), 65504.0f) : value; }
