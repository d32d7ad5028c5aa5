//! The sample: items of our own in the public formats, embedded so that everything runs on a fresh machine.

/// The content of a file of the sample.
pub(crate) fn file(path: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, bytes)| *bytes)
}

/// The names of the files directly in a folder of the sample.
pub(crate) fn names(folder: &str) -> Vec<String> {
    let inside = FILES.iter().filter_map(|(path, _)| path.strip_prefix(folder)?.strip_prefix('/'));
    inside.filter(|name| !name.contains('/')).map(str::to_owned).collect()
}

macro_rules! files {
    ($($path:literal)*) => { &[$(($path, include_bytes!(concat!("../samples/", $path)))),*] };
}

const FILES: &[(&str, &[u8])] = files! {
    "aqua/dev.jsonl"
    "aqua/test.jsonl"
    "gsm8k/test.jsonl"
    "gsm8k/train.jsonl"
    "humaneval/HumanEval.jsonl"
    "humaneval/humaneval-py.jsonl"
    "mmlu/dev/astronomy_dev.csv"
    "mmlu/dev/computer_security_dev.csv"
    "mmlu/dev/conceptual_physics_dev.csv"
    "mmlu/dev/elementary_mathematics_dev.csv"
    "mmlu/dev/high_school_biology_dev.csv"
    "mmlu/dev/high_school_geography_dev.csv"
    "mmlu/dev/moral_disputes_dev.csv"
    "mmlu/dev/world_religions_dev.csv"
    "mmlu/test/astronomy_test.csv"
    "mmlu/test/computer_security_test.csv"
    "mmlu/test/conceptual_physics_test.csv"
    "mmlu/test/elementary_mathematics_test.csv"
    "mmlu/test/high_school_biology_test.csv"
    "mmlu/test/high_school_geography_test.csv"
    "mmlu/test/moral_disputes_test.csv"
    "mmlu/test/world_religions_test.csv"
    "mmlu/val/astronomy_val.csv"
    "mmlu/val/computer_security_val.csv"
    "mmlu/val/conceptual_physics_val.csv"
    "mmlu/val/elementary_mathematics_val.csv"
    "mmlu/val/high_school_biology_val.csv"
    "mmlu/val/high_school_geography_val.csv"
    "mmlu/val/moral_disputes_val.csv"
    "mmlu/val/world_religions_val.csv"
    "multiarith/MultiArith.json"
    "svamp/SVAMP.json"
};
