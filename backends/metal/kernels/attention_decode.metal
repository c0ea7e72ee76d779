// Attention of a single row: a group computes one block for some heads, and
// vec_combine, or the product that follows, puts the blocks together. What comes
// before, the norms and rotations of heads and the new key and value, each group
// computes for itself.

struct VecAttentionArgs {
    AttentionArgs attention;
    uint owner;          // 1 if the row's key and value are new, 0 if they are in the cache
    uint query_weighted; // 1 if the norm of queries has a weight
    uint key_weighted;   // 1 if that of keys has one
    float query_eps;
    float key_eps;
    float value_eps;
    uint angle_cols;     // of the table of sines and cosines
    uint angle_first;    // where those of the rotation begin
    uint totals;         // how far behind the largest scores the totals begin, in floats
};

// HeadNorm is the norm of a head, and what becomes of the head after it.
struct HeadNorm {
    float eps;
    float keep_step; // of the codes that it is kept as
    bool weighted;   // it is multiplied with a weight
    bool rotated;    // its halves are rotated
};

// prepare_head writes the norm of a head as caches of a type keep it. Of the
// angles of a rotation the sines come first, then the cosines. A SIMD group does it.
template <typename T>
inline void prepare_head(threadgroup uint* out, device const float* x, device const float* weight, device const float* angles,
                         uint dim, HeadNorm norm, uint lane) {
    float inverse = inverse_rms(x, dim, norm.eps, lane);
    uint half_dim = dim / 2;
    for (uint i = lane; i < half_dim; i += SIMDWidth) {
        float a = x[i] * inverse, b = x[half_dim + i] * inverse;
        if (norm.weighted) {
            a *= weight[i];
            b *= weight[half_dim + i];
        }
        if (norm.rotated) {
            float sine = angles[i], cosine = angles[half_dim + i];
            float a_cosine = a * cosine, b_sine = b * sine;
            float b_cosine = b * cosine, a_sine = a * sine;
            a = a_cosine - b_sine;
            b = b_cosine + a_sine;
        }
        out[i] = keep<T>(a, norm.keep_step);
        out[half_dim + i] = keep<T>(b, norm.keep_step);
    }
    if (lane == 0 && dim % 2 != 0) {
        float a = x[dim - 1] * inverse;
        if (norm.weighted) {
            a *= weight[dim - 1];
        }
        out[dim - 1] = keep<T>(a, norm.keep_step);
    }
}

// score_own computes the score of a key that the group holds. The first argument tells the type of the cache.
template <uint H, typename T>
inline void score_own(device const T*, threadgroup const uint* key, thread const AttentionShared& s, constant AttentionArgs& args,
                      uint slot, Thread t) {
    for (uint h = t.simd; h < H; h += t.simds) {
        float sum = 0;
        for (uint d = t.lane % Lanes; d < args.dim; d += Lanes) {
            float product = as_type<float>(s.query[h * s.padded + d]) * as_type<float>(key[d]);
            sum += product;
        }
        sum = lane_tree(sum);
        if (t.lane == 0) {
            s.weights[h * BlockPositions + slot] = as_type<uint>(sum * args.scale);
        }
    }
}

// score_own over codes.
template <uint H>
inline void score_own(device const char*, threadgroup const uint* key, thread const AttentionShared& s, constant AttentionArgs& args,
                      uint slot, Thread t) {
    for (uint h = t.simd; h < H; h += t.simds) {
        float low = 0, high = 0;
        for (uint d = t.lane; d < args.dim; d += SIMDWidth) {
            uint q = s.query[h * s.padded + d];
            float code = float(int(key[d]));
            low = fma(code, low_digit(q), low);
            high = fma(code, high_digit(q), high);
        }
        long total = digit_sum(simd_sum(int(low)), simd_sum(int(high)));
        if (t.lane == 0) {
            s.weights[h * BlockPositions + slot] = as_type<uint>(code_score(total, s.heads[h].query_step, args));
        }
    }
}

// vec_attend computes one block of the one row for some heads. The group that has
// the first of the heads that share a key stores the row's own key and value; none
// reads them from the cache.
template <typename T, uint H>
inline void vec_attend(constant VecAttentionArgs& all, device const float* query, device const float* key, device const float* value,
                       device const float* query_weight, device const float* key_weight, device const float* angles,
                       device const Step* step, device const uint* pages, device uchar* arena, device float* sums,
                       device float* largest, threadgroup uchar* shared, uint3 group, Thread t) {
    if (step->live == 0) {
        return;
    }
    constant AttentionArgs& args = all.attention;
    device const Row& row = rows_of(step)[0];
    uint block = first_position(row.pos, args.window) / BlockPositions + group.y;
    uint last = row.pos / BlockPositions;
    if (block > last) {
        return;
    }
    uint dim = args.dim;
    AttentionShared s = attention_shared<T, H>(shared, dim, t.count);
    uint head = group.x * H;
    uint per_kv = args.heads / args.kv_heads;
    uint kv_head = head / per_kv;
    device T* page = page_of<T>(row, args.table, args.ring, block, pages, arena);
    device T* keys = page + keys_at(args, kv_head);
    device T* values = page + values_at(args, kv_head);
    Visible v = visible_slots(row.pos, args.window, block);
    bool own = all.owner != 0 && block == last;
    uint slot = row.pos % BlockPositions;
    threadgroup uint* own_key = s.rest; // [dim], then the value
    threadgroup uint* own_value = own ? own_key + dim : nullptr;

    device const float* turn = angles + row.angles * all.angle_cols + all.angle_first;
    uint heads = own ? H + 2 : H;
    for (uint h = t.simd; h < heads; h += t.simds) {
        if (h < H) {
            HeadNorm norm = {all.query_eps, 0, all.query_weighted != 0, true};
            prepare_head<float>(s.query + h * s.padded, query + (head + h) * dim, query_weight, turn, dim, norm, t.lane);
        } else if (h == H) {
            HeadNorm norm = {all.key_eps, args.key_scale, all.key_weighted != 0, true};
            prepare_head<T>(own_key, key + kv_head * dim, key_weight, turn, dim, norm, t.lane);
        } else {
            HeadNorm norm = {all.value_eps, args.value_scale, false, false};
            prepare_head<T>(own_value, value + kv_head * dim, key_weight, turn, dim, norm, t.lane);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    prepare_queries<H>(static_cast<device const T*>(keys), s, dim, t);

    if (own) {
        v.to = slot; // the last position is not in the cache yet
        score_own<H>(static_cast<device const T*>(keys), own_key, s, args, slot, t);
        if (head % per_kv == 0) {
            for (uint i = t.index; i < dim; i += t.count) {
                keys[slot * dim + i] = kept<T>(own_key[i]);
                values[slot * dim + i] = kept<T>(own_value[i]);
            }
        }
    }
    score_keys<H>(static_cast<device const T*>(keys), s, args, v, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Visible weighed = v;
    weighed.to += own ? 1 : 0;
    weigh<H>(static_cast<device const T*>(keys), s, weighed, true, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    uint at = group.y * args.heads + head;
    sum_values<H>(static_cast<device const T*>(values), static_cast<threadgroup const uint*>(own_value), sums + at * dim, s, args, v, true, t);
    if (t.index < H) {
        largest[at + t.index] = s.heads[t.index].largest;
        largest[all.totals + at + t.index] = s.heads[t.index].total;
    }
}

#define VEC_ATTENTION(NAME, T)                                                                               \
    [[max_total_threads_per_threadgroup(256)]]                                                               \
    kernel void NAME(constant VecAttentionArgs& args [[buffer(0)]], device const float* query [[buffer(1)]], \
                     device const float* key [[buffer(2)]], device const float* value [[buffer(3)]],         \
                     device const float* query_weight [[buffer(4)]],                                         \
                     device const float* key_weight [[buffer(5)]], device const float* angles [[buffer(6)]], \
                     device const Step* step [[buffer(7)]], device const uint* pages [[buffer(8)]],          \
                     device uchar* arena [[buffer(9)]], device float* sums [[buffer(10)]],                   \
                     device float* largest [[buffer(11)]], threadgroup uchar* shared [[threadgroup(0)]],     \
                     uint3 group [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]],   \
                     uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],    \
                     uint simd [[simdgroup_index_in_threadgroup]],                                           \
                     uint simds [[simdgroups_per_threadgroup]]) {                                            \
        Thread t = {index, size.x, lane, simd, simds};                                                       \
        if (args.attention.heads_per_group == 4) {                                                           \
            vec_attend<T, 4>(args, query, key, value, query_weight, key_weight, angles, step, pages, arena,  \
                             sums, largest, shared, group, t);                                               \
        } else if (args.attention.heads_per_group == 2) {                                                    \
            vec_attend<T, 2>(args, query, key, value, query_weight, key_weight, angles, step, pages, arena,  \
                             sums, largest, shared, group, t);                                               \
        } else {                                                                                             \
            vec_attend<T, 1>(args, query, key, value, query_weight, key_weight, angles, step, pages, arena,  \
                             sums, largest, shared, group, t);                                               \
        }                                                                                                    \
    }

VEC_ATTENTION(vec_attention_float, float)
VEC_ATTENTION(vec_attention_half, half)
VEC_ATTENTION(vec_attention_int8, char)

struct VecCombineArgs {
    uint heads;  // of the query
    uint dim;    // length of a head
    uint window; // positions that the row sees; 0 for all
    uint totals; // how far behind the largest scores the totals begin, in floats
};

// prefix_largest returns the largest number of the threads of a SIMD group up to this one.
inline float prefix_largest(float x, uint lane) {
    for (ushort stride = 1; stride < SIMDWidth; stride *= 2) {
        float before = simd_shuffle_up(x, stride);
        x = lane >= stride && before > x ? before : x;
    }
    return x;
}

// vec_combine puts the blocks of a head together in their order. What the sums
// before a block and those of the block count, each thread works out for one block.
[[max_total_threads_per_threadgroup(128)]]
kernel void vec_combine(constant VecCombineArgs& args [[buffer(0)]], device const float* sums [[buffer(1)]],
                        device const float* largest [[buffer(2)]], device const Step* step [[buffer(3)]], device float* out [[buffer(4)]],
                        threadgroup uchar* shared [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
                        uint simds [[simdgroups_per_threadgroup]]) {
    if (step->live == 0) {
        return;
    }
    uint pos = rows_of(step)[0].pos;
    uint head = group.x;
    uint blocks = pos / BlockPositions - first_position(pos, args.window) / BlockPositions + 1;
    threadgroup float* old_factors = reinterpret_cast<threadgroup float*>(shared); // [threads], and so are the next two
    threadgroup float* new_factors = old_factors + size.x;
    threadgroup float* new_totals = new_factors + size.x;
    threadgroup float* tops = new_totals + size.x; // [simds]
    device float* result = out + head * args.dim;

    float top = largest[head], total = largest[args.totals + head]; // of all blocks before first
    for (uint c = index; c < args.dim; c += size.x) {
        result[c] = sums[head * args.dim + c];
    }
    for (uint first = 1; first < blocks; first += size.x) {
        uint count = min(blocks - first, size.x);
        uint mine = (first + min(index, count - 1)) * args.heads + head;
        float highest = prefix_largest(largest[mine], lane);
        float before = simd_shuffle_up(highest, ushort(1));
        if (lane == SIMDWidth - 1) {
            tops[simd] = highest;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < simds; i++) {
            if (i == simd) {
                before = lane > 0 && before > top ? before : top;
            }
            top = tops[i] > top ? tops[i] : top;
        }
        float after = highest > before ? highest : before;
        old_factors[index] = exp_f(before - after);
        new_factors[index] = exp_f(largest[mine] - after);
        new_totals[index] = largest[args.totals + mine] * new_factors[index];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < count; i++) {
            float old_total = total * old_factors[i];
            total = old_total + new_totals[i];
        }
        for (uint c = index; c < args.dim; c += size.x) {
            float sum = result[c];
            for (uint start = 0; start < count; start += Loads) {
                float x[Loads];
                #pragma clang loop unroll(full)
                for (uint i = 0; i < Loads; i++) {
                    x[i] = sums[((first + min(start + i, count - 1)) * args.heads + head) * args.dim + c];
                }
                #pragma clang loop unroll(full)
                for (uint i = 0; i < Loads; i++) {
                    if (start + i < count) {
                        float old_sum = sum * old_factors[start + i];
                        float new_sum = x[i] * new_factors[start + i];
                        sum = old_sum + new_sum;
                    }
                }
            }
            result[c] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint c = index; c < args.dim; c += size.x) {
        result[c] = result[c] / total;
    }
}
