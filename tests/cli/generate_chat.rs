//! `lfm2-generate` with chats: messages from options and files, and a chat question by question.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    generate::{command, fixture, json as parsed, list, run},
    support::{Run, run_command},
};

const SHORT: [&str; 3] = ["-n", "6", "--ignore-eos"];

/// One that can forget a chat's end, and one that cannot.
fn models() -> [PathBuf; 2] {
    ["gguf_llama", "gguf_lfm2"].map(|name| fixture(name).join("model.gguf"))
}

fn file(folder: &tempfile::TempDir, name: &str, content: &Value) -> String {
    let path = folder.path().join(name);
    fs::write(&path, content.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn said(run: Run) -> String {
    String::from_utf8(run.succeeds().stdout).unwrap()
}

#[test]
fn a_question_goes_through_the_template() {
    let model = &models()[1];
    let found = parsed(run(model, &[&["--user", "A short sentence.", "--json"][..], &SHORT].concat()));
    // A plain prompt gets the token at the beginning that this template writes itself.
    let folder = tempfile::tempdir().unwrap();
    let text = "<|im_start|>user\nA short sentence.<|im_end|>\n<|im_start|>assistant\n";
    let path = folder.path().join("rendered.txt");
    fs::write(&path, text).unwrap();
    let plain = ["--prompt-file", path.to_str().unwrap(), "--json"];
    let wanted = parsed(run(model, &[&plain[..], &SHORT].concat()));
    assert_eq!(found["prompt_ids"], wanted["prompt_ids"]);
    assert_eq!(found["ids"], wanted["ids"]);
}

#[test]
fn messages_come_from_files_and_options() {
    let model = &models()[0];
    let folder = tempfile::tempdir().unwrap();
    let messages = json!([
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"}, {"role": "user", "content": "Three"}
    ]);
    let all = file(&folder, "all.json", &messages);
    let object = json!({"messages": messages, "tools": [{"name": "f"}], "enable_thinking": false});
    let object = file(&folder, "object.json", &object);
    let some = file(&folder, "some.json", &json!([messages[1], messages[2]]));
    let tools = file(&folder, "tools.json", &json!([{"name": "f"}]));
    let ids = |args: &[&str]| {
        let found = parsed(run(model, &[args, &["-n", "1", "--json"]].concat()));
        list(&found["prompt_ids"])
    };
    let wanted = ids(&["--chat", &all]);
    assert_eq!(ids(&["--chat", &object]), wanted);
    assert_eq!(ids(&["--chat", &some, "--system", "Be kind.", "--user", "Three"]), wanted);
    assert_eq!(ids(&["--chat", &all, "--tools", &tools, "--no-thinking"]), wanted);
    let input =
        run_command(command(model, &["--chat", "-", "-n", "1", "--json"]), messages.to_string().as_bytes());
    assert_eq!(list(&parsed(input)["prompt_ids"]), wanted);
    // Too long a chat loses its oldest messages, but not its first.
    let room = wanted.len().to_string();
    let error = run(model, &["--chat", &all, "--context", &room]).fails(1);
    assert!(error.contains(&format!("the chat has {room} tokens, and the context of {room}")), "{error}");
    let found = ids(&["--chat", &all, "--context", &room, "--truncate"]);
    let rest = file(&folder, "rest.json", &json!([messages[0], messages[2], messages[3]]));
    assert_eq!(found, ids(&["--chat", &rest]));
}

#[test]
fn a_chat_question_by_question() {
    let folder = tempfile::tempdir().unwrap();
    for model in models() {
        let lines =
            "/help\nA short sentence.\n\nAnd then?\n/reset\n/nothing\nAnd then?\r\n/exit\nnot asked\n";
        let options = [&["--interactive", "--system", "Be kind."][..], &SHORT].concat();
        let chat = run_command(command(&model, &options), lines.as_bytes());
        assert!(
            chat.stderr.contains("/reset") && chat.stderr.contains("there is no /nothing"),
            "{}",
            chat.stderr
        );
        assert_eq!(chat.stderr.matches("[cut; --max-tokens allows more]").count(), 3, "{}", chat.stderr);
        // Each answer as by a run of its own.
        let mut messages = vec![json!({"role": "system", "content": "Be kind."})];
        let mut wanted = String::new();
        for question in ["A short sentence.", "And then?", "/reset", "And then?"] {
            if question == "/reset" {
                messages.truncate(1);
                continue;
            }
            messages.push(json!({"role": "user", "content": question}));
            let path = file(&folder, "chat.json", &json!(messages));
            let answer = parsed(run(&model, &[&["--chat", &path, "--json"][..], &SHORT].concat()));
            wanted += answer["text"].as_str().unwrap();
            wanted.push('\n');
            messages.push(json!({"role": "assistant", "content": answer["text"]}));
        }
        assert_eq!(said(chat), wanted);
    }
}

#[test]
fn a_chat_goes_on_after_refusals_and_from_files() {
    let model = &models()[0];
    let folder = tempfile::tempdir().unwrap();
    let long = "word ".repeat(200);
    let options = ["--interactive", "--context", "64", "-n", "3", "--ignore-eos"];
    let chat = run_command(command(model, &options), format!("{long}\nA\n").as_bytes());
    assert!(chat.stderr.contains("the context of 64 must hold an answer too"), "{}", chat.stderr);
    let wanted = said(run(model, &["--user", "A", "--context", "64", "-n", "3", "--ignore-eos"]));
    assert_eq!(said(chat), wanted);
    // A file's question is answered first, and a full context is said.
    let path = file(&folder, "chat.json", &json!([{"role": "user", "content": "A"}]));
    let options = ["--interactive", "--chat", &path, "--context", "64", "--ignore-eos"];
    let chat = run_command(command(model, &options), b"");
    assert!(chat.stderr.contains("the context is full"), "{}", chat.stderr);
    assert!(said(chat).len() > 10);
}

#[test]
fn refusals_name_the_culprit() {
    let model = &models()[0];
    let folder = tempfile::tempdir().unwrap();
    let number = file(&folder, "number.json", &json!([{"role": "user", "content": "a"}, {"role": 5}]));
    let system = file(&folder, "system.json", &json!([{"role": "system", "content": "a"}]));
    let object = file(&folder, "object.json", &json!({"a": 1}));
    let missing = folder.path().join("missing.json").to_str().unwrap().to_owned();
    let plain = fixture("qwen2");
    let cases: [(&PathBuf, &[&str], i32, &str); 9] = [
        (&plain, &["--user", "a"], 1, "no chat template"),
        (&plain, &["--interactive"], 1, "no chat template"),
        (model, &["--chat", &number], 1, "number.json: message 2: a message's role is 5"),
        (model, &["--chat", &object], 1, "object.json: has no messages"),
        (model, &["--chat", &missing], 1, "missing.json"),
        (model, &["--chat", &system, "--system", "b"], 1, "has a system message already"),
        (model, &["--user", "a", "--tools", &object], 1, "object.json: is no list of tools"),
        (model, &["--user", "a", "b"], 2, "cannot be used with"),
        (model, &["--thinking", "--no-thinking", "--user", "a"], 2, "cannot be used with"),
    ];
    for (model, args, status, wanted) in cases {
        let said = run(model, args).fails(status);
        assert!(said.contains(wanted), "{args:?}: `{wanted}` is missing from: {said}");
    }
}

/// On a terminal: a prompt, history, and Ctrl-C, which ends an answer and then the program.
#[cfg(unix)]
#[test]
fn on_a_terminal() {
    use rexpect::{process::WaitStatus, session::spawn_command};
    const CTRL_C: char = 'c';
    let model = &models()[0];
    let options = ["--ignore-eos", "-n", "400"];
    let answer = said(run(model, &[&["--user", "A short sentence."][..], &options].concat()));
    let begin = answer.split_whitespace().next().expect("an answer").to_owned();
    let mut program = command(model, &options);
    program.env("TERM", "xterm");
    let mut chat = spawn_command(program, Some(60_000)).expect("a terminal");
    chat.exp_string("/help says more").expect("a greeting");
    chat.exp_string("> ").expect("a prompt");
    chat.send_line("A short sentence.").expect("a question");
    // The line that was typed, and what comes of it.
    chat.exp_string("sentence.").expect("an echo");
    chat.exp_string(&begin).expect("an answer");
    chat.send_control(CTRL_C).expect("a signal");
    chat.exp_string("[stopped]").expect("the end of the answer");
    chat.exp_string("> ").expect("a prompt");
    // Up, and what was typed before.
    chat.send("\u{1b}[A").expect("a key");
    chat.flush().expect("sent");
    chat.exp_string("A short sentence.").expect("the history");
    chat.send_control(CTRL_C).expect("a key");
    chat.exp_string("Ctrl-C again").expect("a hint");
    chat.send_control(CTRL_C).expect("a key");
    let status = chat.process().wait().expect("the end");
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
}
