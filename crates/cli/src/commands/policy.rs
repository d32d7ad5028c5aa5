//! `lemon policy`: what the orchestrator's own model writes, how likely it finds a text, and what it is.

use super::run::question;
use crate::args::policy::{ModelArgs, PolicyCommand, SampleArgs, ScoreArgs};
use crate::args::{Cli, Endpoints};
use crate::fault::Fault;
use crate::{print, print_json};
use lemon::jobs::scoring::{FieldScore, ScoredSpec, score_spec};
use lemon_model::{Policy, Sample, SampleSettings};
use lemon_policy::MOST_TOKENS;
use lemon_spec::{Language, validate};
use lemon_workers::{BUNDLED_ORCHESTRATOR, Config};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

pub fn policy(cli: &Cli, command: &PolicyCommand) -> Result<u8, Fault> {
    let config = cli.config(&Endpoints::default())?;
    match command {
        PolicyCommand::Sample(args) => sample(&config, args),
        PolicyCommand::Score(args) => score(&config, args),
        PolicyCommand::Info { model, json } => info(&config, model, *json),
    }
}

/// A specification that was written, as `--json` shows it.
#[derive(Serialize)]
struct Written<'s> {
    seed: u64,
    valid: bool,
    spec: &'s str,
    logprob: f32,
    tokens: &'s [u32],
    ends: &'s [usize],
    logprobs: &'s [f32],
    forced: &'s [bool],
    finish: lemon_model::Finish,
}

fn sample(config: &Config, args: &SampleArgs) -> Result<u8, Fault> {
    if !(args.temperature >= 0.0 && args.temperature.is_finite() && args.top_p > 0.0) {
        return Err(Fault::new("--temperature must be at least 0, and --top-p above 0"));
    }
    let (policy, encoder) = lemon_workers::policy(config, &args.model.source(), language(config)?)?;
    let task = question(&args.task)?;
    let seeds: Vec<u64> = (0..args.count as u64).map(|at| args.seed.wrapping_add(at)).collect();
    let requests = seeds.iter().map(|seed| encoder.request(&encoder.first(&task, *seed), !args.no_grammar));
    let requests = requests.collect::<Result<Vec<_>, _>>().map_err(Fault::new)?;
    let settings = SampleSettings { temperature: args.temperature, top_p: args.top_p, most_tokens: MOST_TOKENS };
    let samples = policy.sample(&requests, &settings).map_err(Fault::new)?;
    let is_valid = |sample: &Sample| validate(&sample.text, encoder.language()).is_ok();
    let written = seeds.iter().zip(&samples).map(|(seed, sample)| Written {
        seed: *seed,
        valid: is_valid(sample),
        spec: &sample.text,
        logprob: sample.logprobs.iter().sum(),
        tokens: &sample.tokens,
        ends: &sample.ends,
        logprobs: &sample.logprobs,
        forced: &sample.forced,
        finish: sample.finish,
    });
    let written: Vec<Written<'_>> = written.collect();
    let code = u8::from(written.iter().any(|it| !it.valid));
    if args.json {
        print_json(&json!({ "samples": written }))?;
        return Ok(code);
    }
    let mut text = String::new();
    for it in &written {
        let validity = if it.valid { "" } else { ", not valid" };
        let (count, forced) = (it.tokens.len(), it.forced.iter().filter(|forced| **forced).count());
        text.push_str(&format!(
            "# seed {}: {count} tokens, {forced} of them forced, log-probability {:.2}{validity}\n",
            it.seed, it.logprob
        ));
        text.push_str(&format!("{}\n", it.spec.trim_end()));
    }
    print(&text)?;
    Ok(code)
}

fn score(config: &Config, args: &ScoreArgs) -> Result<u8, Fault> {
    if !(args.temperature > 0.0 && args.temperature.is_finite()) {
        return Err(Fault::new("--temperature must be above 0"));
    }
    let (policy, encoder) = lemon_workers::policy(config, &args.model.source(), language(config)?)?;
    let (task, text) = (question(&args.task)?, super::read_input(&args.spec)?);
    let scored = score_spec((&policy, &encoder), &task, &text, args.temperature).map_err(Fault::of_spec)?;
    // As `sample` writes the same numbers.
    if args.json { print_json(&json!(scored)) } else { print(&table(&scored)) }
}

/// The log-probability by field.
fn table(scored: &ScoredSpec) -> String {
    let mut text = format!("{:<16} {:>15} {:>8}\n", "field", "log-probability", "choices");
    for FieldScore { field, logprob, choices } in scored.by_field() {
        text.push_str(&format!("{field:<16} {logprob:>15.3} {choices:>8}\n"));
    }
    text.push_str(&format!("{:<16} {:>15.3} {:>8}\n", "all", scored.logprob, scored.choices()));
    text
}

fn info(config: &Config, args: &ModelArgs, json: bool) -> Result<u8, Fault> {
    let (policy, _) = lemon_workers::policy(config, &args.source(), language(config)?)?;
    let shape = policy.config();
    let name = args.model.as_ref().map_or(format!("the small {BUNDLED_ORCHESTRATOR}"), |it| it.display().to_string());
    if json {
        return print_json(&json!({
            "model": name,
            "parameters": shape.parameters() as u64,
            "config": shape,
            "tokens": policy.tokenizer().vocabulary(),
            "device": policy.device(),
        }));
    }
    let mut text = format!("{name}\n");
    let mut row = |what: &str, value: String| {
        text.push_str(&format!("  {what:<12} {value}\n"));
    };
    row("family", format!("{:?}", shape.family).to_lowercase());
    row("parameters", shape.parameters().to_string());
    row("layers", shape.layers.to_string());
    row("width", format!("{}, {} inside a layer", shape.hidden, shape.intermediate));
    row("heads", format!("{} of {}, {} for keys", shape.heads, shape.head_dim, shape.kv_heads));
    row("vocabulary", format!("{} tokens", policy.tokenizer().vocabulary()));
    row("context", format!("{} tokens", shape.positions));
    row("runs on", policy.device().to_owned());
    print(&text)
}

fn language(config: &Config) -> Result<Arc<Language>, Fault> {
    Ok(Arc::new(config.language()?))
}
