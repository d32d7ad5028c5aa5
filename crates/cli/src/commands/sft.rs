//! `lemon sft`: teaches a model to write teams, from pairs of tasks and specifications.

use crate::args::policy::SftArgs;
use crate::args::{Cli, Endpoints};
use crate::fault::{Fault, read_file};
use crate::live::learning::LearningTalk;
use crate::{print_json, println, runtime};
use lemon_model::{LanguagePolicy, Learning, LoraSettings, Precision};
use lemon_policy::pair::{self, Pair};
use lemon_policy::small_model;
use lemon_sft::sft::{SftError, SftMetrics, SftSettings, sft};
use lemon_sft::{Prober, is_for_validation, tokenize};
use lemon_spec::Language;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

pub fn sft_command(cli: &Cli, args: &SftArgs) -> Result<u8, Fault> {
    let config = cli.config(&Endpoints::default())?;
    let settings = settings(args)?;
    super::training_folder::open(&args.out)?;
    let language = Arc::new(config.language()?);
    let pairs = pairs(&args.data, &language)?;
    let mut policy = model(args, &pairs, settings.seed)?;
    let encoder = lemon_workers::encoder(&policy, language.clone());
    let (validation, lessons): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| is_for_validation(pair));
    let lessons = tokenize(&encoder, lessons).map_err(Fault::new)?;
    let validation = tokenize(&encoder, validation).map_err(Fault::new)?;
    let talk = LearningTalk::new(args.quiet, settings.steps, "{pos}/{len}");
    let left_out = pairs.len() - lessons.len() - validation.len();
    talk.say(&format!("{} lessons, {} to validate with, {left_out} left out", lessons.len(), validation.len()));
    talk.say(&format!("{} parameters on {}", policy.config().parameters(), policy.device()));

    let (prober, runtime) = (Prober::new(args.probe, language), runtime()?);
    let probe = |policy: &LanguagePolicy| match &prober {
        None => Ok(None),
        Some(prober) => {
            let probed = runtime.block_on(prober.probe(policy, &encoder));
            probed.map(Some).map_err(|error| SftError::Probe(error.to_string()))
        }
    };
    let learned = sft(&mut policy, &lessons, &validation, &settings, &args.out, probe, |metrics| {
        tell(&talk, metrics);
        true
    });
    let learned = learned.map_err(|error| match &error {
        SftError::Keep(folder) => super::training_folder::fault(&error, folder),
        _ => Fault::new(&error),
    })?;
    talk.finish();
    let best =
        LanguagePolicy::load(&args.out.join("best"), args.device.into(), Learning::Nothing).map_err(Fault::new)?;
    let folder = args.out.join("model");
    best.save(&folder, Precision::from(args.precision)).map_err(Fault::new)?;
    if args.json {
        return print_json(&serde_json::json!({"learned": learned, "model": folder, "lessons": lessons.len()}));
    }
    let best_eval = learned.best;
    let early = if learned.stopped_early { ", stopped early" } else { "" };
    talk.say(&format!(
        "best at step {} of {}{early}: validation loss {:.4}",
        learned.best_step, learned.steps, best_eval.loss
    ));
    println(&folder.display().to_string())
}

fn settings(args: &SftArgs) -> Result<SftSettings, Fault> {
    let mut settings = match &args.settings {
        None => SftSettings::default(),
        Some(path) => toml::from_str(&read_file(path)?)
            .map_err(|error| Fault::new(format!("{}: {}", path.display(), error.to_string().trim_end())))?,
    };
    settings.steps = args.steps.unwrap_or(settings.steps);
    settings.batch = args.batch.unwrap_or(settings.batch);
    settings.micro_batch = args.micro_batch.unwrap_or(settings.micro_batch);
    settings.learning_rate = args.learning_rate.unwrap_or(settings.learning_rate);
    settings.eval_every = args.look_every.unwrap_or(settings.eval_every);
    settings.patience = args.patience.unwrap_or(settings.patience);
    settings.seed = args.seed.unwrap_or(settings.seed);
    Ok(settings)
}

/// Reads pairs of tasks and specifications.
pub fn pairs(path: &Path, language: &Language) -> Result<Vec<Pair>, Fault> {
    let hint = "`lemon teach --out FILE` writes such a file, one pair to a line";
    let at = |error: &dyn std::fmt::Display| Fault::new(format!("{}: {error}", path.display())).hint(hint);
    lemon_workers::need_plain_file(path)?;
    let file = File::open(path).map_err(|error| at(&error))?;
    pair::read(BufReader::new(file), language).map_err(|error| at(&error))
}

/// The model to begin with.
fn model(args: &SftArgs, pairs: &[Pair], seed: u64) -> Result<LanguagePolicy, Fault> {
    let learning = match args.lora {
        None => Learning::Everything,
        Some(rank) => Learning::Adapters(LoraSettings { rank: rank.max(1), alpha: 2.0 * rank.max(1) as f64 }),
    };
    if args.model != "new" {
        let folder = Path::new(&args.model);
        return LanguagePolicy::load(folder, args.device.into(), learning).map_err(Fault::new);
    }
    let specs = pairs.iter().map(|pair| pair.spec.clone()).collect();
    let (config, tokenizer) = small_model(specs, args.vocabulary, args.hidden, args.layers).map_err(Fault::new)?;
    LanguagePolicy::fresh(config, tokenizer, seed, args.device.into(), learning).map_err(Fault::new)
}

/// Says how a step went.
fn tell(talk: &LearningTalk, metrics: &SftMetrics) {
    talk.reach(metrics.step, metrics.loss);
    if let Some(eval) = metrics.eval {
        let tried = eval.probe.map_or(String::new(), |it| {
            let (valid, success) = (100.0 * it.valid, 100.0 * it.success);
            format!(
                ", {valid:.0} % valid without the grammar, reward {:.3}, {success:.0} % right, {:.0} tokens",
                it.reward, it.tokens
            )
        });
        talk.say(&format!("step {}: loss {:.4}, validation {:.4}{tried}", metrics.step, metrics.loss, eval.loss));
    }
}
