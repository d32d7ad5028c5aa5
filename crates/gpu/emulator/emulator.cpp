// The functions of the CUDA driver, NVRTC and cuBLASLt that `lemon-gpu` calls, on a CPU: so that the kernels, and everything around
// them, run in tests on machines without a GPU. It is slow and says nothing about speed.
//
// Compiled to one library that lies in a folder as libcuda.so, libnvrtc.so and libcublasLt.so. EMULATOR is the folder with `device.h`;
// compiled kernels go to the folder that the variable LEMON_EMULATOR_CACHE names.

#include <dlfcn.h>
#include <sys/mman.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

typedef uint64_t u64;
typedef uint32_t u32;
typedef std::function<void()> Task;
#define API extern "C"

static size_t held = 0;
static const size_t MEMORY = size_t(16) << 30;
static std::vector<Task>* recording = nullptr;

static void queue(Task task) {
    if (recording) recording->push_back(std::move(task));
    else task();
}

// ---- The driver --------------------------------------------------------------------------------------------------------

API int cuInit(u32) { return 0; }
API int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
API int cuDeviceGet(int* device, int) { return *device = 0, 0; }
API int cuDeviceGetCount(int* count) { return *count = 1, 0; }
API int cuDeviceGetName(char* name, int size, int) { return snprintf(name, size, "emulated"), 0; }
API int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = MEMORY, 0; }
API int cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
    case 16: *value = 4; break;  // multiprocessors
    case 75: *value = 9; break;  // compute capability
    case 76: *value = 0; break;
    default: *value = 0;
    }
    return 0;
}
API int cuDevicePrimaryCtxRetain(void** context, int) { return *context = reinterpret_cast<void*>(1), 0; }
API int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API int cuCtxSetCurrent(void*) { return 0; }
API int cuCtxGetCurrent(void** context) { return *context = reinterpret_cast<void*>(1), 0; }
API int cuCtxSynchronize() { return 0; }
API int cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = MEMORY - held, *total = MEMORY, 0; }
// Large memory comes from the system page by page as it is used, so that a cache that stays empty costs nothing.
static const size_t LARGE = size_t(256) << 20;
static int allocate(void** to, size_t bytes) {
    if (held + bytes > MEMORY) return 2;
    size_t room = (bytes + 8191) / 4096 * 4096;
    unsigned char* memory = static_cast<unsigned char*>(
        bytes >= LARGE ? mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                       : aligned_alloc(4096, room));
    if (!memory || memory == MAP_FAILED) return 2;
    // The size lies before the memory; small memory that was never written is NaN.
    *reinterpret_cast<size_t*>(memory) = bytes;
    if (bytes < LARGE) memset(memory + 256, 0xff, bytes);
    held += bytes;
    *to = memory + 256;
    return 0;
}
static int release(void* memory) {
    unsigned char* start = static_cast<unsigned char*>(memory) - 256;
    size_t bytes = *reinterpret_cast<size_t*>(start);
    held -= bytes;
    if (bytes >= LARGE) munmap(start, (bytes + 8191) / 4096 * 4096);
    else free(start);
    return 0;
}
API int cuMemAlloc_v2(u64* to, size_t bytes) { return allocate(reinterpret_cast<void**>(to), bytes); }
API int cuMemFree_v2(u64 memory) { return release(reinterpret_cast<void*>(memory)); }
API int cuMemHostAlloc(void** to, size_t bytes, u32) { return allocate(to, bytes); }
API int cuMemFreeHost(void* memory) { return release(memory); }
API int cuMemcpyHtoDAsync_v2(u64 to, const void* from, size_t bytes, void*) { return memcpy(reinterpret_cast<void*>(to), from, bytes), 0; }
API int cuMemcpyDtoHAsync_v2(void* to, u64 from, size_t bytes, void*) { return memcpy(to, reinterpret_cast<void*>(from), bytes), 0; }
API int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void*) {
    return memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), 0;
}
API int cuMemsetD8Async(u64 to, unsigned char value, size_t bytes, void*) {
    u64 start = (to + 4095) / 4096 * 4096, end = (to + bytes) / 4096 * 4096;
    if (value || bytes < LARGE) return memset(reinterpret_cast<void*>(to), value, bytes), 0;
    // Pages that are given back read as zeros.
    memset(reinterpret_cast<void*>(to), 0, start - to);
    memset(reinterpret_cast<void*>(end), 0, to + bytes - end);
    return madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTNEED);
}
API int cuStreamCreate(void** stream, u32) { return *stream = reinterpret_cast<void*>(1), 0; }
API int cuStreamDestroy_v2(void*) { return 0; }
API int cuStreamSynchronize(void*) { return 0; }
API int cuStreamWaitEvent(void*, void*, u32) { return 0; }
API int cuEventCreate(void** event, u32) { return *event = new double(0), 0; }
API int cuEventDestroy_v2(void* event) { return delete static_cast<double*>(event), 0; }
API int cuEventRecord(void* event, void*) {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return *static_cast<double*>(event) = std::chrono::duration<double, std::milli>(now).count(), 0;
}
API int cuEventSynchronize(void*) { return 0; }
API int cuEventQuery(void*) { return 0; }
static int elapsed(float* ms, void* start, void* end) { return *ms = float(*static_cast<double*>(end) - *static_cast<double*>(start)), 0; }
API int cuEventElapsedTime(float* ms, void* start, void* end) { return elapsed(ms, start, end); }
API int cuEventElapsedTime_v2(float* ms, void* start, void* end) { return elapsed(ms, start, end); }
API int cuGetErrorName(int, const char** text) { return *text = "an emulated error", 0; }
API int cuGetErrorString(int, const char** text) { return *text = "an emulated error", 0; }

struct Library {
    void* handle;
    void (*run)(const Task*, u32, u32, u32, u32);
};
struct Kernel {
    Library* library;
    Task* (*bind)(void**);
};
API int cuModuleLoadData(void** module, const void* image) {
    const char* path = static_cast<const char*>(image) + 4;
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return fprintf(stderr, "%s\n", dlerror()), 200;
    *module = new Library{handle, reinterpret_cast<decltype(Library::run)>(dlsym(handle, "run_grid"))};
    return 0;
}
API int cuModuleUnload(void*) { return 0; }
API int cuModuleGetFunction(void** function, void* module, const char* name) {
    Library* library = static_cast<Library*>(module);
    void* bind = dlsym(library->handle, (std::string("bind_") + name).c_str());
    if (!bind) return 500;
    *function = new Kernel{library, reinterpret_cast<Task* (*)(void**)>(bind)};
    return 0;
}
API int cuFuncSetAttribute(void*, int, int) { return 0; }
API int cuFuncGetAttribute(int* value, int, void*) { return *value = 0, 0; }
struct Config {
    u32 grid[3], block[3], shared;
    void* stream;
    void* attributes;
    u32 count;
};
API int cuLaunchKernelEx(const Config* config, void* function, void** args, void**) {
    Kernel* kernel = static_cast<Kernel*>(function);
    Task* body = kernel->bind(args);
    Config at = *config;
    queue([=] { kernel->library->run(body, at.grid[0], at.grid[1], at.block[0], at.shared); });
    if (!recording) delete body;
    return 0;
}

API int cuStreamBeginCapture_v2(void*, int) { return recording = new std::vector<Task>, 0; }
API int cuStreamEndCapture(void*, void** graph) { return *graph = recording, recording = nullptr, 0; }
API int cuStreamIsCapturing(void*, int* status) { return *status = recording != nullptr, 0; }
API int cuGraphInstantiateWithFlags(void** executable, void* graph, u64) { return *executable = graph, 0; }
API int cuGraphLaunch(void* graph, void*) {
    for (const Task& task : *static_cast<std::vector<Task>*>(graph)) task();
    return 0;
}
API int cuGraphUpload(void*, void*) { return 0; }
API int cuGraphDestroy(void*) { return 0; }
API int cuGraphExecDestroy(void*) { return 0; }

// ---- The compiler ------------------------------------------------------------------------------------------------------

struct Program {
    std::string source, path;
};
API int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
API int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*, const char* const*) {
    return *program = new Program{source, ""}, 0;
}
API int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
    Program* program = static_cast<Program*>(handle);
    std::string defines, text = program->source;
    for (int at = 0; at < count; at++)
        if (!strncmp(options[at], "-D", 2)) defines += std::string(" ") + options[at];
    // The instructions are replaced.
    text = text.substr(text.find("// What the kernels share."));
    text = std::regex_replace(text, std::regex("extern __shared__ (\\w+) (\\w+)\\[\\];"), "$1* $2 = ($1*)dynamic_shared;");
    std::string bindings;
    std::regex kernel("KERNEL\\([^()]*\\)\\s*(\\w+)\\(");
    for (std::sregex_iterator at(text.begin(), text.end(), kernel), end; at != end; ++at) {
        std::string name = (*at)[1];
        bindings += "extern \"C\" std::function<void()>* bind_" + name + "(void** args) { return bound(" + name + ", args); }\n";
    }
    text = "#include \"device.h\"\n" + text + "\n" + bindings;
    std::ifstream prefix_file(EMULATOR "/device.h");
    std::string prefix((std::istreambuf_iterator<char>(prefix_file)), std::istreambuf_iterator<char>());
    const char* cache = getenv("LEMON_EMULATOR_CACHE");
    std::string stem = std::string(cache ? cache : "/tmp") + "/" + std::to_string(std::hash<std::string>()(prefix + text + defines));
    program->path = stem + ".so";
    if (std::ifstream(program->path).good()) return 0;
    std::ofstream(stem + ".cpp") << text;
    std::string command = "c++ -std=c++17 -O2 -w -fno-strict-aliasing -shared -fPIC -I" EMULATOR + defines + " -o " + stem + ".tmp " + stem +
                          ".cpp && mv " + stem + ".tmp " + stem + ".so";
    return system(command.c_str()) ? 6 : 0;
}
API int nvrtcGetCUBINSize(void* program, size_t* size) { return *size = static_cast<Program*>(program)->path.size() + 5, 0; }
API int nvrtcGetCUBIN(void* program, char* to) {
    memcpy(to, "\x7f" "ELF", 4);
    return strcpy(to + 4, static_cast<Program*>(program)->path.c_str()), 0;
}
API int nvrtcGetProgramLogSize(void*, size_t* size) { return *size = 1, 0; }
API int nvrtcGetProgramLog(void*, char* to) { return *to = 0, 0; }
API int nvrtcDestroyProgram(void** program) { return delete static_cast<Program*>(*program), 0; }
API const char* nvrtcGetErrorString(int) { return "the kernels do not compile"; }

// ---- Products ----------------------------------------------------------------------------------------------------------

struct Layout {
    u32 kind;
    u64 rows, columns;
    long stride;
};
struct Operation {
    int left_transposed = 0, right_transposed = 0;
};
struct Result {
    char algorithm[64];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
API int cublasLtCreate(void** handle) { return *handle = reinterpret_cast<void*>(1), 0; }
API int cublasLtDestroy(void*) { return 0; }
API int cublasLtMatmulDescCreate(void** operation, int, int) { return *operation = new Operation, 0; }
API int cublasLtMatmulDescDestroy(void* operation) { return delete static_cast<Operation*>(operation), 0; }
API int cublasLtMatmulDescSetAttribute(void* operation, int attribute, const void* value, size_t) {
    int word = *static_cast<const int*>(value);
    if (attribute == 3) static_cast<Operation*>(operation)->left_transposed = word;
    if (attribute == 4) static_cast<Operation*>(operation)->right_transposed = word;
    return 0;
}
API int cublasLtMatrixLayoutCreate(void** layout, u32 kind, u64 rows, u64 columns, long stride) {
    return *layout = new Layout{kind, rows, columns, stride}, 0;
}
API int cublasLtMatrixLayoutDestroy(void* layout) { return delete static_cast<Layout*>(layout), 0; }
API int cublasLtMatmulPreferenceCreate(void** preference) { return *preference = reinterpret_cast<void*>(1), 0; }
API int cublasLtMatmulPreferenceDestroy(void*) { return 0; }
API int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int most, Result* found, int* count) {
    *count = std::min(most, 1);
    memset(found, 0, sizeof(Result) * *count);
    return 0;
}
API int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const void*, Result* found) { return memset(found, 0, sizeof(Result)), 0; }

// Kinds of numbers: 0 is f32, 2 is f16, 14 is bf16.
static std::vector<float> all_f16() {
    std::vector<float> all(65536);
    for (u32 bits = 0; bits < 65536; bits++) {
        uint16_t word = uint16_t(bits);
        _Float16 value;
        memcpy(&value, &word, 2);
        all[bits] = float(value);
    }
    return all;
}
static float number(const void* from, u32 kind, u64 at) {
    static const std::vector<float> F16 = all_f16();
    if (kind == 0) return static_cast<const float*>(from)[at];
    if (kind == 2) return F16[static_cast<const uint16_t*>(from)[at]];
    u32 bits = u32(static_cast<const uint16_t*>(from)[at]) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static void put(void* to, u32 kind, u64 at, float value) {
    if (kind == 0) static_cast<float*>(to)[at] = value;
    else if (kind == 2) static_cast<_Float16*>(to)[at] = _Float16(value);
    else {
        u32 bits;
        memcpy(&bits, &value, 4);
        static_cast<uint16_t*>(to)[at] = value != value ? 0x7fff : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}
API int cublasLtMatmul(void*, void* operation, const float* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                       const float* beta, const void* c, void* c_layout, void* d, void* d_layout, const void*, void*, size_t, void*) {
    Operation how = *static_cast<Operation*>(operation);
    Layout la = *static_cast<Layout*>(a_layout), lb = *static_cast<Layout*>(b_layout);
    Layout lc = *static_cast<Layout*>(c_layout), ld = *static_cast<Layout*>(d_layout);
    u64 m = ld.rows, n = ld.columns, k = how.left_transposed ? la.rows : la.columns;
    bool fits = (how.left_transposed ? la.columns : la.rows) == m && (how.right_transposed ? lb.rows : lb.columns) == n &&
                (how.right_transposed ? lb.columns : lb.rows) == k && lc.rows == m && lc.columns == n && la.kind == lb.kind &&
                la.kind != 0 && u64(la.stride) >= la.rows && u64(lb.stride) >= lb.rows && u64(ld.stride) >= m;
    // What tensor cores need of addresses.
    for (const void* address : {a, b, c, static_cast<const void*>(d)}) fits = fits && reinterpret_cast<u64>(address) % 16 == 0;
    if (!fits) return fprintf(stderr, "emulated product: %zu x %zu x %zu does not fit\n", size_t(m), size_t(n), size_t(k)), 7;
    float scale = *alpha, kept = *beta;
    queue([=] {
        std::vector<float> left(m * k), right(k * n);
        for (u64 i = 0; i < m; i++)
            for (u64 j = 0; j < k; j++) left[i * k + j] = number(a, la.kind, how.left_transposed ? i * la.stride + j : j * la.stride + i);
        for (u64 i = 0; i < n; i++)
            for (u64 j = 0; j < k; j++) right[i * k + j] = number(b, lb.kind, how.right_transposed ? j * lb.stride + i : i * lb.stride + j);
        for (u64 i = 0; i < n; i++)
            for (u64 j = 0; j < m; j++) {
                float sum = 0.0f;
                const float *x = &left[j * k], *y = &right[i * k];
                for (u64 at = 0; at < k; at++) sum += x[at] * y[at];
                float before = kept == 0.0f ? 0.0f : kept * number(c, lc.kind, i * lc.stride + j);
                put(d, ld.kind, i * ld.stride + j, scale * sum + before);
            }
    });
    return 0;
}
API const char* cublasLtGetStatusName(int) { return "an emulated error"; }
API const char* cublasLtGetStatusString(int) { return "an emulated error"; }
