//! Prints problems, and counts: `cargo run -p lemon-problems --example show -- --seed 1 --count 20`.
//!
//! `--data FOLDER` adds published problems; `--only stories` (or `situations`, `facts`, `drills`, `published`) shows one source.

use lemon_problems::{
    Generator, Leaks, Lessons, Mix, Noise, ProblemPart, SourceWeights, clusters, read_published, test_questions,
};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let option =
        |name: &str| arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
    let number = |name: &str, default: u64| option(name).and_then(|value| value.parse().ok()).unwrap_or(default);
    let (seed, count) = (number("--seed", 1), number("--count", 20));
    let mut generator = Generator::new(seed, ProblemPart::Train);
    if let Some(folder) = option("--data") {
        generator = with_data(generator, Path::new(folder))?;
    }
    if let Some(source) = option("--only") {
        generator = generator.with_weights(only(source));
    }
    for _ in 0..count {
        let problem = generator.problem();
        println!("[{}]\n{}\n{}\n", problem.situation, problem.question, problem.solution());
    }
    let mut skeletons = HashSet::new();
    for _ in 0..20_000 {
        skeletons.insert(skeleton(&generator.problem().question));
    }
    println!("{} distinct question skeletons among 20000 problems", skeletons.len());
    println!("dropped on the way: {:?}", generator.dropped());
    let start = Instant::now();
    let bytes: usize = Lessons::on(generator, seed, Mix::default(), Noise::default())
        .take(20_000)
        .map(|lesson| lesson.prompt.len() + lesson.reply.len())
        .sum();
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.0} documents/s, {:.0} bytes each", 20_000.0 / seconds, bytes as f64 / 20_000.0);
    Ok(())
}

fn with_data(generator: Generator, folder: &Path) -> Result<Generator, Box<dyn std::error::Error>> {
    let tests = test_questions(folder)?;
    let groups = |questions: &[String]| clusters(questions).into_iter().max().map_or(0, |last| last + 1);
    println!("{} test questions in {} groups", tests.len(), groups(&tests));
    let (multiarith, others) = tests.split_at(tests.len().min(600));
    let svamp = &others[..others.len().min(1000)];
    println!("of these, MultiArith {} and SVAMP {}", groups(multiarith), groups(svamp));
    let leaks = Arc::new(Leaks::of(&tests));
    let published = read_published(folder, &leaks)?;
    let names: HashSet<&str> = published.templates.iter().map(|template| template.name()).collect();
    println!("{} records, {:?}, {} unusable", published.records, published.dropped, published.unusable);
    println!("{} templates in {} groups", published.templates.len(), names.len());
    Ok(generator.with_published(&published.templates).without(leaks))
}

fn only(source: &str) -> SourceWeights {
    let weight = |name: &str| u32::from(name == source);
    SourceWeights {
        situations: weight("situations"),
        stories: weight("stories"),
        facts: weight("facts"),
        drills: weight("drills"),
        published: weight("published"),
    }
}

/// A text without numbers and without what has a capital inside a sentence.
fn skeleton(text: &str) -> String {
    let words = text.split_whitespace().map(|word| match word.chars().next() {
        Some(c) if c.is_ascii_digit() || c == '$' => "0".to_owned(),
        Some(c) if c.is_uppercase() => "A".to_owned(),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}
