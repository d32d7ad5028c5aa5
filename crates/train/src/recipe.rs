//! A recipe: everything that training does, as a documented TOML file that says what to expect.

mod credit;
mod prices;

pub use credit::{CreditForm, CreditSettings, CriticReads, Place, RewardBaseline, Suffix};
use lemon_model::OptimiserSettings;
pub use lemon_policy::fields::{FieldStart, FirstTeams};
use lemon_spec::Shape;
use lemon_task::SetName;
use lemon_tinker::TinkerStart;
use lemon_world::Preset;
pub use prices::Prices;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Everything that training does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// What it is for and what to expect of it, in a sentence.
    pub about: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// Steps at most.
    pub steps: u64,
    /// Worker tokens to spend at most, on rollouts and counterfactuals together; it ends with the step that reaches them.
    pub worker_tokens: Option<u64>,
    /// The tasks.
    pub tasks: TaskSettings,
    /// What counts beside a right answer.
    #[serde(skip_serializing_if = "Prices::are_default")]
    pub reward: Prices,
    /// The policy to start from.
    pub start: Start,
    /// Adapters of this rank are trained instead of the whole model; a warm start trains the whole model before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<usize>,
    /// How teams are drawn and run.
    pub rollouts: RolloutSettings,
    /// How rewards become advantages of tokens.
    pub credit: CreditSettings,
    /// How weights are moved.
    pub update: UpdateSettings,
    /// How often to evaluate on held-out tasks.
    #[serde(rename(serialize = "look"), alias = "look")]
    pub eval: EvalSettings,
    /// Steps between two checkpoints; a killed run repeats at most so many, and ends the same.
    pub checkpoint_every: u64,
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe {
            about: String::new(),
            seed: 0,
            steps: 100,
            worker_tokens: None,
            tasks: TaskSettings::default(),
            reward: Prices::default(),
            start: Start::default(),
            lora: None,
            rollouts: RolloutSettings::default(),
            credit: CreditSettings::default(),
            update: UpdateSettings::default(),
            eval: EvalSettings::default(),
            checkpoint_every: 1,
        }
    }
}

impl Recipe {
    /// The learning rate of a step, from 1, after so many worker tokens: it rises in a line and then falls in one, by steps or
    /// by tokens, whichever will end the training first.
    pub fn rate(&self, step: u64, worker_tokens: u64) -> f64 {
        let UpdateSettings { learning_rate, warm_up, final_rate, .. } = self.update;
        if step <= warm_up {
            return learning_rate * step as f64 / warm_up.max(1) as f64;
        }
        let by_steps = (step - warm_up) as f64 / self.steps.saturating_sub(warm_up).max(1) as f64;
        let by_tokens = self.worker_tokens.map_or(0.0, |most| worker_tokens as f64 / most.max(1) as f64);
        learning_rate * (1.0 - (1.0 - final_rate) * by_steps.max(by_tokens).min(1.0))
    }
}

/// Which tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskSettings {
    /// The sets.
    pub sets: Vec<SetName>,
    /// Tasks of each set to train on.
    pub train: usize,
    /// Held-out tasks of each set.
    pub held_out: usize,
    /// Besides, word problems to train on, of situations that the bundled workers were not trained on …
    #[serde(skip_serializing_if = "is_zero")]
    pub problems: usize,
    /// … and held-out problems of yet other situations.
    #[serde(skip_serializing_if = "is_zero")]
    pub held_out_problems: usize,
    /// Of these, only problems of so many steps. Problems of one step need no team, and no worker solves those of many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem_steps: Option<usize>,
    /// The simulated world, where the workers are one.
    pub world: Preset,
    /// In a simulated world: whether a worker keeps its noise seed when its prompt changes. Endpoints cannot do that.
    #[serde(rename(serialize = "keep_luck"), alias = "keep_luck")]
    pub keep_noise: bool,
}

impl Default for TaskSettings {
    fn default() -> Self {
        let sets = vec![SetName::Gsm8k, SetName::Svamp, SetName::MultiArith, SetName::Aqua, SetName::Mmlu];
        TaskSettings {
            sets,
            train: 400,
            held_out: 60,
            problems: 0,
            held_out_problems: 0,
            problem_steps: None,
            world: Preset::Calibrated,
            keep_noise: false,
        }
    }
}

/// The policy that training starts from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum Start {
    /// The model in this folder; without one, the bundled orchestrator.
    Model {
        /// The folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<PathBuf>,
    },
    /// A new language model, fine-tuned on teams of every kind first.
    Warm(WarmStart),
    /// A table of choices, one for each field: for studies.
    Fields(FieldStart),
    /// A model on a server of the Tinker API, with adapters of the rank `lora`.
    Tinker(TinkerStart),
}

impl Default for Start {
    fn default() -> Self {
        Start::Model { folder: None }
    }
}

/// A new language model and its supervised fine-tuning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmStart {
    /// Its width.
    pub hidden: usize,
    /// Its layers.
    pub layers: usize,
    /// Its vocabulary.
    pub vocabulary: usize,
    /// Tasks of each set that it is fine-tuned on. They are not those it is trained on later.
    pub tasks: usize,
    /// The share of its example teams, of up to six agents, in which some plan, and others solve with a plan or without.
    #[serde(skip_serializing_if = "is_nothing")]
    pub advised: f64,
    /// The share in which all solve the task, some of them in other words, and vote; in a second round more of them vote.
    #[serde(skip_serializing_if = "is_nothing")]
    pub voting: f64,
    /// A team, as a specification, that replaces all these. Two of its agents start. Then the run ends, the more often the surer
    /// they are together, or some of the others follow. Training finds when to ask how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Steps; 0: no fine-tuning.
    pub steps: u64,
    /// Examples in a step.
    pub batch: usize,
    /// The highest learning rate.
    pub learning_rate: f64,
}

impl Default for WarmStart {
    fn default() -> Self {
        WarmStart {
            hidden: 128,
            layers: 3,
            vocabulary: 1_024,
            tasks: 400,
            advised: 0.0,
            voting: 0.0,
            team: None,
            steps: 300,
            batch: 32,
            learning_rate: 3e-3,
        }
    }
}

/// A key with its default is not written: runs that began before the key existed can then be resumed.
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn is_default_agents(agents: &usize) -> bool {
    *agents == Shape::default().agents
}

/// Six decisions for each of four agents, and two for the answer.
const DECISIONS: usize = 26;

fn is_default_decisions(decisions: &usize) -> bool {
    *decisions == DECISIONS
}

fn is_one(count: &usize) -> bool {
    *count == 1
}

fn is_no(flag: &bool) -> bool {
    !flag
}

fn is_nothing(share: &f64) -> bool {
    *share == 0.0
}

/// How teams are drawn and run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutSettings {
    /// Tasks in a step.
    pub tasks: usize,
    /// Teams for each task.
    pub group: usize,
    /// Tree groups: a group has `group / branches` trunks, each with so many branches that share the trunk's text up to a decision
    /// and are drawn anew from there. The decision is drawn for each trunk. 1: all teams of a group are drawn apart.
    #[serde(skip_serializing_if = "is_one")]
    pub branches: usize,
    /// The decisions of a text among which the fork of a tree is drawn: about as many as a text has.
    #[serde(skip_serializing_if = "is_default_decisions")]
    pub decisions: usize,
    /// The temperature they are drawn at.
    pub temperature: f32,
    /// Agents of a round at most.
    #[serde(skip_serializing_if = "is_default_agents")]
    pub agents: usize,
    /// Whether agents are solvers that read no other agent and have the role and duty of their base: the calls that recordings hold. For
    /// language models; tables have `start.readers`.
    #[serde(skip_serializing_if = "is_no")]
    pub plain_agents: bool,
    /// Rounds of a run at most; with 1 no team can ask for a review.
    pub rounds: u32,
    /// Whether the teams of one task share the noise seed of their workers (common random numbers). Two teams that send the same
    /// request then share the reply.
    #[serde(rename(serialize = "shared_draws"), alias = "shared_draws")]
    pub shared_noise: bool,
    /// Whether teams choose the capacity of each agent; else all agents have the strongest.
    pub capacity: bool,
    /// Runs at a time.
    pub width: usize,
}

impl Default for RolloutSettings {
    fn default() -> Self {
        RolloutSettings {
            tasks: 16,
            group: 4,
            branches: 1,
            decisions: DECISIONS,
            temperature: 1.0,
            agents: Shape::default().agents,
            plain_agents: false,
            rounds: 2,
            shared_noise: true,
            capacity: true,
            width: 64,
        }
    }
}

/// How weights are moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateSettings {
    /// The learning rate.
    pub learning_rate: f64,
    /// Steps until it is reached.
    pub warm_up: u64,
    /// What of it is left at the last step.
    pub final_rate: f64,
    /// Passes over the rollouts of a step.
    pub epochs: u32,
    /// How far a ratio may fall below 1 …
    pub clip_low: f32,
    /// … and rise above it.
    pub clip_high: f32,
    /// On a GPU, where the sampler rounds otherwise than the trainer: each token is weighed by the quotient of its two probabilities,
    /// by no more than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncate: Option<f32>,
    /// The weight of the divergence from the policy it began with; 0: it is not measured.
    pub kl: f32,
    /// The norm above which a gradient is scaled down; 0: never.
    pub clip_norm: f64,
    /// Examples in one pass through the model; 0: all.
    pub micro_batch: usize,
    /// How the sum over tokens is divided.
    pub per: Per,
    /// The optimiser.
    pub optimiser: OptimiserSettings,
}

impl Default for UpdateSettings {
    fn default() -> Self {
        UpdateSettings {
            learning_rate: 1e-4,
            warm_up: 5,
            final_rate: 0.2,
            epochs: 1,
            clip_low: 0.2,
            clip_high: 0.2,
            truncate: None,
            kl: 0.0,
            clip_norm: 1.0,
            micro_batch: 0,
            per: Per::Token,
            optimiser: OptimiserSettings::default(),
        }
    }
}

/// How the sum over tokens is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// By all tokens of the step: each counts the same.
    #[default]
    Token,
    /// By the tokens of a text, and then by the texts: each text counts the same.
    Text,
    /// By the texts alone: a long text counts more, and no token is worth less for its length.
    Rollout,
}

/// Held-out evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalSettings {
    /// Steps between two evaluations; 0: only at the beginning and the end. A checkpoint follows each.
    pub every: u64,
    /// Runs of each held-out task at an evaluation, each with a seed of its own. These seeds are never trained on.
    pub seeds: u64,
    /// The same at the first evaluation.
    pub first_seeds: u64,
    /// The same at the last one.
    pub final_seeds: u64,
    /// The temperature that teams are drawn at: 0 takes the likeliest.
    pub temperature: f32,
}

impl Default for EvalSettings {
    fn default() -> Self {
        EvalSettings { every: 20, seeds: 1, first_seeds: 2, final_seeds: 2, temperature: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn old_keys_are_read_and_written() {
        let old = json!({
            "tasks": {"keep_luck": true}, // alias: an old key
            "rollouts": {"shared_draws": false},
            "credit": {"endings": false, "common_draws": false},
            "look": {"every": 7},
        });
        let new = json!({
            "tasks": {"keep_noise": true},
            "rollouts": {"shared_noise": false},
            "credit": {"prefix_truncation": false, "common_noise": false},
            "eval": {"every": 7},
        });
        let recipe: Recipe = from_value(new).unwrap();
        assert_eq!(from_value::<Recipe>(old.clone()).unwrap(), recipe);
        assert!(recipe.tasks.keep_noise && !recipe.rollouts.shared_noise && recipe.eval.every == 7);
        assert!(!recipe.credit.prefix_truncation && !recipe.credit.common_noise);
        // Folders of runs hold the old keys: with others, no run could be resumed.
        let written = to_value(&recipe).unwrap();
        for (part, keys) in old.as_object().unwrap() {
            for (key, value) in keys.as_object().unwrap() {
                assert_eq!(&written[part][key], value, "{part}.{key}");
            }
        }
        assert_eq!(from_value::<Recipe>(written).unwrap(), recipe);
    }
}
