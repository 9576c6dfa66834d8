//! Backends that do one thing wrong in a decoder's op fail; and what a short convolution is.

use alloc::{string::ToString, vec, vec::Vec};

use super::{Fault, Faulty, caught};
use crate::{
    Result,
    backend::{Backend, read, upload_f32},
    op::{Activation, ConvRows, Op, Scoring, ShortConv},
    program::{BufferSpec, Count, Recorder, Role},
    reference::Reference,
    task::block_on,
    tensor::{DType, WeightUse},
};

/// u = 1, 2, 3, 4, one sequence in two tiles, under the taps 0.5, −1, 2.
fn convolved(ahead: usize) -> Result<Vec<f32>> {
    let backend = Reference::new();
    let mut r = Recorder::new();
    let mut buffer = |name, dtype, (rows, count), cols, role| {
        r.buffer(BufferSpec { name, dtype, rows, cols, count, role })
    };
    let (all, two) = ((4, Count::Tokens), (2, Count::Tiles));
    let bcx = buffer("bcx", DType::F32, all, 12, Role::Input);
    let tiles = buffer("tiles", DType::U32, two, 4, Role::Input);
    let out = buffer("out", DType::F32, all, 4, Role::Output);
    let taps: Vec<f32> = [0.5, -1.0, 2.0].iter().flat_map(|tap| [*tap; 4]).collect();
    let weight = upload_f32(&backend, "taps", WeightUse::Vector, (3, 4), &taps)?;
    let rows = ConvRows::Sequences { tiles, ahead };
    r.push(Op::ShortConv(ShortConv { bcx, rows, weight, bias: None, out }))?;
    let mut plan = backend.prepare(&r.finish()?)?;
    let given: Vec<u32> =
        (1..=4).flat_map(|u| [[u as f32; 4], [1.0; 4], [1.0; 4]].concat()).map(f32::to_bits).collect();
    let inputs = [(bcx, &given[..]), (tiles, &[0, 2, 0, 4, 2, 4, 0, 4][..])];
    let ticket = plan.submit([4, 1, 2, 0], &inputs, &[(out, 4)])?;
    let mut values = vec![0.0; 16];
    block_on(read(&mut *plan, ticket, &mut values))?;
    Ok(values.chunks(4).map(|row| row[3]).collect())
}

#[test]
fn convolutions_are_causal_or_centred() {
    assert_eq!(convolved(0).unwrap(), [2.0, 3.0, 4.5, 6.0]);
    assert_eq!(convolved(1).unwrap(), [3.0, 4.5, 6.0, -2.5]);
    let error = convolved(3).unwrap_err().to_string();
    assert!(error.contains("short_conv: ahead") && error.contains("3 of 3"), "{error}");
}

#[test]
fn every_option_of_decoders_matters() {
    let faults: [(&str, Fault); 20] = [
        ("store_kv", |op| {
            if let Op::StoreKv(o) = op {
                o.q_norm = None;
            }
        }),
        ("store_kv", |op| {
            if let Op::StoreKv(o) = op {
                o.k_norm = None;
            }
        }),
        ("store_kv", |op| {
            if let Op::StoreKv(o) = op {
                core::mem::swap(&mut o.q_norm, &mut o.k_norm);
            }
        }),
        ("short_conv", |op| {
            if let Op::ShortConv(o) = op {
                o.bias = None;
            }
        }),
        ("short_conv", |op| {
            if let Op::ShortConv(o) = op
                && let ConvRows::Sequences { ahead, .. } = &mut o.rows
            {
                *ahead = 0;
            }
        }),
        ("cached_attention", |op| {
            if let Op::CachedAttention(o) = op {
                o.scale *= 1.001;
            }
        }),
        ("cached_attention", |op| {
            if let Op::CachedAttention(o) = op
                && o.heads == 4
            {
                // Which key head a query head has.
                o.kv_heads = 1;
            }
        }),
        ("route", |op| {
            if let Op::Route(o) = op {
                o.bias = None;
            }
        }),
        ("route", |op| {
            if let Op::Route(o) = op {
                o.scale = 1.0;
            }
        }),
        ("route", |op| {
            if let Op::Route(o) = op {
                o.normalize = None;
            }
        }),
        ("route", |op| {
            if let Op::Route(o) = op {
                o.normalize = o.normalize.map(|_| 0.0);
            }
        }),
        ("route", |op| {
            if let Op::Route(o) = op {
                o.scoring = Scoring::Softmax;
            }
        }),
        ("route", |op| {
            if let Op::Route(o) = op {
                o.scoring = Scoring::Sigmoid;
            }
        }),
        ("expert_gated_linear", |op| {
            if let Op::ExpertGatedLinear(o) = op {
                o.activation = Activation::None;
            }
        }),
        ("expert_gated_linear", |op| {
            if let Op::ExpertGatedLinear(o) = op
                && o.activation == Activation::Gelu
            {
                o.activation = Activation::Silu;
            }
        }),
        ("expert_linear", |op| {
            if let Op::ExpertLinear(o) = op {
                o.residual = None;
            }
        }),
        ("sample", |op| {
            if let Op::Sample(o) = op {
                o.bias = None;
            }
        }),
        ("sample", |op| {
            if let Op::Sample(o) = op {
                o.mask = None;
            }
        }),
        ("sample", |op| {
            if let Op::Sample(o) = op {
                o.targets = None;
            }
        }),
        ("sample", |op| {
            if let Op::Sample(o) = op {
                o.vocab -= o.vocab.min(2) - 1;
            }
        }),
    ];
    for (op, fault) in faults {
        caught(&Faulty::new(fault), op);
    }
}
