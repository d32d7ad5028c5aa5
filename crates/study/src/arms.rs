//! What a study compares: the same recipe with one thing changed at a time.

use lemon_credit::economy::Paid;
use lemon_spec::edit::Family;
use lemon_train::recipe::{CreditForm, Place, Recipe, RewardBaseline, Start, Suffix};

/// One way to train.
#[derive(Debug, Clone, Copy)]
pub struct Arm {
    pub name: &'static str,
    /// What is different, in words.
    pub about: &'static str,
    /// What a run of it does.
    pub kind: ArmKind,
    change: fn(&mut Recipe),
}

/// What a run of an arm does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmKind {
    /// It trains a policy.
    Train,
    /// It searches the best team of one agent, with the worker tokens that a training has.
    OneAgent,
    /// It searches the best of all fixed teams, with the same tokens.
    FixedTeam,
}

impl Arm {
    /// The recipe of this arm.
    pub fn recipe(&self, recipe: &Recipe) -> Recipe {
        let mut recipe = recipe.clone();
        (self.change)(&mut recipe);
        recipe
    }

    /// The arm of this name, or of the name that it had in older studies.
    pub fn named(name: &str) -> Option<Arm> {
        let name = match name {
            "bought" => "purchased",
            "by-contrast" => "by-effect",
            name => name,
        };
        ARMS.iter().find(|arm| arm.name == name).copied()
    }
}

const fn arm(name: &'static str, about: &'static str, change: fn(&mut Recipe)) -> Arm {
    Arm { name, about, kind: ArmKind::Train, change }
}

/// All arms. `full` is the recipe as it is. An arm whose name ends in `-unshared` has a noise seed for every rollout; all others but
/// `plain` and `paper` share it in a group.
pub const ARMS: &[Arm] = &[
    arm("full", "the recipe as it is", |_| {}),
    arm("full-unshared", "the recipe, every rollout with its own noise seed", |recipe| unshared(recipe, |_| {})),
    arm("plain", "no counterfactuals, every rollout with its own noise seed: plain GRPO", |recipe| {
        unshared(recipe, plain)
    }),
    arm("plain-shared", "no counterfactuals, but noise seed and replies shared in a group as in full", plain),
    arm("global", "the same counterfactuals by the same rule, spread over all tokens", global),
    arm("global-unshared", "the same, every rollout with its own noise seed", |recipe| unshared(recipe, global)),
    arm(
        "paper",
        "the paper's form: preference; delete a dependency, roll a duty back, lower a capacity; by mean |Δ|; noise not shared",
        |recipe| unshared(recipe, paper),
    ),
    arm("paper-shared", "the same, noise seed and replies shared in a group", paper),
    arm("direct", "counterfactuals keep what was written after the edit: direct effects", |recipe| {
        recipe.credit.suffix = Suffix::Keep;
    }),
    arm("replace", "measured fields without the group's comparison, unmeasured ones without credit", |recipe| {
        recipe.credit.replace = true;
    }),
    arm("pairwise", "each other value against the written one, in place of all at once", |recipe| {
        recipe.credit.form = CreditForm::Gradient;
    }),
    arm("sampled", "the written value alone", |recipe| recipe.credit.form = CreditForm::Sampled),
    arm("preference", "the paper's |Δ|-weighted preference in place of the gradient", |recipe| {
        recipe.credit.form = CreditForm::Preference;
    }),
    arm("prefix-only", "prefix teams and no other counterfactual", |recipe| {
        recipe.credit.families = vec![Family::Agent]
    }),
    arm("prefix-0.8", "prefix-GAE with λ = 0.8", |recipe| recipe.credit.prefix_decay = 0.8),
    arm("prefix-0.5", "prefix-GAE with λ = 0.5", |recipe| recipe.credit.prefix_decay = 0.5),
    arm("prefix-0", "prefix-GAE with λ = 0", |recipe| recipe.credit.prefix_decay = 0.0),
    arm("removal", "agents are removed one at a time: without prefix teams", |recipe| {
        recipe.credit.prefix_truncation = false;
    }),
    arm("tree", "tree groups of two branches for each trunk, no counterfactuals", |recipe| {
        plain(recipe);
        recipe.rollouts.branches = 2;
    }),
    arm("message-replay", "references and what is shared against their alternatives, leave-one-out (C3)", |recipe| {
        recipe.credit.families = vec![Family::Dependency, Family::Share];
        (recipe.credit.form, recipe.credit.suffix) = (CreditForm::Replay, Suffix::Keep);
        recipe.credit.by_variance = false;
    }),
    arm("edge", "references credited within the group (Graph-GRPO), no counterfactuals", |recipe| {
        plain(recipe);
        recipe.credit.baseline = RewardBaseline::Edge;
    }),
    arm("agent-norm", "advantages normalised by place of the agent (Dr. MAS), no counterfactuals", |recipe| {
        plain(recipe);
        recipe.credit.baseline = RewardBaseline::Agent;
    }),
    arm("critic", "a critic fitted to earlier steps as the baseline of every entry, no counterfactuals", |recipe| {
        plain(recipe);
        recipe.credit.baseline = RewardBaseline::Critic;
    }),
    arm("critic-chooses", "and paid counterfactuals that this critic is least sure of for their tokens", |recipe| {
        recipe.credit.baseline = RewardBaseline::Critic;
        recipe.credit.economy.paid = Paid::Unsure;
    }),
    arm("one-voice", "differences without inverse-variance weights", |recipe| recipe.credit.by_variance = false),
    arm("value-baseline", "each value's running mean advantage subtracted", |recipe| {
        recipe.credit.guard.value_baseline = 1.0;
    }),
    arm("entropy-floor", "entropy rewarded below half a nat a choice", |recipe| {
        recipe.credit.guard.entropy_floor = 0.5;
    }),
    arm("purchased", "and paid counterfactuals that should tell more than rollouts for their tokens", |recipe| {
        recipe.credit.economy.paid = Paid::Worth;
    }),
    arm("uniform", "paid counterfactuals by chance up to the cap: without adaptive sampling", |recipe| {
        recipe.credit.economy.paid = Paid::Uniform;
    }),
    arm("by-effect", "paid counterfactuals by their mean |Δ| up to the cap: the paper's adaptive sampling", |recipe| {
        recipe.credit.economy.paid = Paid::Effect;
    }),
    arm("simplify", "only edits that simplify", |recipe| recipe.credit.simplify_only = true),
    arm("no-common", "edited teams run with their own noise seed, by chance up to the cap", |recipe| {
        recipe.credit.common_noise = false;
        recipe.credit.economy.paid = Paid::Uniform;
    }),
    arm("no-dependency", "no edits of references", |recipe| without(recipe, Family::Dependency)),
    arm("no-role", "no edits of identities", |recipe| without(recipe, Family::Role)),
    arm("no-duty", "no edits of duties", |recipe| without(recipe, Family::Duty)),
    arm("no-capacity", "no edits of capacities", |recipe| without(recipe, Family::Capacity)),
    arm("no-agent", "no prefix teams", |recipe| without(recipe, Family::Agent)),
    arm("no-share", "no edits of what is shared", |recipe| without(recipe, Family::Share)),
    arm("no-answer", "no edits of the answer rule", |recipe| without(recipe, Family::Answer)),
    arm("no-stop", "no edits of the stop decision", |recipe| without(recipe, Family::Stop)),
    arm("one-level", "all agents on the strongest capacity", |recipe| recipe.rollouts.capacity = false),
    arm("one-round", "one round: without stop", |recipe| recipe.rollouts.rounds = 1),
    arm("deviation", "advantages divided by the deviation of their group", |recipe| {
        recipe.credit.divide_by_deviation = true;
    }),
    arm("no-warm", "without the warm start", |recipe| {
        if let Start::Warm(start) = &mut recipe.start {
            start.steps = 0;
        }
    }),
    arm(
        "oracle",
        "a bound: every reward and every counterfactual is a mean of eight runs that are not counted",
        |recipe| {
            (recipe.credit.oracle, recipe.credit.by_variance) = (ORACLE, false);
        },
    ),
    arm("oracle-rewards", "a bound: the same for rewards, no counterfactuals", |recipe| {
        plain(recipe);
        recipe.credit.oracle = ORACLE;
    }),
    arm(
        "batch-16",
        "a bound: no counterfactuals, sixteen times the tasks and the tokens, so as many updates",
        |recipe| {
            plain(recipe);
            recipe.rollouts.tasks *= BATCH;
            recipe.worker_tokens = recipe.worker_tokens.map(|tokens| tokens * BATCH as u64);
        },
    ),
    Arm {
        kind: ArmKind::OneAgent,
        ..arm("one-agent", "no training: the best team of one agent, found by search", |_| {})
    },
    Arm { kind: ArmKind::FixedTeam, ..arm("fixed-team", "no training: the best fixed team, found by search", |_| {}) },
];

/// Noise seeds of the arms that bound what credit can bring.
const ORACLE: u32 = 8;
/// How many steps of plain GRPO one of the arm `batch-16` is.
const BATCH: usize = 16;

fn plain(recipe: &mut Recipe) {
    recipe.credit.form = CreditForm::None;
}

fn global(recipe: &mut Recipe) {
    recipe.credit.place = Place::Everywhere;
}

/// What is known of the paper's form. The weight of the local term is not: it is that of the recipe, to be swept like that of others.
fn paper(recipe: &mut Recipe) {
    recipe.credit.by_variance = false;
    recipe.credit.replace = false;
    recipe.credit.prefix_truncation = false;
    recipe.credit.suffix = Suffix::Keep;
    recipe.credit.form = CreditForm::Preference;
    recipe.credit.simplify_only = true;
    recipe.credit.families = vec![Family::Dependency, Family::Duty, Family::Capacity];
    recipe.credit.economy.paid = Paid::Effect;
}

fn unshared(recipe: &mut Recipe, change: fn(&mut Recipe)) {
    change(recipe);
    recipe.rollouts.shared_noise = false;
}

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
            let is_same = arm.name == "full" || arm.kind != ArmKind::Train;
            assert_eq!(arm.recipe(&recipe) == recipe, is_same, "{}", arm.name);
            assert_eq!(Arm::named(arm.name).map(|found| found.about), Some(arm.about));
        }
        assert!(Arm::named("nothing").is_none());
    }

    /// `global` differs from `full` in where credit goes and in nothing else, and shared noise is a difference of its own.
    #[test]
    fn ablations_change_one_thing() {
        let recipe = Recipe::default();
        let of = |name: &str| Arm::named(name).unwrap().recipe(&recipe);
        let mut global = of("global");
        global.credit.place = Place::Field;
        assert_eq!(global, recipe);
        for (shared, unshared) in [
            ("full", "full-unshared"),
            ("plain-shared", "plain"),
            ("global", "global-unshared"),
            ("paper-shared", "paper"),
        ] {
            let mut other = of(unshared);
            assert!(!other.rollouts.shared_noise, "{unshared}");
            other.rollouts.shared_noise = true;
            assert_eq!(other, of(shared), "{shared}");
        }
        let paper = of("paper");
        assert_eq!(paper.credit.families, [Family::Dependency, Family::Duty, Family::Capacity]);
        assert!(paper.credit.simplify_only && !paper.credit.replace);
        // A recipe that replaces does not hand that down to the paper's form.
        let mut replacing = Recipe::default();
        replacing.credit.replace = true;
        assert!(!Arm::named("paper").unwrap().recipe(&replacing).credit.replace);
    }
}
