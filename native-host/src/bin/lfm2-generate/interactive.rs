//! A chat: questions in, answers out, what was said stays in the session's caches.

use inferencelayer::{
    Error, GenerateEngine, Result,
    chat::{Chat, Message},
    generate::{Finish, Session},
};

use super::{
    args::Args,
    generate,
    interrupt::Interrupts,
    prompt::chat_ids,
    report,
    terminal::{Line, Reader},
};

const HELP: &str = "\
/reset  forget what was said, but the system message
/help   this text
/exit   leave, as does Ctrl-D
Ctrl-C ends an answer; at an empty prompt, twice, the program.
";

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request<'a> {
    Nothing,
    Reset,
    Help,
    Exit,
    Unknown(&'a str),
    Ask(&'a str),
}

fn request(line: &str) -> Request<'_> {
    match line.trim() {
        "" => Request::Nothing,
        "/reset" => Request::Reset,
        "/help" => Request::Help,
        "/exit" | "/quit" => Request::Exit,
        word if word.starts_with('/') && !word.contains(char::is_whitespace) => Request::Unknown(word),
        _ => Request::Ask(line),
    }
}

/// Answers questions until there are no more.
///
/// # Errors
/// The device's, and those of standard input and output. What a question is refused for is only said.
pub fn run(args: &Args, engine: &GenerateEngine, session: &mut Session, begun: Chat) -> Result<()> {
    // Without a template nothing can be asked.
    engine.chat_templates()?;
    engine.tokenizer()?;
    let interrupts = Interrupts::install()?;
    let mut reader = Reader::open()?;
    if reader.is_terminal() {
        eprintln!("{}, context of {} tokens; /help says more", engine.device_name(), engine.context());
    }
    let mut chat = begun.clone();
    if chat.messages.last().is_some_and(|m| m.role == "user") {
        answer(args, engine, session, &mut chat, &interrupts)?;
    }
    loop {
        let line = match reader.line()? {
            Line::Text(line) => line,
            Line::End => return Ok(()),
        };
        match request(&line) {
            Request::Nothing => {}
            Request::Help => eprint!("{HELP}"),
            Request::Exit => return Ok(()),
            Request::Unknown(word) => eprintln!("there is no {word}; /help shows what there is"),
            Request::Reset => {
                chat = begun.clone();
                chat.messages.retain(|m| m.role == "system");
                session.reset()?;
            }
            Request::Ask(text) => {
                chat.messages.push(Message::user(text));
                answer(args, engine, session, &mut chat, &interrupts)?;
            }
        }
    }
}

/// Answers the last message and adds the answer to the chat; or takes the message away and says why.
fn answer(
    args: &Args,
    engine: &GenerateEngine,
    session: &mut Session,
    chat: &mut Chat,
    interrupts: &Interrupts,
) -> Result<()> {
    interrupts.begin();
    let ids = match chat_ids(chat, engine, args) {
        Ok(ids) => ids,
        Err(error @ (Error::Input(_) | Error::Template { .. })) => {
            chat.messages.pop();
            eprintln!("error: {error}; /reset begins anew");
            interrupts.end();
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let prompt = ids.len();
    let answer = generate(args, engine, session, ids, &|| interrupts.asked());
    interrupts.end();
    let mut answer = answer?;
    answer.memory = engine.memory();
    if answer.stopped {
        eprintln!("[stopped]");
    } else if answer.finish == Some(Finish::Length) {
        let full = prompt + answer.ids.len() >= engine.context();
        let why =
            if full { "the context is full: /reset begins anew" } else { "cut; --max-tokens allows more" };
        eprintln!("[{why}]");
    }
    if args.stats {
        eprint!("{}", report::stats(&answer));
    }
    chat.messages.push(Message::assistant(answer.text.unwrap_or_default()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let cases = [
            ("", Request::Nothing),
            (" \t", Request::Nothing),
            (" /reset ", Request::Reset),
            ("/help", Request::Help),
            ("/exit", Request::Exit),
            ("/nothing", Request::Unknown("/nothing")),
            ("/usr/bin is what?", Request::Ask("/usr/bin is what?")),
            (" hi", Request::Ask(" hi")),
        ];
        for (line, wanted) in cases {
            assert_eq!(request(line), wanted);
        }
    }
}
