// Attention of a group's heads, which share keys and values, to one block: the
// scores of its keys, the weights that come of them, and the sum of its values.

// score_keys computes the scores of positions of one block. 16 threads multiply a
// key, and each half of a SIMD group has several keys at a time, so that a number of
// the query is read once for all of them.
template <uint H, typename T>
inline void score_keys(device const T* keys, thread const AttentionShared& s, constant AttentionArgs& args, Visible v, Thread t) {
    constexpr uint R = 8 / H;
    uint side = t.lane / Lanes;
    for (uint base = v.from + t.simd * 2 * R; base < v.to; base += t.simds * 2 * R) {
        uint at[R];
        #pragma clang loop unroll(full)
        for (uint r = 0; r < R; r++) {
            at[r] = min(base + 2 * r + side, v.to - 1) * args.dim; // past the end: any key, for nothing
        }
        float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (uint d = t.lane % Lanes; d < args.dim; d += Lanes) {
            float q[H];
            #pragma clang loop unroll(full)
            for (uint h = 0; h < H; h++) {
                q[h] = as_type<float>(s.query[h * s.padded + d]);
            }
            #pragma clang loop unroll(full)
            for (uint r = 0; r < R; r++) {
                float k = float(keys[at[r] + d]);
                #pragma clang loop unroll(full)
                for (uint h = 0; h < H; h++) {
                    float product = q[h] * k;
                    sums[r * H + h] += product;
                }
            }
        }
        float sum = simd_fold(sums, t.lane, 8);
        sum += simd_shuffle_xor(sum, ushort(1));
        uint mine = t.lane % Lanes / 2;
        uint pos = base + 2 * (mine / H) + side;
        if (t.lane % 2 == 0 && pos < v.to) {
            s.weights[mine % H * BlockPositions + pos] = as_type<uint>(sum * args.scale);
        }
    }
}

// sixteen_codes returns codes as they lie, zeros from the end on. In whole rows all are there and aligned.
inline uint4 sixteen_codes(device const char* codes, uint count, bool whole) {
    if (whole) {
        return *reinterpret_cast<device const uint4*>(codes);
    }
    uint w[4] = {0, 0, 0, 0};
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 16; i++) {
        if (i < count) {
            w[i / 4] |= uint(uchar(codes[i])) << (i % 4 * 8);
        }
    }
    return uint4(w[0], w[1], w[2], w[3]);
}

// four_codes is the same for four.
inline uint four_codes(device const char* codes, uint count, bool whole) {
    if (whole) {
        return *reinterpret_cast<device const uint*>(codes);
    }
    uint w = 0;
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 4; i++) {
        if (i < count) {
            w |= uint(uchar(codes[i])) << (i * 8);
        }
    }
    return w;
}

// code_score returns the score that an integer sum stands for.
inline float code_score(long total, float step, constant AttentionArgs& args) {
    float score = int64_to_float(total) * step;
    score = score * args.key_scale;
    return score * args.scale;
}

// add_four adds the products of four codes with four queries.
inline void add_four(thread float& low, thread float& high, float4 codes, uint4 digits) {
    low = fma(codes.x, low_digit(digits.x), low);
    high = fma(codes.x, high_digit(digits.x), high);
    low = fma(codes.y, low_digit(digits.y), low);
    high = fma(codes.y, high_digit(digits.y), high);
    low = fma(codes.z, low_digit(digits.z), low);
    high = fma(codes.z, high_digit(digits.z), high);
    low = fma(codes.w, low_digit(digits.w), low);
    high = fma(codes.w, high_digit(digits.w), high);
}

// score_keys over codes: 8 threads multiply a key, 16 codes at a time. All sums are exact.
template <uint H>
inline void score_keys(device const char* keys, thread const AttentionShared& s, constant AttentionArgs& args, Visible v, Thread t) {
    constexpr uint R = 8 / H;
    uint part = t.lane % 8, side = t.lane / 8;
    bool whole = args.dim % 16 == 0;
    for (uint base = v.from + t.simd * 4 * R; base < v.to; base += t.simds * 4 * R) {
        uint at[R];
        #pragma clang loop unroll(full)
        for (uint r = 0; r < R; r++) {
            at[r] = min(base + 4 * r + side, v.to - 1) * args.dim; // as above
        }
        float low[8] = {0, 0, 0, 0, 0, 0, 0, 0}, high[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (uint d = 16 * part; d < args.dim; d += 128) {
            uint4 codes[R];
            #pragma clang loop unroll(full)
            for (uint r = 0; r < R; r++) {
                codes[r] = sixteen_codes(keys + at[r] + d, args.dim - d, whole);
            }
            #pragma clang loop unroll(full)
            for (uint h = 0; h < H; h++) {
                threadgroup const uint4* q = reinterpret_cast<threadgroup const uint4*>(s.query + h * s.padded + d);
                #pragma clang loop unroll(full)
                for (uint r = 0; r < R; r++) {
                    add_four(low[r * H + h], high[r * H + h], float4(as_type<char4>(codes[r].x)), q[0]);
                    add_four(low[r * H + h], high[r * H + h], float4(as_type<char4>(codes[r].y)), q[1]);
                    add_four(low[r * H + h], high[r * H + h], float4(as_type<char4>(codes[r].z)), q[2]);
                    add_four(low[r * H + h], high[r * H + h], float4(as_type<char4>(codes[r].w)), q[3]);
                }
            }
        }
        int lows[8], highs[8];
        #pragma clang loop unroll(full)
        for (uint i = 0; i < 8; i++) {
            lows[i] = int(low[i]);
            highs[i] = int(high[i]);
        }
        long total = digit_sum(simd_fold(lows, t.lane, 4), simd_fold(highs, t.lane, 4));
        uint pos = base + 4 * (part / H) + side;
        if (pos < v.to) {
            s.weights[part % H * BlockPositions + pos] = as_type<uint>(code_score(total, s.heads[part % H].query_step, args));
        }
    }
}

// join adds a block's largest score and sum of weights to those before it.
inline void join(threadgroup HeadState& state, float largest, float total, bool first) {
    if (first) {
        state.largest = largest;
        state.total = total;
        return;
    }
    float before = state.largest;
    float top = largest > before ? largest : before;
    state.old_factor = exp_f(before - top);
    state.new_factor = exp_f(largest - top);
    float old_total = state.total * state.old_factor;
    float new_total = total * state.new_factor;
    state.largest = top;
    state.total = old_total + new_total;
}

// read_scores reads a head's scores, 8 a thread, and returns the largest of all.
// One that is not a number is never the largest, but makes the sum of the weights not a number.
inline float read_scores(thread float* x, threadgroup const uint* scores, Visible v, uint lane) {
    float largest = as_type<float>(0xff800000u);
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 8; i++) {
        uint pos = i * SIMDWidth + lane;
        x[i] = pos >= v.from && pos < v.to ? as_type<float>(scores[pos]) : as_type<float>(0xff800000u);
        largest = x[i] > largest ? x[i] : largest;
    }
    return simd_largest(largest);
}

// weigh turns the scores of one block into weights, a SIMD group for each head.
// The first argument tells the type of the cache. first holds for a row's first block.
template <uint H, typename T>
inline void weigh(device const T*, thread const AttentionShared& s, Visible v, bool first, Thread t) {
    for (uint h = t.simd; h < H; h += t.simds) {
        threadgroup uint* weights = s.weights + h * BlockPositions;
        float x[8];
        float largest = read_scores(x, weights, v, t.lane);
        float sum = 0;
        #pragma clang loop unroll(full)
        for (uint i = 0; i < 8; i++) {
            uint pos = i * SIMDWidth + t.lane;
            float w = pos >= v.from && pos < v.to ? exp_f(x[i] - largest) : 0.0f;
            weights[pos] = as_type<uint>(w);
            sum += w; // lane l of the sum takes positions l and l + 16 in turn; what other threads sum is of no use
            sum += simd_shuffle_xor(w, ushort(Lanes));
        }
        sum = lane_tree(sum);
        if (t.lane == 0) {
            join(s.heads[h], largest, sum, first);
        }
    }
}

// weigh over codes makes fixed point of the weights. The largest is exp(0), which is 1, unless one is not a number.
template <uint H>
inline void weigh(device const char*, thread const AttentionShared& s, Visible v, bool first, Thread t) {
    for (uint h = t.simd; h < H; h += t.simds) {
        threadgroup uint* weights = s.weights + h * BlockPositions;
        float x[8];
        float largest = read_scores(x, weights, v, t.lane);
        float step = 1.0f / Limit24;
        int sum = 0; // at most 256 * Limit24, which is an int
        bool strange = false;
        #pragma clang loop unroll(full)
        for (uint i = 0; i < 8; i++) {
            uint pos = i * SIMDWidth + t.lane;
            float w = pos >= v.from && pos < v.to ? exp_f(x[i] - largest) : 0.0f;
            strange = strange || is_nan(w);
            int n = to_grid(w, step, 0, Limit24);
            weights[pos] = digits_of(n);
            sum += n;
        }
        sum = simd_sum(sum);
        if (simd_any(strange)) {
            step = as_type<float>(0x7fc00000u);
        }
        if (t.lane == 0) {
            s.heads[h].weight_step = step;
            join(s.heads[h], largest, int64_to_float(long(sum)) * step, first);
        }
    }
}

// put writes a block's weighted sum, or adds it to that of the blocks before.
template <typename Out>
inline void put(Out out, float sum, threadgroup const HeadState& state, bool first) {
    if (first) {
        *out = sum;
        return;
    }
    float before = *out * state.old_factor;
    float added = sum * state.new_factor;
    *out = before + added;
}

// sum_values adds the weighted values of one block to out, [H][dim]. A thread has
// whole columns, and sums in the order of positions. own, unless null, is the value of one more position.
template <uint H, typename T, typename Out>
inline void sum_values(device const T* values, threadgroup const uint* own, Out out, thread const AttentionShared& s,
                       constant AttentionArgs& args, Visible v, bool first, Thread t) {
    for (uint c = t.index; c < args.dim; c += t.count) {
        float sums[H];
        #pragma clang loop unroll(full)
        for (uint h = 0; h < H; h++) {
            sums[h] = 0;
        }
        for (uint pos = v.from; pos < v.to; pos += Loads) {
            float x[Loads];
            #pragma clang loop unroll(full)
            for (uint i = 0; i < Loads; i++) {
                x[i] = float(values[min(pos + i, v.to - 1) * args.dim + c]);
            }
            #pragma clang loop unroll(full)
            for (uint i = 0; i < Loads; i++) {
                if (pos + i < v.to) {
                    #pragma clang loop unroll(full)
                    for (uint h = 0; h < H; h++) {
                        float product = as_type<float>(s.weights[h * BlockPositions + pos + i]) * x[i];
                        sums[h] += product;
                    }
                }
            }
        }
        #pragma clang loop unroll(full)
        for (uint h = 0; h < H; h++) {
            if (own != nullptr) {
                float product = as_type<float>(s.weights[h * BlockPositions + v.to]) * as_type<float>(own[c]);
                sums[h] += product;
            }
            put(out + h * args.dim + c, sums[h], s.heads[h], first);
        }
    }
}

// sum_values over codes: a thread has four columns of some positions, and what
// threads with the same columns have is added through the group's memory. All sums are exact.
template <uint H, typename Out>
inline void sum_values(device const char* values, threadgroup const uint* own, Out out, thread const AttentionShared& s,
                       constant AttentionArgs& args, Visible v, bool first, Thread t) {
    uint words = (args.dim + 3) / 4;
    uint span = min(words, t.count);
    uint parts = t.count / span;
    uint part = t.index / span, place = t.index % span;
    bool whole = args.dim % 4 == 0;
    for (uint start = 0; start < words; start += span) {
        int4 lows[H], highs[H];
        #pragma clang loop unroll(full)
        for (uint h = 0; h < H; h++) {
            lows[h] = int4(0);
            highs[h] = int4(0);
        }
        uint c = 4 * (start + place);
        if (part < parts && c < args.dim) {
            for (uint base = v.from + part; base < v.to; base += ExactTerms * parts) {
                float4 low[H], high[H];
                #pragma clang loop unroll(full)
                for (uint h = 0; h < H; h++) {
                    low[h] = float4(0);
                    high[h] = float4(0);
                }
                uint end = min(v.to, base + ExactTerms * parts);
                for (uint pos = base; pos < end; pos += Loads * parts) {
                    uint words[Loads];
                    #pragma clang loop unroll(full)
                    for (uint i = 0; i < Loads; i++) {
                        words[i] = four_codes(values + min(pos + i * parts, v.to - 1) * args.dim + c, args.dim - c, whole);
                    }
                    #pragma clang loop unroll(full)
                    for (uint i = 0; i < Loads; i++) {
                        float4 codes = float4(as_type<char4>(words[i]));
                        uint at = pos + i * parts;
                        #pragma clang loop unroll(full)
                        for (uint h = 0; h < H; h++) {
                            uint w = at < end ? s.weights[h * BlockPositions + at] : 0;
                            low[h] = fma(codes, float4(low_digit(w)), low[h]);
                            high[h] = fma(codes, float4(high_digit(w)), high[h]);
                        }
                    }
                }
                #pragma clang loop unroll(full)
                for (uint h = 0; h < H; h++) {
                    lows[h] += int4(low[h]);
                    highs[h] += int4(high[h]);
                }
            }
        }
        #pragma clang loop unroll(full)
        for (uint h = 0; h < H; h++) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            threadgroup int* mine = s.partial + t.index;
            mine[0] = lows[h].x;
            mine[t.count] = lows[h].y;
            mine[2 * t.count] = lows[h].z;
            mine[3 * t.count] = lows[h].w;
            mine[4 * t.count] = highs[h].x;
            mine[5 * t.count] = highs[h].y;
            mine[6 * t.count] = highs[h].z;
            mine[7 * t.count] = highs[h].w;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint end = min(args.dim, 4 * (start + span));
            for (uint column = 4 * start + t.index; column < end; column += t.count) {
                threadgroup const int* sums = s.partial + column % 4 * t.count + (column / 4 - start);
                int low = 0, high = 0;
                for (uint i = 0; i < parts; i++) {
                    low += sums[i * span];
                    high += sums[i * span + 4 * t.count];
                }
                long total = digit_sum(low, high);
                if (own != nullptr) {
                    total += digits_value(s.weights[h * BlockPositions + v.to]) * long(int(own[column]));
                }
                float sum = int64_to_float(total) * s.heads[h].weight_step;
                put(out + h * args.dim + column, sum * args.value_scale, s.heads[h], first);
            }
        }
    }
}
