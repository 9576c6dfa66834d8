// Rows that a workgroup of THREADS invocations normalises itself and holds as its products take them, of type X: so a
// norm needs no dispatch of its own, and the work overlaps the loads of weights that were asked for before. A piece is
// 16 values, HALVES the pieces of a row, HELD those of an invocation. ROWS rows; NORM is rms or layer.
#import wide

#buffer source $SOURCE
#buffer norm f32

#if X == q8
var<workgroup> held: array<vec4<u32>, $ROWS * $HALVES>;
var<workgroup> held_sums: array<i32, $ROWS * $HALVES>;
var<workgroup> held_scales: array<f32, $ROWS * $HALVES / 2>;
#elif X == f16
var<workgroup> held: array<vec2<u32>, $ROWS * $HALVES * 4>;
#else
var<workgroup> held: array<vec4<f32>, $ROWS * $HALVES * 4>;
#endif

// Group of four columns; what lies past the end repeats the last.
fn held_column(thread: u32, h: u32, j: u32) -> u32 {
    return min((h * $THREADSu + thread) * 4u + j, params.k4 - 1u);
}

#if X == q8
// Four integers in a word: the sum's last bits are the rounded value (ties to even).
fn pack_rounded(v: vec4<f32>) -> u32 {
    let q = bitcast<vec4<u32>>(clamp(v, vec4(-127.0), vec4(127.0)) + 12582912.0) & vec4(0xffu);
    return (q.x | (q.y << 8u)) | ((q.z << 16u) | (q.w << 24u));
}

// The larger of two neighbours' values.
fn larger_of_pair(value: f32, thread: u32) -> f32 {
#if SUBGROUPS
    return max(value, subgroupShuffleXor(value, 1u));
#else
    workgroupBarrier();
    wide_parts[thread] = value;
    workgroupBarrier();
    return max(value, wide_parts[thread ^ 1u]);
#endif
}
#endif

// What an invocation has of a row, and of the norm's weights.
struct Asked {
    v: array<vec4<f32>, $HELD * 4>,
    weight: array<vec4<f32>, $HELD * 4>,
}

// Asks for the first row, which is there in any case. To be done before anything else is asked for: what comes back does so
// in order.
fn ask(m0: u32, thread: u32) -> Asked {
    var asked: Asked;
    #unroll h $HELD
    #unroll j 4
    asked.v[$h * 4 + $j] = load_source(m0 * params.k4 + held_column(thread, $hu, $ju));
    asked.weight[$h * 4 + $j] = load_norm(held_column(thread, $hu, $ju));
    #end
    #end
    return asked;
}

// Holds rows m0 and on; past the last, it is repeated. The workgroup calls it in uniform control flow.
fn hold(asked: Asked, m0: u32, rows: u32, thread: u32) {
    let n = f32(params.k4 * 4u);
    for (var r = 0u; r < $ROWSu; r++) {
        var v = asked.v;
#if ROWS != 1
        if r > 0u {
            let base = min(m0 + r, rows - 1u) * params.k4;
            #unroll h $HELD
            #unroll j 4
            v[$h * 4 + $j] = load_source(base + held_column(thread, $hu, $ju));
            #end
            #end
        }
#endif
        var parts: array<f32, $HELD>;
#if NORM == layer
        #unroll h $HELD
        #unroll j 4
        parts[$h] += select(0.0, (v[$h * 4 + $j].x + v[$h * 4 + $j].y) + (v[$h * 4 + $j].z + v[$h * 4 + $j].w),
            ($hu * $THREADSu + thread) * 4u + $ju < params.k4);
        #end
        #end
        let mean = wide_sum(parts, thread) / n;
        #unroll h $HELD
        parts[$h] = 0.0;
        #unroll j 4
        v[$h * 4 + $j] -= mean;
        #end
        #end
#endif
        #unroll h $HELD
        #unroll j 4
        parts[$h] += select(0.0, dot(v[$h * 4 + $j], v[$h * 4 + $j]),
            ($hu * $THREADSu + thread) * 4u + $ju < params.k4);
        #end
        #end
        let inverse = inverseSqrt(wide_sum(parts, thread) / n + params.norm_eps);
        #unroll h $HELD
        {
            let piece = $hu * $THREADSu + thread;
            let at = r * $HALVESu + piece;
            #unroll j 4
            v[$h * 4 + $j] = v[$h * 4 + $j] * inverse * asked.weight[$h * 4 + $j];
            if params.norm_bias == 1u {
                v[$h * 4 + $j] += load_norm(params.k4 + held_column(thread, $hu, $ju));
            }
            #end
#if X == q8
            let a = max(max(abs(v[$h * 4]), abs(v[$h * 4 + 1])), max(abs(v[$h * 4 + 2]), abs(v[$h * 4 + 3])));
            let largest = larger_of_pair(max(max(a.x, a.y), max(a.z, a.w)), thread);
            var scale = 0.0;
            var of_one = 0.0;
            if largest >= 1e-30 {
                scale = largest / 127.0;
                of_one = 1.0 / scale;
            }
            let q = vec4(pack_rounded(v[$h * 4] * of_one), pack_rounded(v[$h * 4 + 1] * of_one),
                pack_rounded(v[$h * 4 + 2] * of_one), pack_rounded(v[$h * 4 + 3] * of_one));
            if piece < $HALVESu {
                held[at] = q;
                held_sums[at] = (dot4I8Packed(q.x, 0x01010101u) + dot4I8Packed(q.y, 0x01010101u))
                    + (dot4I8Packed(q.z, 0x01010101u) + dot4I8Packed(q.w, 0x01010101u));
                if thread % 2u == 0u {
                    held_scales[at / 2u] = scale;
                }
            }
#else
            if piece < $HALVESu {
                #unroll j 4
#if X == f16
                held[at * 4u + $ju] = vec2(pack2x16float(v[$h * 4 + $j].xy), pack2x16float(v[$h * 4 + $j].zw));
#else
                held[at * 4u + $ju] = v[$h * 4 + $j];
#endif
                #end
            }
#endif
        }
        #end
    }
    workgroupBarrier();
}

#if X != q8
// Group of four columns of what is held.
fn held_group(at: u32) -> vec4<f32> {
#if X == f16
    return vec4(unpack2x16float(held[at].x), unpack2x16float(held[at].y));
#else
    return held[at];
#endif
}
#endif
