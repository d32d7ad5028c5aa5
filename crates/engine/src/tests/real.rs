//! Published models of the folder `LEMON_REAL_MODELS` against llama.cpp, along its greedy text. Without the folder the test says
//! that it was skipped. `crates/model/tests/llama_cpp.py` writes the references.
//!
//! Both programs round the inputs of products to 8 bits. A difference in the last bit anywhere moves some inputs to the next
//! number, and after a few layers two correct programs differ by as much as the rounding itself. Therefore the bounds below are
//! no constants: the engine may be as far from llama.cpp as llama.cpp is from itself with other kernels, and must be at least as
//! near as llama.cpp to the same weights with nothing rounded.

use super::*;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Reference {
    greedy: Vec<Greedy>,
}

#[derive(Deserialize)]
struct Greedy {
    prompt: Vec<u32>,
    written: Vec<Written>,
}

#[derive(Deserialize)]
struct Written {
    id: u32,
    /// The likeliest tokens and their log-probabilities.
    top: Vec<(u32, f32)>,
    /// The log-probabilities of the same tokens with other kernels of llama.cpp.
    again: Option<Vec<(u32, f32)>>,
}

/// Where llama.cpp sees two tokens this close, in log-probability, either may be ahead.
const MARGIN: f32 = 0.5;
/// What the engine may be farther from llama.cpp than llama.cpp is from itself: both are means of few and uneven numbers.
const SPREAD: f64 = 1.5;

#[test]
fn probabilities_are_as_near_to_llama_cpps_as_rounding_allows() {
    let Some(folder) = std::env::var_os("LEMON_REAL_MODELS") else {
        println!("skipped: LEMON_REAL_MODELS is not set");
        return;
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "gguf"));
    paths.sort();
    for path in paths {
        match std::fs::read(path.with_extension("reference.json")) {
            Ok(text) => check_model(&path, &serde_json::from_slice(&text).unwrap()),
            Err(_) => println!("skipped: {} has no reference", path.display()),
        }
    }
}

fn check_model(path: &Path, reference: &Reference) {
    let files = ModelFiles::Disk(path);
    let config = ModelConfig::load(files).unwrap();
    let places: Vec<&Written> = reference.greedy.iter().flat_map(|it| &it.written).collect();
    assert!(places.len() >= 200, "{}: the reference is an older one: write it again", path.display());
    println!("{}: {} places", path.display(), places.len());
    let served = |form| log_probabilities(&config, &WeightOrigin::Files(files), reference, form);
    let stored = served(WeightForm::Stored);
    let theirs: Vec<&[(u32, f32)]> = places.iter().map(|it| it.top.as_slice()).collect();
    let ours = tops(&theirs, &stored);
    let from_theirs = compare_tops("engine from llama.cpp", &theirs, &ours);
    for (place, row) in places.iter().zip(&stored) {
        let margin = place.top[0].1 - place.top[1].1;
        assert!(best(row) == place.top[0].0 || margin < MARGIN, "another token is ahead, its margin was {margin}");
    }
    if let Some(again) = places.iter().map(|it| it.again.as_deref()).collect::<Option<Vec<_>>>() {
        let from_itself = compare_tops("llama.cpp from itself, with other kernels", &theirs, &again);
        assert!(from_theirs <= SPREAD * from_itself, "{from_theirs:.2e}, and {from_itself:.2e} of llama.cpp's");
    } else {
        println!("  the reference has no second run of llama.cpp");
    }
    if !has_memory(5 * config.parameters() as usize) {
        println!("  skipped: there is no memory for these weights in f32");
        return;
    }
    let exact = tops(&theirs, &served(WeightForm::F32));
    let exact: Vec<&[(u32, f32)]> = exact.iter().map(Vec::as_slice).collect();
    let engine = compare_tops("engine from f32", &exact, &ours);
    let llama = compare_tops("llama.cpp from f32", &exact, &theirs);
    let int8 = tops(&theirs, &served(WeightForm::Int8));
    compare_tops("int8 engine from f32", &exact, &int8);
    assert!(engine <= 1.1 * llama, "engine {engine:.2e}, llama.cpp {llama:.2e}");
    // Independent roundings add up.
    assert!(from_theirs <= SPREAD * (engine + llama), "{from_theirs:.2e}, not below {engine:.2e} and {llama:.2e}");
}

/// The log-probabilities of all tokens at each place that llama.cpp wrote to.
fn log_probabilities(
    config: &ModelConfig,
    origin: &WeightOrigin<'_>,
    reference: &Reference,
    form: WeightForm,
) -> Vec<Vec<f32>> {
    let network = Network::new(config.clone(), origin, form).unwrap();
    let mut batch = Batch::default();
    for Greedy { prompt, written } in &reference.greedy {
        let first = batch.blocks.len() as u32;
        let tokens = prompt.iter().copied().chain(written.iter().map(|it| it.id));
        for (position, token) in tokens.enumerate().take(prompt.len() + written.len() - 1) {
            if position % BLOCK == 0 {
                batch.blocks.push(batch.blocks.len() as u32);
            }
            if position + 1 >= prompt.len() {
                let params = SamplingParams { temperature: 0.0, top_p: 1.0, seed: 0, position: 0, mask: None };
                batch.samples.push((batch.rows.len() as u32, params));
            }
            batch.rows.push(Row { token, position: position as u32, blocks: first });
        }
    }
    let (rows, samples, blocks) = (batch.rows.len(), batch.samples.len(), batch.blocks.len());
    let mut logits = BatchRunner::new(network, rows, samples, blocks, 1).unwrap().logits_of(batch);
    for row in &mut logits {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = row.iter().map(|it| f64::from(it - most).exp()).sum();
        let total = most + total.ln() as f32;
        row.iter_mut().for_each(|it| *it -= total);
    }
    logits
}

fn best(row: &[f32]) -> u32 {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as u32
}

/// The log-probabilities of llama.cpp's likeliest tokens, the likeliest of these first.
fn tops(theirs: &[&[(u32, f32)]], rows: &[Vec<f32>]) -> Vec<Vec<(u32, f32)>> {
    let of = |(theirs, row): (&&[(u32, f32)], &Vec<f32>)| {
        let mut top: Vec<(u32, f32)> = theirs.iter().map(|(id, _)| (*id, row[*id as usize])).collect();
        top.sort_by(|a, b| b.1.total_cmp(&a.1));
        top
    };
    theirs.iter().zip(rows).map(of).collect()
}

/// Prints how alike two programs are, and returns the mean divergence of the second from the first.
fn compare_tops<A: AsRef<[(u32, f32)]>, B: AsRef<[(u32, f32)]>>(what: &str, a: &[A], b: &[B]) -> f64 {
    let pairs = || a.iter().map(AsRef::as_ref).zip(b.iter().map(AsRef::as_ref));
    let likeliest = |row: &[(u32, f32)]| row.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).map(|it| it.0);
    let same = pairs().filter(|(a, b)| likeliest(a) == likeliest(b)).count();
    let mut each: Vec<f64> = pairs().map(|(a, b)| divergence(a, b)).collect();
    each.sort_by(f64::total_cmp);
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    let (median, most) = (each[each.len() / 2], each[each.len() - 1]);
    println!("  {what}: {same} of {} alike, KL mean {mean:.2e}, median {median:.2e}, most {most:.2e}", a.len());
    mean
}

/// The Kullback-Leibler divergence over the tokens of both, with all other tokens as one. It is at most the divergence over
/// all tokens, and close to it where these have nearly all of the probability.
fn divergence(a: &[(u32, f32)], b: &[(u32, f32)]) -> f64 {
    let b: std::collections::HashMap<u32, f32> = b.iter().copied().collect();
    let (mut sum, mut rest) = (0.0, [1.0; 2]);
    for (id, p) in a {
        let Some(q) = b.get(id) else { continue };
        let (p, q) = (f64::from(*p), f64::from(*q));
        sum += p.exp() * (p - q);
        rest = [rest[0] - p.exp(), rest[1] - q.exp()];
    }
    let [p, q] = rest.map(|it| it.max(1e-9));
    sum + p * (p / q).ln()
}

/// Whether the system has so many bytes to give, as far as it says.
fn has_memory(bytes: usize) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_else(|_| String::new());
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.is_some_and(|kilobytes| kilobytes * 1024 > bytes)
}

#[test]
fn the_divergence_is_that_of_the_formula() {
    let rows = |values: [f32; 3]| (0u32..).zip(values.map(f32::ln)).collect::<Vec<_>>();
    let (a, b) = (rows([0.5, 0.3, 0.1]), rows([0.4, 0.3, 0.2]));
    assert_eq!(divergence(&a, &a), 0.0);
    let exact = 0.5 * (0.5f64 / 0.4).ln() + 0.1 * 0.5f64.ln();
    assert!((divergence(&a, &b) - exact).abs() < 1e-6, "{}, not {exact}", divergence(&a, &b));
    // Tokens that one of them does not name are part of the rest.
    let named = divergence(&a, &b[..2]);
    assert!((named - (0.5 * (0.5f64 / 0.4).ln() + 0.2 * (0.2f64 / 0.3).ln())).abs() < 1e-6, "{named}");
}
