//! Training by a recipe as a whole: from the recipe's name to the files that a training leaves in its folder.

use crate::board::Board;
use crate::build::{AnyPolicy, BuildError, BuiltPolicy, Tasks, build_policy};
use crate::metrics::{StepMetrics, Timing};
use crate::page::page;
use crate::recipe::Recipe;
use crate::{TrainContext, TrainError, Trained, train};
use lemon_model::{DeviceChoice, Packed, PolicyError, Precision};
use lemon_policy::KeepError;
use lemon_policy::checkpoint::{METRICS, TIMING};
use lemon_rollout::RolloutEnv;
use lemon_sft::sft::SftMetrics;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The recipes that come with this crate: name and text.
pub const RECIPES: [(&str, &str); 3] = [
    ("quick", include_str!("../../../recipes/quick.toml")),
    ("language", include_str!("../../../recipes/language.toml")),
    ("full", include_str!("../../../recipes/full.toml")),
];

/// A recipe that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// There is none of that name, and no file.
    #[error("there is no recipe `{0}`")]
    Unknown(String),
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The text is no recipe.
    #[error("recipe {name}: {fact}")]
    Text {
        /// The recipe.
        name: String,
        /// Why, and where.
        fact: String,
    },
}

impl Recipe {
    /// A recipe by its name in [`RECIPES`], or from a TOML file.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn find(name: &str) -> Result<Self, RecipeError> {
        let path = Path::new(name);
        let text = match RECIPES.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => (*text).to_owned(),
            None if !path.exists() => return Err(RecipeError::Unknown(name.to_owned())),
            None => read_plain(path).map_err(|error| RecipeError::File { path: path.to_owned(), error })?,
        };
        let unreadable = |error: toml::de::Error| error.to_string().trim_end().to_owned();
        toml::from_str(&text).map_err(|error| RecipeError::Text { name: name.to_owned(), fact: unreadable(error) })
    }
}

/// Reads a file, but waits for no pipe.
fn read_plain(path: &Path) -> io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    std::fs::read_to_string(path)
}

/// What training by a recipe needs.
pub struct RecipeTraining<'a> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// Its tasks.
    pub tasks: Tasks,
    /// What runs the teams. Rounds and reward weights are taken from the recipe.
    pub env: RolloutEnv,
    /// Whether the teams of a warm start run in `env` too. A simulated world does not know the tasks of their lessons.
    pub taught_in_env: bool,
    /// The model that a recipe without a start begins with.
    pub bundled: Packed,
    /// Where the model computes.
    pub device: DeviceChoice,
    /// Where everything is kept. Training that was interrupted resumes there.
    pub folder: &'a Path,
}

/// How far training is.
pub enum TrainProgress<'a> {
    /// A step of the warm start.
    WarmStart(&'a SftMetrics),
    /// A step of reinforcement learning.
    Step(&'a StepMetrics, &'a Timing),
}

/// What can go wrong. What is in the folder stays valid.
#[derive(Debug, thiserror::Error)]
pub enum RecipeTrainingError {
    /// The policy cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// It was cancelled before the warm start was done.
    #[error("stopped during the warm start")]
    InWarmStart,
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The trained model cannot be written.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The metrics cannot be read back, or the report cannot be written.
    #[error("{}: {fact}", path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// Why.
        fact: String,
    },
}

impl RecipeTrainingError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Train(TrainError::Keep(error)) if error.hint().is_some() => error.hint(),
            Self::Train(TrainError::WorkersGone { .. }) => {
                Some("nothing is lost: when they are back, the same command with --resume goes on")
            }
            Self::Train(TrainError::Tasks { .. }) => {
                Some("name sets under [tasks] in the recipe, and how many to train on and to hold out")
            }
            Self::Train(TrainError::Keep(KeepError::OtherRun { .. })) => {
                Some("it goes on only with the recipe, the seed and the tasks it was begun with")
            }
            Self::Train(TrainError::Policy(error) | TrainError::Keep(KeepError::Policy(error)))
                if error.hint().is_some() =>
            {
                error.hint()
            }
            Self::Train(_) => Some("the last checkpoint stands; the same command with --resume goes on from it"),
            Self::InWarmStart => Some("--resume goes on"),
            Self::Build(error) => error.hint(),
            Self::Policy(_) | Self::Report { .. } => None,
        }
    }
}

impl RecipeTraining<'_> {
    /// Makes the policy, trains it, and writes `report.html`, the board, `recipe.toml`, `summary.json` and, of a language model,
    /// `model`: of one on a server, where it is there. `watch` sees every step and returns whether to go on.
    ///
    /// # Errors
    /// The policy cannot be made, the workers cannot be reached, or the folder cannot be used.
    pub async fn train(self, mut watch: impl FnMut(TrainProgress<'_>) -> bool) -> Result<Trained, RecipeTrainingError> {
        let RecipeTraining { recipe, tasks, mut env, taught_in_env, bundled, device, folder } = self;
        env.settings.max_rounds = recipe.rollouts.rounds.max(1);
        env.weights = recipe.reward.weights();
        let (language, cancel, warm) = (env.language.clone(), env.cancel.clone(), folder.join("warm"));
        let place = (taught_in_env.then_some(&env), warm.as_path());
        let BuiltPolicy { mut policy, encoder } = build_policy(recipe, bundled, device, &language, place, |metrics| {
            watch(TrainProgress::WarmStart(metrics)) && !cancel.is_cancelled()
        })
        .await?;
        if cancel.is_cancelled() {
            return Err(RecipeTrainingError::InWarmStart);
        }
        let mut reference = match recipe.update.kl > 0.0 {
            true => Some(build_policy(recipe, bundled, device, &language, place, |_| true).await?.policy),
            false => None,
        };
        let context = TrainContext {
            env: Arc::new(env),
            encoder: encoder.as_ref(),
            cases: Arc::new(tasks.train),
            held_out: Arc::new(tasks.held_out),
            reference: reference.as_mut().map(|policy| &*policy.trainable()),
        };
        let trained = train(&context, policy.trainable(), recipe, folder, |metrics, timing| {
            watch(TrainProgress::Step(metrics, timing))
        })
        .await?;
        leave(folder, recipe, &trained)?;
        match &policy {
            AnyPolicy::Language(policy) => policy.save(&folder.join("model"), Precision::Bf16)?,
            AnyPolicy::Tinker(policy) => policy.leave(&folder.join("model"))?,
            AnyPolicy::Fields(_) => {}
        }
        Ok(trained)
    }
}

/// Writes the report of a training into its folder.
fn leave(folder: &Path, recipe: &Recipe, trained: &Trained) -> Result<(), RecipeTrainingError> {
    let metrics: Vec<StepMetrics> = lines(&folder.join(METRICS))?;
    let timings = timings(folder)?;
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| failed(&path, &error))
    };
    let text = toml::to_string_pretty(recipe).map_err(|error| failed(&folder.join("recipe.toml"), &error))?;
    put("recipe.toml", &text)?;
    put("report.html", &page("Training", &text, &metrics, &timings, &trained.teams))?;
    Board::write(folder, &metrics).map_err(|error| failed(folder, &error))?;
    let summary = serde_json::to_string_pretty(trained);
    put("summary.json", &summary.map_err(|error| failed(&folder.join("summary.json"), &error))?)
}

/// The times of all steps of a training, by its folder.
///
/// # Errors
/// They are there and cannot be read.
pub fn timings(folder: &Path) -> Result<Vec<Timing>, RecipeTrainingError> {
    lines(&folder.join(TIMING))
}

/// The rows of a file of JSON lines; none where there is no file.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RecipeTrainingError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(path, &error)),
    };
    let row = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| failed(path, &format!("line {}: {error}", number + 1)))
    };
    text.lines().enumerate().map(row).collect()
}

fn failed(path: &Path, fact: &dyn std::fmt::Display) -> RecipeTrainingError {
    RecipeTrainingError::Report { path: path.to_owned(), fact: fact.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipes_that_come_along_can_be_read_and_say_what_to_expect() {
        let ours = ["words-start", "words", "large"]
            .map(|name| format!("{}/../../recipes/{name}.toml", env!("CARGO_MANIFEST_DIR")));
        for name in RECIPES.map(|(name, _)| name).into_iter().chain(ours.iter().map(String::as_str)) {
            let recipe = Recipe::find(name).unwrap();
            assert!(recipe.about.contains("Seen") && recipe.steps > 0, "{name}");
            // What is written is read back the same.
            let text = toml::to_string_pretty(&recipe).unwrap();
            assert_eq!(toml::from_str::<Recipe>(&text).unwrap(), recipe);
        }
    }

    #[test]
    fn a_recipe_that_is_none_is_refused() {
        let error = |name: &str| Recipe::find(name).unwrap_err().to_string();
        assert_eq!(error("quack"), "there is no recipe `quack`");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        std::fs::write(&path, "steps = \"many\"").unwrap();
        let found = error(&path.display().to_string());
        assert!(found.contains("own.toml: ") && found.contains("steps"), "{found}");
    }
}
