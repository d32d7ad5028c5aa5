//! Weights on disk: `model.safetensors`, whole or in shards, as on the Hugging Face hub.

use crate::PolicyError;
use crate::files::{ModelFiles, Parts};
use candle_core::{DType, Device, Tensor};
use safetensors::tensor::{Dtype, Metadata, TensorView};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A header longer than this is not one.
const MOST_HEADER_BYTES: u64 = 100 << 20;
const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a folder, not read yet.
pub(crate) struct WeightFiles {
    files: Vec<WeightFile>,
    /// In which file each tensor is.
    places: HashMap<String, usize>,
    /// What they are called in errors.
    path: PathBuf,
}

struct WeightFile {
    parts: Parts,
    metadata: Metadata,
    /// Where the tensors begin.
    start: u64,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl WeightFiles {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names.
    pub(crate) fn open(folder: ModelFiles<'_>) -> Result<Self, PolicyError> {
        let mut names = vec![WHOLE.to_owned()];
        if let Some(text) = folder.read(INDEX)? {
            let index = folder.path(INDEX);
            let read: Index = serde_json::from_slice(&text)
                .map_err(|error| malformed(&index, format!("it is not an index of weights: {error}")))?;
            names = read.weight_map.into_values().collect();
            names.sort();
            names.dedup();
            // A shard is a file of this folder; a name that leads elsewhere is not one.
            if let Some(name) = names.iter().find(|name| name.contains(['/', '\\']) || name.starts_with('.')) {
                return Err(malformed(&index, format!("`{name}` is not the name of a shard")));
            }
        }
        let mut opened = WeightFiles { files: Vec::new(), places: HashMap::new(), path: folder.path(WHOLE) };
        for name in names {
            let file = WeightFile::open(folder.open(&name)?)?;
            for name in file.metadata.offset_keys() {
                opened.places.insert(name, opened.files.len());
            }
            opened.files.push(file);
        }
        Ok(opened)
    }

    /// Whether a tensor is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Reads one tensor, which has to have this shape.
    pub(crate) fn read(
        &self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor, PolicyError> {
        let Some(file) = self.places.get(name).and_then(|file| self.files.get(*file)) else {
            return Err(malformed(&self.path, format!("there is no tensor `{name}`")));
        };
        file.read(name, shape, dtype, device)
    }
}

impl WeightFile {
    fn open(parts: Parts) -> Result<Self, PolicyError> {
        let size = parts.size;
        let start = if size < 8 { Vec::new() } else { parts.read(0, 8)? };
        let Some(length) = start.first_chunk::<8>() else {
            let fact = format!("it has {size} bytes and is cut short before its header");
            return Err(malformed(&parts.path, fact));
        };
        let length = u64::from_le_bytes(*length);
        if length > MOST_HEADER_BYTES || length + 8 > size {
            let fact = format!(
                "its header should have {length} bytes, the whole file has {size}: it is cut short or no safetensors file"
            );
            return Err(malformed(&parts.path, fact));
        }
        let header = parts.read(8, length as usize)?; // At most MOST_HEADER_BYTES.
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| malformed(&parts.path, format!("its header cannot be read: {error}")))?;
        let needed = metadata.data_len() as u64 + 8 + length;
        if needed != size {
            let fact = format!("its header speaks of {needed} bytes, the file has {size}: it is cut short or damaged");
            return Err(malformed(&parts.path, fact));
        }
        Ok(WeightFile { parts, metadata, start: 8 + length })
    }

    fn read(&self, name: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor, PolicyError> {
        let path = &self.parts.path;
        let info = self.metadata.info(name).ok_or_else(|| malformed(path, format!("there is no tensor `{name}`")))?;
        if info.shape != shape {
            let fact = format!("the tensor `{name}` has the shape {:?}, the config says {shape:?}", info.shape);
            return Err(malformed(path, fact));
        }
        let stored = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => return Err(malformed(path, format!("the tensor `{name}` is of the type {other:?}"))),
        };
        let (start, end) = info.data_offsets;
        let bytes = self.parts.read(self.start + start as u64, end.saturating_sub(start))?;
        Ok(Tensor::from_raw_buffer(&bytes, stored, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)?)
    }
}

/// Writes tensors into one file, whole or not at all.
pub(crate) fn write(path: &Path, tensors: &[(String, Tensor)], dtype: DType) -> Result<(), PolicyError> {
    let (stored, size) = match dtype {
        DType::BF16 => (Dtype::BF16, 2),
        DType::F16 => (Dtype::F16, 2),
        _ => (Dtype::F32, 4),
    };
    let mut bytes = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let flat = tensor.to_device(&Device::Cpu)?.to_dtype(dtype)?.flatten_all()?;
        let mut raw = Vec::with_capacity(flat.elem_count() * size);
        match dtype {
            DType::BF16 => flat.to_vec1::<half::bf16>()?.iter().for_each(|it| raw.extend(it.to_le_bytes())),
            DType::F16 => flat.to_vec1::<half::f16>()?.iter().for_each(|it| raw.extend(it.to_le_bytes())),
            _ => flat.to_dtype(DType::F32)?.to_vec1::<f32>()?.iter().for_each(|it| raw.extend(it.to_le_bytes())),
        }
        bytes.push((name, tensor.dims().to_vec(), raw));
    }
    let views = bytes.iter().map(|(name, shape, raw)| {
        let view = TensorView::new(stored, shape.clone(), raw);
        view.map(|view| (*name, view)).map_err(|error| malformed(path, error.to_string()))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let text = safetensors::serialize(views, Some(about)).map_err(|error| malformed(path, error.to_string()))?;
    replace(path, &text)
}

/// Puts a file in place, whole or not at all: a reader sees the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), PolicyError> {
    let at = |source| PolicyError::File { path: path.to_owned(), source };
    let none = || malformed(path, "it is not the path of a file".to_owned());
    let mut name = path.file_name().ok_or_else(none)?.to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let mut file = File::create(&part).map_err(at)?;
    std::io::Write::write_all(&mut file, bytes).map_err(at)?;
    file.sync_all().map_err(at)?;
    std::fs::rename(&part, path).map_err(at)
}

pub(crate) fn malformed(path: &Path, fact: String) -> PolicyError {
    PolicyError::Malformed { path: path.to_owned(), fact }
}
