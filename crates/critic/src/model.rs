//! The critic: what it has learned, what it estimates, and its file.

use crate::linear::{CostModel, LogisticModel};
use crate::optimise::{TEXT_WIDTH, text_dot};
use crate::prefix::{ANSWER_FEATURES, Known, PREFIX_FEATURES, Standpoint, TEXT_VIEWS, prefix_features, standpoint};
use crate::task::{RecordedTask, SeenReply, fingerprint};
use crate::team::{CHOICES, MOST, ONE_REASONER, STRONGEST, TEAMS, TeamCounts, choice};
use crate::text::{BUCKETS, Group, QuestionText, read_question};
use lemon_exec::Form;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the first line of a critic's file says.
const FORMAT: &str = "lemon-critic";
/// The version of the file.
const VERSION: u32 = 3;
/// No critic's file is longer.
const MOST_BYTES: u64 = 16 << 20;

/// Why a critic cannot be read, written or fitted.
#[derive(Debug, thiserror::Error)]
pub enum CriticError {
    /// The file cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The file is no critic, or a damaged one.
    #[error("no usable critic: {0}")]
    Content(String),
    /// A language model cannot be read, or fails.
    #[error(transparent)]
    Model(#[from] lemon_model::PolicyError),
    /// There are too few outcomes to learn from.
    #[error("expected at least {needed} tasks with recorded replies, found {found}")]
    TooFew {
        /// How many a fit needs.
        needed: usize,
        /// How many there are.
        found: usize,
    },
}

/// An estimate of Q(task, prefix, team) for every team that may be asked next.
///
/// `lemon critic fit` makes one from recorded replies; [`DecisionCritic::load`] reads its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionCritic {
    /// The model whose replies it was fitted to, where that is known.
    pub(crate) model: Option<String>,
    /// Tasks it was fitted on.
    pub(crate) tasks: usize,
    /// Hashes of their questions, in order: none of them is a test of it.
    pub(crate) fitted: Vec<u32>,
    /// The seed of the fit.
    pub(crate) seed: u64,
    pub(crate) text: TextModels,
    pub(crate) groups: BTreeMap<Group, GroupModel>,
}

/// What the words of a question say of each level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextModels {
    /// Log-odds that a reply is right, then the logarithm of its tokens, for each level; the intercept last.
    pub views: Vec<Vec<f64>>,
}

/// What is known of one group of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupModel {
    /// Replies of each level that a task of the group had at most: nothing is known of larger teams.
    pub available: [usize; 3],
    /// How likely an answer of a prefix is right.
    pub answer: LogisticModel,
    /// How likely the best answer of a prefix is right: what to stop is worth, from the features that teams are judged by.
    pub stop: LogisticModel,
    /// By position in the list of teams, plans behind them.
    pub teams: BTreeMap<usize, TeamModel>,
}

/// What one team is worth after a prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TeamModel {
    pub success: LogisticModel,
    pub tokens: CostModel,
}

/// What a critic expects of a team that may be asked next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TeamEstimate {
    /// The calls to add.
    pub team: TeamCounts,
    /// The probability that the answer is right after them.
    pub success: f64,
    /// The standard error of that probability.
    pub error: f64,
    /// What they cost, in weighted tokens.
    pub tokens: f64,
}

/// A question that was read.
pub(crate) struct Prepared<'a> {
    pub group: Group,
    pub model: &'a GroupModel,
    pub views: [f64; TEXT_VIEWS],
    pub text: QuestionText,
}

impl TextModels {
    pub fn views(&self, text: &QuestionText) -> [f64; TEXT_VIEWS] {
        std::array::from_fn(|view| {
            self.views
                .get(view)
                .map_or(0.0, |weights| text_dot(text, weights) + weights.last().copied().unwrap_or_default())
        })
    }
}

impl DecisionCritic {
    /// How many tasks it was fitted on.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// The model whose replies it was fitted to, where that is known.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The same, marked with the model whose replies it was fitted to.
    #[must_use]
    pub fn for_model(self, model: Option<String>) -> Self {
        DecisionCritic { model, ..self }
    }

    /// Whether it may be used with a model of this name: its own model, by letters and digits alone, or any where its own is
    /// not known. Names at endpoints and of files say more than the model: `Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF`.
    pub fn fits(&self, model: &str) -> bool {
        let plain = |name: &str| -> String {
            name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
        };
        self.model.as_deref().is_none_or(|own| plain(model).contains(&plain(own)))
    }

    /// Whether it was fitted to this question.
    pub fn was_fitted_to(&self, task: &RecordedTask) -> bool {
        self.fitted.binary_search(&fingerprint(&task.question)).is_ok()
    }

    /// The same in a shorter file: fewer digits, and errors only where estimates show them.
    pub(crate) fn compact(mut self) -> Self {
        for model in self.groups.values_mut() {
            model.answer.compact(false);
            model.stop.compact(false);
            for (team, model) in &mut model.teams {
                model.success.compact(*team < TEAMS.len());
                model.tokens.compact();
            }
        }
        self
    }

    /// Reads a question; `None`: it was not trained for tasks of this form.
    pub(crate) fn prepare(&self, question: &str, form: Form) -> Option<Prepared<'_>> {
        let group = Group::of(form, question)?;
        let model = self.groups.get(&group)?;
        let text = read_question(question, group);
        Some(Prepared { group, model, views: self.text.views(&text), text })
    }

    /// What each team that may be asked next is worth, after these replies. `available` says how many calls of each level
    /// there may be in all. Empty where the critic was not trained for tasks of this form.
    pub fn estimates(
        &self,
        question: &str,
        form: Form,
        seen: &[SeenReply],
        available: [usize; 3],
    ) -> Vec<TeamEstimate> {
        let Some(prepared) = self.prepare(question, form) else { return Vec::new() };
        let seen: Vec<&SeenReply> = seen.iter().collect();
        let (counts, stand) = (counts_of(&seen), prepared.standpoint(&seen, false));
        prepared.estimates(counts, &stand, available, Consider::TeamsWithErrors)
    }

    /// Saves it: a line of JSON that says what the file is, with the checksum of the line behind it, which is the critic.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), CriticError> {
        let fault = |reason: String| CriticError::File { path: path.to_owned(), reason };
        let text = self.to_text().map_err(fault)?;
        let partial = path.with_extension("partial");
        std::fs::write(&partial, text).map_err(|error| fault(error.to_string()))?;
        std::fs::rename(&partial, path).map_err(|error| fault(error.to_string()))
    }

    fn to_text(&self) -> Result<String, String> {
        let body = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let head = Head { format: FORMAT.into(), version: VERSION, checksum: checksum(&body) };
        let head = serde_json::to_string(&head).map_err(|error| error.to_string())?;
        Ok(format!("{head}\n{body}\n"))
    }

    /// Reads a critic's file.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or holds something that is no critic of this version.
    pub fn load(path: &Path) -> Result<Self, CriticError> {
        let fault = |reason: String| CriticError::File { path: path.to_owned(), reason };
        let bytes = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?.len();
        if bytes > MOST_BYTES {
            return Err(fault(format!("expected at most {MOST_BYTES} bytes, found {bytes}")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        Self::from_text(&text).map_err(|error| fault(error.to_string()))
    }

    /// Reads what [`DecisionCritic::save`] wrote.
    ///
    /// # Errors
    /// The text is damaged, or no critic of this version.
    pub fn from_text(text: &str) -> Result<Self, CriticError> {
        let content = CriticError::Content;
        let (head, body) = text.split_once('\n').ok_or_else(|| content("expected two lines, found one".into()))?;
        let head: Head = serde_json::from_str(head).map_err(|error| content(format!("line 1: {error}")))?;
        if head.format != FORMAT || head.version != VERSION {
            let found = format!("`{}` version {}", head.format, head.version);
            return Err(content(format!("expected `{FORMAT}` version {VERSION}, found {found}")));
        }
        let body = body.trim_end();
        if checksum(body) != head.checksum {
            return Err(content("the checksum of line 2 does not match line 1: the file is damaged".into()));
        }
        let critic: DecisionCritic = serde_json::from_str(body).map_err(|error| content(format!("line 2: {error}")))?;
        critic.check()?;
        Ok(critic)
    }

    /// Checks the sizes and values of everything that estimates read.
    fn check(&self) -> Result<(), CriticError> {
        let content = |fact: String| Err(CriticError::Content(fact));
        if self.text.views.len() != TEXT_VIEWS {
            return content(format!("text.views: expected {TEXT_VIEWS}, found {}", self.text.views.len()));
        }
        for (at, weights) in self.text.views.iter().enumerate() {
            if weights.len() != TEXT_WIDTH + 1 || !weights.iter().all(|weight| weight.is_finite()) {
                let expected = TEXT_WIDTH + 1;
                return content(format!(
                    "text.views[{at}]: expected {expected} finite numbers, found {}",
                    weights.len()
                ));
            }
        }
        if !self.fitted.is_sorted() {
            return content("fitted: expected hashes in order".to_owned());
        }
        for (group, model) in &self.groups {
            let name = |part: &str| format!("groups.{group:?}.{part}").to_lowercase();
            model.answer.check(&name("answer"), ANSWER_FEATURES)?;
            model.stop.check(&name("stop"), PREFIX_FEATURES)?;
            if model.available.iter().zip(MOST).any(|(available, most)| *available > most) {
                return content(format!(
                    "{}: expected at most {MOST:?}, found {:?}",
                    name("available"),
                    model.available
                ));
            }
            for (team, model) in &model.teams {
                if *team >= CHOICES {
                    return content(format!("{}: expected a team below {CHOICES}, found {team}", name("teams")));
                }
                model.success.check(&name(&format!("teams.{team}.success")), PREFIX_FEATURES)?;
                model.tokens.check(&name(&format!("teams.{team}.tokens")), PREFIX_FEATURES)?;
            }
        }
        Ok(())
    }
}

impl Prepared<'_> {
    /// The answer that these replies would give.
    pub fn standpoint(&self, seen: &[&SeenReply], hide_sure: bool) -> Standpoint {
        let known = Known { views: &self.views, numbers: &self.text.numbers, hide_sure };
        standpoint(Some(&self.model.answer), seen, self.group != Group::Code, known)
    }

    /// How likely the answer of a prefix is right.
    pub fn stop(&self, counts: TeamCounts, stand: &Standpoint) -> f64 {
        let (probability, second) = (stand.probability, stand.second);
        self.model.stop.probability(&prefix_features(counts, probability, second, &self.views, &self.text.plain))
    }

    /// What each choice is worth.
    pub fn estimates(
        &self,
        counts: TeamCounts,
        stand: &Standpoint,
        available: [usize; 3],
        consider: Consider,
    ) -> Vec<TeamEstimate> {
        let available = std::array::from_fn(|level| {
            available[level].min(self.model.available[level]).min(self.group.most()[level])
        });
        let features = prefix_features(counts, stand.probability, stand.second, &self.views, &self.text.plain);
        let estimate = |(team, model): (&usize, &TeamModel)| {
            let (first, then) = choice(*team)?;
            let end = counts.after(first, available)?;
            match (then, consider) {
                (None, _) => {}
                // The team that follows has to be there.
                (Some(then), Consider::Plans) => end.after(then, available).map(|_| ())?,
                (Some(_), _) => return None,
            }
            let (success, error) = match consider == Consider::TeamsWithErrors {
                true => {
                    let estimate = model.success.estimate(&features);
                    (estimate.mean, estimate.error)
                }
                false => (model.success.probability(&features), 0.0),
            };
            Some(TeamEstimate { team: end.beyond(counts), success, error, tokens: model.tokens.cost(&features) })
        };
        self.model.teams.iter().filter_map(estimate).collect()
    }

    /// The team that is worth more than stopping, and most; `None`: to stop is worth most, or nothing can be paid. Without
    /// replies something has to be asked. Unless this is the last round, a team may be worth more for what can follow it.
    pub fn choose(
        &self,
        counts: TeamCounts,
        stand: &Standpoint,
        available: [usize; 3],
        rule: &Rule,
        is_last: bool,
    ) -> Option<TeamEstimate> {
        let worth = |estimate: &TeamEstimate| estimate.success - rule.price * estimate.tokens / 1000.0;
        let is_first = counts == TeamCounts::NONE;
        let stop = if is_first { f64::NEG_INFINITY } else { self.stop(counts, stand) };
        let consider = if is_last { Consider::Teams } else { Consider::Plans };
        let mut teams = self.estimates(counts, stand, available, consider);
        let cost = |it: &TeamEstimate| it.tokens + rule.surplus * it.team.calls() as f64;
        teams.retain(|it| it.team.calls() <= rule.most_calls && cost(it) <= rule.most_tokens);
        if is_first && rule.guard {
            // What is asked later only raises the probability, so the first team decides. One that has a reasoner among its
            // calls can always give that reply.
            let plain = teams.iter().filter(|it| Some(&it.team) == TEAMS.get(ONE_REASONER)).map(|it| it.success);
            let plain = plain.reduce(f64::min).unwrap_or_default();
            teams.retain(|it| it.success >= plain || it.team.counts()[STRONGEST] > 0);
        }
        let best = teams.into_iter().max_by(|a, b| worth(a).total_cmp(&worth(b)))?;
        (worth(&best) > stop).then_some(best)
    }
}

/// What choices are held to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    /// What 1,000 tokens are worth, in rewards.
    pub price: f64,
    /// Whether the first team must not be worse than one reasoner, as far as the critic can tell.
    pub guard: bool,
    /// Tokens that a choice may cost.
    pub most_tokens: f64,
    /// Tokens of a call that its weighted tokens do not count.
    pub surplus: f64,
    /// Calls that a team may have.
    pub most_calls: usize,
}

impl Rule {
    /// A price alone.
    pub fn priced(price: f64) -> Self {
        Rule { price, guard: false, most_tokens: f64::INFINITY, surplus: 0.0, most_calls: usize::MAX }
    }
}

/// Which choices are weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consider {
    /// Teams; no other round follows.
    Teams,
    /// The same, with standard errors, which cost time.
    TeamsWithErrors,
    /// Teams, and teams that another may follow.
    Plans,
}

/// How many calls of each level there are.
pub(crate) fn counts_of(seen: &[&SeenReply]) -> TeamCounts {
    let mut counts = TeamCounts::NONE;
    for reply in seen {
        if let Some(count) = counts.0.get_mut(reply.level) {
            *count = count.saturating_add(1);
        }
    }
    let most = MOST.map(|most| u8::try_from(most).unwrap_or(u8::MAX));
    counts.0.iter_mut().zip(most).for_each(|(count, most)| *count = (*count).min(most));
    counts
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: String,
    version: u32,
    checksum: String,
}

fn checksum(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Weights of words to three decimals: the file stays small, and no estimate changes by more than its own noise.
pub(crate) fn rounded(mut weights: Vec<f64>) -> Vec<f64> {
    weights.iter_mut().take(BUCKETS).for_each(|weight| *weight = (*weight * 1e3).round() / 1e3);
    weights
}
