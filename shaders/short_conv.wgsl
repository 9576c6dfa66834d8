//! permute X f32 f16
//! permute Y f32 f16 q8
//! permute TAPS 2 3 4 8
//! permute BIAS 0 1
//! permute ROWS singles spans tiles
// Gated short convolution: u = B * x, y = C * (sum of taps times u + bias). A thread has four columns of a row.
//
// ROWS spans: the rows of slots, whose last u are read from a state and left there. A workgroup has 32 columns of PART
// rows of one span, 32 rows at a time. The span's first part alone has to do with the state: it reads it, and writes it
// after a barrier. Grid: x = ceil(columns / 32), y = parts of spans (z folds large counts).
// ROWS singles: a workgroup has 256 columns of one row, each row another slot's. Grid: x = ceil(columns / 256), y = rows.
// ROWS tiles: whole sequences, with taps ahead and no state; u is 0 outside a sequence. A workgroup has 32 columns of
// one tile. Grid: x = ceil(columns / 32), y = tiles.
#import counts
#if ROWS != singles
#define THREADS 256
#define QUADS 8
#define PART 64
#else
#define THREADS 64
#define QUADS 64
#endif
#define Q8_THREADS $THREADS
#define KEPT $TAPS-1
#import q8

struct Params {
    cols4: u32,        // columns / 4
    count: u32,        // which count bounds the rows, or spans
    grid_y: u32,
    parts: u32,        // parts of a span, at most
    ahead: u32,        // taps after the current row
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer bcx $X
#if ROWS == tiles
#raw tiles array<vec4<u32>>
#else
#raw tokens array<vec4<u32>>
#endif
#if ROWS == spans
#raw spans array<vec2<u32>>
#endif
#buffer weight f32
#if BIAS
#buffer bias f32
#endif
#if ROWS != tiles
#buffer state f32 write
#endif
#buffer y $Y write

// u of a row.
fn input_of(row: u32, c: u32) -> vec4<f32> {
    let at = row * 3u * params.cols4 + c;
    return load_bcx(at) * load_bcx(at + 2u * params.cols4);
}

#if ROWS != tiles
// Column j of a slot's state when its row at `position` comes next; nothing lies before position 0.
fn kept(slot: u32, position: u32, j: u32, c: u32) -> vec4<f32> {
    if position + j < $KEPTu {
        return vec4(0.0);
    }
    return load_state((slot * $KEPTu + j) * params.cols4 + c);
}
#endif

fn finish(row: u32, c: u32, thread: u32, there: bool, sum: vec4<f32>) {
    var v = sum;
#if BIAS
    v += load_bias(c);
#endif
    v *= load_bcx((row * 3u + 1u) * params.cols4 + c);
#if Y == q8
    store_q8(row, params.cols4, c, thread, there, v);
#else
    if there {
        store_y(row * params.cols4 + c, v);
    }
#endif
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
#if ROWS == spans
    let part = (group.z * params.grid_y + group.y) % params.parts;
    let index = (group.z * params.grid_y + group.y) / params.parts;
#else
    let index = group.z * params.grid_y + group.y;
#endif
    if index >= counts[params.count] {
        return;
    }
    let quad = group.x * $QUADSu + thread % $QUADSu;
    let inside = quad < params.cols4;
    let c = min(quad, params.cols4 - 1u);
#if ROWS == tiles
    let tile = tiles[index];
    let lane = thread / $QUADSu;
    for (var first = tile.x; first < tile.y; first += 32u) {
        let row = min(first + lane, tile.y - 1u);
        var sum = vec4(0.0);
        #unroll j $TAPS
        // Wraps around before row 0, beyond the sequence.
        let at$j = row + params.ahead + $ju - $KEPTu;
        if at$j >= tile.z && at$j < tile.w {
            sum += load_weight($ju * params.cols4 + c) * input_of(at$j, c);
        }
        #end
        finish(row, c, thread, inside && first + lane < tile.y, sum);
    }
#elif ROWS == spans
    let span = spans[index];
    let start = span.x + part * $PARTu;
    if start >= span.y {
        return;
    }
    let end = min(start + $PARTu, span.y);
    let token = tokens[span.x];
    let lane = thread / $QUADSu;
    var last = vec4(0.0);
    if part == 0u && lane < $KEPTu {
        last = value(token, span.x, span.y - span.x + lane, c);
    }
    for (var first = start; first < end; first += 32u) {
        let row = min(first + lane, end - 1u);
        var sum = vec4(0.0);
        #unroll j $TAPS
        sum += load_weight($ju * params.cols4 + c) * value(token, span.x, row - span.x + $ju, c);
        #end
        finish(row, c, thread, inside && first + lane < end, sum);
    }
    storageBarrier();
    if part == 0u && lane < $KEPTu && inside {
        store_state((token.w * $KEPTu + lane) * params.cols4 + c, last);
    }
#else
    let token = tokens[index];
    var u: array<vec4<f32>, $TAPS>;
    #unroll j $KEPT
    u[$j] = kept(token.w, token.y, $ju, c);
    #end
    u[$KEPT] = input_of(index, c);
    var sum = vec4(0.0);
    #unroll j $TAPS
    sum += load_weight($ju * params.cols4 + c) * u[$j];
    #end
    if inside {
        #unroll j $KEPT
        store_state((token.w * $KEPTu + $ju) * params.cols4 + c, u[$j + 1]);
        #end
    }
    finish(index, c, thread, inside, sum);
#endif
}

#if ROWS == spans
// The slot's u that lies `after` rows behind the first one that its state keeps.
fn value(token: vec4<u32>, first: u32, after: u32, c: u32) -> vec4<f32> {
    if after < $KEPTu {
        return kept(token.w, token.y, after, c);
    }
    return input_of(first + after - $KEPTu, c);
}
#endif
