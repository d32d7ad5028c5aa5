//! The estimators that are compared.

use crate::recipe::{CreditForm, Place, Recipe, RewardBaseline, Suffix};
use lemon_spec::edit::Family;

/// One way to turn rewards and counterfactuals into a gradient.
#[derive(Debug, Clone, Copy)]
pub struct Estimator {
    pub name: &'static str,
    /// What it does, in words.
    pub about: &'static str,
    /// Whether its mean is known to be the exact gradient times a number: the tests hold both directions.
    pub is_unbiased: bool,
    /// The share of counterfactuals that are measured, drawn without regard to what they come to.
    pub(super) measured: f64,
    change: fn(&mut Recipe),
}

impl Estimator {
    /// Makes a recipe use it.
    pub fn change(&self, recipe: &mut Recipe) {
        (self.change)(recipe);
    }

    /// Whether the texts of a group share beginnings.
    pub fn is_tree(&self) -> bool {
        let mut recipe = Recipe::default();
        self.change(&mut recipe);
        recipe.rollouts.branches > 1
    }
}

const fn estimator(name: &'static str, about: &'static str, is_unbiased: bool, change: fn(&mut Recipe)) -> Estimator {
    Estimator { name, about, is_unbiased, measured: 1.0, change }
}

/// No counterfactuals.
fn plain(recipe: &mut Recipe) {
    recipe.credit.form = CreditForm::None;
}

/// Prefix teams and nothing else.
fn prefix(recipe: &mut Recipe, decay: f64) {
    recipe.credit.families = vec![Family::Agent];
    recipe.credit.prefix_decay = decay;
}

/// Fields and no prefix teams.
fn fields(recipe: &mut Recipe, form: CreditForm, suffix: Suffix, replace: bool) {
    recipe.credit.families.retain(|family| *family != Family::Agent);
    recipe.credit.prefix_truncation = false;
    (recipe.credit.form, recipe.credit.suffix, recipe.credit.replace) = (form, suffix, replace);
    recipe.credit.by_variance = false;
}

/// All estimators. The first is the one that others are paired with.
pub const ESTIMATORS: &[Estimator] = &[
    estimator("plain", "reward less the mean of the other texts of the group", true, plain),
    estimator("grpo", "reward less the mean of the group, itself included", true, |recipe| {
        plain(recipe);
        recipe.credit.baseline = RewardBaseline::Group;
    }),
    estimator("deviation", "the same over the standard deviation of the group", false, |recipe| {
        plain(recipe);
        recipe.credit.baseline = RewardBaseline::Group;
        recipe.credit.divide_by_deviation = true;
    }),
    estimator("agent", "entries of agents normalised by their place in the team (Dr. MAS)", false, |recipe| {
        plain(recipe);
        recipe.credit.baseline = RewardBaseline::Agent;
    }),
    estimator("edge", "references compared with texts of the group without them (Graph-GRPO)", false, |recipe| {
        plain(recipe);
        recipe.credit.baseline = RewardBaseline::Edge;
    }),
    estimator("critic", "a critic of earlier groups as the baseline of every entry", true, |recipe| {
        plain(recipe);
        recipe.credit.baseline = RewardBaseline::Critic;
    }),
    estimator("tree", "two branches for each trunk, compared with one another", true, |recipe| {
        plain(recipe);
        recipe.rollouts.branches = 2;
    }),
    estimator("prefix", "prefix teams as baselines: prefix-GAE with λ = 1", true, |recipe| prefix(recipe, 1.0)),
    estimator("prefix-0.8", "prefix-GAE with λ = 0.8", false, |recipe| prefix(recipe, 0.8)),
    estimator("prefix-0.5", "prefix-GAE with λ = 0.5", false, |recipe| prefix(recipe, 0.5)),
    estimator("prefix-0", "prefix-GAE with λ = 0", false, |recipe| prefix(recipe, 0.0)),
    estimator("removal", "agents removed one at a time, those after them stay", false, |recipe| {
        recipe.credit.families = vec![Family::Agent];
        (recipe.credit.prefix_truncation, recipe.credit.replace) = (false, true);
    }),
    estimator(
        "all-action",
        "all values of a field, the rest of the text weighed, in place of the group",
        true,
        |recipe| {
            fields(recipe, CreditForm::AllAction, Suffix::Weigh, true);
            only_small(recipe);
        },
    ),
    estimator("all-action-direct", "the same, the rest of the text kept: direct effects", false, |recipe| {
        fields(recipe, CreditForm::AllAction, Suffix::Keep, true);
        only_small(recipe);
    }),
    estimator("all-action-mixed", "the same, weighed, half beside the group's", true, |recipe| {
        fields(recipe, CreditForm::AllAction, Suffix::Weigh, false);
        only_small(recipe);
    }),
    estimator("sampled", "the written value alone, less the mean of all values", true, |recipe| {
        fields(recipe, CreditForm::Sampled, Suffix::Weigh, true);
        only_small(recipe);
    }),
    estimator("pairwise", "each other value against the written one, importance-corrected", true, |recipe| {
        fields(recipe, CreditForm::Gradient, Suffix::Weigh, true);
        only_small(recipe);
    }),
    estimator("pairwise-uncorrected", "the same without correction: the former default", false, |recipe| {
        fields(recipe, CreditForm::Gradient, Suffix::Keep, true);
        recipe.credit.correction = 0.0;
        only_small(recipe);
    }),
    estimator("replay", "the written value against the mean of the others, the rest kept (C3)", false, |recipe| {
        fields(recipe, CreditForm::Replay, Suffix::Keep, true);
        only_small(recipe);
    }),
    Estimator {
        measured: 0.5,
        ..estimator("half-measured", "all-action, half of the counterfactuals measured by chance", false, |recipe| {
            fields(recipe, CreditForm::AllAction, Suffix::Weigh, true);
            only_small(recipe);
        })
    },
    estimator("paper", "the paper's preference, its three edits, added to the group's", false, |recipe| {
        fields(recipe, CreditForm::Preference, Suffix::Keep, false);
        recipe.credit.simplify_only = true;
        recipe.credit.families = vec![Family::Dependency, Family::Duty, Family::Capacity];
    }),
    estimator(
        "full",
        "prefix teams, and all-action on small fields beside them, all measured, equal weights",
        true,
        |recipe| {
            recipe.credit.by_variance = false;
            only_small(recipe);
            recipe.credit.families.push(Family::Agent);
        },
    ),
    estimator("global", "the same, spread over all tokens", false, |recipe| {
        recipe.credit.by_variance = false;
        recipe.credit.place = Place::Everywhere;
        only_small(recipe);
        recipe.credit.families.push(Family::Agent);
    }),
];

/// The fields with few values. A list of references has more values than edits reach.
fn only_small(recipe: &mut Recipe) {
    recipe.credit.families = vec![Family::Capacity, Family::Share, Family::Answer, Family::Stop];
}
