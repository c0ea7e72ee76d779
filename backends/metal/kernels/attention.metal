// What the kernels of attention share: how caches, a group's memory and fixed point are laid out.
//
// A page holds keys [kv_head][256][dim], then values likewise: float, half, or
// signed codes. Over codes, queries and weights are 24-bit fixed point, each
// number two signed digits of 12 bits, which a half holds exactly. A digit times a
// code is at most 2^18: 64 such products sum exactly in a float.

// PageUnit is what the page table counts in, in bytes.
constant constexpr uint PageUnit = 256;

// ExactTerms is the number of products of a digit with a code that sum exactly in a float.
constant constexpr uint ExactTerms = 64;

// Loads is how many numbers a thread loads at once before it needs the first.
constant constexpr uint Loads = 8;

// Limit24 is the largest magnitude of 24-bit fixed point.
constant constexpr float Limit24 = 8355711.0f;

struct AttentionArgs {
    uint heads;           // of the query
    uint kv_heads;        // of the cache
    uint dim;             // length of a head, at most 512: over codes 8 threads multiply a key, ExactTerms each
    uint window;          // positions that a row sees, its own included; 0 for all
    uint table;           // where the cache begins in a slot's part of the page table
    uint ring;            // pages of a ring; 0 for a full cache
    uint heads_per_group; // 1, 2 or 4 heads that share keys and values
    float scale;          // times every score
    float key_scale;      // step of the codes of keys
    float value_scale;    // step of the codes of values
};

// HeadState is what a group knows of one of its heads.
struct HeadState {
    float largest;     // score so far
    float total;       // of the weights so far
    float old_factor;  // of what was summed before this block
    float new_factor;  // of what this block adds
    float query_step;  // over codes
    float weight_step; // over codes
    uint spare[2];
};

// AttentionShared is a group's memory. Words hold floats, or the two digits of an integer.
struct AttentionShared {
    threadgroup HeadState* heads; // [H]
    threadgroup uint* weights;    // [H][256]: scores, then weights
    threadgroup uint* query;      // [H][padded]
    threadgroup int* partial;     // [8][threads], over codes: sums of some of the positions
    threadgroup uint* rest;       // what else a kernel keeps
    uint padded;                  // dim as a multiple of 16
};

// Visible is which positions of a block a row sees: slots [from, to) of its page.
struct Visible {
    uint from;
    uint to;
};

// padded_dim returns the distance in words between the queries of two heads.
inline uint padded_dim(uint dim) {
    return (dim + 15) / 16 * 16;
}

// attention_shared lays out a group's memory for caches of some type.
template <typename T, uint H>
inline AttentionShared attention_shared(threadgroup uchar* shared, uint dim, uint threads) {
    constexpr uint codes = sizeof(T) == 1 ? 1 : 0;
    AttentionShared s;
    s.padded = padded_dim(dim);
    s.heads = reinterpret_cast<threadgroup HeadState*>(shared);
    s.weights = reinterpret_cast<threadgroup uint*>(s.heads + H);
    s.query = s.weights + H * BlockPositions;
    s.partial = reinterpret_cast<threadgroup int*>(s.query + H * s.padded);
    s.rest = s.query + H * s.padded + codes * 8 * threads;
    return s;
}

// first_position returns the first position that a row sees.
inline uint first_position(uint pos, uint window) {
    return window > 0 && pos + 1 > window ? pos + 1 - window : 0;
}

// visible_slots returns what a row sees of a block that it sees.
inline Visible visible_slots(uint pos, uint window, uint block) {
    uint start = block * BlockPositions;
    Visible v;
    v.from = max(first_position(pos, window), start) - start;
    v.to = min(pos + 1 - start, BlockPositions);
    return v;
}

// page_of returns the page of a block of a row's slot.
template <typename T>
inline device T* page_of(device const Row& row, uint table, uint ring, uint block, device const uint* pages, device uchar* arena) {
    uint at = row.pages + table + (ring > 0 ? block % ring : block);
    return reinterpret_cast<device T*>(arena + ulong(pages[at]) * PageUnit);
}

// page_of is the same for memory that is only read.
template <typename T>
inline device const T* page_of(device const Row& row, uint table, uint ring, uint block, device const uint* pages,
                               device const uchar* arena) {
    uint at = row.pages + table + (ring > 0 ? block % ring : block);
    return reinterpret_cast<device const T*>(arena + ulong(pages[at]) * PageUnit);
}

// keys_at returns where a head's keys begin in a page.
inline uint keys_at(constant AttentionArgs& args, uint kv_head) {
    return kv_head * BlockPositions * args.dim;
}

// values_at returns where a head's values begin in a page.
inline uint values_at(constant AttentionArgs& args, uint kv_head) {
    return (args.kv_heads + kv_head) * BlockPositions * args.dim;
}

// keep returns x as a cache keeps it: the float that it becomes, or its code.
template <typename T>
inline uint keep(float x, float step);

template <>
inline uint keep<float>(float x, float) {
    return as_type<uint>(x);
}

template <>
inline uint keep<half>(float x, float) {
    return as_type<uint>(float(half(x)));
}

template <>
inline uint keep<char>(float x, float step) {
    return uint(to_grid(x, step, -128.0f, 127.0f));
}

// kept returns what keep has made, in the type of the cache.
template <typename T>
inline T kept(uint word) {
    return T(as_type<float>(word));
}

template <>
inline char kept<char>(uint word) {
    return char(int(word));
}

// digits_of returns the two digits of an integer of 24 bits.
inline uint digits_of(int n) {
    int low = ((n + 2048) & 4095) - 2048;
    return as_type<uint>(half2(half(low), half((n - low) >> 12)));
}

// low_digit returns the lower of two digits.
inline float low_digit(uint digits) {
    return float(as_type<half2>(digits).x);
}

// high_digit returns the upper of two digits.
inline float high_digit(uint digits) {
    return float(as_type<half2>(digits).y);
}

// digits_value returns the integer that digits stand for.
inline long digits_value(uint digits) {
    return long(int(high_digit(digits)) * 4096 + int(low_digit(digits)));
}

// digit_sum returns the integer that sums over the two digits stand for.
inline long digit_sum(int low, int high) {
    return long(high) * 4096 + long(low);
}

// simd_largest returns the largest over a SIMD group of what are numbers.
inline float simd_largest(float x) {
    for (ushort step = 16; step > 0; step /= 2) {
        float other = simd_shuffle_xor(x, step);
        x = other > x ? other : x;
    }
    return x;
}

// simd_fold adds 8 values over threads whose numbers differ in three bits, of
// which stride is the highest, as a tree from that bit down. A thread gets the sum of
// the value whose index is these bits of its own number.
template <typename T>
inline T simd_fold(thread T* v, uint lane, ushort stride) {
    bool upper = (lane & stride) != 0;
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 4; i++) {
        T mine = upper ? v[i + 4] : v[i];
        T other = upper ? v[i] : v[i + 4];
        v[i] = mine + simd_shuffle_xor(other, stride);
    }
    stride /= 2;
    upper = (lane & stride) != 0;
    #pragma clang loop unroll(full)
    for (uint i = 0; i < 2; i++) {
        T mine = upper ? v[i + 2] : v[i];
        T other = upper ? v[i] : v[i + 2];
        v[i] = mine + simd_shuffle_xor(other, stride);
    }
    stride /= 2;
    upper = (lane & stride) != 0;
    T mine = upper ? v[1] : v[0];
    T other = upper ? v[0] : v[1];
    return mine + simd_shuffle_xor(other, stride);
}

// digitize turns the queries of a group's heads into fixed point, in place, a SIMD group for each head.
template <uint H>
inline void digitize(thread const AttentionShared& s, uint dim, Thread t) {
    for (uint h = t.simd; h < H; h += t.simds) {
        threadgroup uint* x = s.query + h * s.padded;
        uint largest = 0; // magnitudes have the order of their bits, and what is not a number is above all
        for (uint i = t.lane; i < dim; i += SIMDWidth) {
            largest = max(largest, x[i] & 0x7fffffffu);
        }
        float step = as_type<float>(simd_max(largest)) / Limit24;
        for (uint i = t.lane; i < s.padded; i += SIMDWidth) {
            int n = i < dim && step != 0 ? to_grid(as_type<float>(x[i]), step, -Limit24, Limit24) : 0;
            x[i] = digits_of(n);
        }
        if (t.lane == 0) {
            s.heads[h].query_step = step;
        }
    }
}

// prepare_queries turns queries into what is multiplied with keys: for floats it
// is what they are. The first argument tells the type of the cache.
template <uint H, typename T>
inline void prepare_queries(device const T*, thread const AttentionShared&, uint, Thread) {
}

template <uint H>
inline void prepare_queries(device const char*, thread const AttentionShared& s, uint dim, Thread t) {
    digitize<H>(s, dim, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
