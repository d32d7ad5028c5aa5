//! `lemon policy`: what the orchestrator's own model writes, how likely it finds a text, and what it is.

use crate::args::policy::{ModelArgs, PolicyCommand, SampleArgs, ScoreArgs};
use crate::args::{Cli, Endpoints};
use crate::fault::Fault;
use crate::{print, println, to_json};
use lemon_model::{Policy, Sample, SampleSettings, Sequence, owners};
use lemon_policy::MOST_TOKENS;
use lemon_spec::{Field, Language, Plan, diagnostic, render, validate};
use lemon_workers::{BUNDLED_ORCHESTRATOR, Config};
use serde::Serialize;
use serde_json::json;
use std::ops::Range;
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
        println(&to_json(&json!({ "samples": written })))?;
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

/// A token of a specification, as `--json` shows it.
#[derive(Serialize)]
struct Token {
    text: String,
    logprob: f32,
    forced: bool,
    /// The field that holds most of it: `a1.capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

fn score(config: &Config, args: &ScoreArgs) -> Result<u8, Fault> {
    if !(args.temperature > 0.0 && args.temperature.is_finite()) {
        return Err(Fault::new("--temperature must be above 0"));
    }
    let (policy, encoder) = lemon_workers::policy(config, &args.model.source(), language(config)?)?;
    let task = question(&args.task)?;
    let text = super::read_input(&args.spec)?;
    let plan = validate(&text, encoder.language()).map_err(|rejection| {
        let color = console::colors_enabled_stderr();
        eprintln!("{}", diagnostic::explain(&rejection.diagnostics, &text, "the specification", color).trim_end());
        Fault::new("the specification is not valid")
    })?;
    let canonical = lemon_policy::pair::canonical_ids(plan.spec());
    let rendered = render(&canonical);
    let plan =
        validate(&rendered.text, encoder.language()).map_err(|_| Fault::new("the specification is not valid"))?;
    let grammar = encoder.grammar(&[]).map_err(Fault::new)?;
    let tokens = grammar.encode(&rendered.text).map_err(|error| {
        Fault::new(format!("the orchestrator cannot write this team: {error}"))
            .hint("it writes at most six agents, and duties in plain words")
    })?;
    let prompt = encoder.prompt(&encoder.first(&task, 0)).map_err(Fault::new)?;
    let forced: Vec<bool> = grammar.choices(&tokens).map_err(Fault::new)?.iter().map(Option::is_none).collect();
    let sequence = Sequence { prompt, tokens: tokens.clone(), grammar: Some(grammar) };
    let logprobs = policy.score(&[sequence], args.temperature).map_err(Fault::new)?.concat();
    let mut ends = Vec::with_capacity(tokens.len());
    for token in &tokens {
        ends.push(ends.last().copied().unwrap_or(0) + encoder.tokenizer().bytes(*token).len());
    }
    let fields = fields(&plan);
    let spans: Vec<Range<usize>> = fields.iter().map(|(_, span)| span.clone()).collect();
    let named = owners(&ends, &spans);
    let token = |at: usize| Token {
        text: encoder.tokenizer().decode(&tokens[at..=at]),
        logprob: logprobs[at],
        forced: forced[at],
        field: named[at].and_then(|field| fields.get(field)).map(|(name, _)| name.clone()),
    };
    let scored: Vec<Token> = (0..tokens.len()).map(token).collect();
    let total: f32 = logprobs.iter().sum();
    if args.json {
        return println(&to_json(&json!({ "spec": rendered.text, "logprob": total, "tokens": scored })));
    }
    print(&table(&fields, &scored, total))
}

/// The log-probability by field, least likely first: what the model would have written otherwise.
fn table(fields: &[(String, Range<usize>)], scored: &[Token], total: f32) -> String {
    let row = |(name, _): &'_ (String, Range<usize>)| {
        let mine = || scored.iter().filter(|token| token.field.as_ref() == Some(name));
        (name.clone(), mine().map(|it| it.logprob).sum(), mine().filter(|it| !it.forced).count())
    };
    let mut rows: Vec<(String, f32, usize)> = fields.iter().map(row).collect();
    rows.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut text = format!("{:<16} {:>15} {:>8}\n", "field", "log-probability", "choices");
    for (name, logprob, choices) in rows.into_iter().filter(|(_, _, choices)| *choices > 0) {
        text.push_str(&format!("{name:<16} {logprob:>15.3} {choices:>8}\n"));
    }
    let choices = scored.iter().filter(|it| !it.forced).count();
    text.push_str(&format!("{:<16} {total:>15.3} {choices:>8}\n", "all"));
    text
}

/// The fields of a specification by name, with their places.
fn fields(plan: &Plan) -> Vec<(String, Range<usize>)> {
    let mut fields = Vec::new();
    let mut push = |name: String, field: Field| {
        fields.extend(plan.spans().get(field).map(|span| (name, span.start..span.end)));
    };
    for (at, agent) in plan.spec().agents.iter().enumerate() {
        let of_agent = [
            ("id", Field::Id(at)),
            ("base", Field::Base(at)),
            ("role", Field::Role(at)),
            ("duty", Field::Duty(at)),
            ("capacity", Field::Capacity(at)),
            ("after", Field::After(at)),
            ("share", Field::Share(at)),
        ];
        for (name, field) in of_agent {
            push(format!("{}.{name}", agent.id), field);
        }
    }
    push("answer.from".to_owned(), Field::AnswerFrom);
    push("answer.by".to_owned(), Field::AnswerBy);
    push("next".to_owned(), Field::Next);
    fields
}

fn info(config: &Config, args: &ModelArgs, json: bool) -> Result<u8, Fault> {
    let (policy, _) = lemon_workers::policy(config, &args.source(), language(config)?)?;
    let shape = policy.config();
    let name = args.model.as_ref().map_or(format!("the small {BUNDLED_ORCHESTRATOR}"), |it| it.display().to_string());
    if json {
        return println(&to_json(&json!({
            "model": name,
            "parameters": shape.parameters() as u64,
            "config": shape,
            "tokens": policy.tokenizer().vocabulary(),
            "device": policy.device(),
        })));
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

fn question(task: &str) -> Result<String, Fault> {
    let text = if task == "-" { super::read_input("-".as_ref())? } else { task.to_owned() };
    if text.trim().is_empty() {
        return Err(Fault::new("the task is empty"));
    }
    Ok(text.trim().to_owned())
}
