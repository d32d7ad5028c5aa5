// What the kernels share. All files are one translation unit, compiled at run time without any header. The host defines:
//   DIM      the width of a head, a multiple of 16
//   GROUP    query heads that share a key head
//   KV_HEADS key heads
//   HIDDEN   the width of the residual stream, a multiple of 8
//   QK_NORM  1 if query and key are normalised before they are rotated
//
// A page holds the keys, or the values, of sixteen positions of one key head: DIM / 16 tiles of 16 x 16 numbers. A tile lies
// in the order in which the tensor cores take it as their left operand: lane l of a warp holds the 16 bytes l of the tile.
// So a warp reads a tile with one load of 512 bytes in a row, and no shuffling is needed. In a tile of keys the rows are
// positions and the columns dimensions; in a tile of values the rows are dimensions and the columns positions.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE_MEMBER __device__ __forceinline__
#define DEVICE static __device__ __forceinline__
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define ALL_LANES 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)
#define PAGE 16
// A kernel may be started while the one before it still runs. Every kernel begins with this, before it touches what others
// write: it waits for the end of the one before and lets the next one start.
#if __CUDA_ARCH__ >= 900
#define AFTER_PREVIOUS asm volatile("griddepcontrol.wait;\n griddepcontrol.launch_dependents;" ::: "memory")
#else
#define AFTER_PREVIOUS
#endif
#define TILES (DIM / 16)
// 16-byte words of a page.
#define PAGE_WORDS (2 * DIM)
#define LOG2_E 1.4426950408889634f

// Two numbers as bf16, rounded to nearest even.
DEVICE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

DEVICE bf16 narrow(float value) { return bf16(pack(value, 0.0f) & 0xffffu); }
DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// 2^value; 0 for minus infinity.
DEVICE float exp2_of(float value) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}

// sum += tile (16 x 16) times (16 x 8).
DEVICE void multiply(float (&sum)[4], const uint4& tile, u32 first, u32 second) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(tile.x), "r"(tile.y), "r"(tile.z), "r"(tile.w), "r"(first), "r"(second));
}

// Transposes an 8 x 8 matrix of bf16 whose row i is held in pairs by lanes 4 i to 4 i + 3.
DEVICE u32 transposed(u32 pair) {
    u32 turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}

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
