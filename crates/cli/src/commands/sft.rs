//! `lemon sft`: teaches a model to write teams, from pairs of tasks and specifications.

use crate::args::policy::SftArgs;
use crate::args::{Cli, Endpoints};
use crate::fault::{Fault, read_file};
use crate::live::learning::LearningTalk;
use crate::{println, runtime, to_json};
use lemon_exec::Settings;
use lemon_model::{LanguagePolicy, Learning, LoraSettings, Precision};
use lemon_policy::pair::{self, Pair};
use lemon_policy::{LanguagePromptEncoder, small_model, write_context};
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_sft::probe;
use lemon_sft::sft::{Probe, SftError, SftMetrics, SftSettings, TokenizedPair, sft};
use lemon_spec::Language;
use lemon_task::{Item, SetName, compose};
use lemon_world::{Preset, World};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// One question in so many is kept to validate with.
const VALIDATION: u64 = 20;
/// The seed of the tasks that a probe tries: not that of any lesson.
const PROBE_SEED: u64 = 0x0070_726f_6265;

pub fn sft_command(cli: &Cli, args: &SftArgs) -> Result<u8, Fault> {
    let config = cli.config(&Endpoints::default())?;
    let settings = settings(args)?;
    super::training_folder::open(&args.out)?;
    let language = Arc::new(config.language()?);
    let pairs = pairs(&args.data, &language)?;
    let mut policy = model(args, &pairs, settings.seed)?;
    let encoder = lemon_workers::encoder(&policy, language.clone());
    let (validation, lessons): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| is_for_validation(pair));
    let (lessons, unusable) = encode(&encoder, &lessons)?;
    let (validation, also_unusable) = encode(&encoder, &validation)?;
    let talk = LearningTalk::new(args.quiet, settings.steps, "{pos}/{len}");
    let left_out = unusable + also_unusable;
    talk.say(&format!("{} lessons, {} to validate with, {left_out} left out", lessons.len(), validation.len()));
    talk.say(&format!("{} parameters on {}", policy.config().parameters(), policy.device()));

    let prober = Prober::new(args.probe, language)?;
    let probe = |policy: &LanguagePolicy| match &prober {
        None => Ok(None),
        Some(prober) => prober.probe(policy, &encoder).map(Some),
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
        return println(&to_json(&serde_json::json!({"learned": learned, "model": folder, "lessons": lessons.len()})));
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

fn pairs(path: &Path, language: &Language) -> Result<Vec<Pair>, Fault> {
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

/// Questions, not pairs, are kept apart: two pairs of one question would tell of each other.
fn is_for_validation(pair: &Pair) -> bool {
    lemon_num::fnv1a(pair.task.question.bytes()).is_multiple_of(VALIDATION)
}

/// The pairs as tokens, and how many of them this model cannot write.
fn encode(encoder: &LanguagePromptEncoder, pairs: &[&Pair]) -> Result<(Vec<TokenizedPair>, usize), Fault> {
    let mut lessons = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let context = write_context(pair, encoder.language());
        let earlier: Vec<String> = context.results.iter().map(|result| result.agent.to_owned()).collect();
        // A team that the grammar does not have is not one that the policy could write.
        let Ok(tokens) = encoder.grammar(&earlier).and_then(|grammar| grammar.encode(&pair.spec)) else { continue };
        lessons.push(TokenizedPair { prompt: encoder.prompt(&context).map_err(Fault::new)?, tokens });
    }
    let unusable = pairs.len() - lessons.len();
    Ok((lessons, unusable))
}

/// Tries what the model writes on tasks of our own in the simulated world.
struct Prober {
    env: RolloutEnv,
    cases: Vec<Case>,
    runtime: tokio::runtime::Runtime,
}

impl Prober {
    fn new(count: usize, language: Arc<Language>) -> Result<Option<Self>, Fault> {
        // Programs would have to be run to be graded: the other sets tell enough.
        let sets = [SetName::Gsm8k, SetName::Svamp, SetName::MultiArith, SetName::Aqua, SetName::Mmlu];
        let of_set = |(at, set): (usize, &SetName)| {
            let share = count / sets.len() + usize::from(at < count % sets.len());
            let items = compose(*set, share, PROBE_SEED);
            items.into_iter().map(|item| Case { set: set.as_str().into(), item }).collect::<Vec<_>>()
        };
        let cases: Vec<Case> = sets.iter().enumerate().flat_map(of_set).collect();
        if cases.is_empty() {
            return Ok(None);
        }
        let items: Vec<&Item> = cases.iter().map(|case| &case.item).collect();
        let backend = World::new(Preset::Calibrated, items).backend();
        let settings = Settings { reuse: false, ..Settings::default() };
        let env = RolloutEnv::new(backend, language, settings, Grader::new(None));
        Ok(Some(Prober { env, cases, runtime: runtime()? }))
    }

    fn probe(&self, policy: &LanguagePolicy, encoder: &LanguagePromptEncoder) -> Result<Probe, SftError> {
        let cancel = CancellationToken::new();
        let probed = probe(policy, encoder, &self.env, &self.cases, 1, &cancel);
        self.runtime.block_on(probed).map_err(|error| SftError::Probe(error.to_string()))
    }
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
