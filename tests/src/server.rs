//! A small HTTP/1.1 server on the loopback address, for tests of what talks to one.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// A request without its body.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// A header's value; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The first byte of `Range: bytes=N-`.
    pub fn range_start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// What to answer.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Announce the whole body, but close the connection after this many bytes of it.
    pub cut: Option<usize>,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Reply { status, ..Reply::default() }
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

/// Answers on a port of its own until the process ends; remembers what it was asked.
pub struct Server {
    pub address: String,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&log), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                // A client that goes away ends its own connection only.
                thread::spawn(move || serve(stream, &seen, &*answer).ok());
            }
        });
        Server { address, log }
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.log.lock().expect("the log").clone()
    }
}

fn serve(
    stream: TcpStream,
    log: &Mutex<Vec<Request>>,
    answer: &(impl Fn(&Request) -> Reply + ?Sized),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut parts = line.split_whitespace();
        let (method, path) =
            (parts.next().unwrap_or_default().into(), parts.next().unwrap_or_default().into());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let request = Request { method, path, headers };
        let reply = answer(&request);
        let head_only = request.method == "HEAD";
        log.lock().expect("the log").push(request);
        let mut head = format!("HTTP/1.1 {} Status\r\n", reply.status);
        if !reply.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            head += &format!("content-length: {}\r\n", reply.body.len());
        }
        for (name, value) in &reply.headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(head.as_bytes())?;
        stream.write_all(b"\r\n")?;
        if !head_only {
            let end = reply.cut.unwrap_or(reply.body.len()).min(reply.body.len());
            stream.write_all(&reply.body[..end])?;
            if reply.cut.is_some() {
                stream.flush()?;
                return stream.shutdown(std::net::Shutdown::Both);
            }
        }
        stream.flush()?;
    }
}
