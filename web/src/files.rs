//! A model's folder as JavaScript gives it.

use std::{collections::BTreeMap, fmt};

use inferencelayer::engine::{
    Error, Result,
    checkpoint::{Folder, ReadAt, Reading},
};
use js_sys::{ArrayBuffer, Function, Object, Promise, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use web_sys::Blob;

use crate::error::{JsResult, invalid, message};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** Bytes that are somewhere else. What `read` returns is copied before the next call. */
export interface FileSource {
    size: number;
    read(offset: number, length: number): Uint8Array | Promise<Uint8Array>;
}
/** A model's files by their path in its folder, as in a Hugging Face or sentence-transformers checkpoint. Blobs and
 * sources are read piece by piece and never copied into wasm memory whole. */
export type ModelFiles = Record<string, FileSource | Blob | ArrayBuffer | Uint8Array>;
"#;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(typescript_type = "ModelFiles")]
    pub type ModelFiles;

    #[derive(Clone)]
    type FileSource;
    #[wasm_bindgen(method, getter)]
    fn size(this: &FileSource) -> f64;
    #[wasm_bindgen(method, catch)]
    fn read(this: &FileSource, offset: f64, length: f64) -> Result<JsValue, JsValue>;
}

/// Tells a page how many bytes of how many were read.
pub fn report(progress: Option<&Function>, done: u64, all: u64) {
    if let Some(progress) = progress {
        // What a listener throws is not the model's fault.
        let _ = progress.call2(&JsValue::NULL, &(done as f64).into(), &(all as f64).into());
    }
}

/// Files by path.
#[derive(Default)]
pub struct JsFolder(BTreeMap<String, Content>);

#[derive(Clone)]
enum Content {
    Source(FileSource),
    Blob(Blob),
    Bytes(Uint8Array),
}

impl JsFolder {
    /// Reads a `ModelFiles` object.
    ///
    /// # Errors
    /// Names the file that is neither a Blob nor bytes.
    pub fn new(files: &JsValue) -> JsResult<Self> {
        if !files.is_object() {
            return Err(invalid(
                "files: expected an object of sources, Blobs, ArrayBuffers or Uint8Arrays by path",
            ));
        }
        let mut folder = JsFolder::default();
        for key in Object::keys(files.unchecked_ref::<Object>()).iter() {
            let path = key.as_string().unwrap_or_default();
            let value = Reflect::get(files, &key).unwrap_or(JsValue::UNDEFINED);
            let content = if value.has_type::<Blob>() {
                Content::Blob(value.unchecked_into())
            } else if value.has_type::<Uint8Array>() {
                Content::Bytes(value.unchecked_into())
            } else if value.has_type::<ArrayBuffer>() {
                Content::Bytes(Uint8Array::new(&value))
            } else if Reflect::get(&value, &"read".into()).is_ok_and(|read| read.is_function()) {
                Content::Source(value.unchecked_into())
            } else {
                return Err(invalid(format!(
                    "files: `{path}` is no source, Blob, ArrayBuffer or Uint8Array"
                )));
            };
            folder.0.insert(path, content);
        }
        Ok(folder)
    }
}

impl fmt::Debug for JsFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Folder for JsFolder {
    fn name(&self) -> &str {
        "files"
    }

    fn open<'a>(&'a self, path: &'a str) -> Reading<'a, Option<Box<dyn ReadAt>>> {
        let file = self.0.get(path).map(|content| {
            Box::new(JsFile { name: format!("files/{path}"), content: content.clone() }) as Box<dyn ReadAt>
        });
        Box::pin(std::future::ready(Ok(file)))
    }
}

struct JsFile {
    name: String,
    content: Content,
}

impl JsFile {
    fn fail(&self, why: impl fmt::Display) -> Error {
        Error::Read { file: self.name.clone(), why: why.to_string() }
    }
}

impl ReadAt for JsFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        match &self.content {
            Content::Source(source) => source.size() as u64,
            Content::Blob(blob) => blob.size() as u64,
            Content::Bytes(bytes) => u64::from(bytes.length()),
        }
    }

    fn read_at<'a>(&'a self, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
        Box::pin(async move {
            let (end, size) = (offset.saturating_add(out.len() as u64), self.size());
            if end > size {
                return Err(self.fail(format!("bytes {offset} to {end} of a file of {size}")));
            }
            let failed = |e: JsValue| self.fail(message(&e));
            let bytes = match &self.content {
                Content::Source(source) => {
                    let mut bytes = source.read(offset as f64, out.len() as f64).map_err(failed)?;
                    if let Some(promise) = bytes.dyn_ref::<Promise>() {
                        bytes = JsFuture::from(promise.clone()).await.map_err(failed)?;
                    }
                    bytes.dyn_into::<Uint8Array>().map_err(|_| self.fail("its source gave no bytes"))?
                }
                // Below the size, which is a u32.
                Content::Bytes(bytes) => bytes.subarray(offset as u32, end as u32),
                Content::Blob(blob) => {
                    let piece = blob.slice_with_f64_and_f64(offset as f64, end as f64).map_err(failed)?;
                    Uint8Array::new(&JsFuture::from(piece.array_buffer()).await.map_err(failed)?)
                }
            };
            // A Blob whose file changed meanwhile can give less.
            if bytes.length() as usize != out.len() {
                return Err(self.fail(format!("{} bytes were read of {}", bytes.length(), out.len())));
            }
            bytes.copy_to(out);
            Ok(())
        })
    }
}
