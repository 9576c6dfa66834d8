// Copies 16 bytes a thread.
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> destination: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let at = (group.y * 32768u + group.x) * 256u + thread;
    if at < arrayLength(&source) {
        destination[at] = source[at];
    }
}
