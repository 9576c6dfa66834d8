// The real sizes of a run; a plan is prepared for a bucket at least as large.
// x: tokens, y: sequences, z: attention tiles.
@group(0) @binding(1) var<uniform> counts: vec4<u32>;
