//! Other engines, each in a process of its own that speaks JSON lines (tests/peers/README.md).

use std::{
    fmt,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    str::FromStr,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use inferencelayer_engine::tensor::Format;
use serde::Deserialize;

use super::contest::{Contender, Reply, Request};
use crate::{
    Error, Result,
    lab::variant::{Device, Variant},
};

/// Longest that a peer may take to load, or to answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// A peer and how it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub name: &'static str,
    program: Program,
    args: &'static [&'static str],
    /// Ours that it is compared with.
    pub device: Device,
    format: Format,
    pub task: Task,
}

/// What a peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    Encode,
    Generate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Python(&'static str),
    Candle,
}

/// All peers.
pub const ALL: [Peer; 8] = [
    Peer {
        name: "onnxruntime",
        program: Program::Python("onnxruntime_bert.py"),
        args: &["--mode", "f32"],
        device: Device::Cpu,
        format: Format::F32,
        task: Task::Encode,
    },
    Peer {
        name: "onnxruntime-int8",
        program: Program::Python("onnxruntime_bert.py"),
        args: &["--mode", "int8"],
        device: Device::Cpu,
        format: Format::Int8,
        task: Task::Encode,
    },
    Peer {
        name: "torch",
        program: Program::Python("torch_bert.py"),
        args: &[],
        device: Device::Cpu,
        format: Format::F32,
        task: Task::Encode,
    },
    Peer {
        name: "candle",
        program: Program::Candle,
        args: &[],
        device: Device::Cpu,
        format: Format::F32,
        task: Task::Encode,
    },
    Peer {
        name: "torch-cuda-f32",
        program: Program::Python("torch_bert.py"),
        args: &["--device", "cuda"],
        device: Device::Gpu,
        format: Format::F32,
        task: Task::Encode,
    },
    Peer {
        name: "torch-cuda-f16",
        program: Program::Python("torch_bert.py"),
        args: &["--device", "cuda", "--mode", "f16"],
        device: Device::Gpu,
        format: Format::F16,
        task: Task::Encode,
    },
    Peer {
        name: "torch-cuda-f16-compiled",
        program: Program::Python("torch_bert.py"),
        args: &["--device", "cuda", "--mode", "f16", "--compile"],
        device: Device::Gpu,
        format: Format::F16,
        task: Task::Encode,
    },
    Peer {
        name: "llama.cpp",
        program: Program::Python("llama_cpp_gguf.py"),
        args: &[],
        device: Device::Cpu,
        // Whatever the file has.
        format: Format::F32,
        task: Task::Generate,
    },
];

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || ALL.map(|p| p.name).join(", ");
        ALL.into_iter().find(|p| p.name == text).ok_or_else(|| format!("`{text}` is none of {}", names()))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Peer {
    /// Whether our encoder is compared with it.
    pub fn rivals(&self, variant: &Variant) -> bool {
        self.task == Task::Encode && self.device == variant.device && self.format == variant.format
    }
}

/// Where peers are and what they run on.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// tests/peers of the repository.
    pub folder: PathBuf,
    pub python: PathBuf,
    pub threads: usize,
}

/// What a peer says at its start.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Hello {
    Here { name: String, version: String, mode: String },
    Missing { missing: String },
}

/// A running peer.
pub struct Running {
    pub peer: Peer,
    pub name: String,
    pub version: String,
    pub mode: String,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<std::io::Result<String>>,
}

/// A peer that runs, or why it does not.
pub type Started = Result<Running, String>;

impl Running {
    /// Starts a peer on a model folder; not being installed is a reason, not an error.
    pub fn start(peer: Peer, model: &Path, around: &Surroundings) -> Started {
        let mut command = match peer.program {
            Program::Python(script) => {
                let mut command = Command::new(&around.python);
                command.arg(around.folder.join(script)).args(peer.args);
                command.arg("--threads").arg(around.threads.to_string());
                command
            }
            Program::Candle => {
                let built = around.folder.join("candle/target/release/candle-peer");
                let built = built.with_extension(std::env::consts::EXE_EXTENSION);
                if !built.exists() {
                    let folder = around.folder.join("candle");
                    return Err(format!("it is not built: cargo build --release in {}", folder.display()));
                }
                Command::new(built)
            }
        };
        let threads = around.threads.to_string();
        command.arg("--model").arg(model);
        command.env("RAYON_NUM_THREADS", &threads).env("OMP_NUM_THREADS", &threads);
        Self::talk(peer, command)
    }

    fn talk(peer: Peer, mut command: Command) -> Started {
        let program = command.get_program().to_string_lossy().into_owned();
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|e| format!("{program} does not start: {e}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{program} has no pipes"));
        };
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let (name, version, mode) = (String::new(), String::new(), String::new());
        let mut running = Running { peer, name, version, mode, child, stdin, lines };
        let line = running.line()?;
        match serde_json::from_str(&line).map_err(|e| format!("it says {line:?}: {e}"))? {
            Hello::Missing { missing } => Err(missing),
            Hello::Here { name, version, mode } => {
                (running.name, running.version, running.mode) = (name, version, mode);
                Ok(running)
            }
        }
    }

    fn line(&mut self) -> Result<String, String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(error)) => Err(error.to_string()),
            Err(RecvTimeoutError::Timeout) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                Err(format!("it ended early ({status})"))
            }
        }
    }
}

impl Contender for Running {
    fn name(&self) -> String {
        format!("{} {} {}", self.name, self.version, self.mode)
    }

    fn run(&mut self, request: Request) -> Result<Reply> {
        let bad = |name: &str, why: String| Error::Input(format!("{name}: {why}"));
        let text = serde_json::to_string(&request).map_err(|e| bad(self.peer.name, e.to_string()))?;
        let sent = writeln!(self.stdin, "{text}").and_then(|()| self.stdin.flush());
        sent.map_err(|e| bad(self.peer.name, e.to_string()))?;
        let line = self.line().map_err(|e| bad(self.peer.name, e))?;
        serde_json::from_str(&line).map_err(|e| bad(self.peer.name, format!("it says {line:?}: {e}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be in the middle of a run; there is nothing to be saved.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::scoreboard::contest::Batch;

    fn shell(script: &str) -> Started {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Running::talk(ALL[0], command)
    }

    const HELLO: &str = r#"echo '{"name":"x","version":"1.2","mode":"f32"}';"#;

    #[test]
    fn a_peer_answers_requests() {
        let script =
            format!(r#"{HELLO} read line; echo "$line" >&2; echo '{{"seconds":[0.5],"vector":[1,2]}}'"#);
        let mut running = shell(&script).unwrap();
        assert_eq!(running.name(), "x 1.2 f32");
        let request = Request::encode(Batch::new(1, 2));
        let reply = running.run(request).unwrap();
        assert_eq!((reply.seconds, reply.vector), (vec![0.5], vec![1.0, 2.0]));
        assert!(running.run(request).unwrap_err().to_string().starts_with("onnxruntime: "));
    }

    #[test]
    fn reasons_are_told() {
        let reason = |script: &str| shell(script).err().unwrap();
        assert_eq!(reason(r#"echo '{"missing":"not installed"}'"#), "not installed");
        assert!(reason("exit 3").contains("3"), "{}", reason("exit 3"));
        assert!(reason("echo nonsense").contains("nonsense"));
        let missing = Running::talk(ALL[0], Command::new("no-such-program")).err().unwrap();
        assert!(missing.contains("no-such-program"), "{missing}");
    }

    #[test]
    fn peers_have_rivals() {
        let f32: Variant = "cpu-f32".parse().unwrap();
        let names: Vec<_> = ALL.iter().filter(|p| p.rivals(&f32)).map(|p| p.name).collect();
        assert_eq!(names, ["onnxruntime", "torch", "candle"]);
        assert_eq!("candle".parse::<Peer>().unwrap().name, "candle");
        assert!("candel".parse::<Peer>().unwrap_err().contains("candle"));
    }
}
