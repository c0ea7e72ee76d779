// Attention of the rows of a prompt.

// attend computes rows of a prompt: a group goes through the blocks of one row for some heads.
template <typename T, uint H>
inline void attend(constant AttentionArgs& args, device const float* query, device const Step* step, device const uint* pages,
                   device const uchar* arena, device float* out, threadgroup uchar* shared, uint3 group, Thread t) {
    if (group.y >= step->live) {
        return;
    }
    device const Row& row = rows_of(step)[group.y];
    AttentionShared s = attention_shared<T, H>(shared, args.dim, t.count);
    threadgroup float* sums = reinterpret_cast<threadgroup float*>(s.rest); // [H][dim]
    uint head = group.x * H;
    uint kv_head = head / (args.heads / args.kv_heads);
    uint at = (group.y * args.heads + head) * args.dim;
    for (uint h = 0; h < H; h++) {
        for (uint i = t.index; i < args.dim; i += t.count) {
            s.query[h * s.padded + i] = as_type<uint>(query[at + h * args.dim + i]);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    prepare_queries<H>(static_cast<device const T*>(nullptr), s, args.dim, t);

    uint start = first_position(row.pos, args.window) / BlockPositions;
    uint last = row.pos / BlockPositions;
    for (uint block = start; block <= last; block++) {
        device const T* page = page_of<T>(row, args.table, args.ring, block, pages, arena);
        Visible v = visible_slots(row.pos, args.window, block);
        score_keys<H>(page + keys_at(args, kv_head), s, args, v, t);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        weigh<H>(page, s, v, block == start, t);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sum_values<H>(page + values_at(args, kv_head), static_cast<threadgroup const uint*>(nullptr), sums, s, args, v, block == start, t);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint h = 0; h < H; h++) {
        for (uint i = t.index; i < args.dim; i += t.count) {
            out[at + h * args.dim + i] = sums[h * args.dim + i] / s.heads[h].total;
        }
    }
}

#define ATTENTION(NAME, T)                                                                                  \
    [[max_total_threads_per_threadgroup(128)]]                                                              \
    kernel void NAME(constant AttentionArgs& args [[buffer(0)]], device const float* query [[buffer(1)]],   \
                     device const Step* step [[buffer(2)]], device const uint* pages [[buffer(3)]],         \
                     device const uchar* arena [[buffer(4)]], device float* out [[buffer(5)]],              \
                     threadgroup uchar* shared [[threadgroup(0)]],                                          \
                     uint3 group [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]],  \
                     uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],   \
                     uint simd [[simdgroup_index_in_threadgroup]],                                          \
                     uint simds [[simdgroups_per_threadgroup]]) {                                           \
        Thread t = {index, size.x, lane, simd, simds};                                                      \
        if (args.heads_per_group == 4) {                                                                    \
            attend<T, 4>(args, query, step, pages, arena, out, shared, group, t);                           \
        } else if (args.heads_per_group == 2) {                                                             \
            attend<T, 2>(args, query, step, pages, arena, out, shared, group, t);                           \
        } else {                                                                                            \
            attend<T, 1>(args, query, step, pages, arena, out, shared, group, t);                           \
        }                                                                                                   \
    }

ATTENTION(attention_float, float)
ATTENTION(attention_half, half)
ATTENTION(attention_int8, char)
