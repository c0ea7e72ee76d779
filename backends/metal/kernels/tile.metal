// Products of packed codes with tiles of rows, for batches and prompts.
//
// A SIMD group multiplies one block of 16 matrix rows with the digits of 8 or 32
// rows of activations, a chunk of columns at a time. Codes and digits lie in
// shared memory as halves, and 8x8 matrices of them are multiplied into floats.
// Each code is read from the device once for a tile. The SIMD groups of a group
// share the digits; where blocks are few they split the columns, too.
//
// All of it is exact. Codes are taken without their midpoint: |code| is at most
// 2, 8 or 128, and |digit| 128. So sums of products, in whatever order, stay
// within 2^24 for 65536, 16384 and 1024 columns of codes of 2, 4 and 8 bits, and
// a float holds them. After so many columns they are added to integers, of which
// the longest product needs 31 bits. Groups of 32 columns with 4-bit codes stay
// within 2^15 for each digit, so that tile_group needs no integers.

// TileArgs are the arguments of the linear and gate_up kernels.
struct TileArgs {
    uint first_block; // of the part in the matrix; gate_up: of a gate
    uint blocks;      // of the part; gate_up: those of gate and up together
    uint rows;        // of the part, or of gate; the last block may reach past them
    uint steps;       // of a block
    uint block_bytes; // size of a block with its scales
    uint padded;      // columns of the digits, a multiple of 64
    uint out_stride;  // floats from one row of the result to the next
    uint splits;      // SIMD groups that share the columns of a block: 1, 2, 4 or 8
    uint operands;    // 2 where up has digits of its own, else 1
    float out_grid;   // the step of the grid that products are rounded to, 0 for none
    float up_grid;    // the same for up, where out_grid is that of gate
    float mul;        // multiplied to rounded products; gate_up: 1
};

// TileProducts is how many products of a block there are with 8 rows.
constant constexpr uint TileProducts = 8 * BlockRows;

// TileShape is what a kernel is made for, and what follows from it.
template <uint CodeBits, bool HalfScales, uint Digits, uint TileRows>
struct TileShape {
    static constant constexpr uint Bits = CodeBits;     // of a code
    static constant constexpr bool Grouped = HalfScales; // a float16 scale for each 32 columns, not a float32 for all
    static constant constexpr uint Planes = Digits;     // of an integer
    static constant constexpr uint Rows = TileRows;     // of activations
    static constant constexpr uint Eights = TileRows / 8;
    // Cols is the columns of a chunk, and Stride the distance in halves of its
    // rows: 8 rows of 16 bytes lie in different banks.
    static constant constexpr uint Cols = HalfScales ? 32 : 64;
    static constant constexpr uint Stride = Cols + 8;
    // Words is how many words of a chunk's codes each thread reads.
    static constant constexpr uint Words = Cols * CodeBits / 64;
    // FlushChunks is after how many chunks floats may no longer be exact.
    static constant constexpr uint FlushChunks = (1u << 17) / (Cols << (CodeBits - 1));
    // AreaBytes is the shared memory of a SIMD group: codes of a chunk, and in turns the products with 8 rows.
    static constant constexpr uint CodesBytes = 2 * BlockRows * Stride;
    static constant constexpr uint ProductsBytes = 4 * Digits * TileProducts;
    static constant constexpr uint AreaBytes = CodesBytes > ProductsBytes ? CodesBytes : ProductsBytes;
};

// TileOperand is activations as digits.
struct TileOperand {
    device const uint* digits; // [row][plane][padded / 4] words of four digits
    device const float* steps; // [row]
};

// TilePlace is the place of a thread in its group.
struct TilePlace {
    uint lane;
    uint blocks; // that the group multiplies
    uint block;  // of these, that of the SIMD group
    uint splits; // SIMD groups that share the columns of a block
    uint split;  // of these, the thread's
};

// half_four returns four codes of at most 8 bits, one of each byte, as exact
// halves: 0x6400 and a code are 1024 + code. The order is that of bytes 0, 2, 1, 3,
// in which codes and digits lie in shared memory.
inline half4 half_four(uint word, uint mask, half offset) {
    const half2 zero = half2(offset, offset);
    const half2 even = as_type<half2>((word & mask) | 0x64006400u) - zero;
    const half2 odd = as_type<half2>((word >> 8 & mask) | 0x64006400u) - zero;
    return half4(even.x, even.y, odd.x, odd.y);
}

// tile_read reads the SIMD group's codes of a chunk: 128 neighbouring bytes at a time, the rows of two steps.
template <typename T>
inline void tile_read(thread uint* words, device const uchar* codes, uint steps, uint chunk, bool working, uint lane) {
    #pragma clang loop unroll(full)
    for (uint i = 0; i < T::Words; i++) {
        const uint step = (chunk * T::Words + i) * 2 + lane / BlockRows;
        words[i] = 0;
        if (working && step < steps) {
            words[i] = reinterpret_cast<device const uint*>(codes)[step * BlockRows + lane % BlockRows];
        }
    }
}

// tile_codes lays these codes down, [block row][Stride].
template <typename T>
inline void tile_codes(threadgroup half* area, thread const uint* words, uint lane) {
    constexpr uint Mask = (1u << T::Bits) - 1;
    constexpr uint Fields = 8 / T::Bits;
    #pragma clang loop unroll(full)
    for (uint i = 0; i < T::Words; i++) {
        threadgroup half* at = area + lane % BlockRows * T::Stride + (2 * i + lane / BlockRows) * 4 * Fields;
        #pragma clang loop unroll(full)
        for (uint f = 0; f < Fields; f++) {
            *reinterpret_cast<threadgroup half4*>(at + 4 * f) =
                half_four(words[i] >> (T::Bits * f), Mask << 16 | Mask, half(1024 + (1 << (T::Bits - 1))));
        }
    }
}

// tile_digits lays down the digits of a chunk, [plane][row][Stride], with zeros
// for rows that are not live. index and threads count those that share the work.
template <typename T>
inline void tile_digits(threadgroup half* acts, device const uint* digits, uint padded, uint chunk, uint live, uint index, uint threads) {
    constexpr uint RowWords = T::Cols / 4;
    for (uint i = index; i < T::Planes * T::Rows * RowWords; i += threads) {
        const uint row = i / RowWords % T::Rows;
        const uint plane = i / RowWords / T::Rows;
        uint word = 0;
        if (row < live) {
            word = digits[(row * T::Planes + plane) * (padded / 4) + chunk * RowWords + i % RowWords];
        }
        // With their signs turned over, digits are codes of 8 bits.
        *reinterpret_cast<threadgroup half4*>(acts + i / RowWords * T::Stride + i % RowWords * 4) =
            half_four(word ^ 0x80808080u, 0x00ff00ffu, half(1024 + 128));
    }
}

// tile_multiply adds the products of a chunk to sums, [plane][8 rows][half block], for as many 8 rows as are live.
template <typename T>
inline void tile_multiply(thread simdgroup_float8x8* sums, threadgroup const half* area, threadgroup const half* acts, uint eights) {
    for (uint k = 0; k < T::Cols; k += 8) {
        simdgroup_half8x8 left;
        simdgroup_half8x8 right;
        simdgroup_load(left, area + k, T::Stride, ulong2(0, 0), true);
        simdgroup_load(right, area + 8 * T::Stride + k, T::Stride, ulong2(0, 0), true);
        #pragma clang loop unroll(full)
        for (uint e = 0; e < T::Eights; e++) {
            if (e < eights) {
                #pragma clang loop unroll(full)
                for (uint p = 0; p < T::Planes; p++) {
                    const uint i = p * T::Eights + e;
                    simdgroup_half8x8 rows;
                    simdgroup_load(rows, acts + i * 8 * T::Stride + k, T::Stride);
                    simdgroup_multiply_accumulate(sums[2 * i], rows, left, sums[2 * i]);
                    simdgroup_multiply_accumulate(sums[2 * i + 1], rows, right, sums[2 * i + 1]);
                }
            }
        }
    }
}

// tile_clear makes sums zero.
template <typename T>
inline void tile_clear(thread simdgroup_float8x8* sums) {
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 2 * T::Planes * T::Eights; i++) {
        sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
}

// tile_spill writes the sums of 8 rows over the SIMD group's codes, [plane][row][block row].
template <typename T>
inline void tile_spill(threadgroup float* area, thread const simdgroup_float8x8* sums, uint e) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    #pragma clang loop unroll(full)
    for (uint p = 0; p < T::Planes; p++) {
        const uint i = 2 * (p * T::Eights + e);
        simdgroup_store(sums[i], area + p * TileProducts, BlockRows);
        simdgroup_store(sums[i + 1], area + p * TileProducts + 8, BlockRows);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

// tile_flush adds sums to the integers of each thread, [8 rows][plane][4], and makes them zero.
template <typename T>
inline void tile_flush(thread int* totals, thread simdgroup_float8x8* sums, threadgroup float* area, uint eights, uint lane) {
    #pragma clang loop unroll(full)
    for (uint e = 0; e < T::Eights; e++) {
        if (e < eights) {
            tile_spill<T>(area, sums, e);
            #pragma clang loop unroll(full)
            for (uint i = 0; i < 4 * T::Planes; i++) {
                totals[e * 4 * T::Planes + i] += int(area[SIMDWidth * i + lane]);
            }
        }
    }
    tile_clear<T>(sums);
}

// tile_own returns which product with 8 rows is a thread's i-th: row at / 16 and
// block row at % 16, or none from TileProducts on. The threads that share the
// columns of a block share its products, too.
inline uint tile_own(TilePlace at, uint i) {
    return (i * at.splits + at.split) * SIMDWidth + at.lane;
}

// tile_share replaces integers that each SIMD group has for its columns by those
// of a thread's own products for all columns.
template <typename T>
inline void tile_share(thread int* totals, threadgroup uchar* shared, TilePlace at) {
    threadgroup int* area = reinterpret_cast<threadgroup int*>(shared + (at.split * at.blocks + at.block) * T::AreaBytes);
    // What was read here last were floats: no compiler may move that behind what is written now.
    simdgroup_barrier(mem_flags::mem_threadgroup);
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 4 * T::Planes; i++) {
        area[SIMDWidth * i + at.lane] = totals[i];
        totals[i] = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 4; i++) {
        const uint own = tile_own(at, i);
        if (own < TileProducts) {
            for (uint s = 0; s < at.splits; s++) {
                area = reinterpret_cast<threadgroup int*>(shared + (s * at.blocks + at.block) * T::AreaBytes);
                #pragma clang loop unroll(full)
                for (uint p = 0; p < T::Planes; p++) {
                    totals[4 * p + i] += area[p * TileProducts + own];
                }
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// tile_total puts the digits of a thread's i-th product together, and rounds once.
template <typename T>
inline float tile_total(thread const int* totals, uint i) {
    long total = totals[i];
    if (T::Planes > 1) {
        total += long(totals[4 + i]) * 256;
    }
    if (T::Planes > 2) {
        total += long(totals[8 + i]) * 65536;
    }
    return int64_to_float(total);
}

// tile_group turns sums over a group of columns into products with 8 rows and
// adds them, in the order of groups, to those that a thread owns. scale is that
// of the thread's block row, row_steps are those of its rows; splits is how many
// SIMD groups have a group of columns.
template <typename T>
inline void tile_group(thread float* products, thread const simdgroup_float8x8* sums, thread const float* row_steps, float scale,
                       threadgroup uchar* shared, TilePlace at, uint e, bool working, uint splits) {
    threadgroup float* area = reinterpret_cast<threadgroup float*>(shared + (at.split * at.blocks + at.block) * T::AreaBytes);
    if (working) {
        tile_spill<T>(area, sums, e);
        #pragma clang loop unroll(full)
        for (uint i = 0; i < 4; i++) {
            const uint own = SIMDWidth * i + at.lane;
            // The first two digits come to less than 2^24, and the third is a power of two times a small integer.
            float total = area[own];
            if (T::Planes > 1) {
                total += area[TileProducts + own] * 256.0f;
            }
            if (T::Planes > 2) {
                total += area[2 * TileProducts + own] * 65536.0f;
            }
            float product = total * row_steps[i];
            product = product * scale;
            if (at.splits == 1) {
                products[i] += product;
            } else {
                area[own] = product;
            }
        }
    }
    if (at.splits == 1) {
        return;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 4; i++) {
        const uint own = tile_own(at, i);
        if (own < TileProducts) {
            for (uint s = 0; s < splits; s++) {
                area = reinterpret_cast<threadgroup float*>(shared + (s * at.blocks + at.block) * T::AreaBytes);
                products[i] += area[own];
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// tile_round rounds a product on the grid of the result, if there is one.
inline float tile_round(float product, float grid) {
    if (grid != 0) {
        return float(to_grid(product, grid, -128.0f, 127.0f)) * grid;
    }
    return product;
}

// tile_product multiplies the blocks of a group with a tile of rows. If Paired,
// blocks of gate and up alternate, and the result is gelu(gate) * up.
template <typename T, bool Paired>
inline void tile_product(constant TileArgs& args, device const uchar* weights, device const Step* step, TileOperand gate, TileOperand up,
                         device float* out, threadgroup uchar* shared, uint3 group, uint lane, uint simd, uint simds) {
    constexpr uint Acts = T::Planes * T::Rows * T::Stride;
    const uint first_row = group.y * T::Rows;
    if (first_row >= step->live) {
        return;
    }
    const uint live = min(T::Rows, step->live - first_row);
    const uint eights = (live + 7) / 8;
    const uint row_digits = first_row * T::Planes * (args.padded / 4);
    const uint operands = Paired ? args.operands : 1;

    TilePlace at;
    at.lane = lane;
    at.splits = args.splits;
    at.blocks = simds / at.splits;
    at.block = simd % at.blocks;
    at.split = simd / at.blocks;
    const uint block = group.x * at.blocks + at.block;
    const bool active = block < args.blocks;
    const bool is_up = Paired && at.block % 2 == 1;
    device const uchar* codes = weights + ulong(args.first_block + block) * args.block_bytes;
    device const uchar* scales = codes + args.steps * StepBytes;
    device const float* steps = (is_up && operands == 2 ? up.steps : gate.steps) + first_row;

    threadgroup half* area = reinterpret_cast<threadgroup half*>(shared + simd * T::AreaBytes);
    threadgroup half* acts = reinterpret_cast<threadgroup half*>(shared + simds * T::AreaBytes) + at.split * operands * Acts;
    threadgroup half* own_acts = is_up && operands == 2 ? acts + Acts : acts;
    threadgroup float* floats = reinterpret_cast<threadgroup float*>(area);

    simdgroup_float8x8 sums[2 * T::Planes * T::Eights];
    tile_clear<T>(sums);
    int totals[4 * T::Planes * T::Eights]; // of codes with a scale for all columns
    float products[4 * T::Eights];         // of codes in groups
    float row_steps[4 * T::Eights];        // likewise
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 4 * T::Planes * T::Eights; i++) {
        totals[i] = 0;
    }
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 4 * T::Eights; i++) {
        const uint row = 2 * i + lane / BlockRows;
        products[i] = 0;
        row_steps[i] = T::Grouped && row < live ? steps[row] : 0.0f;
    }

    const uint chunks = (args.steps + 2 * T::Words - 1) / (2 * T::Words);
    uint words[T::Words];
    tile_read<T>(words, codes, args.steps, at.split, active && at.split < chunks, lane);
    for (uint first = 0, round = 1; first < chunks; first += at.splits, round++) {
        const uint chunk = first + at.split;
        const bool working = active && chunk < chunks;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (chunk < chunks) {
            const uint thread_of = at.block * SIMDWidth + lane;
            tile_digits<T>(acts, gate.digits + row_digits, args.padded, chunk, live, thread_of, at.blocks * SIMDWidth);
            if (operands == 2) {
                tile_digits<T>(acts + Acts, up.digits + row_digits, args.padded, chunk, live, thread_of, at.blocks * SIMDWidth);
            }
        }
        float scale = 0;
        if (working) {
            tile_codes<T>(area, words, lane);
            if (T::Grouped) {
                scale = float(reinterpret_cast<device const half*>(scales)[chunk * BlockRows + lane % BlockRows]);
            }
        }
        // The next codes are under way while these are multiplied.
        const uint next = chunk + at.splits;
        tile_read<T>(words, codes, args.steps, next, active && next < chunks, lane);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (working) {
            tile_multiply<T>(sums, area, own_acts, eights);
        }
        if (T::Grouped) {
            #pragma clang loop unroll(full)
            for (uint e = 0; e < T::Eights; e++) {
                if (e < eights) {
                    tile_group<T>(products + 4 * e, sums, row_steps + 4 * e, scale, shared, at, e, working,
                                  active ? min(at.splits, chunks - first) : 0);
                }
            }
            tile_clear<T>(sums);
        } else if (T::Bits > 2 && round % T::FlushChunks == 0) {
            tile_flush<T>(totals, sums, floats, eights, lane);
        }
    }

    if (!T::Grouped) {
        tile_flush<T>(totals, sums, floats, eights, lane);
    }
    float scale = 0;
    if (!T::Grouped && active) {
        scale = reinterpret_cast<device const float*>(scales)[lane % BlockRows];
    }
    const float grid = is_up ? args.up_grid : args.out_grid;
    const uint col = (Paired ? block / 2 : block) * BlockRows + lane % BlockRows;
    #pragma clang loop unroll(full)
    for (uint e = 0; e < T::Eights; e++) {
        if (e < eights) {
            thread int* own_totals = totals + 4 * T::Planes * e;
            thread float* own = products + 4 * e;
            if (!T::Grouped && at.splits > 1) {
                tile_share<T>(own_totals, shared, at);
            }
            #pragma clang loop unroll(full)
            for (uint i = 0; i < 4; i++) {
                const uint row = 8 * e + tile_own(at, i) / BlockRows;
                if (!T::Grouped && row < live) {
                    own[i] = tile_total<T>(own_totals, i) * steps[row];
                    own[i] = own[i] * scale;
                }
                own[i] = tile_round(own[i], grid) * args.mul;
            }
            if (Paired) {
                if (is_up) {
                    #pragma clang loop unroll(full)
                    for (uint i = 0; i < 4; i++) {
                        floats[SIMDWidth * i + lane] = own[i];
                    }
                }
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (!is_up) {
                    threadgroup const float* other = reinterpret_cast<threadgroup const float*>(shared + (simd + 1) * T::AreaBytes);
                    #pragma clang loop unroll(full)
                    for (uint i = 0; i < 4; i++) {
                        own[i] = gelu_f(own[i]) * other[SIMDWidth * i + lane];
                    }
                }
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            #pragma clang loop unroll(full)
            for (uint i = 0; i < 4; i++) {
                const uint product = tile_own(at, i);
                const uint row = 8 * e + product / BlockRows;
                if (product < TileProducts && row < live && col < args.rows && !is_up) {
                    out[ulong(first_row + row) * args.out_stride + col] = own[i];
                }
            }
        }
    }
}

// linear multiplies the blocks of a part with the digits that quantize made.
// Grid (blocks / the group's, live rows / tile), both rounded up. A group's SIMD
// groups are so many blocks times args.splits.
#define TILE_LINEAR(NAME, BITS, GROUPED, PLANES, ROWS)                                                                       \
    [[max_total_threads_per_threadgroup(256)]]                                                                               \
    kernel void NAME(constant TileArgs& args [[buffer(0)]],                                                                  \
                     device const uchar* weights [[buffer(1)]],                                                              \
                     device const Step* step [[buffer(2)]],                                                                  \
                     device const uint* digits [[buffer(3)]],                                                                \
                     device const float* steps [[buffer(4)]],                                                                \
                     device float* out [[buffer(5)]],                                                                        \
                     threadgroup uchar* shared [[threadgroup(0)]],                                                           \
                     uint3 group [[threadgroup_position_in_grid]],                                                           \
                     uint lane [[thread_index_in_simdgroup]],                                                                \
                     uint simd [[simdgroup_index_in_threadgroup]],                                                           \
                     uint simds [[simdgroups_per_threadgroup]]) {                                                            \
        TileOperand operand;                                                                                                 \
        operand.digits = digits;                                                                                             \
        operand.steps = steps;                                                                                               \
        tile_product<TileShape<BITS, GROUPED, PLANES, ROWS>, false>(args, weights, step, operand, operand, out, shared,      \
                                                                    group, lane, simd, simds);                               \
    }

// gate_up likewise multiplies blocks of gate and, between them, of up: out is
// gelu(gate) * up. The digits of up are unbound unless it has its own.
#define TILE_GATE_UP(NAME, BITS, GROUPED, PLANES, ROWS)                                                                      \
    [[max_total_threads_per_threadgroup(256)]]                                                                               \
    kernel void NAME(constant TileArgs& args [[buffer(0)]],                                                                  \
                     device const uchar* weights [[buffer(1)]],                                                              \
                     device const Step* step [[buffer(2)]],                                                                  \
                     device const uint* gate_digits [[buffer(3)]],                                                           \
                     device const float* gate_steps [[buffer(4)]],                                                           \
                     device const uint* up_digits [[buffer(5)]],                                                             \
                     device const float* up_steps [[buffer(6)]],                                                             \
                     device float* out [[buffer(7)]],                                                                        \
                     threadgroup uchar* shared [[threadgroup(0)]],                                                           \
                     uint3 group [[threadgroup_position_in_grid]],                                                           \
                     uint lane [[thread_index_in_simdgroup]],                                                                \
                     uint simd [[simdgroup_index_in_threadgroup]],                                                           \
                     uint simds [[simdgroups_per_threadgroup]]) {                                                            \
        TileOperand gate;                                                                                                    \
        gate.digits = gate_digits;                                                                                           \
        gate.steps = gate_steps;                                                                                             \
        TileOperand up;                                                                                                      \
        up.digits = up_digits;                                                                                               \
        up.steps = up_steps;                                                                                                 \
        tile_product<TileShape<BITS, GROUPED, PLANES, ROWS>, true>(args, weights, step, gate, up, out, shared,               \
                                                                   group, lane, simd, simds);                                \
    }

#define TILE_KERNELS(FORMAT, BITS, GROUPED, PLANES, ROWS)                                      \
    TILE_LINEAR(linear_##FORMAT##_p##PLANES##_t##ROWS, BITS, GROUPED, PLANES, ROWS)            \
    TILE_GATE_UP(gate_up_##FORMAT##_p##PLANES##_t##ROWS, BITS, GROUPED, PLANES, ROWS)
#define TILE_FORMAT(FORMAT, BITS, GROUPED)                                                     \
    TILE_KERNELS(FORMAT, BITS, GROUPED, 1, 8)                                                  \
    TILE_KERNELS(FORMAT, BITS, GROUPED, 2, 8)                                                  \
    TILE_KERNELS(FORMAT, BITS, GROUPED, 3, 8)                                                  \
    TILE_KERNELS(FORMAT, BITS, GROUPED, 1, 32)                                                 \
    TILE_KERNELS(FORMAT, BITS, GROUPED, 2, 32)                                                 \
    TILE_KERNELS(FORMAT, BITS, GROUPED, 3, 32)

TILE_FORMAT(int2, 2, false)
TILE_FORMAT(int4, 4, false)
TILE_FORMAT(int8, 8, false)
TILE_FORMAT(int4x32, 4, true)
