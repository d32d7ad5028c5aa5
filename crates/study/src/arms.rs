//! What a study compares: the same recipe with one thing changed at a time.

use lemon_credit::economy::Paid;
use lemon_spec::edit::Family;
use lemon_train::recipe::{CreditForm, Place, Recipe, Start};

/// One way to train.
#[derive(Debug, Clone, Copy)]
pub struct Arm {
    /// Its name.
    pub name: &'static str,
    /// What is different, in words.
    pub about: &'static str,
    change: fn(&mut Recipe),
}

impl Arm {
    /// The recipe of this arm.
    pub fn recipe(&self, recipe: &Recipe) -> Recipe {
        let mut recipe = recipe.clone();
        (self.change)(&mut recipe);
        recipe
    }

    /// The arm of this name.
    pub fn named(name: &str) -> Option<Arm> {
        ARMS.iter().find(|arm| arm.name == name).copied()
    }
}

/// All arms. `full` is the recipe as it is.
pub const ARMS: [Arm; 27] = [
    Arm { name: "full", about: "the recipe as it is", change: |_| {} },
    Arm {
        name: "plain",
        about: "no counterfactuals, every rollout with its own noise seed: plain GRPO",
        change: |recipe| {
            recipe.credit.form = CreditForm::None;
            recipe.rollouts.shared_noise = false;
        },
    },
    Arm {
        name: "plain-shared",
        about: "no counterfactuals, but noise seed and replies shared in a group as in full",
        change: |recipe| recipe.credit.form = CreditForm::None,
    },
    Arm {
        name: "removal",
        about: "agents are removed one at a time: without prefix truncation",
        change: |recipe| recipe.credit.prefix_truncation = false,
    },
    Arm {
        name: "one-voice",
        about: "differences without inverse-variance weights",
        change: |recipe| recipe.credit.by_variance = false,
    },
    Arm {
        name: "global",
        about: "the same counterfactuals, spread over all tokens",
        change: |recipe| recipe.credit.place = Place::Everywhere,
    },
    Arm {
        name: "bought",
        about: "and paid counterfactuals that should tell more than rollouts for their tokens",
        change: |recipe| recipe.credit.economy.paid = Paid::Worth,
    },
    Arm {
        name: "uniform",
        about: "paid counterfactuals by chance up to the cap: without adaptive sampling",
        change: |recipe| recipe.credit.economy.paid = Paid::Uniform,
    },
    Arm {
        name: "by-contrast",
        about: "paid counterfactuals by their mean |Δ| up to the cap: the paper's adaptive sampling",
        change: |recipe| recipe.credit.economy.paid = Paid::Contrast,
    },
    Arm {
        name: "paper",
        about: "the paper's form: preference, three families, simplifying edits, by mean |Δ|, noise not shared",
        change: |recipe| {
            recipe.credit.by_variance = false;
            recipe.credit.prefix_truncation = false;
            recipe.credit.form = CreditForm::Preference;
            recipe.credit.simplify_only = true;
            recipe.credit.families = vec![Family::Dependency, Family::Duty, Family::Capacity];
            recipe.credit.economy.paid = Paid::Contrast;
            recipe.rollouts.shared_noise = false;
        },
    },
    Arm {
        name: "preference",
        about: "the paper's |Δ|-weighted preference in place of the gradient",
        change: |recipe| recipe.credit.form = CreditForm::Preference,
    },
    Arm {
        name: "sampled",
        about: "Δ for the written value alone",
        change: |recipe| recipe.credit.form = CreditForm::Sampled,
    },
    Arm {
        name: "corrected",
        about: "the other value weighted by its whole probability",
        change: |recipe| recipe.credit.correction = 1.0,
    },
    Arm { name: "simplify", about: "only edits that simplify", change: |recipe| recipe.credit.simplify_only = true },
    Arm {
        name: "no-common",
        about: "edited teams run with their own noise seed, by chance up to the cap",
        change: |recipe| {
            recipe.credit.common_noise = false;
            recipe.credit.economy.paid = Paid::Uniform;
        },
    },
    Arm {
        name: "no-dependency",
        about: "no edits of references",
        change: |recipe| without(recipe, Family::Dependency),
    },
    Arm { name: "no-role", about: "no edits of identities", change: |recipe| without(recipe, Family::Role) },
    Arm { name: "no-duty", about: "no edits of duties", change: |recipe| without(recipe, Family::Duty) },
    Arm { name: "no-capacity", about: "no edits of capacities", change: |recipe| without(recipe, Family::Capacity) },
    Arm { name: "no-agent", about: "no removal of agents", change: |recipe| without(recipe, Family::Agent) },
    Arm { name: "no-share", about: "no edits of what is shared", change: |recipe| without(recipe, Family::Share) },
    Arm { name: "no-answer", about: "no edits of the answer rule", change: |recipe| without(recipe, Family::Answer) },
    Arm { name: "no-stop", about: "no edits of the stop decision", change: |recipe| without(recipe, Family::Stop) },
    Arm {
        name: "one-level",
        about: "all agents on the strongest capacity",
        change: |recipe| recipe.rollouts.capacity = false,
    },
    Arm { name: "one-round", about: "one round: without stop", change: |recipe| recipe.rollouts.rounds = 1 },
    Arm {
        name: "deviation",
        about: "advantages divided by the deviation of their group",
        change: |recipe| recipe.credit.divide_by_deviation = true,
    },
    Arm {
        name: "no-warm",
        about: "without the warm start",
        change: |recipe| {
            if let Start::Warm(start) = &mut recipe.start {
                start.steps = 0;
            }
        },
    },
];

fn without(recipe: &mut Recipe, family: Family) {
    recipe.credit.families.retain(|kept| *kept != family);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_have_names_of_their_own_and_change_something() {
        let recipe = Recipe { start: Start::Warm(Default::default()), ..Recipe::default() };
        for (at, arm) in ARMS.iter().enumerate() {
            assert!(ARMS[..at].iter().all(|other| other.name != arm.name), "{}", arm.name);
            assert_eq!(arm.recipe(&recipe) == recipe, arm.name == "full", "{}", arm.name);
            assert_eq!(Arm::named(arm.name).map(|found| found.about), Some(arm.about));
        }
        assert!(Arm::named("nothing").is_none());
    }
}
