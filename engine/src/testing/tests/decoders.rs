//! Backends that do one thing wrong in a decoder's op fail.

use super::{Fault, Faulty, caught};
use crate::op::{Activation, ConvRows, Op, Scoring};

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
