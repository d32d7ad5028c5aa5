// What the kernels share. It stands before them, and all is compiled at run time without any header.
//
// Elements are f32 or bf16; everything is computed in f32. A kernel's body is written once for N elements at a time: N
// is as many as 16 bytes hold where addresses and sizes allow such loads, and 1 where they do not. Sums are taken in an
// order that depends on sizes alone, without atomics, so that the same input gives the same bits.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

// No two tensors of a kernel overlap.
template <typename T> using In = const T* __restrict__;
template <typename T> using Out = T* __restrict__;

#define DEVICE static __device__ __forceinline__
#define ALL_LANES 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)

// ---- Loads and stores -----------------------------------------------------------------------------------------------

// To nearest, ties to even; NaN stays NaN.
DEVICE u32 round_bits(float value) {
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

DEVICE float rounded(float value, const float*) { return value; }
DEVICE float rounded(float value, const bf16*) { return __uint_as_float(round_bits(value) << 16); }

template <int N> DEVICE void load(const float* from, float (&values)[N]) {
    if constexpr (N == 1) {
        values[0] = from[0];
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 four = *reinterpret_cast<const float4*>(from + i);
            values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
        }
    }
}

template <int N> DEVICE void load(const bf16* from, float (&values)[N]) {
    if constexpr (N == 1) {
        values[0] = __uint_as_float(u32(from[0]) << 16);
    } else {
        static_assert(N == 8, "16 bytes");
        uint4 four = *reinterpret_cast<const uint4*>(from);
        u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            values[2 * i] = __uint_as_float(words[i] << 16);
            values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    }
}

template <int N> DEVICE void store(float* to, const float (&values)[N]) {
    if constexpr (N == 1) {
        to[0] = values[0];
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            *reinterpret_cast<float4*>(to + i) =
                make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
        }
    }
}

template <int N> DEVICE void store(bf16* to, const float (&values)[N]) {
    if constexpr (N == 1) {
        to[0] = bf16(round_bits(values[0]));
    } else {
        static_assert(N == 8, "16 bytes");
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = round_bits(values[2 * i]) | round_bits(values[2 * i + 1]) << 16;
        *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// How many elements 16 bytes hold.
template <typename T> struct Wide {
    static constexpr int COUNT = 16 / sizeof(T);
};

// Whether rows of this size can be loaded 16 bytes at a time from all these addresses.
template <typename T, typename... Addresses> DEVICE bool wide(u64 size, const Addresses*... addresses) {
    return size % Wide<T>::COUNT == 0 && (((reinterpret_cast<u64>(addresses) & 15) == 0) && ...);
}

// A thread's share of `count` elements, N at a time, among the threads of its warp, of its block, and of all blocks.
#define OF_WARP(i, count) for (u32 i = threadIdx.x % 32 * N; i < count; i += 32 * N)
#define OF_BLOCK(i, count) for (u32 i = threadIdx.x * N; i < count; i += blockDim.x * N)
#define OF_GRID(i, count) \
    for (u64 i = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < count; i += u64(gridDim.x) * blockDim.x * N)

// Each of the N elements at hand.
#define EACH(k) _Pragma("unroll") for (int k = 0; k < N; k++)

// ---- Sums over threads ----------------------------------------------------------------------------------------------

DEVICE float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(ALL_LANES, value, offset);
    return value;
}

DEVICE float warp_max(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, offset));
    return value;
}

// Every thread gets the sums of both values over the block.
DEVICE float2 block_sums(float2 values) {
    __shared__ float2 of_warps[32];
    u32 lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    values = make_float2(warp_sum(values.x), warp_sum(values.y));
    if (lane == 0) of_warps[threadIdx.x / 32] = values;
    __syncthreads();
    values = lane < warps ? of_warps[lane] : make_float2(0.0f, 0.0f);
    __syncthreads();
    return make_float2(warp_sum(values.x), warp_sum(values.y));
}
