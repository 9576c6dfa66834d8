// Rows of signed 8-bit values in blocks of 32 (engine/src/quant/q8.rs has the layout and the rule of rounding).
// The including kernel defines Q8_THREADS, the threads of a workgroup, if it stores such rows: then its buffer is `y`;
// and Q8_READS if it reads such rows group by group: then its buffer is `x`.

// Words of a row of 4 * cols4 columns.
fn q8_row_words(cols4: u32) -> u32 {
    return (cols4 + cols4 / 4u + 3u) & ~3u;
}

#if Q8_READS
// Group of four columns of a row of x.
fn load_q8(row: u32, cols4: u32, group: u32) -> vec4<f32> {
    let base = row * q8_row_words(cols4);
    let scale = bitcast<f32>(x[base + cols4 + group / 8u * 2u]);
    return scale * vec4<f32>(unpack4xI8(x[base + group]));
}
#endif

#if Y == q8
var<workgroup> q8_largest: array<f32, $Q8_THREADS>;
var<workgroup> q8_sum: array<i32, $Q8_THREADS>;

// Stores one group of four columns of a row for each thread for which `there` holds. The whole workgroup calls it, in
// uniform control flow. Eight neighbouring threads hold a block: thread t has a group g with g % 8 == t % 8, and they
// are all there or none is. Rows and row lengths may differ from block to block.
fn store_q8(row: u32, cols4: u32, group: u32, thread: u32, there: bool, v: vec4<f32>) {
    let a = abs(v);
    q8_largest[thread] = max(max(a.x, a.y), max(a.z, a.w));
    workgroupBarrier();
    let first = thread & ~7u;
    var largest = 0.0;
    for (var i = 0u; i < 8u; i++) {
        largest = max(largest, q8_largest[first + i]);
    }
    var scale = 0.0;
    var inverse = 0.0;
    if largest >= 1e-30 {
        scale = largest / 127.0;
        inverse = 1.0 / scale;
    }
    let q = vec4<i32>(round(v * inverse));
    q8_sum[thread] = (q.x + q.y) + (q.z + q.w);
    workgroupBarrier();
    if there {
        let base = row * q8_row_words(cols4);
        y[base + group] = pack4xI8(q);
        if thread == first {
            let low = (q8_sum[first] + q8_sum[first + 1u]) + (q8_sum[first + 2u] + q8_sum[first + 3u]);
            let high = (q8_sum[first + 4u] + q8_sum[first + 5u]) + (q8_sum[first + 6u] + q8_sum[first + 7u]);
            let at = base + cols4 + group / 8u * 2u;
            y[at] = bitcast<u32>(scale);
            y[at + 1u] = (u32(low) & 0xffffu) | (u32(high) << 16u);
        }
    }
}
#endif
