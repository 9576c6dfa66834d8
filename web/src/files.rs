//! A model's folder as JavaScript gives it.

use std::{collections::BTreeMap, fmt};

use inferencelayer::engine::{
    Error, Result,
    checkpoint::{Folder, ReadAt, Reading},
};
use js_sys::{ArrayBuffer, Object, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsError, JsValue, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use web_sys::Blob;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** A model's files by their path in its folder, as in a Hugging Face or sentence-transformers checkpoint. Blobs (and
 * so files of the origin private file system) are read piece by piece and never copied into wasm memory whole. */
export type ModelFiles = Record<string, Blob | ArrayBuffer | Uint8Array>;
"#;

/// Files by path.
#[derive(Default)]
pub struct JsFolder(BTreeMap<String, Content>);

#[derive(Clone)]
enum Content {
    Blob(Blob),
    Bytes(Uint8Array),
}

impl JsFolder {
    /// Reads a `ModelFiles` object.
    ///
    /// # Errors
    /// Names the file that is neither a Blob nor bytes.
    pub fn new(files: &JsValue) -> Result<Self, JsError> {
        if !files.is_object() {
            return Err(JsError::new(
                "files: expected an object of Blobs, ArrayBuffers or Uint8Arrays by path",
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
            } else {
                return Err(JsError::new(&format!("files: `{path}` is no Blob, ArrayBuffer or Uint8Array")));
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
            let bytes = match &self.content {
                // Below the size, which is a u32.
                Content::Bytes(bytes) => bytes.subarray(offset as u32, end as u32),
                Content::Blob(blob) => {
                    let failed = |e: JsValue| self.fail(format!("{e:?}"));
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
