//! Products of few rows, on `linear_vec`: of all linear ops, with what a dispatch does before and after.

use alloc::{format, string::String, vec, vec::Vec};

use super::{
    Binding, Dispatch, Lowering, activation_word, bind, define, dispatch, flag, has_bias,
    linear_vec::{self, Held, Shape, Task},
    storage,
    stored::bind_f32,
    weight_word, whole,
};
use crate::{
    Error, Result,
    gpu::{fuse::Call, kernel, pipelines::Definitions},
    op::{Activation, ExpertGatedLinear, Linear, Norm, Op, Route, Scoring, ShortConv},
    program::BufferId,
    tensor::Weight,
};

/// Experts that a workgroup can choose from.
const MOST_EXPERTS: usize = 512;

/// Workgroup memory that the choice takes.
const CHOICE_BYTES: u32 = 6656;

/// Whose rows of the weight make the outputs.
#[derive(Debug, Clone, Copy)]
struct Experts<'a> {
    routes: BufferId,
    used: u32,
    /// Outputs of one.
    width: u32,
    /// Makes `routes`.
    route: Option<&'a Route>,
}

/// A product of any op.
struct Product<'a> {
    x: BufferId,
    weight: &'a Weight,
    bias: Option<&'a Weight>,
    activation: Activation,
    residual: Option<BufferId>,
    /// `None`: scratch memory, f32.
    out: Option<BufferId>,
    gated: bool,
    experts: Option<Experts<'a>>,
    /// What makes of the thirds of the outputs what is written to `out`.
    conv: Option<&'a ShortConv>,
}

impl<'a> Product<'a> {
    /// The product of a call, if it is one.
    fn of(l: &Lowering<'_>, call: &Call<'a>) -> Option<Self> {
        let plain = |x, weight, out| Product {
            x,
            weight,
            bias: None,
            activation: Activation::None,
            residual: None,
            out,
            gated: false,
            experts: None,
            conv: None,
        };
        let width = |out: BufferId, used: usize| l.program.spec(out).cols as u32 / used.max(1) as u32;
        Some(match call.op {
            Op::Linear(o) => Product {
                bias: o.bias.as_ref(),
                activation: o.activation,
                residual: o.residual,
                conv: call.conv,
                ..plain(o.x, &o.weight, Some(call.conv.map_or(o.out, |conv| conv.out)))
            },
            Op::GatedLinear(o) => Product {
                bias: o.bias.as_ref(),
                activation: o.activation,
                gated: true,
                ..plain(o.x, &o.weight, Some(o.out))
            },
            Op::ExpertGatedLinear(o) => {
                let (used, width) = (o.used as u32, width(o.out, o.used));
                Product {
                    activation: o.activation,
                    gated: true,
                    experts: Some(Experts { routes: o.routes, used, width, route: call.route }),
                    ..plain(o.x, &o.weight, Some(o.out))
                }
            }
            Op::ExpertLinear(o) => {
                let (used, width) = (o.used as u32, width(o.out, 1));
                Product {
                    residual: o.residual,
                    experts: Some(Experts { routes: o.routes, used, width, route: None }),
                    ..plain(o.x, &o.weight, Some(o.out))
                }
            }
            Op::Route(o) if call.logits_only => plain(o.x, &o.weight, None),
            _ => return None,
        })
    }

    fn sides(&self) -> u32 {
        match (self.gated, self.conv) {
            (_, Some(_)) => 3,
            (true, None) => 2,
            (false, None) => 1,
        }
    }

    /// Output columns.
    fn n(&self) -> u32 {
        match self.experts {
            Some(experts) if self.gated => experts.used * experts.width,
            Some(experts) => experts.width,
            None => self.weight.rows() as u32 / self.sides(),
        }
    }

    fn task(&self, l: &Lowering<'_>) -> Task {
        let rows = match self.experts {
            // Each has experts of its own.
            Some(_) => 1,
            None => l.rows(self.x),
        };
        Task {
            format: self.weight.format(),
            sides: self.sides(),
            q8_out: self.out_word(l) == "q8",
            rows,
            n: self.n(),
            k4: l.cols4(self.x),
            threads: l.most_invocations,
        }
    }

    fn out_word(&self, l: &Lowering<'_>) -> &'static str {
        self.out.map_or("f32", |out| l.word(out))
    }

    /// Whether the kernel takes it.
    fn fits(&self, l: &Lowering<'_>) -> bool {
        let few = l.rows(self.x) <= linear_vec::most_rows(l.features);
        let task = self.task(l);
        match self.experts {
            // An expert's columns are whole units.
            Some(experts) => {
                let each = Task { k4: task.k4 / if self.gated { 1 } else { experts.used }, ..task };
                l.features.barriers && few && each.fits() && whole(self.weight).is_ok()
            }
            None => l.word(self.x) == "q8" || (few && task.fits()),
        }
    }

    fn held<'n>(&self, l: &Lowering<'_>, shape: &Shape, norm: &'n Norm) -> Option<Held<'n>> {
        let choice = self.experts.is_some_and(|experts| experts.route.is_some());
        Held::new(l, shape, norm, if choice { CHOICE_BYTES } else { 0 })
    }
}

/// The dispatches of a call that `linear_vec` takes; else `None`.
///
/// # Errors
/// Those of [`Lowering::lower`].
pub fn lower(l: &Lowering<'_>, call: &Call<'_>) -> Result<Option<Vec<Dispatch>>> {
    let Some(p) = Product::of(l, call) else { return Ok(None) };
    if !p.fits(l) {
        if call.norm.is_some() || call.conv.is_some() || call.route.is_some() || call.logits_only {
            return Err(untaken(&p));
        }
        return Ok(None);
    }
    if p.sides() > 1 {
        // Rows of all sides are read through one binding.
        whole(p.weight)?;
    }
    dispatches(l, &p, call.norm).map(Some)
}

fn untaken(p: &Product<'_>) -> Error {
    Error::Gpu(format!("the product with weight `{}` was to do more than its kernel can", p.weight.name()))
}

/// Whether the dispatch of a call can make its input from what `norm` reads.
pub fn takes_norm(l: &Lowering<'_>, call: &Call<'_>, norm: &Norm) -> bool {
    let Some(p) = Product::of(l, call) else { return false };
    p.x == norm.out
        && p.residual != Some(norm.out)
        && l.rows(p.x) <= linear_vec::HELD_ROWS
        && p.fits(l)
        && p.held(l, &Shape::new(l.features, &p.task(l)), norm).is_some()
}

/// Whether the dispatch of a product can make the outputs of `conv`, which reads its own.
pub fn takes_conv(l: &Lowering<'_>, call: &Call<'_>, o: &Linear, conv: &ShortConv) -> bool {
    let plain =
        o.bias.is_none() && o.residual.is_none() && conv.bias.is_none() && o.activation == Activation::None;
    let together = Product::of(l, &Call { conv: Some(conv), ..*call });
    plain
        && conv.bcx == o.out
        && conv.singles().is_some()
        && l.word(o.out) == "f32"
        && l.features.barriers
        && whole(&o.weight).is_ok()
        && together.is_some_and(|p| p.fits(l))
}

/// Whether the dispatch of experts can make `route`'s choice, from logits that another one leaves in scratch memory.
pub fn takes_route(
    l: &Lowering<'_>,
    call: &Call<'_>,
    o: &ExpertGatedLinear,
    (router, route): (&Call<'_>, &Route),
) -> bool {
    let experts = Product::of(l, call);
    o.routes == route.out
        && route.weight.rows() <= MOST_EXPERTS
        && !route.weight.format().is_block()
        && whole(&route.weight).is_ok()
        && Product::of(l, &Call { logits_only: true, ..*router }).is_some_and(|p| p.fits(l))
        && experts.is_some_and(|p| p.fits(l))
        && l.workgroup_bytes >= CHOICE_BYTES + (8 << 10)
}

fn dispatches(l: &Lowering<'_>, p: &Product<'_>, norm: Option<&Norm>) -> Result<Vec<Dispatch>> {
    let task = p.task(l);
    let shape = Shape::new(l.features, &task);
    let held = match norm {
        Some(norm) => Some(p.held(l, &shape, norm).ok_or_else(|| untaken(p))?),
        None => None,
    };
    let mut definitions = define(&[
        ("X", l.word(p.x)),
        ("W", weight_word(p.weight)?),
        ("Y", p.out_word(l)),
        ("BIAS", &flag(p.bias.is_some())),
        ("RESIDUAL", p.residual.map_or("none", |r| l.word(r))),
        ("ACT", activation_word(p.activation)),
        ("GATED", &flag(p.gated)),
        ("TAPS", &format!("{}", p.conv.map_or(0, |conv| conv.weight.rows()))),
    ]);
    definitions.extend(shape.definitions());
    definitions.extend(held.map_or_else(|| define(&[("NORM", "none")]), |held| held.definitions(l)));
    definitions.extend(expert_definitions(p));
    let rows = l.rows(p.x);
    let k4 = match p.experts {
        Some(experts) if !p.gated => task.k4 / experts.used,
        _ => task.k4,
    };
    let pieces = &storage(p.weight)?.pieces;
    let mut all = Vec::new();
    for piece in pieces {
        let n = if p.experts.is_some() { task.n } else { piece.rows as u32 / p.sides() };
        // From a row of one side to that of the next.
        let up_rows = p.experts.map_or(n, |experts| experts.width);
        let mut bindings = match held {
            None => vec![Binding::Buffer(p.x)],
            Some(held) => vec![Binding::Buffer(held.norm.x), bind(&held.norm.params.weight)?],
        };
        bindings.push(Binding::Weight(piece.buffer.clone()));
        if let Some(bias) = p.bias {
            bindings.push(bind(bias)?);
        }
        bindings.extend(p.residual.map(Binding::Buffer));
        let logits_bytes = |columns: u32| u64::from(rows * columns.next_multiple_of(4)) * 4;
        bindings.push(p.out.map_or_else(|| Binding::Scratch(logits_bytes(task.n)), Binding::Buffer));
        if let Some(conv) = p.conv
            && let Some([tokens, state]) = conv.singles()
        {
            let taps = bind_f32(&conv.weight)?;
            bindings.extend([Binding::Buffer(tokens), taps, Binding::Buffer(state)]);
        }
        let grid = shape.grid(rows, n);
        let grid = held.map_or(grid, |held| held.grid(grid));
        let (first, out4) = (piece.first_row as u32, p.out.map_or(task.n.div_ceil(4), |out| l.cols4(out)));
        let mut params = vec![k4, n, first, out4, l.count(p.x), up_rows, grid[0]];
        let mut floats = vec![];
        if let Some(held) = held {
            floats.push(params.len());
            params.extend([held.norm.params.eps.to_bits(), has_bias(&held.norm.params)]);
        }
        if let Some(experts) = p.experts {
            let count = p.weight.rows() as u32 / (p.sides() * experts.width.max(1));
            let (scale, eps) = experts.route.map_or((1.0, 0.0), |r| (r.scale, r.normalize.unwrap_or(0.0)));
            params.extend([count, experts.used, experts.width, scale.to_bits(), eps.to_bits()]);
            floats.extend([params.len() - 2, params.len() - 1]);
            if let Some(route) = experts.route {
                bindings.push(Binding::Scratch(logits_bytes(count)));
                if let Some(bias) = &route.bias {
                    bindings.push(bind_f32(bias)?);
                }
            }
            bindings.push(Binding::Buffer(experts.routes));
        }
        let mut definitions = definitions.clone();
        if l.features.barriers {
            definitions.push(("BAKED", baked(&params, &floats)));
        }
        all.push(dispatch(&kernel::LINEAR_VEC, definitions, &params, bindings, grid));
    }
    Ok(all)
}

/// Parameters as the members of a constant, `floats` those that are no integers.
fn baked(params: &[u32], floats: &[usize]) -> String {
    let literal = |(i, word): (usize, &u32)| match floats.contains(&i) {
        true => format!("{:?}f", f32::from_bits(*word)),
        false => format!("{word}u"),
    };
    params.iter().enumerate().map(literal).collect::<Vec<_>>().join(", ")
}

fn expert_definitions(p: &Product<'_>) -> Definitions {
    let Some(experts) = p.experts else {
        return define(&[("EXPERTS", "none"), ("SCORING", "given")]);
    };
    let scoring = experts.route.map_or("given", |route| match route.scoring {
        Scoring::Softmax => "softmax",
        Scoring::Sigmoid => "sigmoid",
    });
    define(&[
        ("EXPERTS", if p.gated { "gated" } else { "linear" }),
        ("SCORING", scoring),
        ("R_BIAS", &flag(experts.route.is_some_and(|route| route.bias.is_some()))),
        ("NORMALIZE", &flag(experts.route.is_some_and(|route| route.normalize.is_some()))),
    ])
}
