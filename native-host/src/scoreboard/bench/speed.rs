//! Encoder speed, from token ids in host memory to vectors in host memory, beside peers on the same weights.

use std::path::Path;

use inferencelayer_engine::tensor::Format;

use super::{Options, Sink, random_model, remark};
use crate::{
    Result,
    lab::{
        report::duration,
        stats::Summary,
        variant::{Opened, Variant},
    },
    scoreboard::{
        contest::{Batch, Contender, Request, Standing, contest, cosine},
        engine::Ours,
        ledger::{Better, PeerFigure},
        model::{BERT_BASE, MINILM, Shape},
        peer::{self, Running},
    },
};

/// Short enough that a whole run takes a few minutes on two cores.
const CPU_BATCHES: [Batch; 4] =
    [Batch::new(1, 16), Batch::new(1, 128), Batch::new(32, 128), Batch::new(32, 256)];
const GPU_BATCHES: [Batch; 6] = [
    Batch::new(1, 16),
    Batch::new(1, 128),
    Batch::new(32, 128),
    Batch::new(32, 256),
    Batch::new(32, 512),
    Batch::new(256, 128),
];

pub fn cpu(options: &Options, sink: &mut Sink<'_>) -> Result<()> {
    let variants = options.variants(&["cpu-f32", "cpu-int8"])?;
    for shape in options.models(&[MINILM]) {
        model(options, &shape, &variants, &options.batches(&CPU_BATCHES), sink)?;
    }
    Ok(())
}

pub fn gpu(options: &Options, sink: &mut Sink<'_>) -> Result<()> {
    let variants = options.variants(&["gpu-f32", "gpu-f16", "gpu-f16-nocoop"])?;
    for shape in options.models(&[MINILM, BERT_BASE]) {
        model(options, &shape, &variants, &options.batches(&GPU_BATCHES), sink)?;
    }
    Ok(())
}

/// Least cosine between a peer's vector and ours; 8-bit activations cost some.
fn least_cosine(format: Format) -> f64 {
    match format {
        Format::Int8 => 0.98,
        Format::F16 => 0.9999,
        _ => 0.999_999,
    }
}

fn model(
    options: &Options,
    shape: &Shape,
    variants: &[Variant],
    batches: &[Batch],
    sink: &mut Sink<'_>,
) -> Result<()> {
    let folder = random_model(shape)?;
    let most = batches.iter().map(|b| b.all_tokens()).max().unwrap_or(0).max(8192);
    let mut ours = Vec::new();
    for variant in variants {
        let loaded = Ours::load(folder.path(), variant, &options.adapter, options.threads, most)?;
        if is_idle_switch(&loaded) {
            eprintln!("{variant}: this adapter has no cooperative matrices to switch off");
            continue;
        }
        ours.push(loaded);
    }
    let mut peers = start(options, folder.path(), variants);
    for batch in batches {
        eprintln!("{} {batch}", shape.name);
        let mut all: Vec<&mut dyn Contender> = ours.iter_mut().map(|o| o as _).collect();
        all.extend(peers.iter_mut().map(|p| p as &mut dyn Contender));
        let mut standings = contest(&mut all, Request::encode(*batch), &options.limits);
        let theirs = standings.split_off(ours.len());
        for (ours, standing) in ours.iter().zip(standings) {
            record(options, (shape, *batch), (ours, &standing?), (&peers, &theirs), sink)?;
        }
    }
    Ok(())
}

/// `nocoop` changes nothing where there are no cooperative matrices; measuring it twice would be noise.
fn is_idle_switch(ours: &Ours) -> bool {
    let Opened::Gpu(gpu) = &ours.opened else { return false };
    let options = ours.variant.gpu_options(&Default::default());
    options.no_cooperative_matrix && !gpu.context().adapter().cooperative_matrix
}

/// Starts the rivals of some variants, and says which are not there.
fn start(options: &Options, model: &Path, variants: &[Variant]) -> Vec<Running> {
    let wanted = peer::ALL.into_iter().filter(|p| match &options.peers {
        Some(named) => named.contains(p),
        None => variants.iter().any(|v| p.rivals(v)),
    });
    wanted
        .filter_map(|peer| match Running::start(peer, model, &options.around) {
            Ok(running) => Some(running),
            Err(why) => {
                eprintln!("peer {peer} is not measured: {why}");
                None
            }
        })
        .collect()
}

/// Figure, unit and sense of so many seconds: latency for one text, throughput for many.
fn figure(batch: Batch, seconds: f64) -> (f64, &'static str, Better) {
    match batch.texts {
        1 => (seconds * 1e3, "ms", Better::Lower),
        _ => (batch.all_tokens() as f64 / seconds, "tokens/s", Better::Higher),
    }
}

fn record(
    options: &Options,
    (shape, batch): (&Shape, Batch),
    (ours, standing): (&Ours, &Standing),
    (peers, theirs): (&[Running], &[Result<Standing>]),
    sink: &mut Sink<'_>,
) -> Result<()> {
    let bench = format!("{} {batch}", shape.name);
    let mine = figure(batch, standing.seconds.median);
    let mut entry = options.entry(bench, ours.variant.to_string(), mine, options.machine(ours.gpu()));
    let Summary { min, q1, q3, count, .. } = standing.seconds;
    let range = format!("{}..{}", duration(q1), duration(q3));
    remark(&mut entry, &format!("{count} runs, quartiles {range}, best {}", duration(min)));
    for (running, theirs) in peers.iter().zip(theirs).filter(|(r, _)| r.peer.rivals(&ours.variant)) {
        let compared = theirs.as_ref().map_err(ToString::to_string);
        match compared.and_then(|theirs| compare(running, batch, ours.variant.format, standing, theirs)) {
            Ok(figure) => entry.peers.push(figure),
            Err(why) => {
                eprintln!("peer {} is not compared: {why}", running.name());
                remark(&mut entry, &format!("{} is not compared: {why}", running.name()));
            }
        }
    }
    sink(entry)
}

/// A peer's figure, if it computes the same as we do.
fn compare(
    peer: &Running,
    batch: Batch,
    format: Format,
    ours: &Standing,
    theirs: &Standing,
) -> Result<PeerFigure, String> {
    let (cosine, least) = (cosine(&ours.vector, &theirs.vector), least_cosine(format));
    if cosine.is_none_or(|c| c < least) {
        let found = cosine.map_or("of another length".into(), |c| format!("at cosine {c:.7}"));
        return Err(format!("its vector is {found} from ours, at least {least} is needed"));
    }
    Ok(PeerFigure {
        name: peer.name.clone(),
        version: peer.version.clone(),
        mode: peer.mode.clone(),
        figure: figure(batch, theirs.seconds.median).0,
        ratio: theirs.seconds.median / ours.seconds.median,
        best_ratio: theirs.seconds.min / ours.seconds.min,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_is_a_latency_and_many_are_a_throughput() {
        assert_eq!(figure(Batch::new(1, 16), 0.002), (2.0, "ms", Better::Lower));
        assert_eq!(figure(Batch::new(32, 128), 2.0), (2048.0, "tokens/s", Better::Higher));
    }
}
