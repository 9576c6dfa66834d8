//! The catalogue's SmolLM2-135M-Instruct, really fetched (98 MB) into the usual cache: run with `--ignored`.

use inferencelayer::{
    GenerateEngine, GenerateOptions,
    chat::{Chat, Message},
    device::{Device, DeviceOptions, Dtype},
    engine::generate::Sampling,
    generate::GenerateSettings,
    hub::{self, Config},
};
use inferencelayer_tests::fixture::Fixture;
use serde_json::Value;

fn open(device: Device, dtype: Option<Dtype>, chunk: usize) -> GenerateEngine {
    let folder = hub::locate("smollm2-135m", &Config::from_env().unwrap(), &()).unwrap();
    let device = DeviceOptions { device, dtype, ..DeviceOptions::default() };
    let options = GenerateOptions { device, context: Some(512), chunk, ..GenerateOptions::default() };
    GenerateEngine::auto(folder, options).unwrap()
}

/// Mean negative logarithm of the probability of each next token.
fn nll(engine: &GenerateEngine, ids: &[u32]) -> f64 {
    let logits = engine.session().unwrap().logits(ids).unwrap();
    let vocab = engine.config().vocab;
    let each = logits.chunks(vocab).zip(&ids[1..]).map(|(row, next)| {
        let top = row.iter().fold(f32::MIN, |m, v| m.max(*v));
        let total: f64 = row.iter().map(|v| f64::from(v - top).exp()).sum();
        total.ln() - f64::from(row[*next as usize] - top)
    });
    let all: Vec<f64> = each.collect();
    assert_eq!(all.len(), ids.len() - 1);
    all.iter().sum::<f64>() / all.len() as f64
}

fn check(device: Device, dtype: Option<Dtype>, chunk: usize, bound: f64) {
    let fixture = Fixture::new("real_smollm2_135m_gguf");
    let expected = fixture.expected();
    let engine = open(device, dtype, chunk);
    let each = expected.floats("nll.per_token");
    let wanted = each.iter().map(|v| f64::from(*v)).sum::<f64>() / each.len() as f64;
    let found = nll(&engine, &expected.ids("nll.input_ids"));
    let off = (found / wanted - 1.0).abs();
    println!("{}: nll {found:.6} for {wanted:.6}, off by {off:e} of {bound:e}", engine.device_name());
    assert!(off <= bound, "{found} for {wanted}");
    if dtype != Some(Dtype::F32) {
        return;
    }
    for case in ["greedy0", "greedy1"] {
        let (ids, wanted) =
            (expected.ids(&format!("{case}.input_ids")), expected.ids(&format!("{case}.tokens")));
        let mut session = engine.session().unwrap();
        let answer = session.generate(&ids, wanted.len(), &Sampling::default()).unwrap();
        let found: Vec<u32> = answer.map(|token| token.unwrap().id).collect();
        assert_eq!(found, wanted, "{case} on {}", engine.device_name());
    }
}

#[test]
#[ignore = "fetches a model"]
fn tokens_are_hugging_faces() {
    let fixture = Fixture::new("real_smollm2_135m_gguf");
    let engine = open(Device::Reference, None, 0);
    let bytes = std::fs::read(fixture.path().join("texts.json")).unwrap();
    let texts: Value = serde_json::from_slice(&bytes).unwrap();
    let texts: Vec<&str> = texts["strings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let wanted = fixture.expected().ragged("tok.ids", "tok.offsets");
    assert_eq!(texts.len(), wanted.len());
    for (text, wanted) in texts.iter().zip(wanted) {
        assert_eq!(engine.tokenizer().unwrap().encode_rendered(text).unwrap(), wanted, "{text:?}");
    }
    let wanted = fixture.expected().ragged("chat.ids", "chat.offsets");
    let chat = Chat::from(vec![Message::user("What is the capital of France?")]);
    assert_eq!(engine.chat_ids(&chat).unwrap(), wanted[0]);
}

/// Questions one after the other; the session holds what was said before.
#[test]
#[ignore = "fetches a model"]
fn it_chats() {
    let engine = open(Device::Gpu, None, 0);
    let mut session = engine.session().unwrap();
    let mut chat = Chat::from(vec![Message::user("What is the capital of France?")]);
    let settings = GenerateSettings { max_tokens: 40, ..GenerateSettings::default() };
    let mut ask = |chat: &Chat| -> String {
        engine.chat(&mut session, chat, &settings).unwrap().map(|piece| piece.unwrap().text).collect()
    };
    let said = ask(&chat);
    assert!(said.contains("Paris") && !said.contains("<|im_end|>"), "{said}");
    chat.messages.extend([Message::assistant(said), Message::user("And of Italy?")]);
    let said = ask(&chat);
    assert!(said.contains("Rome"), "{said}");
}

#[test]
#[ignore = "fetches a model"]
fn on_the_cpu() {
    check(Device::Cpu, Some(Dtype::F32), 0, 1e-5);
    check(Device::Cpu, None, 0, 5e-3);
    check(Device::Cpu, None, 8, 5e-3);
}

#[test]
#[ignore = "fetches a model"]
fn on_the_gpu() {
    check(Device::Gpu, Some(Dtype::F32), 0, 1e-5);
    // Many rows at a time, and few as in decoding, whose activations are rounded to 8 bits.
    check(Device::Gpu, None, 0, 5e-3);
    check(Device::Gpu, None, 8, 5e-3);
}
