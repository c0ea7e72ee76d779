// Operations that treat numbers one by one, norms, tables, and writing to caches.

struct EmbedArgs {
    uint cols;        // of the table
    uint bits;        // of a number: 2, 4 or 8 for codes, 16 for bfloat16, 32 for float
    uint group;       // columns that share a scale
    uint half_scales; // 1 for float16 scales, 0 for float32
    uint blocks;      // 1 if 16 rows are interleaved, 0 if rows lie one after the other
    uint stride;      // bytes of a block, or of a row
    uint scales_at;   // where in these the scales begin
    float mul;        // times every value
};

// bytes2 reads 16 bits that need not be aligned.
inline uint bytes2(device const uchar* p) {
    return uint(p[0]) | uint(p[1]) << 8;
}

// bytes4 reads 32 bits that need not be aligned.
inline uint bytes4(device const uchar* p) {
    return bytes2(p) | bytes2(p + 2) << 16;
}

// table_value returns one number of a table.
inline float table_value(constant EmbedArgs& args, device const uchar* table, uint row, uint c) {
    device const uchar* data = table + ulong(args.blocks != 0 ? row / BlockRows : row) * args.stride;
    if (args.bits == 32) {
        return as_type<float>(bytes4(data + 4 * c));
    }
    if (args.bits == 16) {
        return as_type<float>(bytes2(data + 2 * c) << 16);
    }
    uint at, shift;
    uint scale_index = c / args.group;
    if (args.blocks != 0) {
        uint lane = row % BlockRows;
        uint step_cols = 32 / args.bits;
        uint in_step = c % step_cols;
        at = c / step_cols * StepBytes + 4 * lane + in_step % 4;
        shift = in_step / 4 * args.bits;
        scale_index = scale_index * BlockRows + lane;
    } else {
        at = c * args.bits / 8;
        shift = c * args.bits % 8;
    }
    uint code = (uint(data[at]) >> shift) & ((1u << args.bits) - 1);
    device const uchar* scales = data + args.scales_at;
    float scale = args.half_scales != 0 ? float(as_type<half>(ushort(bytes2(scales + 2 * scale_index))))
                                        : as_type<float>(bytes4(scales + 4 * scale_index));
    return float(int(code) - (1 << (args.bits - 1))) * scale;
}

// embed gathers the rows of tokens. A group has 256 columns of a row.
[[max_total_threads_per_threadgroup(256)]]
kernel void embed(constant EmbedArgs& args [[buffer(0)]], device const uchar* table [[buffer(1)]],
                  device const Step* step [[buffer(2)]], device float* out [[buffer(3)]],
                  uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                  uint3 size [[threads_per_threadgroup]]) {
    uint c = group.x * size.x + index;
    if (group.y >= step->live || c >= args.cols) {
        return;
    }
    uint token = uint(rows_of(step)[group.y].token);
    out[group.y * args.cols + c] = table_value(args, table, token, c) * args.mul;
}

struct NormArgs {
    uint cols;        // of a run
    uint stride;      // of a row
    float eps;
    uint weighted;    // 1 to multiply with a weight
    uint rotated;     // 1 to rotate the halves of a run
    uint angle_cols;  // of the table of sines and cosines
    uint angle_first; // where those of the rotation begin
};

// norm is an RMSNorm of every run of a row, and the rotation of its halves by the row's position. in may be out.
[[max_total_threads_per_threadgroup(128)]]
kernel void norm(constant NormArgs& args [[buffer(0)]], device const float* in [[buffer(1)]],
                 device const float* weight [[buffer(2)]], device const float* angles [[buffer(3)]],
                 device const Step* step [[buffer(4)]], device float* out [[buffer(5)]],
                 uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                 uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    if (group.y >= step->live) {
        return;
    }
    uint at = group.y * args.stride + group.x * args.cols;
    device const float* x = in + at;
    device float* y = out + at;
    float inverse = inverse_rms(x, args.cols, args.eps, lane);
    threadgroup_barrier(mem_flags::mem_device); // all have read what is overwritten
    uint turned = args.rotated != 0 ? args.cols / 2 : 0;
    device const float* sines = angles + rows_of(step)[group.y].angles * args.angle_cols + args.angle_first;
    for (uint i = index; i < turned; i += size.x) {
        float a = x[i] * inverse, b = x[turned + i] * inverse;
        if (args.weighted != 0) {
            a *= weight[i];
            b *= weight[turned + i];
        }
        float sine = sines[i], cosine = sines[turned + i];
        float a_cosine = a * cosine, b_sine = b * sine;
        float b_cosine = b * cosine, a_sine = a * sine;
        y[i] = a_cosine - b_sine;
        y[turned + i] = b_cosine + a_sine;
    }
    for (uint i = 2 * turned + index; i < args.cols; i += size.x) {
        float a = x[i] * inverse;
        if (args.weighted != 0) {
            a *= weight[i];
        }
        y[i] = a;
    }
}

struct AddNormArgs {
    uint cols;
    float eps;
    float mul;     // times the sum
    uint weighted; // 1 to multiply the norm with a weight
};

// add_norm adds a normed branch to the state: state = (state + norm(in)) * mul. A group has a row.
[[max_total_threads_per_threadgroup(128)]]
kernel void add_norm(constant AddNormArgs& args [[buffer(0)]], device const float* in [[buffer(1)]],
                     device const float* weight [[buffer(2)]], device const Step* step [[buffer(3)]],
                     device float* state [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]]) {
    if (group.y >= step->live) {
        return;
    }
    device const float* x = in + group.y * args.cols;
    device float* y = state + group.y * args.cols;
    float inverse = inverse_rms(x, args.cols, args.eps, lane);
    for (uint i = index; i < args.cols; i += size.x) {
        float a = x[i] * inverse;
        if (args.weighted != 0) {
            a *= weight[i];
        }
        y[i] = (y[i] + a) * args.mul;
    }
}

struct AddMulArgs {
    uint cols;
    float mul;
};

// add_mul is (a + b) * mul. out may be a or b. A group has 256 columns of a row, as in all kernels below.
[[max_total_threads_per_threadgroup(256)]]
kernel void add_mul(constant AddMulArgs& args [[buffer(0)]], device const float* a [[buffer(1)]],
                    device const float* b [[buffer(2)]], device const Step* step [[buffer(3)]], device float* out [[buffer(4)]],
                    uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                    uint3 size [[threads_per_threadgroup]]) {
    uint c = group.x * size.x + index;
    if (group.y >= step->live || c >= args.cols) {
        return;
    }
    uint at = group.y * args.cols + c;
    out[at] = (a[at] + b[at]) * args.mul;
}

struct GELUMulArgs {
    uint cols;     // of a and out
    uint first;    // of the columns of b
    uint b_stride; // of a row of b
};

// gelu_mul is gelu(a) times some columns of b. out may be a.
[[max_total_threads_per_threadgroup(256)]]
kernel void gelu_mul(constant GELUMulArgs& args [[buffer(0)]], device const float* a [[buffer(1)]],
                     device const float* b [[buffer(2)]], device const Step* step [[buffer(3)]], device float* out [[buffer(4)]],
                     uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                     uint3 size [[threads_per_threadgroup]]) {
    uint c = group.x * size.x + index;
    if (group.y >= step->live || c >= args.cols) {
        return;
    }
    uint at = group.y * args.cols + c;
    out[at] = gelu_f(a[at]) * b[group.y * args.b_stride + args.first + c];
}

struct SoftcapArgs {
    uint cols;
    float cap;
};

// softcap is cap * tanh(x / cap), in place.
[[max_total_threads_per_threadgroup(256)]]
kernel void softcap(constant SoftcapArgs& args [[buffer(0)]], device float* x [[buffer(1)]], device const Step* step [[buffer(2)]],
                    uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                    uint3 size [[threads_per_threadgroup]]) {
    uint c = group.x * size.x + index;
    if (group.y >= step->live || c >= args.cols) {
        return;
    }
    uint at = group.y * args.cols + c;
    x[at] = args.cap * tanh_f(x[at] / args.cap);
}

struct PeaksArgs {
    uint cols; // logits
};

// higher returns which of two logits a peak is: the larger, or what is not a
// number, and of equal ones the first.
inline float higher(float first, float second) {
    return second > first || is_nan(second) ? second : first;
}

// peaks finds the largest of each run of 256 logits, or what is not a number.
[[max_total_threads_per_threadgroup(256)]]
kernel void peaks(constant PeaksArgs& args [[buffer(0)]], device const float* logits [[buffer(1)]],
                  device const Step* step [[buffer(2)]], device float* out [[buffer(3)]], threadgroup uchar* shared [[threadgroup(0)]],
                  uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                  uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                  uint simd [[simdgroup_index_in_threadgroup]]) {
    if (group.y >= step->live) {
        return;
    }
    threadgroup float* tops = reinterpret_cast<threadgroup float*>(shared); // of each SIMD group
    uint c = group.x * size.x + index;
    float top = c < args.cols ? logits[group.y * args.cols + c] : as_type<float>(0xff800000u);
    for (ushort stride = 1; stride < SIMDWidth; stride *= 2) {
        top = higher(top, simd_shuffle_xor(top, stride)); // the first thread's top is that of the first 2*stride threads
    }
    if (lane == 0) {
        tops[simd] = top;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index == 0) {
        for (uint i = 1; i < size.x / SIMDWidth; i++) {
            top = higher(top, tops[i]);
        }
        uint runs = (args.cols + size.x - 1) / size.x;
        out[group.y * runs + group.x] = top;
    }
}

struct SelectArgs {
    uint cols;
};

// select_rows copies the rows whose indices are in kept. The step is that of the rows that are kept.
[[max_total_threads_per_threadgroup(256)]]
kernel void select_rows(constant SelectArgs& args [[buffer(0)]], device const float* in [[buffer(1)]],
                        device const uint* kept_rows [[buffer(2)]], device const Step* step [[buffer(3)]], device float* out [[buffer(4)]],
                        uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                        uint3 size [[threads_per_threadgroup]]) {
    uint c = group.x * size.x + index;
    if (group.y >= step->live || c >= args.cols) {
        return;
    }
    out[group.y * args.cols + c] = in[kept_rows[group.y] * args.cols + c];
}

struct StoreArgs {
    uint kv_heads;
    uint dim;          // length of a head
    uint table;        // where the cache begins in a slot's part of the page table
    uint ring;         // pages of a ring; 0 for a full cache
    float key_scale;   // step of the codes of keys
    float value_scale; // step of the codes of values
};

// store_rows writes one head of a row's key and value to the row's position.
template <typename T>
inline void store_rows(constant StoreArgs& args, device const float* key, device const float* value, device const Step* step,
                       device const uint* pages, device uchar* arena, uint3 group, uint index, uint threads) {
    if (group.y >= step->live) {
        return;
    }
    device const Row& row = rows_of(step)[group.y];
    device T* page = page_of<T>(row, args.table, args.ring, row.pos / BlockPositions, pages, arena);
    uint in = (group.y * args.kv_heads + group.x) * args.dim;
    uint to = (group.x * BlockPositions + row.pos % BlockPositions) * args.dim;
    uint values = args.kv_heads * BlockPositions * args.dim;
    for (uint i = index; i < args.dim; i += threads) {
        page[to + i] = kept<T>(keep<T>(key[in + i], args.key_scale));
        page[values + to + i] = kept<T>(keep<T>(value[in + i], args.value_scale));
    }
}

#define STORE(NAME, T)                                                                                     \
    [[max_total_threads_per_threadgroup(64)]]                                                              \
    kernel void NAME(constant StoreArgs& args [[buffer(0)]], device const float* key [[buffer(1)]],        \
                     device const float* value [[buffer(2)]], device const Step* step [[buffer(3)]],       \
                     device const uint* pages [[buffer(4)]], device uchar* arena [[buffer(5)]],            \
                     uint3 group [[threadgroup_position_in_grid]],                                         \
                     uint index [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]]) { \
        store_rows<T>(args, key, value, step, pages, arena, group, index, size.x);                         \
    }

STORE(store_float, float)
STORE(store_half, half)
STORE(store_int8, char)
