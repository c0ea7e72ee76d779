// The product of a matrix with the digits of a single row (see vec.metal).
//
// A SIMD group reads 512 neighbouring bytes of a block at a time, 8 steps, each
// thread the codes of 4 rows in one step: so digits that are read from shared
// memory serve 4 rows. A code is made a number where it is: with 0x6400 above it,
// a code in the lower byte of 16 bits is the half 1024 + code*2^(bits*field), and
// the digit is that much smaller. One instruction on integers does that for two
// codes, and one multiplication with addition for each code and digit does the rest.
//
// All sums are exact. Every product of a digit with such a half is an integer in
// the digit's scale, and floats add integers exactly up to 2^24. With the four
// columns of a field |digit| * (1024*2^-(bits*field) + code) adds to at most
//   8 bits: 4 * 128 * (1024 + 255)                 = 654,848 a word
//   4 bits: 4 * 128 * (1024 + 64 + 2*15)           = 572,416
//   2 bits: 4 * 128 * (1024 + 256 + 64 + 16 + 4*3) = 702,464
// so that the floats of a thread must be added to integers after 23 words; it
// is done after VecFlushTiles tiles. The integers may leave 32 bits before what
// is too much is taken off, but not after: 128 * 128 * 65536 = 2^30.

// VecFlushTiles is the number of tiles, four words of each of four rows, that floats sum exactly.
constant constexpr uint VecFlushTiles = 5;

// VecCodes is what a thread has read of a tile.
struct VecCodes {
    uint4 words[4];
    bool ready; // they are those of the next tile
};

// vec_fetch reads a tile of a block.
template <bool Grouped>
inline void vec_fetch(thread VecCodes& codes, device const uchar* block, uint tile, uint steps, uint lane) {
    device const uint4* from = reinterpret_cast<device const uint4*>(block);
    #pragma clang loop unroll(full)
    for (uint k = 0; k < 4; k++) {
        const uint at = tile * VecTileSteps * 4 + (Grouped ? lane / 4 * 16 + k * 4 + lane % 4 : k * SIMDWidth + lane);
        codes.words[k] = at < steps * 4 ? from[at] : uint4(0);
    }
}

// vec_load reads the digits of one field (8 bits) or two.
template <uint Bits>
inline void vec_load(thread half4* d, threadgroup const uchar* digits, uint place) {
    if (Bits == 8) {
        d[0] = reinterpret_cast<threadgroup const half4*>(digits)[place];
    } else {
        const uint4 both = reinterpret_cast<threadgroup const uint4*>(digits)[place / 2];
        d[0] = as_type<half4>(both.xy);
        d[1] = as_type<half4>(both.zw);
    }
}

// vec_low and vec_high return the lower and upper halves of four words.
inline float4 vec_low(uint4 w) {
    return float4(as_type<half2>(w.x).x, as_type<half2>(w.y).x, as_type<half2>(w.z).x, as_type<half2>(w.w).x);
}
inline float4 vec_high(uint4 w) {
    return float4(as_type<half2>(w.x).y, as_type<half2>(w.y).y, as_type<half2>(w.z).y, as_type<half2>(w.w).y);
}

// vec_multiply adds the products of the codes of four rows in a step with the digits of each plane.
template <uint Bits, uint Planes, bool Grouped>
inline void vec_multiply(thread float4* sums, uint4 words, threadgroup const uchar* digits, uint step, uint steps) {
    constexpr uint Fields = 8 / Bits;
    constexpr uint Loaded = Bits == 8 ? 1 : 2; // fields at once
    const uint4 even = words | 0x64006400u;     // columns 0 and 2 of each field
    const uint4 odd = words >> 8 | 0x64006400u; // columns 1 and 3
    #pragma clang loop unroll(full)
    for (uint first = 0; first < Fields; first += Loaded) {
        half4 d[2 * Planes];
        #pragma clang loop unroll(full)
        for (uint p = 0; p < Planes; p++) {
            vec_load<Bits>(d + 2 * p, digits, vec_place<Bits, Grouped>(p, first, step, steps));
        }
        #pragma clang loop unroll(full)
        for (uint i = 0; i < Loaded; i++) {
            const uint mask = 0x64006400u | ((1u << Bits) - 1) * 0x10001u << (Bits * (first + i));
            const uint4 even_codes = even & mask;
            const uint4 odd_codes = odd & mask;
            #pragma clang loop unroll(full)
            for (uint p = 0; p < Planes; p++) {
                const half4 four = d[2 * p + i];
                sums[p] = fma(vec_low(even_codes), float4(four.x), sums[p]);
                sums[p] = fma(vec_high(even_codes), float4(four.y), sums[p]);
                sums[p] = fma(vec_low(odd_codes), float4(four.z), sums[p]);
                sums[p] = fma(vec_high(odd_codes), float4(four.w), sums[p]);
            }
        }
    }
}

// VecShare is a SIMD group's share of a block.
struct VecShare {
    device const uchar* block;
    uint steps;       // of the block
    uint first;       // the tile that the chunk begins with
    uint tiles;       // of the chunk
    uint chunk_steps; // that there are digits of
    uint split, splits;
    bool works; // there is a block
    uint lane;
};

// vec_part returns which part of n tiles a SIMD group has: x up to y.
inline uint2 vec_part(uint n, uint split, uint splits) {
    const uint each = (n + splits - 1) / splits;
    return uint2(min(n, split * each), min(n, (split + 1) * each));
}

// vec_rows adds the products of a chunk to the totals of four rows, [plane], in the scale of the digits.
template <uint Bits, uint Planes>
inline void vec_rows(thread uint4* totals, thread VecCodes& codes, VecShare s, threadgroup const uchar* digits) {
    const uint2 part = vec_part(s.tiles, s.split, s.splits);
    uint tile = part.x;
    while (s.works && tile < part.y) {
        const uint end = min(part.y, tile + VecFlushTiles);
        float4 sums[Planes];
        #pragma clang loop unroll(full)
        for (uint p = 0; p < Planes; p++) {
            sums[p] = float4(0);
        }
        for (; tile < end; tile++) {
            if (!codes.ready) {
                vec_fetch<false>(codes, s.block, s.first + tile, s.steps, s.lane);
            }
            codes.ready = false;
            #pragma clang loop unroll(full)
            for (uint k = 0; k < 4; k++) {
                vec_multiply<Bits, Planes, false>(sums, codes.words[k], digits, tile * VecTileSteps + k * 8 + s.lane / 4, s.chunk_steps);
            }
        }
        #pragma clang loop unroll(full)
        for (uint p = 0; p < Planes; p++) {
            totals[p] += as_type<uint4>(int4(sums[p]));
        }
    }
}

// vec_gather adds what the lanes have of their four rows; each lane gets row lane % 16.
inline uint vec_gather(uint4 rows, uint lane) {
    const bool second = (lane & 4) != 0;
    const uint2 sent = second ? rows.xy : rows.zw;
    uint2 two = second ? rows.zw : rows.xy;
    two += simd_shuffle_xor(sent, 4);
    const bool odd = (lane & 8) != 0;
    uint one = odd ? two.y : two.x;
    one += simd_shuffle_xor(odd ? two.x : two.y, 8);
    one += simd_shuffle_xor(one, 16);
    // It is row 4*(lane%4) + 2*second + odd.
    const uint row = lane % BlockRows;
    return simd_shuffle(one, ushort(row / 4 + (row & 2) * 2 + (row & 1) * 8));
}

// vec_sync waits for those that share a block.
inline void vec_sync(uint splits) {
    if (splits == 1) {
        simdgroup_barrier(mem_flags::mem_threadgroup);
    } else {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// vec_groups adds the products of a chunk to the sum of row lane % 16, group by
// group of 32 columns in their order, for the first SIMD group of those that share
// a block. ys is their memory, [group][row]. All SIMD groups of the group call it.
//
// Sums begin with what they would have too much. Then each is at most
// 32*128*8 = 2^15 in the end, and two digits of it are an exact float; the last fma rounds, once.
template <uint Planes>
inline void vec_groups(thread float& sum, thread VecCodes& codes, VecShare s, uint batch, float scale, threadgroup const uchar* digits,
                       threadgroup const float* group_sums, threadgroup float* ys) {
    const uint groups = s.steps / 4;
    device const half* scales = reinterpret_cast<device const half*>(s.block + ulong(s.steps) * StepBytes);
    for (uint first = 0; first < s.tiles; first += batch) {
        const uint tiles = min(batch, s.tiles - first);
        const uint2 part = vec_part(tiles, s.split, s.splits);
        for (uint tile = part.x; s.works && tile < part.y; tile++) {
            if (!codes.ready) {
                vec_fetch<true>(codes, s.block, s.first + first + tile, s.steps, s.lane);
            }
            codes.ready = false;
            const uint here = (first + tile) * 8 + s.lane / 4; // the group in the chunk
            const uint group = s.first * 8 + here;
            float4 rows[Planes];
            #pragma clang loop unroll(full)
            for (uint p = 0; p < Planes; p++) {
                rows[p] = float4(-group_sums[p * (s.chunk_steps / 4) + here]);
            }
            #pragma clang loop unroll(full)
            for (uint k = 0; k < 4; k++) {
                vec_multiply<4, Planes, true>(rows, codes.words[k], digits, here * 4 + k, s.chunk_steps);
            }
            float4 y = rows[Planes - 1];
            #pragma clang loop unroll(full)
            for (uint p = Planes - 1; p > 0; p--) {
                y = fma(y, float4(256), rows[p - 1]);
            }
            y = y * scale;
            y = group < groups ? y * float4(reinterpret_cast<device const half4*>(scales)[group * 4 + s.lane % 4]) : float4(0);
            reinterpret_cast<threadgroup float4*>(ys)[tile * 32 + s.lane] = y;
        }
        vec_sync(s.splits);
        if (s.works && s.split == 0) {
            for (uint g = 0; g < tiles * 8; g += 8) {
                float y[8];
                #pragma clang loop unroll(full)
                for (uint i = 0; i < 8; i++) {
                    y[i] = ys[(g + i) * BlockRows + s.lane % BlockRows];
                }
                #pragma clang loop unroll(full)
                for (uint i = 0; i < 8; i++) {
                    sum = sum + y[i];
                }
            }
        }
        vec_sync(s.splits);
    }
}

// vec_finish makes a float of a row's totals, [plane], that have a surplus.
template <uint Planes>
inline float vec_finish(thread const uint* totals, thread const uint* surplus, float scale, float weight_scale) {
    long total = 0;
    #pragma clang loop unroll(full)
    for (uint p = Planes; p > 0; p--) {
        total = total * 256 + long(int(totals[p - 1] - surplus[p - 1]));
    }
    const float y = int64_to_float(total) * scale;
    return y * weight_scale;
}

// vec_peaks writes the largest of each run of 256 results of the group. A lane has eight neighbours of these.
inline void vec_peaks(device float* peaks, threadgroup const float* results, uint count, Thread t) {
    threadgroup_barrier(mem_flags::mem_threadgroup); // all results are there
    const uint runs = (count + 255) / 256;
    for (uint run = t.simd; run < runs; run += t.simds) {
        float top = as_type<float>(0xff800000u);
        for (uint i = 0; i < 8; i++) {
            const uint at = run * 256 + t.lane * 8 + i;
            top = at < count ? later_peak(top, results[at]) : top;
        }
        for (ushort apart = 1; apart < SIMDWidth; apart *= 2) {
            top = later_peak(top, simd_shuffle_down(top, apart)); // in order for the first lane
        }
        if (t.lane == 0) {
            peaks[run] = top;
        }
    }
}

// vec_first finds the part of a group and returns its first block of results in it.
inline uint vec_first(constant VecArgs& args, uint group, thread uint& part) {
    uint first = group * args.group_blocks;
    for (part = 0; part + 1 < args.parts; part++) {
        const uint groups = (args.part[part].blocks + args.group_blocks - 1) / args.group_blocks;
        if (first < groups * args.group_blocks) {
            break;
        }
        first -= groups * args.group_blocks;
    }
    return first;
}

// vec_surplus adds what the SIMD groups have of the surplus of a chunk, [plane], to
// that of all, for the lanes whose surplus it is. It waits until everything is there.
template <uint Planes>
inline void vec_surplus(thread uint* surplus, thread const uint* sums, bool mine, threadgroup uchar* shared, Thread t) {
    threadgroup uint* all = reinterpret_cast<threadgroup uint*>(shared + VecSumsAt);
    #pragma clang loop unroll(full)
    for (uint p = 0; p < Planes; p++) {
        const uint sum = simd_sum(sums[p]);
        if (t.lane == 0) {
            all[t.simd * Planes + p] = sum;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    #pragma clang loop unroll(full)
    for (uint p = 0; p < Planes; p++) {
        const uint sum = simd_sum(t.lane < t.simds ? all[t.lane * Planes + p] : 0);
        surplus[p] += mine ? sum : 0;
    }
}

// vec_join adds the totals of the SIMD groups that share a block, [plane]; the first of them gets the sums.
template <uint Planes>
inline void vec_join(thread uint* totals, threadgroup uchar* work, bool again, VecShare s, Thread t) {
    threadgroup uint* all = reinterpret_cast<threadgroup uint*>(work);
    if (again) {
        threadgroup_barrier(mem_flags::mem_threadgroup); // those before are added
    }
    #pragma clang loop unroll(full)
    for (uint p = 0; p < Planes; p++) {
        all[(t.simd * Planes + p) * SIMDWidth + t.lane] = totals[p];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 1; s.split == 0 && i < s.splits; i++) {
        #pragma clang loop unroll(full)
        for (uint p = 0; p < Planes; p++) {
            totals[p] += all[((t.simd + i) * Planes + p) * SIMDWidth + t.lane];
        }
    }
}

// vec_product computes the results of a group: with Pairs those of gate and up, whose blocks alternate.
template <uint Bits, uint Planes, bool Grouped, bool Pairs>
inline void vec_product(constant VecArgs& args, VecBuffers b, threadgroup uchar* shared, uint group, Thread t) {
    constexpr uint Blocks = Pairs ? 2 : 1;
    if (b.step->live == 0) {
        return;
    }
    uint which;
    const uint first = vec_first(args, group, which);
    constant VecPart& part = args.part[which];
    const uint count = min(args.group_blocks, part.blocks - first);

    const uint teams = t.simds / args.splits; // each of which has a block of results
    const uint team = t.simd / args.splits;
    const uint rounds = (count + teams - 1) / teams;
    const uint steps = (args.cols + 32 / Bits - 1) / (32 / Bits);
    const uint tiles = (steps + VecTileSteps - 1) / VecTileSteps;
    const uint scales_at = steps * StepBytes;
    const uint block_bytes = scales_at + (Grouped ? (steps / 4 * 32 + 63) / 64 * 64 : 64);
    device const uchar* blocks = b.weights + ulong(part.first_block + first * Blocks) * block_bytes;

    VecShare s;
    s.steps = steps;
    s.split = t.simd % args.splits;
    s.splits = args.splits;
    s.lane = t.lane;
    // The first codes are on their way while the input is computed.
    VecCodes codes;
    const uint2 begin = vec_part(min(tiles, Grouped ? min(args.chunk, args.batch) : args.chunk), s.split, s.splits);
    codes.ready = team < count && begin.x < begin.y;
    if (codes.ready) {
        vec_fetch<Grouped>(codes, blocks + ulong(team * Blocks) * block_bytes, begin.x, steps, t.lane);
    }

    if (vec_computes(args)) {
        vec_input(args, b, shared, group == 0, t);
    }
    const bool differs = Pairs && args.up_in_grid != part.in_grid; // gate and up have digits of their own
    const float scale = vec_scale(args, part.in_grid, b.in, shared, t);
    const float up_scale = differs ? vec_scale(args, args.up_in_grid, b.in, shared, t) : scale;

    threadgroup float* ys = reinterpret_cast<threadgroup float*>(shared + args.work) + team * args.batch * 8 * BlockRows;
    const uint upper = t.lane / BlockRows; // with pairs, the lower lanes finish the rows of gate and the upper ones those of up
    uint surplus[Planes];                  // what the totals of the lane's row have too much
    #pragma clang loop unroll(full)
    for (uint p = 0; p < Planes; p++) {
        surplus[p] = 0;
    }
    for (uint round = 0; round < rounds; round++) {
        const uint unit = round * teams + team;
        s.works = unit < count;
        float y = 0;
        uint totals[Planes]; // of the lane's row
        #pragma clang loop unroll(full)
        for (uint p = 0; p < Planes; p++) {
            totals[p] = 0;
        }
        for (uint i = 0; i < Blocks; i++) {
            const bool fresh = round == 0 && i == 0;
            const bool mine = !Pairs || i == upper;
            const uint set = Pairs ? i * args.second : 0;
            threadgroup const uchar* digits = shared + VecDigitsAt + set;
            threadgroup const float* group_sums = reinterpret_cast<threadgroup const float*>(shared + args.group_sums + set);
            s.block = blocks + ulong(unit * Blocks + i) * block_bytes;
            uint4 rows[Planes];
            float sum = 0;
            #pragma clang loop unroll(full)
            for (uint p = 0; p < Planes; p++) {
                rows[p] = uint4(0);
            }
            for (s.first = 0; s.first < tiles; s.first += args.chunk) {
                s.tiles = min(args.chunk, tiles - s.first);
                s.chunk_steps = s.tiles * VecTileSteps;
                if (fresh || args.chunk < tiles) {
                    if (!fresh || s.first > 0) {
                        threadgroup_barrier(mem_flags::mem_threadgroup); // the digits before are used up
                    }
                    // Those of up are made at once if there is room: what follows may take the place of the input.
                    const uint end = Pairs && args.second != 0 ? Blocks : i + 1;
                    for (uint k = i; k < end; k++) {
                        const bool up = Pairs && k != 0;
                        const VecGrid grid = vec_grid(args, up ? args.up_in_grid : part.in_grid, up ? up_scale : scale);
                        uint sums[Planes];
                        #pragma clang loop unroll(full)
                        for (uint p = 0; p < Planes; p++) {
                            sums[p] = 0;
                        }
                        vec_digits<Bits, Planes, Grouped>(args, grid, b.in, shared, up ? args.second : 0, s.first * VecTileSteps,
                                                          s.chunk_steps, sums, t);
                        if (!Grouped && round == 0 && (i == 0 || differs)) {
                            if (k > i) {
                                threadgroup_barrier(mem_flags::mem_threadgroup); // the sums of gate are read
                            }
                            vec_surplus<Planes>(surplus, sums, !differs || k == upper, shared, t);
                        } else {
                            threadgroup_barrier(mem_flags::mem_threadgroup);
                        }
                    }
                }
                if (Grouped) {
                    vec_groups<Planes>(sum, codes, s, args.batch, Pairs && i != 0 ? up_scale : scale, digits, group_sums, ys);
                } else {
                    vec_rows<Bits, Planes>(rows, codes, s, digits);
                }
            }
            y = mine ? sum : y;
            if (!Grouped) {
                #pragma clang loop unroll(full)
                for (uint p = 0; p < Planes; p++) {
                    const uint total = vec_gather(rows[p], t.lane);
                    totals[p] = mine ? total : totals[p];
                }
            }
        }
        if (!Grouped && args.splits > 1) {
            vec_join<Planes>(totals, shared + args.work, round > 0, s, t);
        }
        if (!s.works || s.split != 0) {
            continue;
        }
        if (!Grouped) {
            device const uchar* scales = blocks + ulong(unit * Blocks + (Pairs ? upper : 0)) * block_bytes + scales_at;
            y = vec_finish<Planes>(totals, surplus, Pairs && upper != 0 ? up_scale : scale,
                                   reinterpret_cast<device const float*>(scales)[t.lane % BlockRows]);
        }
        const float out_grid = Pairs && upper != 0 ? args.up_grid : part.out_grid;
        if (out_grid != 0) {
            y = float(to_grid(y, out_grid, -128.0f, 127.0f)) * out_grid;
        }
        y = y * args.mul;
        if (Pairs) {
            const float up = simd_shuffle_xor(y, 16);
            y = gelu_f(y) * up;
        }
        const uint row = (first + unit) * BlockRows + t.lane;
        if (upper == 0 && row < part.rows) {
            if (args.gelu != 0) {
                y = gelu_f(y) * b.factors[args.gelu_first + row];
            }
            if (args.softcap != 0) {
                y = args.cap * tanh_f(y / args.cap);
            }
            b.out[part.out + row] = y;
            if (args.peaks != 0) {
                reinterpret_cast<threadgroup float*>(shared + args.results)[unit * BlockRows + t.lane] = y;
            }
        }
    }
    if (args.peaks != 0) {
        vec_peaks(b.peaks + first / 16, reinterpret_cast<threadgroup const float*>(shared + args.results),
                  min(count * BlockRows, part.rows - first * BlockRows), t);
    }
}

#define VEC_PRODUCT(NAME, BITS, PLANES, GROUPED, PAIRS)                                                                       \
    [[max_total_threads_per_threadgroup(512)]]                                                                               \
    kernel void NAME(constant VecArgs& args [[buffer(0)]], device const uchar* weights [[buffer(1)]],                        \
                     device const Step* step [[buffer(2)]], device const float* in [[buffer(3)]],                            \
                     device const float* state_in [[buffer(4)]], device float* state_out [[buffer(5)]],                      \
                     device const float* add_weight [[buffer(6)]], device const float* norm_weight [[buffer(7)]],            \
                     device float* normed [[buffer(8)]], device float* out [[buffer(9)]],                                    \
                     device const float* factors [[buffer(10)]], device float* peaks [[buffer(11)]],                         \
                     device const float* blocks [[buffer(12)]], threadgroup uchar* shared [[threadgroup(0)]],                \
                     uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],               \
                     uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],                        \
                     uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {              \
        VecBuffers b = {weights, step, in, state_in, state_out, add_weight, norm_weight, normed, out, factors, peaks, blocks}; \
        Thread t = {index, size.x, lane, simd, simds};                                                                       \
        vec_product<BITS, PLANES, GROUPED, PAIRS>(args, b, shared, group.x, t);                                              \
    }
#define VEC_PRODUCTS(FORMAT, BITS, GROUPED)                             \
    VEC_PRODUCT(vec_##FORMAT##_p1, BITS, 1, GROUPED, false)             \
    VEC_PRODUCT(vec_##FORMAT##_p2, BITS, 2, GROUPED, false)             \
    VEC_PRODUCT(vec_##FORMAT##_p3, BITS, 3, GROUPED, false)             \
    VEC_PRODUCT(vec_gate_up_##FORMAT##_p1, BITS, 1, GROUPED, true)      \
    VEC_PRODUCT(vec_gate_up_##FORMAT##_p2, BITS, 2, GROUPED, true)      \
    VEC_PRODUCT(vec_gate_up_##FORMAT##_p3, BITS, 3, GROUPED, true)

VEC_PRODUCTS(int2, 2, false)
VEC_PRODUCTS(int4, 4, false)
VEC_PRODUCTS(int8, 8, false)
VEC_PRODUCTS(int4x32, 4, true)
