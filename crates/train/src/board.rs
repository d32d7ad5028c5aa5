//! The curves of a run for TensorBoard: an event file, which is a list of framed protocol buffers.

use super::metrics::{Means, StepMetrics};
use crc32c::crc32c;
use prost::Message;
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
    pub fn write(folder: &Path, metrics: &[StepMetrics]) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        let bytes = file(metrics);
        let before = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
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

fn file(metrics: &[StepMetrics]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_record(&mut bytes, &Event { file_version: Some("brain.Event:2".to_owned()), ..Event::at(0) });
    for metrics in metrics {
        let value = |(tag, value)| Value { tag, simple_value: Some(value) };
        let summary = Summary { value: scalars(metrics).into_iter().map(value).collect() };
        put_record(&mut bytes, &Event { summary: Some(summary), ..Event::at(metrics.step) });
    }
    bytes
}

/// What is shown of a step, by tag. What is not a finite number is left out.
fn scalars(metrics: &StepMetrics) -> Vec<(String, f32)> {
    let mut all = Vec::new();
    let mut put = |group: &str, name: &str, value: f64| all.push((format!("{group}/{name}"), value as f32));
    // Before the first step there is an evaluation, and nothing else.
    if metrics.rollouts.runs > 0 {
        put_means(&mut put, "rollouts", &metrics.rollouts);
        put("rollouts", "unmeasured", metrics.unmeasured as f64);
        put("policy", "entropy", metrics.entropy);
        put("policy", "kl_old", metrics.kl_old);
        put("policy", "kl_reference", metrics.kl_reference);
        put("policy", "clipped", metrics.clipped);
        for (name, value) in [("gap", metrics.gap), ("outside", metrics.outside)] {
            value.into_iter().for_each(|value| put("policy", name, value));
        }
        put("policy", "gradient_norm", metrics.gradient_norm);
        put("policy", "loss", metrics.loss);
        put("policy", "learning_rate", metrics.learning_rate);
        put("credit", "lambda", metrics.lambda);
        put("tokens", "worker", metrics.worker_tokens as f64);
        put("tokens", "reused", metrics.reused);
        let spent = metrics.rollout_tokens as f64 + metrics.credit_tokens as f64;
        put("tokens", "credit_share", metrics.credit_tokens as f64 / spent);
    }
    if let Some(held_out) = &metrics.held_out {
        put_means(&mut put, "held_out", held_out);
    }
    for (family, report) in &metrics.families {
        let group = format!("credit/{family}");
        put(&group, "free", report.free as f64);
        put(&group, "purchased", report.purchased as f64);
        let measured = [
            ("worth", report.worth),
            ("absolute", report.absolute),
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

/// `Event` of tensorflow/core/util/event.proto, with the fields that are written here. An optional field
/// is written even if it is zero.
#[derive(Clone, PartialEq, prost::Message)]
struct Event {
    #[prost(double, optional, tag = "1")]
    wall_time: Option<f64>,
    #[prost(uint64, optional, tag = "2")]
    step: Option<u64>,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

impl Event {
    fn at(step: u64) -> Event {
        // The wall time is the step as seconds: a clock would make two runs of one recipe differ.
        Event { wall_time: Some(step as f64), step: Some(step), file_version: None, summary: None }
    }
}

/// `Summary` of tensorflow/core/framework/summary.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `Summary.Value`.
#[derive(Clone, PartialEq, prost::Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// A record of a `TFRecord` file: the length and the data, each with its checksum.
fn put_record(file: &mut Vec<u8>, event: &Event) {
    let data = event.encode_to_vec();
    let length = (data.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked(crc32c(&length)).to_le_bytes());
    file.extend_from_slice(&data);
    file.extend(masked(crc32c(&data)).to_le_bytes());
}

/// As the format wants it: the checksum of something that holds its own checksum would be a constant.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests;
