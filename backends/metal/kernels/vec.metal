// Products of a single row, of which decoding consists, with what comes before
// and behind them: here the input, in vec_product.metal the product.
//
// Every group computes the input for itself, in memory that its threads share:
// the blocks of an attention put together, a branch added to the state, a norm,
// whatever the arguments ask for, and then digits of it. What is worth keeping the first group writes down.

// VecPart is a run of rows of the matrix.
struct VecPart {
    uint first_block; // of the part in the matrix; gate_up: that of gate
    uint blocks;      // of 16 results
    uint rows;        // the number of results: the last block may reach past them
    uint out;         // where in the output they go
    float in_grid;    // the step of the input's static grid, 0 for fixed point; gate_up: of gate's
    float out_grid;   // the step of the grid that products are rounded to, 0 for none
};

// VecParts is the most parts of a product.
constant constexpr uint VecParts = 4;

// VecArgs are the arguments of the vec and vec_gate_up kernels.
struct VecArgs {
    uint cols;   // of the matrix, the length of the input
    float limit; // the largest magnitude of fixed point

    uint heads;  // of the attention whose blocks make up the input, 0 for none
    uint window; // of that attention, 0 for all positions
    uint totals; // how far behind the largest scores the totals begin, in floats

    uint add;          // 1 to add the norm of the input to the state, which becomes the input
    uint add_weighted; // 1 if that norm has a weight
    float add_eps;
    float add_mul; // times the sum

    uint norm;          // 1 for a norm of the input
    uint norm_weighted; // 1 if it has a weight
    float norm_eps;
    uint norm_kept; // 1 to write the result down

    float mul;        // times the product, after its rounding
    uint gelu;        // 1 for gelu(product) * factors
    uint gelu_first;  // where the factors begin
    uint softcap;     // 1 for cap * tanh(product / cap)
    float cap;
    uint peaks;       // 1 to find the largest of each run of 256 results
    float up_in_grid; // gate_up: as in_grid, for up
    float up_grid;    // gate_up: as out_grid, for up

    // How the work is divided.
    uint group_blocks; // blocks of results of a group; a multiple of 16 if there are peaks
    uint splits;       // SIMD groups that share the columns of a block; they divide those of the group
    uint chunk;        // tiles of the input whose digits are there at a time
    uint batch;        // tiles after which groups of columns are added up; splits or one divide it
    uint group_sums;   // where in shared memory things are, in bytes
    uint second;       // how far behind those of gate the digits and sums of up begin, 0 if they take turns or are the same
    uint input;
    uint work;
    uint results;

    uint parts;
    VecPart part[VecParts];
};

// VecBuffers are the buffers of a product. Those that it has no use for are not bound.
struct VecBuffers {
    device const uchar* weights;
    device const Step* step;
    device const float* in; // or, of an attention, [block][heads][dim]
    device const float* state_in;
    device float* state_out;
    device const float* add_weight;
    device const float* norm_weight;
    device float* normed;
    device float* out;
    device const float* factors;
    device float* peaks;
    device const float* blocks; // of an attention: [block][heads] largest scores, then totals
};

// What lies at fixed places of the shared memory: one float; a word for each
// SIMD group; a word for each of these and digit; then digits, and before there are any what blocks are weighted with.
constant constexpr uint VecTopsAt = 16;
constant constexpr uint VecSumsAt = VecTopsAt + 4 * 32;
constant constexpr uint VecDigitsAt = VecSumsAt + 4 * 32 * 3;

// VecTileSteps is the number of steps of a block that a SIMD group reads at once, 64 bytes a thread.
constant constexpr uint VecTileSteps = 32;

// VecBlocks is the number of blocks of an attention that are put together at once.
constant constexpr uint VecBlocks = 32;

// later_peak returns the larger of two, the earlier of equals, and what is not a number before all.
inline float later_peak(float earlier, float later) {
    return later > earlier || is_nan(later) ? later : earlier;
}

// vec_weights computes what blocks [first, end) of an attention are multiplied
// with when they are put together, for each head: its old sum with the one, its
// new one with the other, [head][block][2]. tops and totals are those of the
// blocks before, and become those of all so far, [head].
inline void vec_weights(constant VecArgs& args, device const float* blocks, threadgroup float* weights, threadgroup float* tops,
                        threadgroup float* totals, uint first, uint end, Thread t) {
    for (uint h = t.simd; h < args.heads; h += t.simds) {
        const uint block = min(first + t.lane, end - 1);
        const float largest = blocks[block * args.heads + h];
        const float total = blocks[args.totals + block * args.heads + h];
        float top = largest; // of the block and all before
        for (ushort apart = 1; apart < SIMDWidth; apart *= 2) {
            const float earlier = simd_shuffle_up(top, apart);
            top = t.lane >= apart ? later_peak(earlier, top) : top;
        }
        float before = top; // all blocks before
        float sum = 0;
        if (first > 0) {
            before = tops[h];
            sum = totals[h];
            top = later_peak(before, top);
        }
        const float neighbour = simd_shuffle_up(top, 1);
        before = t.lane > 0 ? neighbour : before;
        const float old = exp_f(before - top);
        const float add = exp_f(largest - top);
        weights[(h * VecBlocks + t.lane) * 2] = old;
        weights[(h * VecBlocks + t.lane) * 2 + 1] = add;
        for (uint i = 0; i < end - first; i++) {
            const float newest = simd_shuffle(total, ushort(i));
            const float kept = sum * simd_shuffle(old, ushort(i));
            const float added = newest * simd_shuffle(add, ushort(i));
            sum = first + i == 0 ? newest : kept + added;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup); // all have read what is written now
        if (t.lane == SIMDWidth - 1) {
            tops[h] = top;
            totals[h] = sum;
        }
    }
}

// vec_attention puts the blocks of an attention together.
inline void vec_attention(constant VecArgs& args, thread const VecBuffers& b, threadgroup float* x, threadgroup float* weights, Thread t) {
    const uint pos = rows_of(b.step)[0].pos;
    const uint from = args.window != 0 && pos + 1 > args.window ? pos + 1 - args.window : 0;
    const uint blocks = pos / BlockPositions - from / BlockPositions + 1;
    const uint dim = args.cols / args.heads;
    threadgroup float* tops = weights + args.heads * VecBlocks * 2;
    threadgroup float* totals = tops + args.heads;
    for (uint first = 0; first < blocks; first += VecBlocks) {
        const uint end = min(blocks, first + VecBlocks);
        threadgroup_barrier(mem_flags::mem_threadgroup); // the weights before are used up
        vec_weights(args, b.blocks, weights, tops, totals, first, end, t);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint c = t.index; c < args.cols; c += t.count) {
            const uint h = c / dim;
            threadgroup const float* weight = weights + h * VecBlocks * 2;
            float sum;
            if (first > 0) {
                sum = x[c];
            } else {
                sum = b.in[c];
            }
            for (uint i = first > 0 ? 0 : 1; i < end - first; i++) {
                const float kept = sum * weight[2 * i];
                const float added = b.in[(first + i) * args.cols + c] * weight[2 * i + 1];
                sum = kept + added;
            }
            x[c] = end == blocks ? sum / totals[h] : sum;
        }
    }
}

// vec_inverse computes the inverse_rms of the input for all threads.
inline float vec_inverse(threadgroup float* result, threadgroup const float* x, uint cols, float eps, Thread t) {
    threadgroup_barrier(mem_flags::mem_threadgroup); // the input is there
    if (t.simd == 0) {
        const float inverse = inverse_rms(x, cols, eps, t.lane);
        if (t.lane == 0) {
            *result = inverse;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return *result;
}

// vec_computes tells that the input is computed, and not just read.
inline bool vec_computes(constant VecArgs& args) {
    return args.heads != 0 || args.add != 0 || args.norm != 0;
}

// vec_input computes the input. A thread works on the same columns all the time.
inline void vec_input(constant VecArgs& args, thread const VecBuffers& b, threadgroup uchar* shared, bool keeps, Thread t) {
    threadgroup float* x = reinterpret_cast<threadgroup float*>(shared + args.input);
    threadgroup float* inverse = reinterpret_cast<threadgroup float*>(shared);
    if (args.heads != 0) {
        vec_attention(args, b, x, reinterpret_cast<threadgroup float*>(shared + VecDigitsAt), t);
    } else {
        for (uint c = t.index; c < args.cols; c += t.count) {
            x[c] = b.in[c];
        }
    }
    if (args.add != 0) {
        const float scale = vec_inverse(inverse, x, args.cols, args.add_eps, t);
        for (uint c = t.index; c < args.cols; c += t.count) {
            float y = x[c] * scale;
            if (args.add_weighted != 0) {
                y = y * b.add_weight[c];
            }
            const float state = (b.state_in[c] + y) * args.add_mul;
            x[c] = state;
            if (keeps) {
                b.state_out[c] = state;
            }
        }
    }
    if (args.norm != 0) {
        const float scale = vec_inverse(inverse, x, args.cols, args.norm_eps, t);
        for (uint c = t.index; c < args.cols; c += t.count) {
            float y = x[c] * scale;
            if (args.norm_weighted != 0) {
                y = y * b.norm_weight[c];
            }
            x[c] = y;
            if (keeps && args.norm_kept != 0) {
                b.normed[c] = y;
            }
        }
    }
}

// vec_four returns four neighbouring columns of the input, zeros behind the last.
inline float4 vec_four(constant VecArgs& args, device const float* in, threadgroup const float* x, bool computed, uint c) {
    float4 four = float4(0);
    if (c + 4 <= args.cols) {
        if (computed) {
            four = *reinterpret_cast<threadgroup const float4*>(x + c);
        } else {
            four = *reinterpret_cast<device const float4*>(in + c);
        }
        return four;
    }
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 3; i++) {
        if (c + i < args.cols) {
            if (computed) {
                four[i] = x[c + i];
            } else {
                four[i] = in[c + i];
            }
        }
    }
    return four;
}

// vec_scale returns the step of the input's grid: the static one or, with fixed
// point, that of the largest magnitude. As integers magnitudes are in the order
// of floats, and what is not a number is larger than all of them.
inline float vec_scale(constant VecArgs& args, float grid, device const float* in, threadgroup uchar* shared, Thread t) {
    threadgroup_barrier(mem_flags::mem_threadgroup); // the input is there
    if (grid != 0) {
        return grid;
    }
    threadgroup const float* x = reinterpret_cast<threadgroup const float*>(shared + args.input);
    threadgroup uint* tops = reinterpret_cast<threadgroup uint*>(shared + VecTopsAt);
    const bool computed = vec_computes(args);
    uint4 four = uint4(0);
    for (uint c = 4 * t.index; c < args.cols; c += 4 * t.count) {
        four = max(four, as_type<uint4>(vec_four(args, in, x, computed, c)) & 0x7fffffffu);
    }
    uint top = simd_max(max(max(four.x, four.y), max(four.z, four.w)));
    if (t.lane == 0) {
        tops[t.simd] = top;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    top = simd_max(t.lane < t.simds ? tops[t.lane] : 0);
    return as_type<float>(top) / args.limit;
}

// vec_place returns where the digits of a field of a step lie, counted in fours,
// where there are so many steps. What the threads of a SIMD group read at once lies in one piece.
template <uint Bits, bool Grouped>
inline uint vec_place(uint plane, uint field, uint step, uint steps) {
    if (Grouped) { // a thread has all four steps of a group of columns
        return ((plane * 4 + step % 4) * (steps / 4) + step / 4) * 2 + field;
    }
    if (Bits == 8) {
        return plane * steps + step;
    }
    return ((plane * (4 / Bits) + field / 2) * steps + step) * 2 + field % 2;
}

// VecGrid is the input's grid.
struct VecGrid {
    float scale;   // its step
    float lo, hi;  // of its integers
    float inverse; // 1/scale
    bool fixed;    // it is that of fixed point
    bool plain;    // the scale is neither so small nor so large that anything below is inexact
};

// vec_grid returns the grid of a step.
inline VecGrid vec_grid(constant VecArgs& args, float grid, float scale) {
    VecGrid g;
    g.scale = scale;
    g.fixed = grid == 0;
    g.lo = g.fixed ? -args.limit : -128.0f;
    g.hi = g.fixed ? args.limit : 127.0f;
    g.inverse = 1.0f / scale;
    g.plain = scale >= 1e-20f && scale <= 1e20f;
    return g;
}

// vec_integers returns what four columns become on a grid (see to_grid), with
// multiplications in place of divisions where that gives the same.
inline float4 vec_integers(float4 four, VecGrid g) {
    if (g.plain) {
        float4 quotients = four * g.inverse;
        if (g.fixed) {
            // By Markstein's theorem the first step gives a neighbour of the quotient and the second the
            // nearest float, unless a remainder underflows: then the quotient is next to 0.
            quotients = fma(fma(-quotients, float4(g.scale), four), float4(g.inverse), quotients);
            quotients = fma(fma(-quotients, float4(g.scale), four), float4(g.inverse), quotients);
            return fmin(fmax(rint(quotients), float4(g.lo)), float4(g.hi));
        }
        // Below 129 these quotients are within 2^-15 of the nearest floats, which round to the same unless near a tie.
        const float4 rounded = rint(quotients);
        if (!any(fabs(quotients - rounded) > float4(0.4999f))) {
            return fmin(fmax(rounded, float4(g.lo)), float4(g.hi)); // the lowest for what is not a number
        }
    }
    return float4(to_grid(four.x, g.scale, g.lo, g.hi), to_grid(four.y, g.scale, g.lo, g.hi), to_grid(four.z, g.scale, g.lo, g.hi),
                  to_grid(four.w, g.scale, g.lo, g.hi));
}

// vec_digits makes digits of a chunk of the input, which begins at a step and has
// so many, zeros for those past the columns. A digit is a half, times what turns
// a code that has been left in its place in a byte into a number: 2^-(bits*field).
//
// A product with the codes of a field f has 1024*2^-(bits*f), and the midpoint,
// more than the code should be (see vec_multiply). sums gets a share of what that
// makes of a plane in total or, with groups of columns, group_sums [plane][group] for each.
// set is how far behind their usual place digits and sums go, in bytes.
template <uint Bits, uint Planes, bool Grouped>
inline void vec_digits(constant VecArgs& args, VecGrid grid, device const float* in, threadgroup uchar* shared, uint set, uint first,
                       uint steps, thread uint* sums, Thread t) {
    constexpr uint Fields = 8 / Bits;
    const bool computed = vec_computes(args);
    threadgroup const float* x = reinterpret_cast<threadgroup const float*>(shared + args.input);
    threadgroup half4* digits = reinterpret_cast<threadgroup half4*>(shared + VecDigitsAt + set);
    threadgroup float* group_sums = reinterpret_cast<threadgroup float*>(shared + args.group_sums + set);
    for (uint u = t.index; u < steps * Fields; u += t.count) {
        const uint step = u / Fields;
        const uint field = u % Fields;
        const uint c = ((first + step) * Fields + field) * 4;
        float4 n = float4(0);
        if (c < args.cols && grid.scale != 0) {
            n = vec_integers(vec_four(args, in, x, computed, c), grid);
            n.y = c + 1 < args.cols ? n.y : 0;
            n.z = c + 2 < args.cols ? n.z : 0;
            n.w = c + 3 < args.cols ? n.w : 0;
        }
        const float inverse = pow2(-int(Bits * field));
        const float weight = 1024.0f * inverse + float(1u << (Bits - 1));
        #pragma clang loop unroll(full)
        for (uint p = 0; p < Planes; p++) {
            float4 d = n;
            if (p + 1 < Planes) {
                n = floor(fma(n, float4(0.00390625f), float4(0.5f))); // (n + 128) / 256
                d = fma(n, float4(-256.0f), d);
            }
            digits[vec_place<Bits, Grouped>(p, field, step, steps)] = half4(d.xzyw * inverse);
            float sum = (d.x + d.y + d.z + d.w) * weight;
            if (Grouped) {
                sum += simd_shuffle_xor(sum, 1);
                sum += simd_shuffle_xor(sum, 2);
                sum += simd_shuffle_xor(sum, 4);
                if (u % 8 == 0) {
                    group_sums[p * (steps / 4) + u / 8] = sum;
                }
            } else {
                sums[p] += uint(int(sum));
            }
        }
    }
}
