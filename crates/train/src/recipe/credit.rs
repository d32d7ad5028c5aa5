//! How rewards become advantages of tokens.

use lemon_credit::economy::{EconomySettings, Paid};
use lemon_credit::guard::GuardSettings;
use lemon_rollout::reward::Weight;
use lemon_spec::edit::Family;
use serde::{Deserialize, Serialize};

/// How rewards become advantages of tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CreditSettings {
    /// What a team's reward is compared with. Prefix teams take its place where they are measured.
    pub baseline: RewardBaseline,
    /// What the critic of the training reads of a team.
    #[serde(skip_serializing_if = "CriticReads::is_default")]
    pub critic_reads: CriticReads,
    /// Whether advantages in a group are divided by their standard deviation. The prototype learned better without.
    pub divide_by_deviation: bool,
    /// What measured rewards of other values do to the tokens of a field.
    pub form: CreditForm,
    /// Where credit goes.
    pub place: Place,
    /// The weight of the local estimate of a field's gradient beside the group's, as λ : 1; that of the paper's preference term.
    pub lambda: Weight,
    /// Whether λ is also multiplied by the inverse-variance weight of a difference beside a reward. The two weights are normalised.
    pub by_variance: bool,
    /// Whether the local estimate replaces the group's comparison for the tokens of its field: λ is then infinite. A field of the
    /// credited families that was not measured gets no credit.
    #[serde(alias = "instead")]
    pub replace: bool,
    /// The power to which the probability of the other value is raised in the pairwise form, from 0 to 1. Below 1 rare values are
    /// pushed more strongly than the gradient does.
    pub correction: f64,
    /// The slope of the preference.
    pub beta: f64,
    /// The families that are edited.
    pub families: Vec<Family>,
    /// Whether the entries of agents are compared with the prefix team before them, which is free: the team that ends there, whose
    /// agents vote. It depends only on what was written before, so that it can be a baseline for everything after. Without, agents
    /// are removed one at a time and those after them stay.
    #[serde(rename(serialize = "endings"), alias = "endings")]
    pub prefix_truncation: bool,
    /// How much later entries count in the advantage of an earlier one: the λ of GAE, with rewards of prefix teams as potentials.
    #[serde(skip_serializing_if = "is_whole")]
    pub prefix_decay: f64,
    /// What a counterfactual does with what was written after the edited field.
    pub suffix: Suffix,
    /// Whether only edits that simplify are made, as in the paper.
    pub simplify_only: bool,
    /// Whether an edited team runs with the noise seed of the original (common random numbers). Without, every counterfactual is an
    /// independent run.
    #[serde(rename(serialize = "common_draws"), alias = "common_draws")]
    pub common_noise: bool,
    /// A bound for studies, in simulated worlds alone: rewards and all counterfactuals are means over so many noise seeds, and none of
    /// these runs is counted. 0: they are what one run each gave.
    #[serde(skip_serializing_if = "is_none")]
    pub oracle: u32,
    /// How a collapse to one decision is held off.
    pub guard: GuardSettings,
    /// Which counterfactuals are purchased.
    pub economy: EconomySettings,
}

fn is_none(seeds: &u32) -> bool {
    *seeds == 0
}

fn is_whole(decay: &f64) -> bool {
    *decay == 1.0
}

impl CreditSettings {
    /// Whether anything is decided by the critic of the training.
    pub(crate) fn asks_critic(&self) -> bool {
        self.baseline == RewardBaseline::Critic || self.economy.paid == Paid::Unsure
    }
}

impl Default for CreditSettings {
    fn default() -> Self {
        let families = Family::ALL.into_iter().filter(|family| *family != Family::Message).collect();
        CreditSettings {
            baseline: RewardBaseline::Others,
            critic_reads: CriticReads::Counts,
            divide_by_deviation: false,
            form: CreditForm::AllAction,
            place: Place::Field,
            lambda: Weight::fixed(1.0),
            by_variance: true,
            replace: false,
            correction: 1.0,
            beta: 1.0,
            families,
            prefix_truncation: true,
            prefix_decay: 1.0,
            suffix: Suffix::Weigh,
            simplify_only: false,
            common_noise: true,
            oracle: 0,
            guard: GuardSettings::default(),
            economy: EconomySettings::default(),
        }
    }
}

/// What a team's reward is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RewardBaseline {
    /// The mean of the other teams of its group (leave-one-out).
    #[default]
    Others,
    /// The mean of its group, itself included, as in GRPO: the same gradient times (n − 1) / n.
    Group,
    /// For the entry of an agent: the teams of the step that have an agent at that place, over their deviation, as in Dr. MAS
    /// (arXiv 2602.08847). For all else: all teams of the step.
    Agent,
    /// For a list of references: the teams of the group without these edges, as in Graph-GRPO (arXiv 2603.02701). For all else: the
    /// other teams.
    Edge,
    /// For every entry of an agent: what a critic, fitted to the steps before, expects of the agents before it, and what it missed in the
    /// other teams of the group.
    Critic,
}

/// What the critic of a training reads of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CriticReads {
    /// Counts of agents, roles, capacities and references: the same for every task.
    #[default]
    Counts,
    /// These, and the hidden state of the orchestrator's own model behind the last token: a head that knows the task too. The model is
    /// the one that training began with, so its states stay the same; that needs a language model, and `update.kl` above 0.
    States,
}

impl CriticReads {
    fn is_default(&self) -> bool {
        *self == CriticReads::default()
    }
}

/// What measured rewards of other values do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreditForm {
    /// Nothing: plain GRPO.
    None,
    /// Every value gets its probability times its reward less the mean reward. Where not all values are measured: the pairwise form.
    #[default]
    AllAction,
    /// The value that was written gets its reward less the mean reward of all values.
    Sampled,
    /// Pairwise: for each other value, Δ for the value that was written and −Δ for the other, each times
    /// ½ · p(other)^correction. With a correction of 1 and all values measured it has the mean of the all-action form, and more
    /// variance.
    #[serde(alias = "pairwise")]
    Gradient,
    /// The value that was written gets its reward less the mean of the other measured values, whatever their probabilities: replay
    /// with a leave-one-out baseline, as C3 (arXiv 2603.06859) does for messages in a fixed context.
    Replay,
    /// The paper's preference for the better of both values, weighted by |Δ|, added to the group's advantage.
    Preference,
}

/// Where credit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// To the tokens of the field.
    #[default]
    Field,
    /// To all tokens of the specification alike: the ablation. Each chosen token gets the mean of what the decisions would have
    /// got, each decision counted once.
    Everywhere,
}

/// What a counterfactual does with what was written after the edited field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suffix {
    /// It stays: the counterfactual measures a direct effect, not the value of the decision.
    Keep,
    /// The rest of the text stays and is weighted by how likely it is after the other value. Later rounds are written anew.
    #[default]
    Weigh,
}
