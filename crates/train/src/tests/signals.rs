//! From differences to advantages.

use super::*;

/// An episode of one round that says this and earned that.
fn episode(encoder: &FieldPromptEncoder, table: &FieldTable, text: &str, reward: f64) -> Episode {
    let language = Language::default();
    let context = lemon_exec::orchestrator::WriteContext {
        question: "How much are 3 apples at 2 dollars each?",
        round: 1,
        results: Vec::new(),
        language: &language,
        form: lemon_exec::Form::default(),
        tokens_left: None,
        seed: 1,
    };
    let request = encoder.request(&context).unwrap();
    let encoded = encoder.encode(&request, text, &[]).unwrap();
    let sequence = Sequence { prompt: request.prompt.clone(), tokens: encoded.tokens.clone(), grammar: None };
    let logprobs = table.score(&[sequence], 1.0).unwrap().remove(0);
    let sample = Sample {
        text: text.to_owned(),
        forced: logprobs.iter().map(|it| *it == 0.0).collect(),
        logprobs,
        tokens: encoded.tokens,
        ends: encoded.ends,
        finish: lemon_model::Finish::Stop,
    };
    let mut episode = Episode::new(0, 1, 1, Arc::new(ReplyCache::default()));
    let plan = validate(text, &language).ok();
    episode.rounds.push(Round { request, sample, plan });
    let outcome = Outcome { reward, success: 0.0, tokens: 1, cost: 1.0, weighted: 1.0, valid: 1.0 };
    episode.run = Some(Run { outcome: Some(outcome), failure: None, summary: nothing(), spent: 0 });
    episode
}

/// What a policy gets for one group and its counterfactuals.
fn examples_of(
    (table, encoder): (&FieldTable, &FieldPromptEncoder),
    credit: &CreditSettings,
    lambda: f64,
    group: Vec<Episode>,
    counterfactuals: &[Candidate],
) -> Vec<Example> {
    let signals = Signals {
        policy: table,
        encoder,
        reference: None,
        credit,
        update: &UpdateSettings { per: Per::Rollout, ..UpdateSettings::default() },
        lambda,
        temperature: 1.0,
        economy: &Economy::default(),
        values: &Default::default(),
        critic: &Default::default(),
        reader: Default::default(),
        entropy_price: 0.0,
    };
    signal::signal(&signals, &[group], counterfactuals).unwrap().examples
}

/// The entry of an agent that reads no other.
fn entry(id: &str) -> String {
    format!(
        "  - id: {id}\n    base: solver\n    role: ~\n    duty: ~\n    capacity: large\n    after: []\n    share: reply\n"
    )
}

/// With every other value tried, each form has the gradient of what the field is worth as its mean, to the last digits: for the
/// rule of the answer, with three values of which each was worth something.
#[test]
fn the_local_gradient_is_the_analytic_one() {
    for form in [CreditForm::AllAction, CreditForm::Sampled, CreditForm::Gradient] {
        check_local_gradient(form);
    }
}

fn check_local_gradient(form: CreditForm) {
    let start = FieldStart { first: FirstTeams::Large, lean: 0.7, ..FieldStart::default() };
    let language = Arc::new(Language::default());
    let table = FieldTable::new(&start, &language).unwrap();
    let encoder = FieldPromptEncoder::new(&start, language.clone(), 2).unwrap();
    let text = |rule: &str| {
        format!("agents:\n{}{}answer: {{from: [a1, a2], by: {rule}}}\nnext: stop\n", entry("a1"), entry("a2"))
    };
    let worth = [("last", 0.3), ("vote", 0.9), ("judge", 0.5)];
    let probabilities = table.probabilities(encoder.kind("How much are 3 apples at 2 dollars each?"), 0);
    let by = &probabilities.iter().find(|(name, _)| name.contains("by")).unwrap().1;
    let chance = |rule: &str| by.iter().find(|(name, _)| name == rule).unwrap().1;

    // The mean of the local term over what the policy writes.
    let credit = CreditSettings { form, replace: true, by_variance: false, ..CreditSettings::default() };
    let mut found: Vec<f64> = Vec::new();
    for (rule, own) in worth {
        let written = episode(&encoder, &table, &text(rule), own);
        let plan = written.rounds[0].plan.clone().unwrap();
        let others = edits(&plan, &language).into_iter().filter_map(|edit| {
            let edited = apply(&plan, &edit, &language).unwrap();
            let other = worth.iter().find(|(other, _)| edited.plan.source() == text(other))?;
            Some(Candidate::measured((0, 0, 0), Alternative { edit, edited, prefix: None }, own - other.1))
        });
        let others: Vec<Candidate> = others.collect();
        assert_eq!(others.len(), 2);
        // Alone in its group, a text has no advantage: what is left is the local term.
        let examples = examples_of((&table, &encoder), &credit, 1.0, vec![written], &others);
        let gradient = table.gradient(&examples, 1.0).unwrap();
        found.resize(gradient.len(), 0.0);
        found.iter_mut().zip(&gradient).for_each(|(sum, part)| *sum += chance(rule) * part);
    }

    // By logit: −p(v) · (worth of v − mean worth).
    let mean: f64 = worth.iter().map(|(rule, worth)| chance(rule) * worth).sum();
    let mut expected: Vec<f64> = worth.iter().map(|(rule, worth)| -chance(rule) * (worth - mean)).collect();
    let mut nonzero: Vec<f64> = found.into_iter().filter(|it| it.abs() > 1e-9).collect();
    let order = |values: &mut Vec<f64>| values.sort_by(f64::total_cmp);
    order(&mut expected);
    order(&mut nonzero);
    assert_eq!(nonzero.len(), 3, "{nonzero:?}");
    for (found, expected) in nonzero.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }
}

/// Every segment of a text is measured from the prefix team before it, the decision to end like the decision to go on.
#[test]
fn segments_are_measured_from_their_prefix_teams() {
    let start = FieldStart { slots: 3, ..FieldStart::default() };
    let language = Arc::new(Language::default());
    let table = FieldTable::new(&start, &language).unwrap();
    let encoder = FieldPromptEncoder::new(&start, language.clone(), 1).unwrap();
    let text = format!("agents:\n{}{}answer: {{from: [a1, a2], by: judge}}\nnext: stop\n", entry("a1"), entry("a2"));
    let credit = CreditSettings { families: vec![Family::Agent], ..CreditSettings::default() };
    let written = episode(&encoder, &table, &text, 0.9);
    let plan = written.rounds[0].plan.clone().unwrap();
    let potentials = [(1, 0.5), (2, 0.7)];
    let advantages = |decay: f64, known: &[(usize, f64)]| {
        let credit = CreditSettings { prefix_decay: decay, ..credit.clone() };
        let measured: Vec<Candidate> = alternatives(&plan, &language, &credit)
            .into_iter()
            .filter_map(|it| {
                let (_, reward) = known.iter().find(|(agents, _)| Some(*agents) == it.prefix)?;
                Some(Candidate::measured((0, 0, 0), it, 0.9 - reward))
            })
            .collect();
        assert_eq!(measured.len(), known.len());
        // The other team of the group earned 0.3.
        let group = vec![episode(&encoder, &table, &text, 0.9), episode(&encoder, &table, &text, 0.3)];
        let examples = examples_of((&table, &encoder), &credit, 1.0, group, &measured);
        let Objective::Clipped { advantages, .. } = &examples[0].objective else { panic!("another objective") };
        // Of every choice: the bytes before it, and its advantage.
        let starts = std::iter::once(0).chain(written.rounds[0].sample.ends.iter().copied());
        let choices = starts.zip(&written.rounds[0].sample.forced).zip(advantages).filter(|((_, forced), _)| !**forced);
        choices.map(|((start, _), advantage)| (start, *advantage)).collect::<Vec<(usize, f32)>>()
    };
    let (first, second) = (text.find("  - id: a2").unwrap(), text.find("answer:").unwrap());
    let check = |found: Vec<(usize, f32)>, expected: [f32; 3]| {
        assert!(found.iter().any(|(start, _)| *start == second), "the decision to end");
        for (start, advantage) in found {
            let segment = usize::from(start >= first) + usize::from(start >= second);
            assert!((advantage - expected[segment]).abs() < 1e-6, "{start}: {advantage}, {expected:?}");
        }
    };
    check(advantages(1.0, &potentials), [0.6, 0.4, 0.2]);
    check(advantages(0.0, &potentials), [0.2, 0.2, 0.2]);
    check(advantages(0.5, &potentials), [0.2 + 0.5 * 0.3, 0.2 + 0.5 * 0.2, 0.2]);
    // What was not measured gets no credit, not that of the group.
    check(advantages(1.0, &potentials[..1]), [0.6, 0.4, 0.0]);
}

#[test]
fn credit_goes_to_the_field_alone_and_the_global_form_spreads_the_same_sum() {
    let start = FieldStart::default();
    let language = Arc::new(Language::default());
    let table = FieldTable::new(&start, &language).unwrap();
    let encoder = FieldPromptEncoder::new(&start, language.clone(), 2).unwrap();
    let text = &format!("agents:\n{}answer: {{from: [a1], by: last}}\nnext: stop\n", entry("a1"));
    let plan = validate(text, &language).unwrap();
    let advantages = |place: recipe::Place, family: Family| {
        let edit = edits(&plan, &language).into_iter().find(|edit| edit.family == family).unwrap();
        let edited = apply(&plan, &edit, &language).unwrap();
        let form = CreditForm::Sampled;
        let credit =
            CreditSettings { place, form, by_variance: false, suffix: Suffix::Keep, ..CreditSettings::default() };
        let counterfactual = Candidate::measured((0, 0, 0), Alternative { edit, edited, prefix: None }, 0.5);
        let group = vec![episode(&encoder, &table, text, 1.0)];
        let examples = examples_of((&table, &encoder), &credit, 2.0, group, &[counterfactual]);
        assert_eq!(examples.len(), 1);
        match &examples[0].objective {
            lemon_model::Objective::Clipped { advantages, .. } => advantages.clone(),
            other => panic!("{other:?}"),
        }
    };
    for family in [Family::Capacity, Family::Share, Family::Answer, Family::Stop] {
        let local = advantages(recipe::Place::Field, family);
        let credited: Vec<f32> = local.iter().copied().filter(|it| *it != 0.0).collect();
        let [credited] = credited[..] else { panic!("{family}: {local:?}") };
        let spread = advantages(recipe::Place::Everywhere, family);
        let chosen = episode(&encoder, &table, text, 1.0).rounds[0].sample.forced.iter().filter(|it| !**it).count();
        assert!(spread.iter().all(|it| (it - credited / chosen as f32).abs() < 1e-6), "{spread:?} {credited}");
    }
}

/// λ says how much a local estimate counts beside the group's; with replacement it counts alone, and what was not measured has none.
#[test]
fn a_local_estimate_is_mixed_with_that_of_the_group_or_replaces_it() {
    let (start, language) = (FieldStart::default(), Arc::new(Language::default()));
    let table = FieldTable::new(&start, &language).unwrap();
    let encoder = FieldPromptEncoder::new(&start, language.clone(), 2).unwrap();
    let text = &format!("agents:\n{}answer: {{from: [a1], by: last}}\nnext: stop\n", entry("a1"));
    let plan = validate(text, &language).unwrap();
    // What the rule of the answer gets, and what its capacity does, for a team that is 0.5 better than the other.
    let advantages = |replace: bool, lambda: f64, deltas: [f64; 2]| {
        let credit = CreditSettings {
            replace,
            form: CreditForm::Sampled,
            by_variance: false,
            prefix_truncation: false,
            ..CreditSettings::default()
        };
        let rules = alternatives(&plan, &language, &credit).into_iter().filter(|it| it.edit.family == Family::Answer);
        let measured: Vec<Candidate> =
            rules.zip(deltas).map(|(it, delta)| Candidate::measured((0, 0, 0), it, delta)).collect();
        assert_eq!(measured.len(), 2);
        let group = vec![episode(&encoder, &table, text, 0.75), episode(&encoder, &table, text, 0.25)];
        let ends = group[0].rounds[0].sample.ends.clone();
        let examples = examples_of((&table, &encoder), &credit, lambda, group, &measured);
        let Objective::Clipped { advantages, .. } = &examples[0].objective else { panic!("another objective") };
        let at = |value: &str| advantages[ends.iter().position(|end| text[..*end].ends_with(value)).unwrap()];
        [at("by: last"), at("large")]
    };
    let kind = encoder.kind("How much are 3 apples at 2 dollars each?");
    let probabilities = table.probabilities(kind, 0);
    let by = &probabilities.iter().find(|(name, _)| name.contains("by")).unwrap().1;
    let others: f32 = by.iter().filter(|(name, _)| name != "last").map(|(_, chance)| *chance as f32).sum();
    let close = |found: [f32; 2], expected: [f32; 2]| {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} is not {expected:?}");
    };
    // Both other rules are worse by 0.6.
    close(advantages(true, 2.0, [0.6; 2]), [0.6 * others, 0.0]);
    close(advantages(false, 2.0, [0.6; 2]), [0.5 / 3.0 + 0.6 * others * 2.0 / 3.0, 0.5]);
    // Nothing, where it was measured, is nothing.
    close(advantages(true, 2.0, [0.0; 2]), [0.0, 0.0]);
}

/// A decision that is worth the same for every question is not learned where the guard says so.
#[test]
fn guards_subtract_what_a_value_is_worth_on_average_and_pay_for_entropy() {
    let (start, language) = (FieldStart::default(), Arc::new(Language::default()));
    let table = FieldTable::new(&start, &language).unwrap();
    let encoder = FieldPromptEncoder::new(&start, language.clone(), 2).unwrap();
    let text = &format!("agents:\n{}answer: {{from: [a1], by: last}}\nnext: stop\n", entry("a1"));
    let mut credit = CreditSettings { form: CreditForm::None, ..CreditSettings::default() };
    credit.guard.value_baseline = 1.0;
    let mut values = lemon_credit::guard::ValueBaselines::default();
    values.add(&[("capacity=large".to_owned(), 0.2)], 1.0);
    let group = vec![episode(&encoder, &table, text, 0.75), episode(&encoder, &table, text, 0.25)];
    let sample = group[0].rounds[0].sample.clone();
    let advantages = |entropy_price: f64| {
        let signals = Signals {
            policy: &table,
            encoder: &encoder,
            reference: None,
            credit: &credit,
            update: &UpdateSettings { per: Per::Rollout, ..UpdateSettings::default() },
            lambda: 1.0,
            temperature: 1.0,
            economy: &Economy::default(),
            values: &values,
            critic: &Default::default(),
            reader: Default::default(),
            entropy_price,
        };
        let signal = signal::signal(&signals, std::slice::from_ref(&group), &[]).unwrap();
        assert!(signal.values.contains(&("capacity=large".to_owned(), 0.5)), "{:?}", signal.values);
        let Objective::Clipped { advantages, .. } = &signal.examples[0].objective else { panic!("another objective") };
        advantages.clone()
    };
    let at = |value: &str| sample.ends.iter().position(|end| text[..*end].ends_with(value)).unwrap();
    let plain = advantages(0.0);
    assert!((plain[at("large")] - 0.3).abs() < 1e-6 && (plain[at("share: reply")] - 0.5).abs() < 1e-6, "{plain:?}");
    let paid = advantages(0.1);
    for (token, (paid, plain)) in paid.iter().zip(&plain).enumerate() {
        let expected = if sample.forced[token] { 0.0 } else { -0.1 * sample.logprobs[token] };
        assert!((paid - plain - expected).abs() < 1e-6, "{token}");
    }
}
