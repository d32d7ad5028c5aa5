// Draws a token after each row of logits, as `lemon_engine` does on the CPU: with the Gumbel-max trick and the same noise.

#define DRAW_THREADS 512
#define NOTHING 0xffffffffu

// How a token is drawn. The host has the same struct.
struct Draw {
    u32 row;
    // 1 / temperature; 0 takes the likeliest.
    float inverse;
    float top_p;
    // The number of its mask, or NOTHING.
    u32 mask;
    u64 seed;
    u64 index;
};

// What was drawn. The host has the same struct.
struct Drawn {
    u32 token;
    // Under the model: at temperature one, without mask.
    float logprob;
    // Under what it was drawn from, before top_p.
    float chosen;
};

// SplitMix64.
DEVICE u64 splitmix(u64 seed) {
    u64 bits = seed + 0x9e3779b97f4a7c15ull;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
    return bits ^ (bits >> 31);
}

struct Key { u32 first, second; };

DEVICE Key key_of(u64 seed, u64 index) {
    u64 bits = splitmix(splitmix(seed) ^ index);
    return Key{u32(bits), u32(bits >> 32)};
}

// Gumbel noise of a token.
DEVICE float noise(const Key& key, u32 token) {
    u32 bits = mixed(token * 0x9e3779b9u + key.first, 0x21f0aaadu, 16);
    bits = mixed(bits ^ key.second, 0x735a2d97u, 15);
    bits = mixed(bits, 0x85ebca6bu, 15);
    bits ^= bits >> 16;
    float uniform = (float(bits) + 0.5f) * 2.3283064365386963e-10f;
    // -ln(1 - u); the series where the difference would lose digits.
    float rate = uniform < 0.01f ? uniform * (1.0f + uniform * (0.5f + uniform * 0.33333333f)) : -__logf(1.0f - uniform);
    // Both ends of the interval: u never rounds to 0, and 1 - u may.
    return -__logf(fminf(rate, 23.0f));
}

// A largest number and a sum of powers relative to it.
struct Total {
    float most, sum;
    DEVICE_MEMBER void add(float other_most, float other_sum) {
        float larger = fmaxf(most, other_most);
        // Two empty totals stay empty; NaN must not be lost.
        if (larger == -INFINITE) { sum += other_sum; return; }
        sum = sum * exp2_of((most - larger)) + other_sum * exp2_of((other_most - larger));
        most = larger;
    }
};

DEVICE Total total_of_block(Total total, Total* shared) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        total.add(__shfl_xor_sync(ALL_LANES, total.most, step), __shfl_xor_sync(ALL_LANES, total.sum, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = total;
    __syncthreads();
    total = shared[0];
    for (int i = 1; i < DRAW_THREADS / 32; i++) total.add(shared[i].most, shared[i].sum);
    return total;
}

struct Best { float value; u32 token; };

DEVICE void take_better(Best& best, float value, u32 token) {
    if (value > best.value || (value == best.value && token < best.token)) best = Best{value, token};
}

DEVICE Best best_of_block(Best best, Best* shared) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        take_better(best, __shfl_xor_sync(ALL_LANES, best.value, step), __shfl_xor_sync(ALL_LANES, best.token, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = best;
    __syncthreads();
    best = shared[0];
    for (int i = 1; i < DRAW_THREADS / 32; i++) take_better(best, shared[i].value, shared[i].token);
    return best;
}

// Bits in the order of the numbers.
DEVICE u32 ordered(float value) {
    u32 bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// One block for each draw. `masks`: a bit for each token that is allowed, `mask_words` words for each mask.
KERNEL(DRAW_THREADS, 2)
draw(Drawn* drawn, u32* tokens, const float* all_logits, const Draw* draws, const u32* masks, u32 vocabulary, u32 stride,
     u32 mask_words, u32 first_draw) {
    __shared__ Total totals[DRAW_THREADS / 32];
    __shared__ Best bests[DRAW_THREADS / 32];
    __shared__ u64 weights[256];
    __shared__ u32 level_key;
    __shared__ u64 level_above;
    AFTER_PREVIOUS;
    Draw how = draws[first_draw + blockIdx.x];
    const float* logits = all_logits + size_t(blockIdx.x) * stride;
    const u32* mask = how.mask == NOTHING ? nullptr : masks + size_t(how.mask) * mask_words;
    Key key = key_of(how.seed, how.index);
    bool greedy = how.inverse == 0.0f;
    float inverse = greedy ? 1.0f : how.inverse;
    bool narrowed = !greedy && how.top_p < 1.0f;
    auto allowed = [&](u32 token) { return !mask || (mask[token / 32] >> (token % 32) & 1u); };

    // One pass: both totals, and the winner if nothing is cut off. Numbers are scaled for powers of two.
    Total plain{-INFINITE, 0.0f}, tempered{-INFINITE, 0.0f};
    Best best{-INFINITE, NOTHING};
    bool same = !mask && inverse == 1.0f;
    for (u32 at = 4 * threadIdx.x; at < vocabulary; at += 4 * DRAW_THREADS) {
        float4 four = *reinterpret_cast<const float4*>(logits + at);
        float logit[4] = {four.x, four.y, four.z, four.w}, power[4];
        float most = -INFINITE, most_allowed = -INFINITE, sum = 0.0f, sum_allowed = 0.0f;
        bool may[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool inside = at + i < vocabulary;
            if (!inside) logit[i] = -INFINITE;
            may[i] = inside && allowed(at + i);
            power[i] = logit[i] * LOG2_E;
            most = fmaxf(most, power[i]);
            if (may[i]) most_allowed = fmaxf(most_allowed, power[i] * inverse);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            // An infinite or undefined logit makes the sum undefined, which is what is tested in the end.
            sum += at + i < vocabulary ? exp2_of(power[i] - most) : 0.0f;
            if (!same && may[i]) sum_allowed += exp2_of(power[i] * inverse - most_allowed);
        }
        plain.add(most, sum);
        if (!same) tempered.add(most_allowed, sum_allowed);
        if (!narrowed) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float value = logit[i] * inverse + (greedy ? 0.0f : noise(key, at + i));
                if (may[i]) take_better(best, value, at + i);
            }
        }
    }
    plain = total_of_block(plain, totals);
    tempered = same ? plain : total_of_block(tempered, totals);

    if (narrowed) {
        // The largest key such that the tokens from it on have `top_p` of the weight, found digit by digit. Weights are whole
        // numbers, so that their sum does not depend on the order.
        u32 key_of_least = 0;
        u64 above = 0, wanted = 0;
        for (int level = 3; level >= 0; level--) {
            __syncthreads();
            for (u32 at = threadIdx.x; at < 256; at += DRAW_THREADS) weights[at] = 0;
            __syncthreads();
            for (u32 at = threadIdx.x; at < vocabulary; at += DRAW_THREADS) {
                u32 bits = ordered(logits[at]);
                bool inside = level == 3 || bits >> (8 * level + 8) == key_of_least >> (8 * level + 8);
                if (!inside || !allowed(at)) continue;
                float weight = exp2_of(logits[at] * LOG2_E * inverse - tempered.most);
                atomicAdd(&weights[bits >> (8 * level) & 255u], u64(weight * 1099511627776.0f));
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                if (level == 3) {
                    u64 all = 0;
                    for (int i = 0; i < 256; i++) all += weights[i];
                    wanted = u64(double(how.top_p) * double(all));
                    above = 0;
                }
                int digit = 255, least = 255;
                // The last digit with weight counts where rounding leaves the sum below what is wanted.
                for (; digit >= 0; digit--) {
                    if (weights[digit] == 0) continue;
                    least = digit;
                    if (above + weights[digit] >= wanted) break;
                    above += weights[digit];
                }
                if (digit < 0) above -= weights[least];
                level_key = key_of_least | u32(least) << (8 * level);
                level_above = above;
            }
            __syncthreads();
            key_of_least = level_key, above = level_above;
        }
        for (u32 at = threadIdx.x; at < vocabulary; at += DRAW_THREADS)
            if (allowed(at) && ordered(logits[at]) >= key_of_least)
                take_better(best, logits[at] * inverse + noise(key, at), at);
    }
    best = best_of_block(best, bests);
    if (threadIdx.x == 0) {
        bool sound = best.token != NOTHING && plain.sum > 0.0f && plain.sum < INFINITE && fabsf(plain.most) < INFINITE;
        Drawn out{NOTHING, 0.0f, 0.0f};
        if (sound) {
            float logit = logits[best.token];
            out.token = best.token;
            out.logprob = logit - plain.most / LOG2_E - __logf(plain.sum);
            out.chosen = logit * inverse - tempered.most / LOG2_E - __logf(tempered.sum);
        }
        drawn[first_draw + blockIdx.x] = out;
        tokens[first_draw + blockIdx.x] = out.token;
    }
}
