//! `lemon pretrain`: trains small workers, and says what they are worth.

mod calibrate;

use crate::args::pretrain::{OptimiserName, PretrainArgs, PretrainCommand, PretrainScoreArgs};
use crate::fault::Fault;
use crate::live::learning::LearningTalk;
use crate::{print, print_json, println};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, OptimiserSettings, Precision};
use lemon_problems::Published;
use lemon_sft::pretrain::score::{markdown, questions, score};
use lemon_sft::pretrain::{
    HeldOutProblems, LessonStream, PeerReplies, PretrainError, PretrainMetrics, PretrainSettings, Pretrained, Size,
    Sources, pretrain, vocabulary,
};
use lemon_task::Source;
use lemon_workers::{Card, PromptForm};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// How such a model is asked as a worker: in the form of its lessons, and for its likeliest answer.
const HOW_TO_ASK: Card = Card { prompt: PromptForm::Short, temperature: Some(0.0), calibration: None };

pub fn pretrain_command(args: &PretrainArgs) -> Result<u8, Fault> {
    match &args.command {
        Some(PretrainCommand::Score(args)) => score_command(args),
        Some(PretrainCommand::Calibrate(args)) => calibrate::calibrate(args),
        None => train(args),
    }
}

fn train(args: &PretrainArgs) -> Result<u8, Fault> {
    let (Some(size), Some(out)) = (args.size.map(Size::from), &args.out) else {
        return Err(Fault::new("--size and --out are needed").hint("for instance --size small --out DIR"));
    };
    super::training_folder::open(out)?;
    let begun = Instant::now();
    let talk = LearningTalk::new(args.quiet, args.tokens, "{human_pos} of {human_len} tokens");
    let settings = settings(args, size);
    let (sources, published) = sources(args.data.as_deref())?;
    if let Some(published) = &published {
        let Published { templates, records, dropped, unusable } = published;
        let (templates, exact, near) = (templates.len(), dropped.exact, dropped.near);
        talk.say(&format!(
            "of {records} published problems {exact} are test questions, {near} nearly so, {unusable} of no use: {templates} kept"
        ));
    }
    let device = args.device.into();
    let mut policy = model(args, size, &sources, device)?;
    let parameters = policy.config().parameters();
    talk.say(&format!("{parameters} parameters on {}", policy.device()));
    let replies = replies(args, out, &sources, device)?;
    if let Some(replies) = &replies {
        let (solved, right) = replies.shares();
        let [solved, right] = [solved, right].map(|share| 100.0 * share);
        talk.say(&format!(
            "of the peers' replies {right:.1} % are right; at least one peer solves {solved:.1} % of the problems"
        ));
    }
    let course = LessonStream::new(settings.seed, &sources, replies.map(Arc::new), policy.tokenizer());
    let exam = HeldOutProblems::new(&sources, args.look_problems, policy.tokenizer());
    let done = pretrain(&mut policy, course, &exam, &settings, out, |metrics| {
        tell(&talk, begun, metrics);
        true
    });
    let done = done.map_err(|error| match &error {
        PretrainError::Keep(folder) => super::training_folder::fault(&error, folder),
        _ => Fault::new(&error),
    })?;
    conclude(&talk, &done);
    let best = LanguagePolicy::load(&out.join("best"), device, Learning::Nothing).map_err(Fault::new)?;
    let folder = out.join("model");
    best.save(&folder, Precision::Bf16).map_err(Fault::new)?;
    HOW_TO_ASK.write(&folder).map_err(Fault::new)?;
    if args.json {
        let published = published.map(|it| about(&it));
        let said = json!({"model": folder, "parameters": parameters as u64, "settings": settings, "published": published, "pretrained": done});
        return print_json(&said);
    }
    println(&folder.display().to_string())
}

fn settings(args: &PretrainArgs, size: Size) -> PretrainSettings {
    let optimiser = match args.optimiser {
        OptimiserName::Adamw => OptimiserSettings::default(),
        OptimiserName::Muon => OptimiserSettings { muon: Some(Default::default()), ..OptimiserSettings::default() },
    };
    PretrainSettings {
        seed: args.seed,
        tokens: args.tokens,
        batch: args.batch,
        learning_rate: args.learning_rate.unwrap_or(size.learning_rate()),
        optimiser,
        eval_every: args.look_every,
        patience: args.patience,
        peers: args.peers.clone(),
        ..PretrainSettings::default()
    }
}

/// What is published in a folder, without what is like a test question.
fn sources(data: Option<&Path>) -> Result<(Sources, Option<Published>), Fault> {
    let Some(data) = data else { return Ok((Sources::default(), None)) };
    let (sources, published) = Sources::read(data).map_err(Fault::new)?;
    Ok((sources, Some(published)))
}

/// What was kept of the published problems, as `--json` shows it.
fn about(published: &Published) -> Value {
    json!({
        "records": published.records,
        "exact": published.dropped.exact,
        "near": published.dropped.near,
        "unusable": published.unusable,
        "templates": published.templates.len(),
    })
}

/// The model to begin with.
fn model(args: &PretrainArgs, size: Size, sources: &Sources, device: DeviceChoice) -> Result<LanguagePolicy, Fault> {
    let Some(folder) = &args.from else {
        let tokenizer = vocabulary(sources).map_err(Fault::new)?;
        let config = size.config(&tokenizer);
        return LanguagePolicy::fresh(config, tokenizer, args.seed, device, Learning::Everything).map_err(Fault::new);
    };
    let policy = LanguagePolicy::load(folder, device, Learning::Everything).map_err(Fault::new)?;
    let expected = size.config(policy.tokenizer());
    if (policy.config().hidden, policy.config().layers) != (expected.hidden, expected.layers) {
        let fact = format!("{}: the model there has another size", folder.display());
        return Err(Fault::new(fact).hint("name its size with --size"));
    }
    Ok(policy)
}

/// What the peers answer, if there are any.
fn replies(
    args: &PretrainArgs,
    out: &Path,
    sources: &Sources,
    device: DeviceChoice,
) -> Result<Option<PeerReplies>, Fault> {
    if args.peers.is_empty() {
        return Ok(None);
    }
    let peer = |folder: &PathBuf| LanguagePolicy::load(folder, device, Learning::Nothing).map_err(PretrainError::from);
    let replies =
        PeerReplies::obtain(&out.join("replies.jsonl"), sources, args.peer_problems, args.peers.iter().map(peer));
    replies.map(Some).map_err(Fault::new)
}

fn score_command(args: &PretrainScoreArgs) -> Result<u8, Fault> {
    let source = args.data.clone().map_or(Source::Sample, Source::Folder);
    let mut workers = Vec::new();
    for folder in &args.models {
        let worker = LanguagePolicy::load(folder, args.device.into(), Learning::Nothing).map_err(Fault::new)?;
        workers.push((folder.display().to_string(), worker));
    }
    let mut scores = Vec::new();
    for set in &args.sets {
        let questions = questions(&source, *set, args.limit.unwrap_or(usize::MAX)).map_err(Fault::new)?;
        scores.push(score(&workers, set.as_str(), &questions).map_err(Fault::new)?);
    }
    if args.json { print_json(&scores) } else { print(&markdown(&scores)) }
}

/// Says how a step went.
fn tell(talk: &LearningTalk, begun: Instant, metrics: &PretrainMetrics) {
    talk.reach(metrics.tokens, metrics.loss);
    let Some(eval) = metrics.eval else { return };
    let published = eval.published.map_or(String::new(), |share| format!(", published {:.1} %", 100.0 * share));
    talk.say(&format!(
        "{:.0} s, step {}, {:.1} M tokens: loss {:.3}; new problems: loss {:.3}, right {:.1} % (own {:.1} %{published}), {:.1} tokens",
        begun.elapsed().as_secs_f64(),
        metrics.step,
        metrics.tokens as f64 / 1e6,
        metrics.loss,
        eval.loss,
        100.0 * eval.right,
        100.0 * eval.own,
        eval.tokens,
    ));
}

/// Says what came of it.
fn conclude(talk: &LearningTalk, done: &Pretrained) {
    talk.finish();
    let early = if done.stopped_early { ", stopped early" } else { "" };
    let right = 100.0 * done.best.right;
    talk.say(&format!("best at step {} of {}{early}: {right:.1} % right", done.best_step, done.step));
}
