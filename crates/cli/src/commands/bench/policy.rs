//! `lemon bench policy`: how quick the orchestrator's own model is.

use crate::fault::Fault;
use crate::{print, print_json};
use lemon_model::DeviceChoice;
use lemon_model::bench::{BenchShape, SHAPES, Speed, measure, selfcheck};
use serde_json::json;

/// Relative errors above this are faults, whatever the precision.
const TOLERATED: f64 = 1e-2;

pub fn bench(
    shapes: &[String],
    device: DeviceChoice,
    steps: usize,
    fused_only: bool,
    check: bool,
    json: bool,
) -> Result<u8, Fault> {
    let errors = if check { selfcheck(device).map_err(Fault::new)? } else { Vec::new() };
    for (name, error) in &errors {
        eprintln!("{name}: relative error {error:.1e}");
    }
    if let Some((name, error)) = errors.iter().find(|(_, error)| error.is_nan() || *error >= TOLERATED) {
        return Err(Fault::new(format!("{name} is off by {error}")).hint("this is a defect: please report it"));
    }
    let mut speeds: Vec<Speed> = Vec::new();
    for shape in chosen(shapes, device)? {
        // Composed first, so that a slip of the clock does not flatter the fused ones.
        for fused in if fused_only || shape.adapters { vec![true] } else { vec![false, true] } {
            let kind = if fused { "fused" } else { "composed" };
            eprintln!("{} parameters, {kind} …", shape.name);
            let speed = measure(&shape, device, fused, steps).map_err(Fault::new)?;
            let [forwards, backwards, optimiser] = speed.parts_ms;
            eprintln!(
                "  {:.0} tokens/s; forwards {forwards:.1} ms, backwards {backwards:.1} ms, optimiser {optimiser:.1} ms",
                speed.training
            );
            speeds.push(speed);
        }
    }
    if json {
        return print_json(&json!({"speeds": speeds, "errors": errors}));
    }
    print(&table(&speeds))
}

fn chosen(names: &[String], device: DeviceChoice) -> Result<Vec<BenchShape>, Fault> {
    let default: &[&str] = if device == DeviceChoice::Cuda { &["42m", "285m"] } else { &["3m"] };
    let names: Vec<&str> = if names.is_empty() { default.to_vec() } else { names.iter().map(String::as_str).collect() };
    let find = |name: &str| {
        let known = SHAPES.iter().find(|shape| shape.name == name).copied();
        known.ok_or_else(|| {
            let all: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
            Fault::new(format!("unknown size `{name}`")).hint(format!("the sizes are {}", all.join(", ")))
        })
    };
    names.into_iter().map(find).collect()
}

fn table(speeds: &[Speed]) -> String {
    let mut text = format!(
        "{:<6} {:>13}  {:<6} {:<9} {:>9} {:>15} {:>14} {:>7}\n",
        "size", "parameters", "device", "ops", "ms/step", "trained tok/s", "written tok/s", "loss"
    );
    for speed in speeds {
        let writing = speed.writing.map_or("–".to_owned(), |it| format!("{it:.0}"));
        text.push_str(&format!(
            "{:<6} {:>13}  {:<6} {:<9} {:>9.1} {:>15.0} {:>14} {:>7.3}\n",
            speed.shape, speed.parameters, speed.device, speed.ops, speed.step_ms, speed.training, writing, speed.loss
        ));
    }
    for pair in speeds.windows(2).filter(|pair| pair[0].shape == pair[1].shape) {
        let ratio = pair[1].training / pair[0].training;
        text.push_str(&format!(
            "{}: fused operations train {ratio:.2} times as fast as composed ones\n",
            pair[0].shape
        ));
    }
    text
}
