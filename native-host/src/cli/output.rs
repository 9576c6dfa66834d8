//! Results as JSON lines, npy or safetensors.
//!
//! The last two begin with a header that holds the number of rows. Into a file it is written last, over a
//! placeholder; a pipe cannot be written over, so rows wait in a temporary file.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
};

use serde::Serialize;

/// The form of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Form {
    /// One JSON object a line: index, tokens, truncated, embedding.
    #[default]
    Jsonl,
    /// A numpy array, float32 [texts, dimensions].
    Npy,
    /// A safetensors file with the tensor `embeddings`, F32 [texts, dimensions].
    Safetensors,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row<'a> {
    pub index: u64,
    /// Tokens that went through the model, special tokens included.
    pub tokens: usize,
    /// Whether the text was longer than the model's limit.
    pub truncated: bool,
    pub embedding: &'a [f32],
}

/// Where results go.
pub enum Target {
    /// Anything that is only appended to.
    Stream(Box<dyn Write>),
    /// A file whose beginning can be written again.
    File(File),
}

/// Writes rows in one of the forms. [`Writer::finish`] must be called; until then the output is incomplete.
pub struct Writer {
    kind: Kind,
    dimension: usize,
    rows: u64,
}

enum Kind {
    Json(BufWriter<Box<dyn Write>>),
    /// Binary rows after a placeholder of the header.
    InPlace(Form, BufWriter<File>),
    /// Binary rows in a temporary file, and where they go in the end.
    Spooled(Form, BufWriter<File>, Box<dyn Write>),
}

/// Bytes of the header, whatever the number of rows.
const NPY_HEADER: usize = 128;
const SAFETENSORS_HEADER: usize = 256;

impl Writer {
    /// `dimension` is the length of each embedding.
    ///
    /// # Errors
    /// Those of the target, and of making a temporary file.
    pub fn new(form: Form, target: Target, dimension: usize) -> io::Result<Self> {
        let kind = match (form, target) {
            (Form::Jsonl, Target::Stream(stream)) => Kind::Json(BufWriter::new(stream)),
            (Form::Jsonl, Target::File(file)) => Kind::Json(BufWriter::new(Box::new(file))),
            (_, Target::File(file)) => {
                let mut file = BufWriter::new(file);
                // Zeros, so that what an interrupted program leaves does not pass for a whole file.
                file.write_all(&vec![0; header(form, 0, dimension).len()])?;
                Kind::InPlace(form, file)
            }
            (_, Target::Stream(stream)) => Kind::Spooled(form, BufWriter::new(tempfile::tempfile()?), stream),
        };
        Ok(Writer { kind, dimension, rows: 0 })
    }

    /// Appends one result; rows come in the order of their index.
    ///
    /// # Errors
    /// Those of the target; `InvalidInput` for an embedding of another length.
    pub fn write(&mut self, row: &Row<'_>) -> io::Result<()> {
        if row.embedding.len() != self.dimension {
            let (found, expected) = (row.embedding.len(), self.dimension);
            let why = format!("result {}: {found} values where {expected} were announced", row.index);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.rows += 1;
        match &mut self.kind {
            Kind::Json(out) => {
                serde_json::to_writer(&mut *out, row)?;
                out.write_all(b"\n")
            }
            Kind::InPlace(_, out) | Kind::Spooled(_, out, _) => {
                row.embedding.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
            }
        }
    }

    /// Hands JSON lines on, so that a reader sees them before the end.
    ///
    /// # Errors
    /// Those of the target.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::Json(out) => out.flush(),
            Kind::InPlace(..) | Kind::Spooled(..) => Ok(()),
        }
    }

    /// Completes the output.
    ///
    /// # Errors
    /// Those of the target.
    pub fn finish(self) -> io::Result<()> {
        match self.kind {
            Kind::Json(mut out) => out.flush(),
            Kind::InPlace(form, mut out) => {
                out.seek(SeekFrom::Start(0))?;
                out.write_all(&header(form, self.rows, self.dimension))?;
                out.flush()
            }
            Kind::Spooled(form, spool, mut target) => {
                let mut spool = spool.into_inner().map_err(io::IntoInnerError::into_error)?;
                spool.seek(SeekFrom::Start(0))?;
                target.write_all(&header(form, self.rows, self.dimension))?;
                let mut buffer = vec![0u8; 1 << 17];
                loop {
                    let n = spool.read(&mut buffer)?;
                    if n == 0 {
                        return target.flush();
                    }
                    target.write_all(&buffer[..n])?;
                }
            }
        }
    }
}

fn header(form: Form, rows: u64, dimension: usize) -> Vec<u8> {
    match form {
        Form::Jsonl => Vec::new(),
        Form::Npy => {
            // Version 1.0: magic, version, u16 length, then a Python literal padded to a multiple of 64.
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend(((NPY_HEADER - 10) as u16).to_le_bytes());
            let shape = format!("({rows}, {dimension})");
            bytes.extend(format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}").bytes());
            bytes.resize(NPY_HEADER - 1, b' ');
            bytes.push(b'\n');
            bytes
        }
        Form::Safetensors => {
            let mut bytes = ((SAFETENSORS_HEADER - 8) as u64).to_le_bytes().to_vec();
            let end = rows * dimension as u64 * 4;
            let tensor =
                format!(r#"{{"dtype":"F32","shape":[{rows},{dimension}],"data_offsets":[0,{end}]}}"#);
            bytes.extend(format!(r#"{{"embeddings":{tensor}}}"#).bytes());
            bytes.resize(SAFETENSORS_HEADER, b' ');
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    const ROWS: [[f32; 3]; 2] = [[1.0, -2.5, 0.1], [3.0, 4.0, 1e-9]];

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn fill(mut writer: Writer) {
        for (i, embedding) in ROWS.iter().enumerate() {
            let row = Row { index: i as u64, tokens: 7, truncated: i == 1, embedding };
            writer.write(&row).unwrap();
        }
        writer.finish().unwrap();
    }

    fn to_stream(form: Form) -> Vec<u8> {
        let out = Shared::default();
        fill(Writer::new(form, Target::Stream(Box::new(out.clone())), 3).unwrap());
        out.0.take()
    }

    fn to_file(form: Form) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fill(Writer::new(form, Target::File(file.reopen().unwrap()), 3).unwrap());
        std::fs::read(file.path()).unwrap()
    }

    fn values(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    #[test]
    fn json_lines() {
        let text = String::from_utf8(to_stream(Form::Jsonl)).unwrap();
        let expected = "{\"index\":0,\"tokens\":7,\"truncated\":false,\"embedding\":[1.0,-2.5,0.1]}\n\
                        {\"index\":1,\"tokens\":7,\"truncated\":true,\"embedding\":[3.0,4.0,1e-9]}\n";
        assert_eq!(text, expected);
        assert_eq!(to_file(Form::Jsonl), expected.as_bytes());
    }

    #[test]
    fn npy() {
        let bytes = to_stream(Form::Npy);
        assert_eq!(bytes, to_file(Form::Npy));
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let header = std::str::from_utf8(&bytes[10..128]).unwrap();
        assert!(
            header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"),
            "{header}"
        );
        assert!(header.ends_with('\n') && header.trim_end().ends_with('}'));
        assert_eq!(values(&bytes[128..]), ROWS.concat());
    }

    #[test]
    fn safetensors() {
        let bytes = to_stream(Form::Safetensors);
        assert_eq!(bytes, to_file(Form::Safetensors));
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        assert_eq!(header["embeddings"]["shape"], serde_json::json!([2, 3]));
        assert_eq!(header["embeddings"]["data_offsets"], serde_json::json!([0, bytes.len() - 8 - length]));
        assert_eq!(values(&bytes[8 + length..]), ROWS.concat());
    }

    #[test]
    fn headers_have_room_for_any_count() {
        for form in [Form::Npy, Form::Safetensors] {
            let small = header(form, 0, 1);
            assert_eq!(small.len(), header(form, u64::from(u32::MAX) << 8, 65_536).len(), "{form:?}");
        }
    }

    #[test]
    fn a_row_of_another_length() {
        let mut writer = Writer::new(Form::Jsonl, Target::Stream(Box::new(io::sink())), 2).unwrap();
        let row = Row { index: 5, tokens: 1, truncated: false, embedding: &[1.0] };
        assert!(writer.write(&row).unwrap_err().to_string().starts_with("result 5: 1 values"));
    }
}
