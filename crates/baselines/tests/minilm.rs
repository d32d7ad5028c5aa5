//! The vectors of the encoder against those of an independent forward pass (`minilm_reference.py`).

use lemon_baselines::MiniLm;
use serde_json::Value;
use std::path::Path;

const BOUND: f64 = 1e-4;

#[test]
fn vectors_are_those_of_the_reference() {
    let Ok(folder) = std::env::var("LEMON_ENCODER") else {
        eprintln!("skipped: LEMON_ENCODER names no folder of all-MiniLM-L6-v2");
        return;
    };
    let model = MiniLm::load(Path::new(&folder)).unwrap();
    let rows: Vec<Value> = serde_json::from_str(include_str!("minilm.json")).unwrap();
    assert_eq!(rows.len(), 100);
    let numbers = |row: &Value, key: &str| -> Vec<f64> {
        row[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let mut most = 0.0_f64;
    for row in &rows {
        let text = row["text"].as_str().unwrap();
        let vector = model.encode(text).unwrap();
        let some = vector.iter().step_by(16).map(|x| f64::from(*x));
        let sums = (0..8).map(|k| vector.iter().skip(k).step_by(8).map(|x| f64::from(*x)).sum::<f64>());
        let expected = [numbers(row, "some"), numbers(row, "sums")].concat();
        for (found, expected) in some.chain(sums).zip(expected) {
            most = most.max((found - expected).abs());
            assert!((found - expected).abs() < BOUND, "{text:?}: {found} is not {expected}");
        }
        assert!((vector.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    eprintln!("the largest difference is {most:.1e}");
}
