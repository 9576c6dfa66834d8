// As little as a kernel that depends on the one before can do.
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> destination: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) thread: u32) {
    destination[thread] += source[thread] + 1u;
}
