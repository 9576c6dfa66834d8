// 256 rounds of eight independent chains of vec4 multiply-adds a thread.
@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> destination: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    // Zeros in fact, but the compiler cannot know.
    let a = source[0] + 0.5;
    let b = source[1] + 0.25;
    var c0 = a; var c1 = b; var c2 = a + 1.0; var c3 = b + 1.0;
    var c4 = a + 2.0; var c5 = b + 2.0; var c6 = a + 3.0; var c7 = b + 3.0;
    for (var i = 0u; i < 256u; i++) {
        c0 = fma(c0, a, b); c1 = fma(c1, a, b); c2 = fma(c2, a, b); c3 = fma(c3, a, b);
        c4 = fma(c4, a, b); c5 = fma(c5, a, b); c6 = fma(c6, a, b); c7 = fma(c7, a, b);
    }
    let sum = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7;
    // Never true, but the compiler cannot know.
    if sum.x == 12345.0 {
        destination[id.x] = sum;
    }
}
