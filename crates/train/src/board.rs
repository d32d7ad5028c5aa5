//! The curves of a run for TensorBoard: an event file, which is a list of framed protocol buffers.

use super::metrics::{Means, Metrics};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// An event file. TensorBoard takes files by the `tfevents` in their names; the number is when the file was begun.
const FILE: &str = "events.out.tfevents.0000000000.lemon";

/// Writes what TensorBoard reads.
pub struct Board;

impl Board {
    /// Writes the curves of these steps into `folder`. The same steps give the same bytes. A file that holds the first of
    /// them already is continued in place, since TensorBoard keeps a file open and waits for more; any other is replaced as a
    /// whole.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(folder: &Path, metrics: &[Metrics]) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        let bytes = file(metrics);
        let before = fs::read(&path).unwrap_or_default();
        match bytes.strip_prefix(before.as_slice()) {
            // Also after a write that was cut short: it left a prefix.
            Some(rest) if !before.is_empty() => OpenOptions::new().append(true).open(&path)?.write_all(rest),
            _ => {
                let part = folder.join("board.part");
                fs::write(&part, &bytes)?;
                fs::rename(&part, &path)
            }
        }
    }
}

fn file(metrics: &[Metrics]) -> Vec<u8> {
    let mut version = event(0);
    put_bytes(&mut version, 3, b"brain.Event:2");
    let mut bytes = Vec::new();
    put_record(&mut bytes, &version);
    for metrics in metrics {
        let mut summary = Vec::new();
        for (tag, value) in scalars(metrics) {
            put_bytes(&mut summary, 1, &scalar(&tag, value));
        }
        let mut event = event(metrics.step);
        put_bytes(&mut event, 5, &summary);
        put_record(&mut bytes, &event);
    }
    bytes
}

/// What is shown of a step, by tag. What is not a finite number is left out.
fn scalars(metrics: &Metrics) -> Vec<(String, f32)> {
    let mut all = Vec::new();
    let mut put = |group: &str, name: &str, value: f64| all.push((format!("{group}/{name}"), value as f32));
    // Before the first step there is a look, and nothing else.
    if metrics.rollouts.runs > 0 {
        put_means(&mut put, "rollouts", &metrics.rollouts);
        put("rollouts", "unmeasured", metrics.unmeasured as f64);
        put("policy", "entropy", metrics.entropy);
        put("policy", "kl_old", metrics.kl_old);
        put("policy", "kl_reference", metrics.kl_reference);
        put("policy", "clipped", metrics.clipped);
        put("policy", "gradient_norm", metrics.gradient_norm);
        put("policy", "loss", metrics.loss);
        put("policy", "learning_rate", metrics.learning_rate);
        put("credit", "lambda", metrics.lambda);
        put("tokens", "worker", metrics.worker_tokens as f64);
        put("tokens", "reused", metrics.reused);
        let spent = metrics.rollout_tokens as f64 + metrics.credit_tokens as f64;
        put("tokens", "credit_share", metrics.credit_tokens as f64 / spent);
    }
    if let Some(look) = &metrics.look {
        put_means(&mut put, "held_out", look);
    }
    for (family, report) in &metrics.families {
        let group = format!("credit/{family}");
        put(&group, "free", report.free as f64);
        put(&group, "bought", report.bought as f64);
        let measured = [
            ("worth", report.worth),
            ("contrast", report.contrast),
            ("variance", report.variance),
            ("zeros", report.zeros),
        ];
        measured.into_iter().for_each(|(name, value)| put(&group, name, value.unwrap_or(f64::NAN)));
    }
    all.retain(|(_, value)| value.is_finite());
    all
}

fn put_means(put: &mut impl FnMut(&str, &str, f64), group: &str, means: &Means) {
    put(group, "reward", means.reward);
    put(group, "success", means.success);
    put(group, "tokens", means.tokens);
    put(group, "cost", means.cost);
    put(group, "valid", means.valid);
    put(group, "agents", means.agents);
    put(group, "rounds", means.rounds);
    put(group, "review", means.review);
}

// Four fields of three messages (`Event`, `Summary`, `Summary.Value` in tensorflow/core) are too few for a code generator.

/// An `Event` as far as all have the same fields.
fn event(step: u64) -> Vec<u8> {
    let mut event = Vec::new();
    // 1, wall_time: the step as seconds. A clock would make two runs of one recipe differ.
    event.push(1 << 3 | 1);
    event.extend((step as f64).to_le_bytes());
    // 2, step.
    event.push(2 << 3);
    put_varint(&mut event, step);
    event
}

/// A `Summary.Value`: 1, tag, and 2, simple_value.
fn scalar(tag: &str, value: f32) -> Vec<u8> {
    let mut scalar = Vec::new();
    put_bytes(&mut scalar, 1, tag.as_bytes());
    scalar.push(2 << 3 | 5);
    scalar.extend(value.to_le_bytes());
    scalar
}

fn put_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    put_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

/// A record of a `TFRecord` file: the length and the data, each with its checksum.
fn put_record(file: &mut Vec<u8>, data: &[u8]) {
    let length = (data.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked(crc32c(&length)).to_le_bytes());
    file.extend_from_slice(data);
    file.extend(masked(crc32c(data)).to_le_bytes());
}

/// As the format wants it: the checksum of something that holds its own checksum would be a constant.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The checksum of Castagnoli, as in RFC 3720.
fn crc32c(bytes: &[u8]) -> u32 {
    // The index is a byte.
    !bytes.iter().fold(!0, |crc, byte| CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests;
