use super::*;
use lemon_spec::edit::Family;
use proptest::prelude::*;

fn page(title: &str, recipe: &str, steps: &[StepPoint], seconds: &[StepSeconds], teams: &[TeamChange]) -> String {
    html(&TrainingReport {
        title: title.to_owned(),
        recipe: recipe.to_owned(),
        steps: steps.to_vec(),
        seconds: seconds.to_vec(),
        teams: teams.to_vec(),
    })
}

/// Everything there is, small.
#[test]
fn a_small_run() {
    let html = page("A <small> run", "seed = 1\nabout = \"<b>\"\n", &run(3), &[timing(), timing()], &[team()]);
    let (before, rest) = html.split_once("<style>").unwrap();
    let (_, after) = rest.split_once("</style>").unwrap();
    insta::assert_snapshot!(format!("{before}<style>…</style>{after}"));
}

#[test]
fn pages_of_hardly_anything() {
    let check = |metrics: &[StepPoint], expected: &str| {
        let html = page("", "", metrics, &[], &[]);
        assert!(html.contains(expected), "{html}");
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    };
    check(&[], "There is no held-out evaluation yet.");
    check(
        &run(1),
        "At step 0, on held-out tasks: <b>60.0 %</b> of the answers are right, with <b>900</b> tokens per run",
    );
    check(&run(1), "<p>The reward is the number that training raises: 1 for a right answer");
    check(&run(1), "It is <b>0.400</b>.");
    check(&run(1), "0 steps took <b>0</b> worker tokens.");
    check(&run(2), "1 step took <b>3,300</b> worker tokens, <b>9.1 %</b> of them on counterfactuals.");
    let broken = StepPoint { skipped: true, unmeasured: 2, loss: f64::NAN, gradient_norm: f64::INFINITY, ..step(1) };
    check(std::slice::from_ref(&broken), "1 step was left out because a number was not finite.");
    check(&[broken], "2 runs were left out because their reward could not be measured.");
    let nothing = RunMeans { runs: 1, reward: f64::NAN, success: f64::NAN, tokens: f64::NAN, ..RunMeans::default() };
    check(&[StepPoint { held_out: Some(nothing), ..StepPoint::default() }], "<b>–</b> of the answers are right");
}

/// The lead says what rose and what did not, and the reward is defined where it is first named.
#[test]
fn the_lead_says_what_rose() {
    let check = |after: RunMeans, expected: &[&str]| {
        let first = RunMeans { runs: 8, reward: 0.4, success: 0.6, tokens: 900.0, ..RunMeans::default() };
        let evaluations = [
            StepPoint { held_out: Some(first), ..StepPoint::default() },
            StepPoint { held_out: Some(after), step: 9, ..step(1) },
        ];
        let html = page("", "", &evaluations, &[], &[]);
        for part in expected {
            assert!(html.contains(part), "{part}\n{html}");
        }
        let lead = html.split("<div class=\"findings\">").nth(1).and_then(|rest| rest.split("</div>").next()).unwrap();
        assert!(lead.split("eward").nth(1).unwrap().starts_with(" is the number that training raises"), "{lead}");
    };
    let after = RunMeans { runs: 8, reward: 0.6, success: 0.7, tokens: 700.0, ..RunMeans::default() };
    check(
        after,
        &["right answers rose from 60.0 % to <b>70.0 %</b>; tokens per run fell from 900 to <b>700</b> (−22 %)."],
    );
    check(after, &["It rose from 0.400 to <b>0.600</b>.", "a mean over 8 runs"]);
    let cheaper = RunMeans { success: 0.6, ..after };
    check(cheaper, &["right answers stayed at <b>60.0 %</b>; tokens per run fell from 900 to <b>700</b>"]);
    let worse = RunMeans { success: 0.5, tokens: 1_800.0, reward: 0.2, ..after };
    check(
        worse,
        &["right answers fell from 60.0 % to <b>50.0 %</b>; tokens per run rose from 900 to <b>1,800</b> (+100 %)."],
    );
    check(worse, &["It fell from 0.400 to <b>0.200</b>."]);
}

#[test]
fn durations() {
    let check = |seconds, expected: &str| assert_eq!(duration(seconds), expected);
    check(0.0, "0.0 s");
    check(8.24, "8.2 s");
    check(200.0, "3 min 20 s");
    check(4_350.0, "1 h 12 min");
    check(1e7, "2,777 h 46 min");
}

proptest! {
    #[test]
    fn no_text_becomes_markup(text in ".{0,20}<(script|img src=x onerror=y|/pre|/style)>.{0,20}[\"'&].{0,20}") {
        let team = TeamChange {
            set: text.clone(),
            question: text.clone(),
            before: vec![text.clone(), format!("{text} {text}")],
            after: vec![format!("a {text}")],
        };
        let html = page(&text, &text, &run(2), &[], &[team]);
        let plain = page("", "", &run(2), &[], &[]);
        for mark in ["<script", "<img", "</pre", "</style"] {
            let expected = if mark == "</pre" { 1 + 3 } else { plain.matches(mark).count() };
            prop_assert_eq!(html.matches(mark).count(), expected, "{}", mark);
        }
    }

    #[test]
    fn any_numbers_make_a_page(values in prop::collection::vec(any::<f64>(), 8), steps in prop::collection::vec(any::<u64>(), 0..6)) {
        let means = |at: usize| RunMeans {
            runs: 1,
            reward: values[at],
            success: values[(at + 1) % 8],
            tokens: values[(at + 2) % 8],
            valid: values[(at + 3) % 8],
            agents: values[(at + 4) % 8],
            ..RunMeans::default()
        };
        let metrics: Vec<StepPoint> = steps
            .iter()
            .enumerate()
            .map(|(at, step)| StepPoint {
                step: *step,
                rollouts: means(at % 8),
                held_out: Some(means((at + 1) % 8)),
                loss: values[at % 8],
                families: BTreeMap::from([(Family::Stop, FamilyPoint { worth: Some(values[1]), absolute: Some(values[2]), ..FamilyPoint::default() })]),
                ..StepPoint::default()
            })
            .collect();
        let timing = StepSeconds { sampling: values[0], update: values[1], ..StepSeconds::default() };
        let html = page("", "", &metrics, &[timing], &[]);
        prop_assert!(!html.contains("NaN") && !html.contains("inf\"") && !html.contains("inf "));
    }
}

/// A held-out evaluation before the first step, then steps.
fn run(count: u64) -> Vec<StepPoint> {
    (0..count).map(step).collect()
}

fn step(step: u64) -> StepPoint {
    let at = step as f64;
    let means = RunMeans {
        runs: 8,
        reward: 0.4 + 0.1 * at,
        success: 0.6 + 0.05 * at,
        tokens: 900.0 - 100.0 * at,
        valid: 1.0,
        agents: 3.0,
        review: 0.2,
    };
    if step == 0 {
        return StepPoint { held_out: Some(means), ..StepPoint::default() };
    }
    let duty = FamilyPoint {
        free: 2,
        purchased: 3,
        declined: 1,
        capped: 0,
        tokens: 300,
        worth: Some(1.5),
        mean: Some(0.1),
        absolute: Some(0.2),
        variance: Some(0.04),
        zeros: Some(0.4),
    };
    let stop = FamilyPoint { declined: 4, worth: Some(0.01), ..FamilyPoint::default() };
    StepPoint {
        step,
        rollouts: means,
        rollout_tokens: 3_000,
        credit_tokens: 300,
        worker_tokens: 3_300 * step,
        families: BTreeMap::from([(Family::Duty, duty), (Family::Stop, stop)]),
        learning_rate: 1e-4,
        loss: -0.01 * at,
        gradient_norm: 0.5,
        entropy: 2.0 - 0.5 * at,
        kl_old: 0.001,
        held_out: (step == 2).then_some(means),
        ..StepPoint::default()
    }
}

fn timing() -> StepSeconds {
    StepSeconds { sampling: 2.0, running: 40.0, credit: 5.0, update: 10.0, other: 1.0 }
}

fn team() -> TeamChange {
    TeamChange {
        set: "gsm8k".to_owned(),
        question: "Is 1 < 2 & 2 > 1?".to_owned(),
        before: vec!["agents:\n  - id: a\n    base: solver\n    capacity: large\n".to_owned(), "again".to_owned()],
        after: vec!["agents:\n  - id: a\n    base: solver\n    capacity: small\n".to_owned()],
    }
}
