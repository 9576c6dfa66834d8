enable f16;
enable wgpu_cooperative_matrix;
// 256 rounds of eight independent chains of 16×16×16 products by each of a workgroup's four subgroups of 32.
@group(0) @binding(0) var<storage, read> source: array<f16>;
@group(0) @binding(1) var<storage, read_write> destination: array<f32>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let at = thread / 32u * 256u;
    let a = coopLoadT<coop_mat16x16<f16, A>>(&source[at], 16u);
    let b = coopLoadT<coop_mat16x16<f16, B>>(&source[at + 1024u], 16u);
    var c0 = coopLoadT<coop_mat16x16<f32, C>>(&destination[at], 16u);
    var c1 = c0; var c2 = c0; var c3 = c0; var c4 = c0; var c5 = c0; var c6 = c0; var c7 = c0;
    for (var i = 0u; i < 256u; i++) {
        c0 = coopMultiplyAdd(a, b, c0); c1 = coopMultiplyAdd(a, b, c1);
        c2 = coopMultiplyAdd(a, b, c2); c3 = coopMultiplyAdd(a, b, c3);
        c4 = coopMultiplyAdd(a, b, c4); c5 = coopMultiplyAdd(a, b, c5);
        c6 = coopMultiplyAdd(a, b, c6); c7 = coopMultiplyAdd(a, b, c7);
    }
    // The buffers hold zeros, so it does not matter that groups write to the same place.
    let out = 4096u + at * 8u;
    coopStoreT(c0, &destination[out], 16u);
    coopStoreT(c1, &destination[out + 256u], 16u);
    coopStoreT(c2, &destination[out + 512u], 16u);
    coopStoreT(c3, &destination[out + 768u], 16u);
    coopStoreT(c4, &destination[out + 1024u], 16u);
    coopStoreT(c5, &destination[out + 1280u], 16u);
    coopStoreT(c6, &destination[out + 1536u], 16u);
    coopStoreT(c7, &destination[out + 1792u], 16u);
}
