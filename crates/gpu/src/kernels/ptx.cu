// Types, and the instructions that C++ has no words for. Factors of products are numbers of 16 bits. HALF is 1 for f16, which
// has three bits more, and 0 for bf16, which has the range of f32.

typedef unsigned short half;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE_MEMBER __device__ __forceinline__
#define DEVICE static __device__ __forceinline__
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define ALL_LANES 0xffffffffu
// A kernel may be started while the one before it still runs. Every kernel begins with this, before it touches what others
// write: it waits for the end of the one before and lets the next one start.
#if __CUDA_ARCH__ >= 900
#define AFTER_PREVIOUS asm volatile("griddepcontrol.wait;\n griddepcontrol.launch_dependents;" ::: "memory")
#else
#define AFTER_PREVIOUS
#endif

#if HALF
#define HALF_NAME "f16"
#else
#define HALF_NAME "bf16"
#endif

// Two numbers in 16 bits each, rounded to nearest even.
DEVICE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn." HALF_NAME "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

DEVICE float wide(half value) {
    float as_float;
#if HALF
    asm("cvt.f32.f16 %0, %1;" : "=f"(as_float) : "h"(value));
#else
    as_float = __uint_as_float(u32(value) << 16);
#endif
    return as_float;
}

DEVICE half narrow(float value) { return half(pack(value, 0.0f) & 0xffffu); }
DEVICE float low(u32 pair) { return wide(half(pair & 0xffffu)); }
DEVICE float high(u32 pair) { return wide(half(pair >> 16)); }

// 2^value; 0 for minus infinity.
DEVICE float exp2_of(float value) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}

// sum += tile (16 x 16) times (16 x 8).
DEVICE void multiply(float (&sum)[4], const uint4& tile, u32 first, u32 second) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF_NAME "." HALF_NAME
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(tile.x), "r"(tile.y), "r"(tile.z), "r"(tile.w), "r"(first), "r"(second));
}

// Transposes an 8 x 8 matrix whose row i is held in pairs by lanes 4 i to 4 i + 3.
DEVICE u32 transposed(u32 pair) {
    u32 turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}

// Four 8 x 8 matrices from shared memory. Lanes 8 i to 8 i + 7 tell where the rows of matrix i are; lane l gets numbers 2 (l % 4)
// and the next of row l / 4 of each.
DEVICE uint4 load_matrices(const uint4* row) {
    u32 address = u32(__cvta_generic_to_shared(row));
    uint4 to;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "r"(address) : "memory");
    return to;
}

// The same, each matrix transposed.
DEVICE uint4 load_transposed(const uint4* row) {
    u32 address = u32(__cvta_generic_to_shared(row));
    uint4 to;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "r"(address) : "memory");
    return to;
}

// Begins to copy 16 bytes to shared memory.
DEVICE void copy_async(uint4* to, const void* from) {
    u32 address = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

// The same, or zeros.
DEVICE void copy_async_or_zero(uint4* to, const void* from, bool copies) {
    u32 address = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(copies ? 16u : 0u) : "memory");
}

// Ends a group of copies.
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most so many of a thread's groups are not done.
template <int GROUPS> DEVICE_MEMBER void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory"); }

