// Picking the next token on the device, as backends.Pick defines it.

// MaxTopK is the most candidates that a pick weighs.
constant constexpr uint MaxTopK = 256;

// PeakRun is the number of logits of which a peak is the largest.
constant constexpr uint PeakRun = 256;

// Marks of what a pick tells the host, beside the token's number.
constant constexpr uint PickStop = 1u << 30;     // the token ends the text
constant constexpr uint PickUnusable = 1u << 31; // there is no token to pick

struct SampleArgs {
    uint vocab;       // number of logits
    uint runs;        // number of peaks
    uint top_k;       // candidates, 1 to MaxTopK; 0 is greedy
    float temperature;
    uint top_p_low;   // the share to keep times 2^64; all ones keep all
    uint top_p_high;
    float min_p;      // the smallest weight to keep
    uint stops;       // number of ids that end the text
    uint limit;       // tokens from it on may not be fed
};

// high_product returns the upper half of a product of 64 bits each.
inline ulong high_product(ulong a, ulong b) {
    ulong a_low = a & 0xffffffffu, a_high = a >> 32;
    ulong b_low = b & 0xffffffffu, b_high = b >> 32;
    ulong middle = a_high * b_low + ((a_low * b_low) >> 32);
    ulong cross = a_low * b_high + (middle & 0xffffffffu);
    return a_high * b_high + (middle >> 32) + (cross >> 32);
}

// order_key maps floats to integers of the same order; both zeros are one.
inline uint order_key(float x) {
    uint bits = as_type<uint>(x);
    if ((bits << 1) == 0) {
        return 0x80000000u;
    }
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// SampleShared is the memory of the one group that picks.
struct SampleShared {
    uint counts[PeakRun];
    uint ids[MaxTopK];
    float logits[MaxTopK];
    float weights[MaxTopK];
    ulong masses[MaxTopK];
    ulong kept[MaxTopK];
    float values[PeakRun / 32];
    uint indices[PeakRun / 32];
    uint sums[PeakRun / 32];
    uint found;
    uint above;
    uint picked;
};

// best_of returns the index of the largest of one value a thread, of equal ones
// the lowest index; not a number is larger than all. value becomes the largest.
inline uint best_of(thread float& value, uint index, threadgroup SampleShared& s, uint thread_index) {
    for (uint step = 16; step > 0; step /= 2) {
        float other = simd_shuffle_xor(value, ushort(step));
        uint at = simd_shuffle_xor(index, ushort(step));
        bool better = !is_nan(value) && (is_nan(other) || other > value);
        bool equal = is_nan(value) ? is_nan(other) : other == value;
        if (better || (equal && at < index)) {
            value = other;
            index = at;
        }
    }
    if (thread_index % 32 == 0) {
        s.values[thread_index / 32] = value;
        s.indices[thread_index / 32] = index;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = s.values[0];
    index = s.indices[0];
    for (uint i = 1; i < PeakRun / 32; i++) {
        float other = s.values[i];
        bool better = !is_nan(value) && (is_nan(other) || other > value);
        bool equal = is_nan(value) ? is_nan(other) : other == value;
        if (better || (equal && s.indices[i] < index)) {
            value = other;
            index = s.indices[i];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return index;
}

// nth_key returns the order_key of the k-th largest of n numbers, digit by
// digit, and makes k the number of equal ones up to it. With peaks, runs that
// lie below a floor are passed over.
inline uint nth_key(device const float* x, uint n, device const float* peaks, uint floor_key, thread uint& k, threadgroup SampleShared& s, uint thread_index) {
    threadgroup atomic_uint* counts = reinterpret_cast<threadgroup atomic_uint*>(s.counts);
    uint prefix = 0;
    uint mask = 0;
    for (uint digit = 0; digit < 4; digit++) {
        uint shift = 24 - 8 * digit;
        atomic_store_explicit(&counts[thread_index], 0, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint first = 0; first < n; first += PeakRun) {
            uint i = first + thread_index;
            if ((peaks != nullptr && order_key(peaks[first / PeakRun]) < floor_key) || i >= n) {
                continue;
            }
            uint key = order_key(x[i]);
            if ((key & mask) == prefix) {
                atomic_fetch_add_explicit(&counts[(key >> shift) & 255], 1, memory_order_relaxed);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint above = 0;
        for (uint i = thread_index + 1; i < 256; i++) {
            above += atomic_load_explicit(&counts[i], memory_order_relaxed);
        }
        uint own = atomic_load_explicit(&counts[thread_index], memory_order_relaxed);
        if (above < k && k <= above + own) {
            s.found = thread_index;
            s.above = above;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        prefix |= s.found << shift;
        mask |= 255u << shift;
        k -= s.above;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    return prefix;
}

// gather collects the k largest logits by id and returns how many there are: of
// those above the key all, and of those that equal it as many as wanted.
inline uint gather(device const float* logits, uint n, device const float* peaks, uint key, uint equals, threadgroup SampleShared& s, uint thread_index) {
    uint above = 0;
    uint equal = 0;
    for (uint first = 0; first < n; first += PeakRun) {
        if (order_key(peaks[first / PeakRun]) < key) {
            continue;
        }
        uint i = first + thread_index;
        float logit = i < n ? logits[i] : 0;
        uint own = order_key(logit);
        // Both counts of a run fit into one word.
        uint mine = 0;
        if (i < n && own != 0x007fffffu) { // minus infinity is masked
            mine = own > key ? 1u << 16 : own == key ? 1u : 0u;
        }
        uint before = simd_prefix_exclusive_sum(mine);
        if (thread_index % 32 == 31) {
            s.sums[thread_index / 32] = before + mine;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint total = 0;
        for (uint g = 0; g < PeakRun / 32; g++) {
            if (g == thread_index / 32) {
                before += total;
            }
            total += s.sums[g];
        }
        uint equal_before = equal + (before & 0xffffu);
        if ((mine >> 16) != 0 || (mine != 0 && equal_before < equals)) {
            uint at = above + (before >> 16) + min(equal_before, equals);
            s.ids[at] = i;
            s.logits[at] = logit;
        }
        above += total >> 16;
        equal += total & 0xffffu;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    return above + min(equal, equals);
}

// draw picks one of n candidates, which are sorted by id, or PickUnusable if none has a mass.
inline uint draw(constant SampleArgs& args, uint n, float largest, ulong random, threadgroup SampleShared& s, uint thread_index) {
    bool mine = thread_index < n;
    float weight = 0;
    if (thread_index == 0) {
        s.picked = PickUnusable;
    }
    if (mine) {
        weight = exp_f((s.logits[thread_index] - largest) / args.temperature);
        s.weights[thread_index] = weight;
        s.masses[thread_index] = ulong(weight * 1099511627776.0f); // 2^40
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ulong total = 0;
    ulong heavier = 0; // the mass of what comes before this candidate in order of weight
    bool first = true;
    for (uint i = 0; i < n; i++) {
        total += s.masses[i];
        if (mine && (s.weights[i] > weight || (s.weights[i] == weight && i < thread_index))) {
            heavier += s.masses[i];
            first = false;
        }
    }
    ulong share = (ulong(args.top_p_high) << 32) | args.top_p_low;
    bool keep = mine && (share == ~0ul || first || heavier < high_product(total, share)) && weight >= args.min_p;
    if (mine) {
        s.kept[thread_index] = keep ? s.masses[thread_index] : 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ulong mass = 0;
    ulong up_to = 0;
    for (uint i = 0; i < n; i++) {
        mass += s.kept[i];
        up_to += i <= thread_index ? s.kept[i] : 0;
    }
    ulong at = high_product(random, mass);
    if (mine && up_to > at && up_to - s.kept[thread_index] <= at) {
        s.picked = s.ids[thread_index];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return s.picked;
}

// sample picks the token that follows row 0, tells it, and makes it the next
// row, or ends the burst. One group of 256 threads.
[[max_total_threads_per_threadgroup(256)]]
kernel void sample(constant SampleArgs& args [[buffer(0)]],
                   device const float* logits [[buffer(1)]],
                   device const float* peaks [[buffer(2)]],
                   device Step* step [[buffer(3)]],
                   device const ulong* random [[buffer(4)]],
                   device const int* stops [[buffer(5)]],
                   device atomic_uint* ring [[buffer(6)]], // whether to end, then a word for each token
                   threadgroup uchar* shared [[threadgroup(0)]],
                   uint thread_index [[thread_index_in_threadgroup]]) {
    uint live = step->live;
    threadgroup_barrier(mem_flags::mem_device);
    if (live == 0) {
        return;
    }
    threadgroup SampleShared& s = *reinterpret_cast<threadgroup SampleShared*>(shared);
    device Row* row = reinterpret_cast<device Row*>(step + 1);

    // The run of the largest logit: the first, of equal ones.
    float largest = as_type<float>(0xff800000u);
    uint run = 0xffffffffu;
    for (uint i = thread_index; i < args.runs; i += PeakRun) {
        float peak = peaks[i];
        if (!is_nan(largest) && (is_nan(peak) || peak > largest)) {
            largest = peak;
            run = i;
        }
    }
    run = best_of(largest, run, s, thread_index);
    uint word = PickUnusable;
    bool usable = (as_type<uint>(largest) & 0x7fffffffu) < 0x7f800000u;
    if (usable && args.top_k == 0) {
        uint i = run * PeakRun + thread_index;
        bool here = i < args.vocab && logits[i] == largest;
        float found = here ? 1.0f : 0.0f;
        word = best_of(found, here ? i : 0xffffffffu, s, thread_index);
    } else if (usable) {
        uint k = min(args.top_k, args.vocab);
        uint floor_key = 0;
        if (args.runs > k) {
            // The k-th largest logit is no smaller than the k-th largest peak.
            uint of_peaks = k;
            floor_key = nth_key(peaks, args.runs, nullptr, 0, of_peaks, s, thread_index);
        }
        uint key = nth_key(logits, args.vocab, peaks, floor_key, k, s, thread_index);
        uint n = gather(logits, args.vocab, peaks, key, k, s, thread_index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        word = draw(args, n, largest, random[row->angles], s, thread_index);
    }

    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    if (thread_index != 0) {
        return;
    }
    if (word >= args.vocab) {
        word = PickUnusable; // no logit is as large as the peaks say
    }
    bool end = word >= args.limit || atomic_load_explicit(&ring[0], memory_order_relaxed) != 0;
    if (word != PickUnusable) {
        for (uint i = 0; i < args.stops; i++) {
            if (uint(stops[i]) == word) {
                word |= PickStop;
                end = true;
                break;
            }
        }
    }
    uint at = row->angles;
    row->token = int(word & (PickStop - 1));
    row->pos = row->pos + 1;
    row->angles = at + 1;
    if (end) {
        step->live = 0;
    }
    atomic_store_explicit(&ring[1 + at], word + 1, memory_order_relaxed); // 0 is no token yet
}
