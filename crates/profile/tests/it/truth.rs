//! Effects are what enumeration says, and intervals cover them as often as they say.

use crate::common::{counterfactuals, effect, plan, profile_of, wait, work};
use crate::enumerable::{COMBINATIONS, DIFFICULTIES, DUTY, ROLE, all_cases, cases, enumerable};
use crate::oracle::{Team, member};
use lemon_credit::estimate::{ClusteredPaired, Paired};
use lemon_num::Random;
use lemon_profile::Counterfactuals;
use lemon_rollout::Case;
use lemon_spec::edit::{Change, Edit, Edited, Family, apply};
use lemon_spec::{AnswerRule, Plan};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use tokio_util::sync::CancellationToken;

const SEED: u64 = 7;

/// A change, as the crates make it and as this file does.
struct Known {
    change: Change,
    by_hand: fn(&mut Team),
}

struct Study {
    name: &'static str,
    text: &'static str,
    team: Team,
    changes: Vec<Known>,
}

fn voting() -> Study {
    let id = str::to_owned;
    let known = |change, by_hand| Known { change, by_hand };
    let changes = vec![
        known(Change::DeleteReference { agent: id("c"), parent: id("a") }, |team| team.member(2).reads = vec![1]),
        known(Change::AddReference { agent: id("b"), parent: id("a"), at: 0 }, |team| team.member(1).reads = vec![0]),
        known(Change::ResetDuty { agent: id("a") }, |team| team.member(0).dutiful = false),
        known(Change::ResetRole { agent: id("c") }, |team| team.member(2).dutiful = false),
        known(Change::LowerCapacity { agent: id("a") }, |team| team.member(0).level = 0),
        known(Change::RaiseCapacity { agent: id("b") }, |team| team.member(1).level = 1),
        known(Change::RemoveAgent { agent: id("b") }, |team| {
            team.members.remove(1);
            team.member(2).reads = vec![0];
            team.from = vec![0, 2];
        }),
        known(Change::ShareAnswer { agent: id("a") }, |team| team.member(0).bare = true),
        known(Change::ShareReply { agent: id("b") }, |team| team.member(1).bare = false),
        known(Change::AnswerBy { rule: AnswerRule::Last }, |team| team.rule = AnswerRule::Last),
        known(Change::AnswerBy { rule: AnswerRule::Judge }, |team| team.rule = AnswerRule::Judge),
        known(Change::Review, |team| team.reviewed = true),
        known(Change::WithholdMessage { from: id("a"), to: id("c") }, |team| team.member(2).reads = vec![1]),
    ];
    let text = "
agents:
  - {id: a, base: solver, duty: Work with care., capacity: medium}
  - {id: b, base: solver, capacity: small, share: answer}
  - {id: c, base: solver, role: Careful reader, capacity: medium, after: [a, b]}
answer: {from: [a, b, c], by: vote}
";
    assert!(text.contains(DUTY) && text.contains(ROLE));
    let members =
        vec![member(0, 1, true, false, &[]), member(1, 0, false, true, &[]), member(2, 1, true, false, &[0, 1])];
    let team = Team { members, from: vec![0, 1, 2], rule: AnswerRule::Vote, reviewed: false };
    Study { name: "vote", text, team, changes }
}

/// The same agents side by side, judged; a second round looks at them again.
fn judged_and_reviewed() -> [Study; 2] {
    let id = str::to_owned;
    let known = |change, by_hand| Known { change, by_hand };
    let members =
        || vec![member(0, 1, false, true, &[]), member(1, 0, false, false, &[]), member(2, 1, false, false, &[1])];
    let judged = Study {
        name: "judge",
        text: "
agents:
  - {id: a, base: solver, capacity: medium, share: answer}
  - {id: b, base: solver, capacity: small}
  - {id: c, base: solver, capacity: medium, after: [b]}
answer: {from: [a, b, c], by: judge}
",
        team: Team { members: members(), from: vec![0, 1, 2], rule: AnswerRule::Judge, reviewed: false },
        changes: vec![
            known(Change::AnswerBy { rule: AnswerRule::Vote }, |team| team.rule = AnswerRule::Vote),
            known(Change::RemoveAgent { agent: id("a") }, |team| {
                team.members.remove(0);
                team.from = vec![1, 2];
            }),
            known(Change::RaiseCapacity { agent: id("c") }, |team| team.member(2).level = 2),
        ],
    };
    let reviewed = Study {
        name: "review",
        text: "
agents:
  - {id: a, base: solver, capacity: medium, share: answer}
  - {id: b, base: solver, capacity: small}
  - {id: c, base: solver, capacity: medium, after: [b]}
answer: {from: [b], by: last}
next: review
",
        team: Team { members: members(), from: vec![1], rule: AnswerRule::Last, reviewed: true },
        changes: vec![
            known(Change::Stop, |team| team.reviewed = false),
            known(Change::WithholdMessage { from: id("b"), to: id("c") }, |team| team.member(2).reads = vec![]),
            known(Change::ShareReply { agent: id("a") }, |team| team.member(0).bare = false),
        ],
    };
    [judged, reviewed]
}

/// An agent with a tool and one without. A tool helps as a duty does.
fn tooled() -> Study {
    let id = str::to_owned;
    let known = |change, by_hand| Known { change, by_hand };
    Study {
        name: "tool",
        text: "
agents:
  - {id: a, base: solver, capacity: medium, tools: [consult]}
  - {id: b, base: solver, capacity: small}
  - {id: c, base: solver, capacity: medium, after: [a, b]}
answer: {from: [c], by: last}
",
        team: Team {
            members: vec![
                member(0, 1, true, false, &[]),
                member(1, 0, false, false, &[]),
                member(2, 1, false, false, &[0, 1]),
            ],
            from: vec![2],
            rule: AnswerRule::Last,
            reviewed: false,
        },
        changes: vec![
            known(Change::RemoveTool { agent: id("a"), tool: id("consult") }, |team| team.member(0).dutiful = false),
            known(Change::WithholdResult { agent: id("a"), tool: id("consult") }, |team| {
                team.member(0).dutiful = false;
            }),
            known(Change::AddTool { agent: id("b"), tool: id("consult"), at: 0 }, |team| team.member(1).dutiful = true),
        ],
    }
}

/// By difficulty and combination of noise: success of the original, and the difference.
type Runs = [Vec<(f64, f64)>; 2];

/// One change, and on every task there is what the engine found of it.
pub struct Measured {
    pub name: String,
    pub family: Family,
    pub runs: Runs,
    truth: f64,
}

/// Every counterfactual of every study, once.
pub static MEASURED: LazyLock<Vec<Measured>> = LazyLock::new(|| {
    let [judged, reviewed] = judged_and_reviewed();
    [voting(), judged, reviewed, tooled()].iter().flat_map(measure).collect()
});

fn measure(study: &Study) -> Vec<Measured> {
    let env = enumerable();
    let counterfactuals = counterfactuals(&env);
    let (plan, cases) = (plan(study.text), all_cases());
    let edits: Vec<(Edit, Edited)> =
        study.changes.iter().map(|known| edit(&plan, &known.change, &counterfactuals)).collect();
    let mut runs: Vec<Runs> = edits.iter().map(|_| Runs::default()).collect();
    for (at, case) in cases.iter().enumerate() {
        let hard = at / COMBINATIONS as usize;
        for (edit, (original, difference)) in measure_one(&counterfactuals, &plan, case, &edits).into_iter().enumerate()
        {
            runs[edit][hard].push((original, difference));
        }
    }
    let mut measured = Vec::new();
    for ((known, (edit, _)), runs) in study.changes.iter().zip(&edits).zip(runs) {
        let name = format!("{}: {}", study.name, known.change);
        measured.push(Measured { name, family: edit.family, runs, truth: truth(study, known) });
    }
    measured
}

fn edit(plan: &Plan, change: &Change, counterfactuals: &Counterfactuals<'_>) -> (Edit, Edited) {
    let edit = Edit::new(change.clone(), plan);
    let edited = apply(plan, &edit, &counterfactuals.env.language).unwrap();
    (edit, edited)
}

fn measure_one(
    counterfactuals: &Counterfactuals<'_>,
    plan: &Plan,
    case: &Case,
    edits: &[(Edit, Edited)],
) -> Vec<(f64, f64)> {
    let cancel = CancellationToken::new();
    wait(async {
        let original = counterfactuals.base(case, plan, SEED, &cancel).await.unwrap();
        let mut found = Vec::new();
        for (edit, edited) in edits {
            let measured = counterfactuals.counterfactual(&original, edit, edited, &cancel).await.unwrap();
            let before = original.outcome.score().unwrap().success();
            found.push((before, measured.known().unwrap().success));
        }
        found
    })
}

/// The effect, by going through everything that can happen.
fn truth(study: &Study, known: &Known) -> f64 {
    let mut changed = study.team.clone();
    (known.by_hand)(&mut changed);
    let mut sum = 0;
    for hard in DIFFICULTIES {
        for combination in 0..COMBINATIONS {
            let right = |team: &Team| i64::from(team.is_right(combination, hard));
            sum += right(&study.team) - right(&changed);
        }
    }
    sum as f64 / (COMBINATIONS * DIFFICULTIES.len() as u64) as f64
}

#[test]
fn over_everything_that_can_happen_an_effect_is_exactly_the_enumerated_one() {
    for measured in MEASURED.iter() {
        let found: f64 = measured.runs.iter().flatten().map(|(_, difference)| difference).sum();
        let found = found / measured.runs.iter().flatten().count() as f64;
        assert!((found - measured.truth).abs() < 1e-12, "{}: {found} is not {}", measured.name, measured.truth);
        let seen = measured.runs.iter().flatten().any(|(_, difference)| *difference != 0.0);
        assert!(seen, "{}: nothing to see", measured.name);
    }
    let families: BTreeSet<Family> = MEASURED.iter().map(|measured| measured.family).collect();
    assert_eq!(families.len(), Family::ALL.len(), "{families:?}");
}

const REPLICATIONS: usize = 4000;
const REPEATS: usize = 2;

/// What many studies of tasks drawn by chance came to, two runs of each task.
struct Replicated {
    /// How often the interval covers the truth.
    coverage: f64,
    /// How far off they are on average, in standard errors.
    off: f64,
}

fn replicate(measured: &Measured, tasks: usize, random: &mut Random) -> Replicated {
    let (mut covered, mut estimates) = (0, Paired::default());
    for _ in 0..REPLICATIONS {
        let estimate = estimate(measured, tasks, random);
        let [low, high] = estimate.over_tasks().interval_within(1.0).unwrap();
        covered += usize::from(low <= measured.truth && measured.truth <= high);
        estimates.push(estimate.mean().unwrap());
    }
    let off = (estimates.mean().unwrap() - measured.truth) / estimates.standard_error().unwrap();
    let coverage = covered as f64 / REPLICATIONS as f64;
    println!("{:44} {:+.3}, {tasks} tasks: off {off:+.1}, covered {coverage:.3}", measured.name, measured.truth);
    Replicated { coverage, off }
}

fn estimate(measured: &Measured, tasks: usize, random: &mut Random) -> ClusteredPaired {
    let mut estimate = ClusteredPaired::default();
    for task in 0..tasks {
        // Runs of a task share its difficulty.
        let runs = random.pick(&measured.runs).unwrap();
        for _ in 0..REPEATS {
            estimate.push(task, random.pick(runs).unwrap().1);
        }
    }
    estimate
}

/// With as many tasks as a profile is meant for.
#[test]
fn estimates_are_unbiased_and_intervals_cover_as_often_as_they_say() {
    let mut random = Random::new(11);
    for measured in MEASURED.iter() {
        let Replicated { coverage, off } = replicate(measured, 200, &mut random);
        assert!((0.93..=0.97).contains(&coverage), "{}: covers {coverage}", measured.name);
        assert!(off.abs() < 4.0, "{}: off by {off} standard errors", measured.name);
    }
}

/// With shared noise, more capacity or a better duty can only help. Where such a difference is rare, few tasks show it and
/// Student's interval is too narrow on the far side. This is how much too narrow, as a warning.
#[test]
fn with_few_tasks_rare_one_sided_differences_are_covered_less_often() {
    let mut random = Random::new(12);
    let one_sided = |measured: &&Measured| {
        let differences = || measured.runs.iter().flatten().map(|(_, difference)| *difference);
        differences().all(|one| one >= 0.0) || differences().all(|one| one <= 0.0)
    };
    let one_sided: Vec<&Measured> = MEASURED.iter().filter(one_sided).collect();
    assert!(!one_sided.is_empty());
    for measured in one_sided {
        let Replicated { coverage, off } = replicate(measured, 60, &mut random);
        assert!((0.89..=0.97).contains(&coverage), "{}: covers {coverage}", measured.name);
        assert!(off.abs() < 4.0, "{}: off by {off} standard errors", measured.name);
    }
}

/// The profile makes of its pairs what the replications above make of theirs.
#[test]
fn a_profile_is_the_estimate_of_its_pairs() {
    let env = enumerable();
    let counterfactuals = counterfactuals(&env);
    let study = voting();
    let plan = plan(study.text);
    let mut random = Random::new(5);
    let which = (0..40).map(|_| (random.below(COMBINATIONS as usize) as u64, *random.pick(&DIFFICULTIES).unwrap()));
    let (cases, seeds) = (cases(which.collect::<Vec<_>>()), [1, 2]);
    let found = profile_of(&counterfactuals, &work(&plan, &cases, &seeds));
    assert!(found.complete && found.effects.len() > study.changes.len());
    let cancel = CancellationToken::new();
    for known in &study.changes {
        let (edit, edited) = edit(&plan, &known.change, &counterfactuals);
        let mut expected = ClusteredPaired::default();
        for (at, case) in cases.iter().enumerate() {
            for seed in seeds {
                let difference = wait(async {
                    let original = counterfactuals.base(case, &plan, seed, &cancel).await.unwrap();
                    let measured = counterfactuals.counterfactual(&original, &edit, &edited, &cancel).await;
                    measured.unwrap().known().unwrap().success
                });
                expected.push(at, difference);
            }
        }
        let effect = effect(&found, &known.change);
        assert_eq!(effect.effect, expected.mean(), "{}", known.change);
        assert_eq!(effect.standard_error, expected.standard_error(), "{}", known.change);
        assert_eq!(effect.interval, expected.over_tasks().interval_within(1.0), "{}", known.change);
        assert_eq!((effect.n, effect.zeros), (80, expected.zeros()), "{}", known.change);
    }
}
