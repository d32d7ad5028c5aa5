// What the kernels need of a GPU, on a CPU. This comes before the kernels' source, instead of `ptx.cu`.
//
// The threads of a block are fibers of one thread; blocks run one after another. A fiber runs until it waits for others.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <vector>

typedef unsigned short half;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE_MEMBER inline
#define DEVICE static inline
#define KERNEL(threads, blocks) extern "C" void
#define ALL_LANES 0xffffffffu
#define AFTER_PREVIOUS
#define __shared__ static

struct uint2 { u32 x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct uint3 { u32 x, y, z; };
static inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- Fibers ------------------------------------------------------------------------------------------------------------

static const size_t STACK = 128 << 10, MOST_SHARED = 256 << 10;
static uint3 threadIdx, blockIdx, blockDim, gridDim;
static unsigned char* dynamic_shared;

extern "C" void switch_fiber(void** save, void* load);
asm(R"(
.text
.globl switch_fiber
switch_fiber:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

struct Meeting {
    u32 arrived = 0, live = 0, round = 0;
    void release() {
        if (arrived && arrived == live) arrived = 0, round++;
    }
};

static struct Block {
    std::vector<void*> tops;
    std::vector<char> ended;
    std::vector<unsigned char*> stacks;
    u32 threads = 0, current = 0, live = 0;
    void* host = nullptr;
    Meeting all, warps[32];
    const std::function<void()>* body = nullptr;
    // What the lanes of a warp tell each other, for two rounds in turn.
    u64 told[32][2][32];
} block;

static void resume(u32 next) {
    u32 self = block.current;
    block.current = next;
    threadIdx.x = next;
    switch_fiber(&block.tops[self], block.tops[next]);
    threadIdx.x = self;
}

static void let_others_run() {
    u32 next = block.current;
    do next = (next + 1) % block.threads;
    while (block.ended[next]);
    if (next != block.current) resume(next);
}

static void meet(Meeting& meeting) {
    u32 round = meeting.round;
    meeting.arrived++;
    meeting.release();
    while (meeting.round == round) let_others_run();
}

static void run_fiber() {
    (*block.body)();
    u32 self = block.current;
    block.ended[self] = 1;
    block.live--;
    block.all.live--, block.all.release();
    Meeting& warp = block.warps[self / 32];
    warp.live--, warp.release();
    void* unused;
    if (block.live == 0) switch_fiber(&unused, block.host);
    u32 next = self;
    do next = (next + 1) % block.threads;
    while (block.ended[next]);
    block.current = next, threadIdx.x = next;
    switch_fiber(&unused, block.tops[next]);
    abort();
}

extern "C" void run_grid(const std::function<void()>* body, u32 x, u32 y, u32 threads, u32 shared) {
    if (!dynamic_shared) dynamic_shared = static_cast<unsigned char*>(aligned_alloc(256, MOST_SHARED));
    while (block.stacks.size() < threads) block.stacks.push_back(static_cast<unsigned char*>(aligned_alloc(64, STACK)));
    blockDim = {threads, 1, 1}, gridDim = {x, y, 1};
    for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++) {
            memset(dynamic_shared, 0xff, MOST_SHARED);
            block.threads = block.live = threads, block.body = body;
            block.tops.assign(threads, nullptr), block.ended.assign(threads, 0);
            block.all = Meeting(), block.all.live = threads;
            for (u32 warp = 0; warp < 32; warp++) block.warps[warp] = Meeting();
            for (u32 at = 0; at < threads; at++) {
                block.warps[at / 32].live++;
                // As if the fiber had been left just before its first instruction: the stack is then as after a call.
                u64* top = reinterpret_cast<u64*>(block.stacks[at] + STACK) - 2;
                *top = reinterpret_cast<u64>(&run_fiber);
                block.tops[at] = top - 6;
            }
            block.current = 0, threadIdx = {0, 0, 0};
            switch_fiber(&block.host, block.tops[0]);
        }
}

// ---- What threads do together ------------------------------------------------------------------------------------------

static inline void __syncthreads() { meet(block.all); }
static inline void __threadfence() {}

// Tells the other lanes of the warp a number; what all of them told.
static inline const u64* tell(u64 value) {
    u32 warp = threadIdx.x / 32;
    u64* told = block.told[warp][block.warps[warp].round % 2];
    told[threadIdx.x % 32] = value;
    meet(block.warps[warp]);
    return told;
}

template <class T> static inline T __shfl_xor_sync(u32, T value, int other) {
    u64 bits = 0;
    memcpy(&bits, &value, sizeof(T));
    u64 found = tell(bits)[threadIdx.x % 32 ^ other];
    memcpy(&value, &found, sizeof(T));
    return value;
}

static inline bool __any_sync(u32, bool value) {
    const u64* all = tell(value);
    for (int lane = 0; lane < 32; lane++)
        if (all[lane]) return true;
    return false;
}

template <class T, class U> static inline T atomicAdd(T* to, U value) {
    T before = *to;
    *to += value;
    return before;
}

// ---- Numbers -----------------------------------------------------------------------------------------------------------

static inline u32 __float_as_uint(float value) { u32 bits; memcpy(&bits, &value, 4); return bits; }
static inline float __uint_as_float(u32 bits) { float value; memcpy(&value, &bits, 4); return value; }
static inline float __int_as_float(int bits) { return __uint_as_float(u32(bits)); }
#define __logf(value) logf(value)
static inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }
template <class T> static inline T __ldcs(const T* from) { return *from; }
static inline u32 min(u32 a, u32 b) { return a < b ? a : b; }
static inline u32 max(u32 a, u32 b) { return a > b ? a : b; }
static inline float exp2_of(float value) { return exp2f(value); }

static inline half narrow(float value) {
#if HALF
    _Float16 rounded = _Float16(value);
    half bits;
    memcpy(&bits, &rounded, 2);
    return bits;
#else
    u32 bits = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return half((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

static inline float wide(half bits) {
#if HALF
    _Float16 value;
    memcpy(&value, &bits, 2);
    return float(value);
#else
    return __uint_as_float(u32(bits) << 16);
#endif
}

static inline u32 pack(float low, float high) { return narrow(low) | u32(narrow(high)) << 16; }
static inline float low(u32 pair) { return wide(half(pair & 0xffff)); }
static inline float high(u32 pair) { return wide(half(pair >> 16)); }

// ---- Instructions for matrices -----------------------------------------------------------------------------------------

struct Operands { u32 a[4], b[2]; };

static inline void multiply(float (&sum)[4], const uint4& tile, u32 first, u32 second) {
    Operands own = {{tile.x, tile.y, tile.z, tile.w}, {first, second}};
    // The address is good until all lanes have met again.
    const u64* all = tell(reinterpret_cast<u64>(&own));
    u32 lane = threadIdx.x % 32;
    float added[4];
    for (u32 i = 0; i < 4; i++) {
        u32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float total = 0.0f;
        for (u32 k = 0; k < 16; k++) {
            const Operands& left = *reinterpret_cast<const Operands*>(all[row % 8 * 4 + k % 8 / 2]);
            const Operands& right = *reinterpret_cast<const Operands*>(all[column * 4 + k % 8 / 2]);
            u32 a = left.a[row / 8 + k / 8 * 2], b = right.b[k / 8];
            total += (k % 2 ? high(a) : low(a)) * (k % 2 ? high(b) : low(b));
        }
        added[i] = total;
    }
    tell(0);
    for (u32 i = 0; i < 4; i++) sum[i] += added[i];
}

static inline u32 transposed(u32 pair) {
    const u64* all = tell(pair);
    u32 lane = threadIdx.x % 32;
    auto at = [&](u32 row, u32 column) { u32 two = u32(all[row * 4 + column / 2]); return column % 2 ? two >> 16 : two & 0xffff; };
    return at(lane % 4 * 2, lane / 4) | at(lane % 4 * 2 + 1, lane / 4) << 16;
}

static inline uint4 load_matrices(const uint4* row) {
    const u64* all = tell(reinterpret_cast<u64>(row));
    u32 lane = threadIdx.x % 32, found[4];
    for (u32 i = 0; i < 4; i++) found[i] = reinterpret_cast<const u32*>(all[8 * i + lane / 4])[lane % 4];
    tell(0);
    return {found[0], found[1], found[2], found[3]};
}

static inline uint4 load_transposed(const uint4* row) {
    const u64* all = tell(reinterpret_cast<u64>(row));
    u32 lane = threadIdx.x % 32, found[4];
    for (u32 i = 0; i < 4; i++) {
        auto at = [&](u32 row, u32 column) { return u32(reinterpret_cast<const half*>(all[8 * i + row])[column]); };
        found[i] = at(lane % 4 * 2, lane / 4) | at(lane % 4 * 2 + 1, lane / 4) << 16;
    }
    tell(0);
    return {found[0], found[1], found[2], found[3]};
}

static inline void copy_async(uint4* to, const void* from) { memcpy(to, from, 16); }
static inline void copy_async_or_zero(uint4* to, const void* from, bool copies) {
    if (copies) memcpy(to, from, 16);
    else memset(to, 0, 16);
}
static inline void end_copies() {}
template <int GROUPS> static inline void wait_for_copies() {}

// ---- Launches ----------------------------------------------------------------------------------------------------------

template <class... A, size_t... I>
static std::function<void()>* bound(void (*kernel)(A...), void** args, std::index_sequence<I...>) {
    std::tuple<A...> copied(*static_cast<A*>(args[I])...);
    return new std::function<void()>([kernel, copied] { std::apply(kernel, copied); });
}

template <class... A> static std::function<void()>* bound(void (*kernel)(A...), void** args) {
    return bound(kernel, args, std::index_sequence_for<A...>());
}
