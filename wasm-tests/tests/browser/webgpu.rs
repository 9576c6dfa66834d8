//! What the engine takes for granted of a browser: an adapter in a worker, a compute pass with read-back, and
//! subgroups through the shim.

use std::sync::Arc;

use inferencelayer_engine::gpu::{GpuContext, GpuOptions};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::{console_log, wasm_bindgen_test};
use wgpu::util::DeviceExt;

async fn open() -> Arc<GpuContext> {
    let context = GpuContext::new(&GpuOptions::default()).await.unwrap_or_else(|e| panic!("{e}"));
    console_log!("{} {:?}", context.name(), context.features());
    context
}

/// Runs `wgsl`'s `main` once on `input` (bound read-write at 0) and returns what it left there.
async fn run(context: &GpuContext, wgsl: &str, input: &[u32]) -> Vec<u32> {
    let device = context.device();
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(wgsl.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    });
    let bytes: Vec<u8> = input.iter().flat_map(|v| v.to_le_bytes()).collect();
    let data = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: None,
        contents: &bytes,
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
    });
    let read = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: bytes.len() as u64,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: data.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &bind_group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
    }
    encoder.copy_buffer_to_buffer(&data, 0, &read, 0, bytes.len() as u64);
    context.queue().submit([encoder.finish()]);
    mapped(&read).await;
    let view = read.slice(..).get_mapped_range().expect("mapped");
    view.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

async fn mapped(buffer: &wgpu::Buffer) {
    let promise = js_sys::Promise::new(&mut |resolve, reject| {
        buffer.map_async(wgpu::MapMode::Read, .., move |result| {
            let settled = match result {
                Ok(()) => resolve.call0(&JsValue::NULL),
                Err(error) => reject.call1(&JsValue::NULL, &error.to_string().into()),
            };
            settled.expect("a promise's functions do not throw");
        });
    });
    JsFuture::from(promise).await.expect("the buffer maps");
}

#[wasm_bindgen_test]
async fn computes_and_reads_back() {
    let context = open().await;
    let wgsl = "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) { data[i] = data[i] * 3u + i; }";
    let input: Vec<u32> = (100..164).collect();
    let expected: Vec<u32> = input.iter().zip(0..).map(|(v, i)| v * 3 + i).collect();
    assert_eq!(run(&context, wgsl, &input).await, expected);
}

/// Both software adapters offer subgroups, so here their absence would mean that the shim does not work.
#[wasm_bindgen_test]
async fn subgroups_reach_the_shader() {
    let context = open().await;
    assert!(context.features().subgroups, "the device has no subgroups");
    let wgsl = "enable subgroups;
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_size) size: u32) {
            let sum = subgroupAdd(data[i]);
            data[i] = select(sum, size, i == 63u);
        }";
    let out = run(&context, wgsl, &[1; 64]).await;
    let size = out[63];
    console_log!("subgroup size {size}");
    assert!(size >= 4 && size.is_power_of_two(), "subgroup size {size}");
    assert_eq!(out[..63], [size; 63]);
}

/// The adapter that `tests/run` promises: f16 on lavapipe, none on SwiftShader. `INFERENCELAYER_EXPECT_F16`
/// is set by it at build time, so that a run on the wrong adapter fails instead of testing less.
#[wasm_bindgen_test]
async fn f16_is_there_where_promised() {
    let context = open().await;
    let has = context.features().f16;
    if let Some(expected) = option_env!("INFERENCELAYER_EXPECT_F16") {
        assert_eq!(has, expected == "1", "this is not the adapter that was asked for");
    }
    if has {
        let wgsl = "enable f16;
            @group(0) @binding(0) var<storage, read_write> data: array<u32>;
            @compute @workgroup_size(1) fn main() {
                let v = bitcast<vec2<f16>>(data[0]);
                data[0] = bitcast<u32>(v * vec2<f16>(2.0h, 0.5h));
            }";
        // 1.5 and 3.0 become 3.0 and 1.5.
        assert_eq!(run(&context, wgsl, &[0x4200_3e00]).await, [0x3e00_4200]);
    }
}
