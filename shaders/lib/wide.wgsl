// The sum over a row of what THREADS invocations made of HELD pieces each, piece h of invocation t being number
// h * THREADS + t. Eight neighbours are added crosswise, then those sums in order, so the result's bits depend on
// neither THREADS nor HELD nor SUBGROUPS. Everybody gets it. The workgroup calls it in uniform control flow.
var<workgroup> wide_sums: array<f32, $HELD * $THREADS / 8>;
#if !SUBGROUPS
var<workgroup> wide_parts: array<f32, $HELD * $THREADS>;
#endif

fn wide_sum(parts: array<f32, $HELD>, thread: u32) -> f32 {
    workgroupBarrier();
    #unroll h $HELD
    {
        var sum = parts[$h];
#if SUBGROUPS
        sum += subgroupShuffleXor(sum, 4u);
        sum += subgroupShuffleXor(sum, 2u);
        sum += subgroupShuffleXor(sum, 1u);
        if thread % 8u == 0u {
            wide_sums[($hu * $THREADSu + thread) / 8u] = sum;
        }
#else
        wide_parts[$hu * $THREADSu + thread] = sum;
#endif
    }
    #end
    workgroupBarrier();
#if !SUBGROUPS
    for (var i = thread; i < $HELDu * $THREADSu / 8u; i += $THREADSu) {
        let at = i * 8u;
        wide_sums[i] = ((wide_parts[at] + wide_parts[at + 4u]) + (wide_parts[at + 2u] + wide_parts[at + 6u]))
            + ((wide_parts[at + 1u] + wide_parts[at + 5u]) + (wide_parts[at + 3u] + wide_parts[at + 7u]));
    }
    workgroupBarrier();
#endif
    var total = 0.0;
    for (var i = 0u; i < $HELDu * $THREADSu / 8u; i++) {
        total += wide_sums[i];
    }
    return total;
}
