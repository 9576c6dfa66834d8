//! Inputs, one a line: plain texts, or JSON objects with `text` or `ids`.

use std::io::{BufRead, Read};

use serde::Deserialize;

use crate::{Error, Result};

/// Longest line accepted, in bytes.
pub const MAX_LINE: usize = 16 << 20;

/// What to embed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(String),
    /// Token ids, special tokens included, used as they are.
    Ids(Vec<u32>),
}

/// One input and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub content: Content,
    /// 1-based line, for error messages; `None` for an argument.
    pub line: Option<u64>,
    /// Bytes of the stream up to and with this input.
    pub bytes: u64,
}

impl Record {
    /// A text given as an argument.
    pub fn argument(text: impl Into<String>) -> Self {
        Record { content: Content::Text(text.into()), line: None, bytes: 0 }
    }
}

/// How lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Format {
    /// JSON lines if the first line begins with `{`, else plain text.
    #[default]
    Auto,
    /// Every line is a text; an empty line is an empty text.
    Text,
    /// Every line is a JSON object; blank lines are skipped.
    Jsonl,
}

#[derive(Deserialize)]
struct JsonRecord {
    text: Option<String>,
    ids: Option<Vec<u32>>,
}

/// Reads records from a stream, holding one line at a time.
pub struct Lines<R> {
    reader: R,
    name: String,
    format: Format,
    line: u64,
    bytes: u64,
    buffer: Vec<u8>,
    failed: bool,
}

impl<R: BufRead> Lines<R> {
    /// `name` stands for the stream in error messages.
    pub fn new(reader: R, name: impl Into<String>, format: Format) -> Self {
        Lines { reader, name: name.into(), format, line: 0, bytes: 0, buffer: Vec::new(), failed: false }
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn error(&self, why: impl std::fmt::Display) -> Error {
        Error::Input(format!("{}, line {}: {why}", self.name, self.line))
    }

    /// Reads one line without its end into `self.buffer`; false at the end of the stream.
    fn read_line(&mut self) -> Result<bool> {
        self.buffer.clear();
        self.line += 1;
        // One byte more than allowed tells a line of exactly the limit from a longer one, and two are its end.
        let mut limited = (&mut self.reader).take(MAX_LINE as u64 + 2);
        let n = limited.read_until(b'\n', &mut self.buffer);
        let n = n.map_err(|e| self.error(e))?;
        self.bytes += n as u64;
        if n == 0 {
            return Ok(false);
        }
        if self.buffer.ends_with(b"\n") {
            self.buffer.pop();
            if self.buffer.ends_with(b"\r") {
                self.buffer.pop();
            }
        }
        if self.buffer.len() > MAX_LINE {
            return Err(self.error(format!("longer than {} MiB", MAX_LINE >> 20)));
        }
        if self.line == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.buffer.drain(..3);
        }
        Ok(true)
    }

    fn next_record(&mut self) -> Result<Option<Record>> {
        while self.read_line()? {
            if self.format == Format::Auto {
                self.format = if self.buffer.starts_with(b"{") { Format::Jsonl } else { Format::Text };
            }
            let text = std::str::from_utf8(&self.buffer)
                .map_err(|e| self.error(format!("not valid UTF-8 at byte {}", e.valid_up_to() + 1)))?;
            let content = match self.format {
                Format::Jsonl if text.trim().is_empty() => continue,
                Format::Jsonl => self.parse_json(text)?,
                _ => Content::Text(text.to_owned()),
            };
            return Ok(Some(Record { content, line: Some(self.line), bytes: self.bytes }));
        }
        Ok(None)
    }

    fn parse_json(&self, text: &str) -> Result<Content> {
        // serde_json counts lines within the text it is given; here that is always line 1.
        let record: JsonRecord = serde_json::from_str(text).map_err(|e| {
            let (column, what) = (e.column(), e.to_string());
            let what = what.split(" at line ").next().unwrap_or_default().to_owned();
            self.error(format!("not a record: {what} (column {column})"))
        })?;
        match (record.text, record.ids) {
            (Some(text), None) => Ok(Content::Text(text)),
            (None, Some(ids)) if ids.is_empty() => Err(self.error("`ids` must not be empty")),
            (None, Some(ids)) => Ok(Content::Ids(ids)),
            (Some(_), Some(_)) => Err(self.error("has both `text` and `ids`")),
            (None, None) => Err(self.error("has neither `text` nor `ids`")),
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_record();
        self.failed = next.is_err();
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], format: Format) -> Result<Vec<Content>> {
        Lines::new(bytes, "in", format).map(|r| r.map(|r| r.content)).collect()
    }

    fn texts(list: &[&str]) -> Vec<Content> {
        list.iter().map(|t| Content::Text(t.to_string())).collect()
    }

    #[test]
    fn plain_texts() {
        assert_eq!(read(b"", Format::Auto).unwrap(), []);
        assert_eq!(read(b"a\n\nb c\r\nlast", Format::Auto).unwrap(), texts(&["a", "", "b c", "last"]));
        assert_eq!(read("\u{feff}ä\n".as_bytes(), Format::Auto).unwrap(), texts(&["ä"]));
        assert_eq!(read(b"x\n{not json", Format::Auto).unwrap(), texts(&["x", "{not json"]));
        assert_eq!(read(b"{\"text\":1}", Format::Text).unwrap(), texts(&["{\"text\":1}"]));
    }

    #[test]
    fn json_lines() {
        let read = read(b"{\"text\":\"a\\nb\",\"id\":7}\n\n {\"ids\":[1,2]}\n", Format::Auto).unwrap();
        assert_eq!(read, [Content::Text("a\nb".into()), Content::Ids(vec![1, 2])]);
    }

    #[test]
    fn bad_lines_are_named() {
        for (bytes, expected) in [
            (&b"ok\nbad \xff\n"[..], "in, line 2: not valid UTF-8 at byte 5"),
            (b"{\"text\":\"a\"}\n{oops", "in, line 2: not a record: key must be a string (column 2)"),
            (b"{\"text\":\"a\"}\nplain", "in, line 2: not a record: expected value (column 1)"),
            (
                b"{\"text\":7}",
                "in, line 1: not a record: invalid type: integer `7`, expected a string (column 9)",
            ),
            (
                b"{\"ids\":[-1]}",
                "in, line 1: not a record: invalid value: integer `-1`, expected u32 (column 10)",
            ),
            (b"{\"ids\":[]}", "in, line 1: `ids` must not be empty"),
            (b"{}", "in, line 1: has neither `text` nor `ids`"),
            (b"{\"text\":\"\",\"ids\":[1]}", "in, line 1: has both `text` and `ids`"),
        ] {
            assert_eq!(read(bytes, Format::Auto).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn the_line_limit() {
        let mut bytes = vec![b'x'; MAX_LINE];
        bytes.extend(b"\r\nnext");
        let read_back = read(&bytes, Format::Auto).unwrap();
        assert_eq!(read_back.len(), 2);
        assert_eq!(read_back[1], Content::Text("next".into()));
        let mut bytes = b"first\n".to_vec();
        bytes.extend(vec![b'x'; MAX_LINE + 1]);
        for end in [&b""[..], b"\n"] {
            bytes.extend(end);
            let error = read(&bytes, Format::Auto).unwrap_err().to_string();
            assert_eq!(error, "in, line 2: longer than 16 MiB");
        }
    }

    #[test]
    fn an_endless_line_is_not_read_to_its_end() {
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let mut lines = Lines::new(endless, "in", Format::Auto);
        assert!(lines.next().unwrap().is_err());
        assert!(lines.next().is_none(), "nothing comes after an error");
        assert!(lines.bytes() < 2 * MAX_LINE as u64);
    }
}
