use super::*;

fn means() -> Means {
    Means {
        runs: 8,
        reward: 0.5124,
        success: 0.712,
        tokens: 1234.4,
        cost: 0.0,
        valid: 0.98,
        agents: 3.21,
        rounds: 1.1,
        review: 0.125,
    }
}

fn broken() -> Means {
    let none = f64::NAN;
    Means { reward: none, success: none, tokens: none, valid: none, agents: none, review: none, ..means() }
}

#[test]
fn sparklines() {
    let check = |values: &[f64], expected: &str| assert_eq!(sparkline(&values.iter().copied().collect()), expected);
    check(&[], "");
    check(&[0.3], "▅");
    check(&[2.0, 2.0], "▅▅");
    check(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], "▁▂▃▄▅▆▇█");
    check(&[-1.0, f64::NAN, 1.0], "▁ █");
    check(&[f64::INFINITY, f64::NAN], "  ");
    // A span beyond all numbers.
    check(&[f64::MIN, f64::MAX], "▁▁");
}

#[test]
fn only_the_last_steps_are_remembered() {
    let mut values = VecDeque::new();
    (0..100).for_each(|value| remember(&mut values, f64::from(value)));
    assert_eq!((values.len(), values.front(), values.back()), (RECENT, Some(&60.0), Some(&99.0)));
}

#[test]
fn numbers_of_any_size() {
    let check = |value, expected: &str| assert_eq!(fixed(value), expected);
    check(0.0, "0.000");
    check(0.5124, "0.512");
    check(-2.0, "-2.000");
    check(0.000_04, "4e-5");
    check(42.04, "42.0");
    check(1234.0, "1,234");
    check(3.21e9, "3.2e9");
    check(f64::INFINITY, "–");
}

#[test]
fn outcomes() {
    let check = |means: Means, expected: (&str, &str)| {
        let reward = reward_line(means.reward, &[0.1, 0.2].into());
        assert_eq!((reward.as_str(), outcome(&means).as_str()), expected);
    };
    let outcome = "71.2 % right · 1,234 tokens · 98.0 % valid · 3.2 agents · 12.5 % review";
    check(means(), ("reward 0.512 ▁█", outcome));
    check(broken(), ("reward – ▁█", "– right · – tokens · – valid · – agents · – review"));
}

#[test]
fn policies() {
    let check = |metrics: StepMetrics, expected: &str| assert_eq!(policy_line(&metrics), expected);
    let metrics =
        StepMetrics { entropy: 1.5, kl_old: 0.0021, clipped: 0.012, gradient_norm: 0.52, ..StepMetrics::default() };
    check(metrics.clone(), "entropy 1.500 · KL 0.002 · 1.2 % clipped · gradient 0.520");
    let measured = StepMetrics { kl_reference: 0.02, gradient_norm: f64::NAN, ..metrics };
    check(measured, "entropy 1.500 · KL 0.002, 0.020 from the start · 1.2 % clipped · gradient –");
}

#[test]
fn families() {
    let check = |family, report, expected: &str| assert_eq!(family_line(family, &report), expected);
    let nothing = FamilyReport::default();
    check(Family::Stop, nothing, "  stop        mean |Δ|      – ·    0 free ·    0 purchased · worth –");
    let purchased =
        FamilyReport { free: 12, purchased: 3, absolute: Some(0.048), worth: Some(2.456), ..FamilyReport::default() };
    check(Family::Dependency, purchased, "  dependency  mean |Δ|  0.048 ·   12 free ·    3 purchased · worth 2.456");
}

#[test]
fn times() {
    let check = |time: Timing, expected: &str| assert_eq!(time_line(&time), expected);
    let time = Timing { step: 1, sampling: 2.0, running: 1.0, credit: 1.0, update: 5.9, other: 0.1 };
    check(time, "time: writing 20 % · running 10 % · credit 10 % · learning 59 % · other 1 %");
    check(Timing::default(), "time: writing – · running – · credit – · learning – · other –");

    let check = |seconds: &[f64], steps, expected: &str| {
        assert_eq!(time_left(&seconds.iter().copied().collect(), steps), expected, "{seconds:?}");
    };
    check(&[], 10, "");
    check(&[2.0, 4.0], 0, "");
    check(&[2.0, 4.0], 10, " · 30s left");
    check(&[60.0], 90, " · 2h left");
    check(&[f64::NAN], 10, "");
    check(&[-1.0], 10, "");
    check(&[1e300], u64::MAX, "");
}

#[test]
fn a_line_is_said_of_each_look() {
    let check = |metrics: StepMetrics, expected: Option<&str>| assert_eq!(plain_line(&metrics).as_deref(), expected);
    let held_out = "reward 0.512 · 71.2 % right · 1,234 tokens · 98.0 % valid · 3.2 agents · 12.5 % review";
    let first = StepMetrics { held_out: Some(means()), ..StepMetrics::default() };
    check(first.clone(), Some(&format!("held out, step 0: {held_out}")));
    let later = StepMetrics { step: 20, worker_tokens: 98_765, ..first };
    check(later.clone(), Some(&format!("held out, step 20: {held_out} · 98,765 worker tokens spent")));
    check(StepMetrics { held_out: None, ..later }, None);
}

#[test]
fn the_view_remembers_what_a_step_does_not_say() {
    let mut view = TrainView::new(10, true);
    let stop = FamilyReport { free: 1, ..FamilyReport::default() };
    let families = BTreeMap::from([(Family::Stop, stop)]);
    let timing = Timing { step: 1, running: 2.0, ..Timing::default() };
    view.step(&StepMetrics { held_out: Some(means()), ..StepMetrics::default() }, &Timing::default());
    view.step(
        &StepMetrics { step: 1, rollouts: means(), families: families.clone(), ..StepMetrics::default() },
        &timing,
    );
    view.step(&StepMetrics { step: 2, rollouts: means(), skipped: true, ..StepMetrics::default() }, &timing);
    view.finish();
    assert_eq!((view.rewards.len(), view.seconds.make_contiguous()), (2, &mut [2.0, 2.0][..]));
    assert_eq!((view.time.running, view.families, view.held_out), (4.0, families, Some((0, means()))));
}
