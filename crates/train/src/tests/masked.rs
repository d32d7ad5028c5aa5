//! Texts that were drawn under a grammar, for a policy that knows none. On a policy small enough that all texts can be listed, the
//! mean gradient is compared with that of what it is said to be.
//!
//! At every prefix s the grammar allows some tokens, π of which have the probability Z(s) together, and the sampler draws from
//! q(a|s) = π(a|s) / Z(s). Each token is weighed by π/q = Z(s). The objective that this has as its gradient, with everything frozen
//! but the token's own probability, is
//!
//! Σ_s q(s) Σ_{a allowed} π(a|s) · (Q(s, a) − b)
//!
//! where q(s) is how often the sampler comes to s, Q the mean reward when it goes on from there, and b the mean reward. So prefixes and
//! what follows come from the sampler, the token from the policy, and a token that the grammar forbids counts as one of mean reward. The
//! gradient of the policy's own reward would take the product of Z over all tokens of a text.

use super::*;
use std::collections::BTreeMap;

/// A, B and C at each of two places; the log-probability of a token after its prefix.
const TOKENS: usize = 3;
type Table = BTreeMap<Vec<u32>, [f64; TOKENS]>;

/// What the grammar allows after each prefix. Each time it forbids something else.
const ALLOWED: [(&[u32], [bool; TOKENS]); 3] =
    [(&[], [true, true, false]), (&[0], [true, false, true]), (&[1], [false, true, true])];
/// What texts earn. All others are none, and earn this.
const REWARDS: [([u32; 2], f64); 4] = [([0, 0], 1.0), ([0, 2], 0.1), ([1, 1], -0.4), ([1, 2], 0.7)];
const PENALTY: f64 = -1.0;

fn logits() -> Table {
    let rows = [vec![0.3, -0.9, 1.1], vec![0.8, 1.3, -0.6], vec![0.2, 0.9, -1.2], vec![0.5, -0.1, 0.4]];
    let prefixes = [vec![], vec![0], vec![1], vec![2]];
    prefixes.into_iter().zip(rows).map(|(prefix, row)| (prefix, [row[0], row[1], row[2]])).collect()
}

fn softmax(logits: &[f64; TOKENS]) -> [f64; TOKENS] {
    let whole: f64 = logits.iter().map(|it| it.exp()).sum();
    logits.map(|it| it.exp() / whole)
}

fn allowed(prefix: &[u32]) -> [bool; TOKENS] {
    ALLOWED.iter().find(|(known, _)| *known == prefix).unwrap().1
}

/// How much of the policy the grammar leaves after a prefix.
fn left(logits: &Table, prefix: &[u32]) -> f64 {
    softmax(&logits[prefix])
        .into_iter()
        .zip(allowed(prefix))
        .map(|(chance, allowed)| if allowed { chance } else { 0.0 })
        .sum()
}

/// The probabilities of the tokens of a text, by the policy and by the sampler.
fn chances(logits: &Table, text: &[u32; 2]) -> [(f64, f64); 2] {
    [0, 1].map(|at| {
        let own = softmax(&logits[&text[..at]])[text[at] as usize];
        (own, own / left(logits, &text[..at]))
    })
}

/// How often the sampler writes a text.
fn drawn(logits: &Table, text: &[u32; 2]) -> f64 {
    chances(logits, text).iter().map(|(_, drawn)| drawn).product()
}

/// A policy that is the table, and says how its texts are to be weighed.
struct Listed {
    logits: Table,
    most: Option<f32>,
}

impl Policy for Listed {
    fn sample(&self, _: &[SampleRequest], _: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
        Err(PolicyError::Request("its texts are listed".to_owned()))
    }

    fn score(&self, sequences: &[Sequence], _: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
        let score = |sequence: &Sequence| {
            let text = [sequence.tokens[0], sequence.tokens[1]];
            chances(&self.logits, &text).iter().map(|(own, _)| own.ln() as f32).collect()
        };
        Ok(sequences.iter().map(score).collect())
    }

    fn update(&mut self, _: &[Example], _: &StepSettings) -> Result<StepReport, PolicyError> {
        Err(PolicyError::Request("it does not learn".to_owned()))
    }
}

impl TrainablePolicy for Listed {
    fn set_optimiser(&mut self, _: OptimiserSettings) {}

    fn save_state(&self, _: &Path) -> Result<(), PolicyError> {
        Ok(())
    }

    fn load_state(&mut self, _: &Path) -> Result<(), PolicyError> {
        Ok(())
    }

    fn most_ratio(&self) -> Option<f32> {
        self.most
    }

    fn scores_as_it_writes(&self) -> bool {
        false
    }
}

/// An episode whose text was drawn by the sampler.
fn listed(logits: &Table, text: [u32; 2], reward: f64) -> Episode {
    let sample = Sample {
        text: "ab".to_owned(),
        tokens: text.to_vec(),
        ends: vec![1, 2],
        logprobs: chances(logits, &text).iter().map(|(_, drawn)| drawn.ln() as f32).collect(),
        forced: vec![false; 2],
        finish: lemon_model::Finish::Stop,
    };
    let mut episode = Episode::new(0, 1, 1, Arc::new(ReplyCache::default()));
    let request = SampleRequest { prompt: vec![9], grammar: None, seed: 1 };
    episode.rounds.push(Round { request, sample, plan: None });
    let outcome = Outcome { reward, success: 0.0, tokens: 1, cost: 1.0, weighted: 1.0, valid: 1.0 };
    episode.run = Some(Run { outcome: Some(outcome), failure: None, summary: nothing(), spent: 0 });
    episode
}

/// A gradient by the logits of each prefix, of what is to be made larger.
type Gradient = BTreeMap<Vec<u32>, [f64; TOKENS]>;

fn add(gradient: &mut Gradient, logits: &Table, prefix: &[u32], token: u32, slope: f64) {
    let row = gradient.entry(prefix.to_vec()).or_default();
    for (at, chance) in softmax(&logits[prefix]).into_iter().enumerate() {
        row[at] += slope * (f64::from(u8::from(at == token as usize)) - chance);
    }
}

/// What training makes of a group.
fn signal_of(policy: &Listed, group: Vec<Episode>, update: &UpdateSettings) -> signal::Signal {
    let encoder = FieldPromptEncoder::new(&FieldStart::default(), Arc::new(Language::default()), 1).unwrap();
    let signals = Signals {
        policy,
        encoder: &encoder,
        reference: None,
        credit: &CreditSettings { form: CreditForm::None, ..CreditSettings::default() },
        update,
        lambda: 0.0,
        temperature: 1.0,
        economy: &Economy::default(),
        values: &Default::default(),
        critic: &Default::default(),
        reader: Default::default(),
        entropy_price: 0.0,
    };
    signal::signal(&signals, &[group], &[]).unwrap()
}

/// The examples of a group, and the mean of what their tokens count.
fn examples_of(policy: &Listed, group: Vec<Episode>) -> (Vec<Example>, Option<f64>) {
    let signal = signal_of(policy, group, &UpdateSettings { per: Per::Rollout, ..UpdateSettings::default() });
    (signal.examples, signal.ratio)
}

/// The mean gradient of what training makes of groups of two that the sampler draws, all of which are listed.
fn of_training(most: Option<f32>, change: impl Fn(&mut Example, &[u32; 2])) -> Gradient {
    let policy = Listed { logits: logits(), most };
    let mut gradient = Gradient::new();
    for (one, its) in REWARDS {
        for (other, others) in REWARDS {
            let logits = &policy.logits;
            let group = vec![listed(logits, one, its), listed(logits, other, others)];
            let chance = drawn(logits, &one) * drawn(logits, &other);
            let (examples, _) = examples_of(&policy, group);
            for (mut example, text) in examples.into_iter().zip([one, other]) {
                change(&mut example, &text);
                for (at, (own, _)) in chances(logits, &text).into_iter().enumerate() {
                    let slope = example.objective.term(at, own.ln() as f32).slope;
                    add(&mut gradient, logits, &text[..at], text[at], -chance * slope);
                }
            }
        }
    }
    gradient
}

/// The mean reward of the sampler after a prefix.
fn value(logits: &Table, prefix: &[u32]) -> f64 {
    let after = REWARDS.iter().filter(|(text, _)| text.starts_with(prefix));
    let (mut sum, mut all) = (0.0, 0.0);
    for (text, reward) in after {
        let chance = drawn(logits, text);
        (sum, all) = (sum + chance * reward, all + chance);
    }
    sum / all
}

/// The objective at the top of this file; everything is frozen at `at` but the probabilities of single tokens.
fn objective(logits: &Table, at: &Table) -> f64 {
    let baseline = value(at, &[]);
    let mut sum = 0.0;
    for (prefix, allowed) in ALLOWED {
        let visits = match prefix {
            [] => 1.0,
            _ => REWARDS.iter().filter(|(text, _)| text.starts_with(prefix)).map(|(text, _)| drawn(at, text)).sum(),
        };
        let own = softmax(&logits[prefix]);
        for token in (0..TOKENS).filter(|token| allowed[*token]) {
            let next = [prefix, &[token as u32]].concat();
            sum += visits * own[token] * (value(at, &next) - baseline);
        }
    }
    sum
}

/// The gradient of a function of the logits, by small differences.
fn numeric(of: impl Fn(&Table) -> f64) -> Gradient {
    let base = logits();
    let mut gradient = Gradient::new();
    for (prefix, row) in &base {
        for token in 0..row.len() {
            let moved = |by: f64| {
                let mut moved = base.clone();
                moved.get_mut(prefix).unwrap()[token] += by;
                of(&moved)
            };
            gradient.entry(prefix.clone()).or_default()[token] = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        }
    }
    gradient
}

/// How far two gradients are apart, as a share of the second.
fn apart(one: &Gradient, other: &Gradient) -> f64 {
    let (mut apart, mut length) = (0.0, 0.0);
    for (prefix, row) in other {
        for (token, expected) in row.iter().enumerate() {
            let found = one.get(prefix).map_or(0.0, |row| row[token]);
            (apart, length) = (apart + (found - expected).powi(2), length + expected.powi(2));
        }
    }
    (apart / length).sqrt()
}

/// The policy's own mean reward, texts that the grammar forbids included.
fn own_reward(logits: &Table) -> f64 {
    let mut sum = PENALTY;
    for (text, reward) in REWARDS {
        let chance: f64 = chances(logits, &text).iter().map(|(own, _)| own).product();
        sum += chance * (reward - PENALTY);
    }
    sum
}

#[test]
fn the_corrected_gradient_is_that_of_the_objective_which_is_claimed() {
    let base = logits();
    assert!((REWARDS.iter().map(|(text, _)| drawn(&base, text)).sum::<f64>() - 1.0).abs() < 1e-12);
    assert!(ALLOWED.iter().all(|(prefix, _)| left(&base, prefix) < 0.7), "the grammar cuts much off");
    let claimed = numeric(|moved| objective(moved, &base));
    let corrected = of_training(Some(2.0), |_, _| ());
    assert!(apart(&corrected, &claimed) < 1e-5, "{}: {corrected:?} {claimed:?}", apart(&corrected, &claimed));
    // Without the correction it is another one.
    let plain = of_training(None, |_, _| ());
    assert!(apart(&plain, &claimed) > 0.3, "{}", apart(&plain, &claimed));
}

#[test]
fn the_probability_of_drawing_in_place_of_the_old_one_loses_what_is_clipped() {
    let base = logits();
    let claimed = numeric(|moved| objective(moved, &base));
    let clipped = of_training(None, |example, text| {
        let Objective::Clipped { old, .. } = &mut example.objective else { panic!() };
        *old = chances(&base, text).iter().map(|(_, drawn)| drawn.ln() as f32).collect();
    });
    assert!(apart(&clipped, &claimed) > 0.3, "{}", apart(&clipped, &claimed));
    // Its bounds are why: without them, the two ways are one.
    let free = of_training(None, |example, text| {
        let Objective::Clipped { old, low, high, .. } = &mut example.objective else { panic!() };
        *old = chances(&base, text).iter().map(|(_, drawn)| drawn.ln() as f32).collect();
        (*low, *high) = (1.0, 100.0);
    });
    assert!(apart(&free, &claimed) < 1e-5, "{}", apart(&free, &claimed));
}

#[test]
fn what_is_claimed_is_not_the_policys_own_reward_which_the_product_over_a_text_would_have() {
    let base = logits();
    let own = numeric(own_reward);
    let corrected = of_training(Some(2.0), |_, _| ());
    assert!(apart(&corrected, &own) > 0.3, "{}", apart(&corrected, &own));
    // All texts that the grammar forbids earn the same, so that texts of the sampler alone tell the gradient: with the product of what
    // is left at each token, and the penalty as the baseline.
    let mut whole = Gradient::new();
    for (text, reward) in REWARDS {
        let product: f64 = [0, 1].iter().map(|at| left(&base, &text[..*at])).product();
        for at in 0..2 {
            add(&mut whole, &base, &text[..at], text[at], drawn(&base, &text) * product * (reward - PENALTY));
        }
    }
    assert!(apart(&whole, &own) < 1e-8, "{}", apart(&whole, &own));
}

#[test]
fn a_token_counts_for_its_two_probabilities_up_to_a_bound() {
    let base = logits();
    let own = chances(&base, &[0, 0]).map(|(own, _)| own.ln() as f32);
    let weights = |most: Option<f32>, drawn: [f32; 2]| {
        let mut group = vec![listed(&base, [0, 0], 1.0), listed(&base, [0, 0], 0.0)];
        group.iter_mut().for_each(|episode| episode.rounds[0].sample.logprobs = drawn.to_vec());
        let (examples, ratio) = examples_of(&Listed { logits: base.clone(), most }, group);
        let Objective::Clipped { weights, old, .. } = &examples[0].objective else { panic!() };
        // What is clipped are changes of the policy, whatever the sampler did.
        assert_eq!(old, &own);
        // A token of one of two texts counts a half.
        (weights.iter().map(|weight| 2.0 * weight).collect::<Vec<_>>(), ratio)
    };
    let (ratios, mean) = weights(Some(2.0), [own[0] + 3f32.ln(), own[1] - 0.5]);
    assert!((ratios[0] - 1.0 / 3.0).abs() < 1e-6 && (ratios[1] - 0.5f32.exp()).abs() < 1e-6, "{ratios:?}");
    assert!((mean.unwrap() - f64::from(ratios[0] + ratios[1]) / 2.0).abs() < 1e-6, "{mean:?}");
    assert_eq!(weights(Some(2.0), [own[0] - 5.0, own[1]]).0, [2.0, 1.0]);
    assert_eq!(weights(None, [own[0] - 5.0, own[1]]), (vec![1.0, 1.0], None));
}

#[test]
fn what_sampler_and_trainer_disagree_on_is_told_and_truncated_on_request() {
    #[track_caller]
    fn check(truncate: Option<f32>, drawn: [f32; 2], expected: (f64, f64), weights: [f32; 2]) {
        let base = logits();
        let own = chances(&base, &[0, 0]).map(|(own, _)| own.ln() as f32);
        let mut group = vec![listed(&base, [0, 0], 1.0), listed(&base, [0, 0], 0.0)];
        let drawn = vec![own[0] - drawn[0], own[1] - drawn[1]];
        group.iter_mut().for_each(|episode| episode.rounds[0].sample.logprobs.clone_from(&drawn));
        let update = UpdateSettings { per: Per::Rollout, truncate, ..UpdateSettings::default() };
        let signal = signal_of(&Listed { logits: base, most: None }, group, &update);
        let found = signal.mismatch.unwrap();
        assert!((found.gap - expected.0).abs() < 1e-6 && (found.outside - expected.1).abs() < 1e-9, "{found:?}");
        let Objective::Clipped { weights: of_tokens, .. } = &signal.examples[0].objective else { panic!() };
        for (found, expected) in of_tokens.iter().zip(weights) {
            assert!((2.0 * found - expected).abs() < 1e-5, "{of_tokens:?}");
        }
    }
    check(None, [0.0, 0.0], (0.0, 0.0), [1.0, 1.0]);
    check(None, [0.5, -0.01], (0.255, 0.5), [1.0, 1.0]);
    check(Some(2.0), [0.5, -0.01], (0.255, 0.5), [0.5f32.exp(), (-0.01f32).exp()]);
    check(Some(1.2), [0.5, -0.5], (0.5, 1.0), [1.2, (-0.5f32).exp()]);
}
