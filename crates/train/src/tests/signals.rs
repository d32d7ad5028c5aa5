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
    let outcome = Outcome { reward, success: 0.0, tokens: 1, cost: 1.0, valid: 1.0 };
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
    };
    signal::examples(&signals, &[group], counterfactuals).unwrap()
}

/// The entry of an agent that reads no other.
fn entry(id: &str) -> String {
    format!(
        "  - id: {id}\n    base: solver\n    role: ~\n    duty: ~\n    capacity: large\n    after: []\n    share: reply\n"
    )
}

/// With a correction of 1, and every other value tried, the local term is the gradient of what the field is worth, to the
/// last digits: for the rule of the answer, with three values of which each was worth something.
#[test]
fn the_local_gradient_is_the_analytic_one() {
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
    let credit = CreditSettings { correction: 1.0, by_variance: false, ..CreditSettings::default() };
    let mut found: Vec<f64> = Vec::new();
    for (rule, own) in worth {
        let written = episode(&encoder, &table, &text(rule), own);
        let plan = written.rounds[0].plan.clone().unwrap();
        let others = edits(&plan, &language).into_iter().filter_map(|edit| {
            let edited = apply(&plan, &edit, &language).unwrap();
            let other = worth.iter().find(|(other, _)| edited.plan.source() == text(other))?;
            Some(Candidate::measured((0, 0, 0), edit, edited, own - other.1))
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

/// Teams of one to three agents, and what the policy gets for going on.
#[test]
fn prefix_truncations_give_the_analytic_gradient_of_going_on() {
    let start = FieldStart { slots: 3, lean: 0.7, ..FieldStart::default() };
    let language = Arc::new(Language::default());
    let table = FieldTable::new(&start, &language).unwrap();
    let encoder = FieldPromptEncoder::new(&start, language.clone(), 1).unwrap();
    let text = |size: usize| {
        let ids: Vec<String> = (1..=size).map(|number| format!("a{number}")).collect();
        let entries: String = ids.iter().map(|id| entry(id)).collect();
        format!("agents:\n{entries}answer: {{from: [{}], by: last}}\nnext: stop\n", ids.join(", "))
    };
    let worth = [0.5, 0.8, 0.6];
    let probabilities = table.probabilities(encoder.kind("How much are 3 apples at 2 dollars each?"), 0);
    let more = |slot: usize| {
        let (_, values) = probabilities.iter().find(|(name, _)| *name == format!("a{slot} spawn")).unwrap();
        values.iter().find(|(name, _)| name == "more").unwrap().1
    };
    let credit = CreditSettings::default();
    // By slot: the sum over what is written of its chance, its advantage, and the slope of its log-probability by "more".
    let mut found = [0.0; 4];
    for size in 1..=3 {
        let written = episode(&encoder, &table, &text(size), worth[size - 1]);
        let plan = written.rounds[0].plan.clone().unwrap();
        let ends = prefix_truncations(&plan, &language).into_iter().enumerate().map(|(at, edit)| {
            let edited = apply(&plan, &edit, &language).unwrap();
            assert_eq!(edited.plan.source(), text(at + 1));
            Candidate::measured((0, 0, 0), edit, edited, worth[size - 1] - worth[at])
        });
        let mut ends: Vec<Candidate> = ends.collect();
        assert_eq!(ends.len(), size - 1);
        if size == 1 {
            // Whose group has another team with an ending, somewhere else.
            let (edit, edited) = {
                let longer = validate(&text(2), &language).unwrap();
                let edit = prefix_truncations(&longer, &language).remove(0);
                (edit.clone(), apply(&longer, &edit, &language).unwrap())
            };
            ends.push(Candidate::measured((9, 9, 9), edit, edited, 0.1));
        }
        let sample = written.rounds[0].sample.clone();
        // A second team in the group, so that it has an advantage there.
        let other = episode(&encoder, &table, &text(1), 0.0);
        let examples = examples_of((&table, &encoder), &credit, 1.0, vec![written, other], &ends);
        let Objective::Clipped { advantages, .. } = &examples[0].objective else { panic!("another objective") };
        let chance = (2..=size).map(more).product::<f64>() * if size < 3 { 1.0 - more(size + 1) } else { 1.0 };
        let starts = std::iter::once(0).chain(sample.ends.iter().copied());
        for (at, (start, end)) in starts.zip(&sample.ends).enumerate() {
            let advantage = f64::from(advantages[at]);
            match &sample.text[start..*end] {
                "a2" => found[2] += chance * advantage * (1.0 - more(2)),
                "a3" => found[3] += chance * advantage * (1.0 - more(3)),
                "" if size < 3 && !sample.forced[at] => found[size + 1] += chance * advantage * -more(size + 1),
                // The first agent is compared with the group, the others with the team that ends before them.
                "large" => {
                    let slot = sample.text[..start].matches("- id").count();
                    let before = if slot == 1 { worth[size - 1] / 2.0 } else { worth[slot - 2] };
                    assert!((advantage - (worth[size - 1] - before)).abs() < 1e-6, "{size} {slot}: {advantage}");
                }
                _ => {}
            }
        }
    }
    let going_on = more(3) * worth[2] + (1.0 - more(3)) * worth[1];
    let expected = [
        more(2) * (1.0 - more(2)) * (going_on - worth[0]),
        more(2) * more(3) * (1.0 - more(3)) * (worth[2] - worth[1]),
    ];
    for (found, expected) in found[2..].iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6 && expected.abs() > 0.01, "{found} is not {expected}");
    }
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
        let credit =
            CreditSettings { place, form: CreditForm::Sampled, by_variance: false, ..CreditSettings::default() };
        let counterfactual = Candidate::measured((0, 0, 0), edit, edited, 0.5);
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
        assert_eq!(local.iter().filter(|it| **it != 0.0).collect::<Vec<_>>(), [&1.0], "{family}");
        let spread = advantages(recipe::Place::Everywhere, family);
        let chosen = episode(&encoder, &table, text, 1.0).rounds[0].sample.forced.iter().filter(|it| !**it).count();
        assert!(spread.iter().all(|it| (it - 1.0 / chosen as f32).abs() < 1e-6), "{spread:?}");
    }
}

#[test]
fn a_difference_may_take_the_place_of_the_group() {
    let (start, language) = (FieldStart::default(), Arc::new(Language::default()));
    let table = FieldTable::new(&start, &language).unwrap();
    let encoder = FieldPromptEncoder::new(&start, language.clone(), 2).unwrap();
    let text = &format!("agents:\n{}answer: {{from: [a1], by: last}}\nnext: stop\n", entry("a1"));
    let plan = validate(text, &language).unwrap();
    let edit = edits(&plan, &language).into_iter().find(|edit| edit.family == Family::Capacity).unwrap();
    // What the level gets, and what all others do, for a team that is 0.25 better than its group.
    let advantages = |instead: bool, delta: f64| {
        let edited = apply(&plan, &edit, &language).unwrap();
        let credit =
            CreditSettings { instead, form: CreditForm::Sampled, by_variance: false, ..CreditSettings::default() };
        let counterfactual = Candidate::measured((0, 0, 0), edit.clone(), edited, delta);
        let group = vec![episode(&encoder, &table, text, 0.75), episode(&encoder, &table, text, 0.25)];
        let ends = group[0].rounds[0].sample.ends.clone();
        let examples = examples_of((&table, &encoder), &credit, 2.0, group, &[counterfactual]);
        let Objective::Clipped { advantages, .. } = &examples[0].objective else { panic!("another objective") };
        let level = ends.iter().position(|end| text[..*end].ends_with("large")).unwrap();
        let (own, others): (Vec<usize>, Vec<usize>) = (0..advantages.len()).partition(|at| *at == level);
        assert!(others.iter().all(|at| advantages[*at] == 0.25), "{advantages:?}");
        advantages[own[0]]
    };
    assert_eq!((advantages(false, 0.5), advantages(true, 0.5)), (1.25, 1.0));
    // Nothing, where it was measured, is nothing.
    assert_eq!((advantages(false, 0.0), advantages(true, 0.0)), (0.25, 0.0));
}
