//! A model that knows nothing, under the grammar of teams: whatever it writes is a team, and its probabilities are exact.

use lemon_model::{
    DeviceChoice, Example, Finish, Grammar, LanguagePolicy, Learning, ModelConfig, Objective, Policy, SampleRequest,
    SampleSettings, Sequence, StepSettings, Tokenizer, owners,
};
use lemon_spec::{Field, Language, Shape, Span, grammar, render, validate_round};

fn untrained(seed: u64) -> LanguagePolicy {
    let words = "solve the task step by step check each number and correct it answer with care ".repeat(20);
    let teams = (0..40).map(|seed| render(&lemon_spec::generate::spec(seed, &Language::default())).text);
    let tokenizer = Tokenizer::train([words].into_iter().chain(teams), 420, &["<|end|>"]).unwrap();
    let config = ModelConfig { positions: 2_048, ..ModelConfig::small(448, 32, 1, tokenizer.end()) };
    LanguagePolicy::fresh(config, tokenizer, seed, DeviceChoice::Cpu, Learning::Everything).unwrap()
}

fn requests(policy: &LanguagePolicy, grammar: &Grammar, seeds: std::ops::Range<u64>) -> Vec<SampleRequest> {
    let prompt = policy.tokenizer().encode_plain("A task.");
    seeds.map(|seed| SampleRequest { prompt: prompt.clone(), grammar: Some(grammar.clone()), seed }).collect()
}

#[test]
fn ten_thousand_teams_of_an_untrained_model_are_valid() {
    let policy = untrained(1);
    let settings = SampleSettings { temperature: 1.5, top_p: 1.0, most_tokens: 2_000 };
    let language = Language::default();
    let mut written = 0;
    let mut agents = [0usize; 7];
    // First rounds and later ones, of several shapes; short duties for most, so that ten thousand do not take minutes.
    let earlier = [Vec::new(), vec!["a1".to_owned(), "a2".to_owned()], vec!["x".to_owned()]];
    let shapes = [
        (Shape { role_chars: 8, duty_chars: 16, ..Shape::default() }, 3_000),
        (Shape { agents: 3, role_chars: 12, duty_chars: 30, ..Shape::default() }, 300),
        (Shape { agents: 2, role_chars: 60, duty_chars: 160, ..Shape::default() }, 40),
    ];
    for earlier in &earlier {
        for (shape, count) in &shapes {
            let grammar = Grammar::new(&grammar(&language, earlier, shape), policy.tokenizer()).unwrap();
            let samples = policy.sample(&requests(&policy, &grammar, 0..*count), &settings).unwrap();
            for sample in &samples {
                assert_eq!(sample.finish, Finish::Stop, "{}", sample.text);
                let plan = validate_round(&sample.text, &language, earlier);
                let plan = plan.unwrap_or_else(|rejection| panic!("{}\n{:?}", sample.text, rejection.diagnostics));
                assert_eq!(render(plan.spec()).text, sample.text);
                agents[plan.agents().len()] += 1;
            }
            written += samples.len();
        }
    }
    assert!(written >= 10_000, "{written}");
    // Teams of every size are among them.
    assert!(agents.iter().all(|count| *count > 100), "{agents:?}");
}

#[test]
fn under_a_grammar_what_was_sampled_is_scored_the_same_to_the_last_bit() {
    let mut policy = untrained(2);
    let shape = Shape { agents: 4, role_chars: 12, duty_chars: 30, ..Shape::default() };
    let grammar = Grammar::new(&grammar(&Language::default(), &[], &shape), policy.tokenizer()).unwrap();
    let requests = requests(&policy, &grammar, 0..24);
    let settings = SampleSettings { temperature: 1.2, top_p: 1.0, most_tokens: 1_000 };
    let samples = policy.sample(&requests, &settings).unwrap();
    let sequence = |at: usize| Sequence {
        prompt: requests[at].prompt.clone(),
        tokens: samples[at].tokens.clone(),
        grammar: Some(grammar.clone()),
    };
    let sequences: Vec<Sequence> = (0..samples.len()).map(sequence).collect();
    for (sample, score) in samples.iter().zip(policy.score(&sequences, 1.2).unwrap()) {
        assert_eq!(sample.logprobs, score);
        for (forced, logprob) in sample.forced.iter().zip(&score) {
            assert!(if *forced { *logprob == 0.0 } else { *logprob < 0.0 });
        }
    }
    // Before the first update every ratio is one, so that nothing is clipped although there is no room to move.
    let example = |at: usize| {
        let count = samples[at].tokens.len();
        let objective = Objective::Clipped {
            weights: vec![1.0; count],
            advantages: vec![if at.is_multiple_of(2) { 1.0 } else { -1.0 }; count],
            old: samples[at].logprobs.clone(),
            reference: None,
            low: 0.0,
            high: 0.0,
            kl: 0.0,
        };
        Example { sequence: sequences[at].clone(), objective }
    };
    let examples: Vec<Example> = (0..samples.len()).map(example).collect();
    let step = StepSettings { learning_rate: 1e-3, temperature: 1.2, clip_norm: 1.0, micro_batch: 5 };
    let report = policy.update(&examples, &step).unwrap();
    let chosen: usize = samples.iter().map(|sample| sample.forced.iter().filter(|forced| !**forced).count()).sum();
    assert_eq!((report.tokens, report.clipped, report.kl_old), (chosen, 0.0, 0.0));
}

#[test]
fn a_team_of_forced_tokens_alone_teaches_nothing() {
    let mut policy = untrained(3);
    let one = "start: \"agents: one way only\\n\"";
    let grammar = Grammar::new(one, policy.tokenizer()).unwrap();
    let sample = policy.sample(&requests(&policy, &grammar, 0..1), &SampleSettings::default()).unwrap().remove(0);
    assert_eq!((sample.text.as_str(), sample.forced.iter().all(|forced| *forced)), ("agents: one way only\n", true));
    let prompt = policy.tokenizer().encode_plain("A task.");
    let sequence = Sequence { prompt, tokens: sample.tokens.clone(), grammar: Some(grammar) };
    let objective = Objective::Likelihood { weights: vec![1.0; sample.tokens.len()] };
    let step = StepSettings { learning_rate: 0.1, temperature: 1.0, clip_norm: 0.0, micro_batch: 0 };
    let report = policy.update(&[Example { sequence, objective }], &step).unwrap();
    assert_eq!((report.tokens, report.loss, report.gradient_norm, policy.steps()), (0, 0.0, 0.0, 0));
}

#[test]
fn every_field_has_the_tokens_that_wrote_it() {
    let policy = untrained(4);
    let language = Language::default();
    let shape = Shape { agents: 3, role_chars: 20, duty_chars: 40, ..Shape::default() };
    let grammar = Grammar::new(&grammar(&language, &[], &shape), policy.tokenizer()).unwrap();
    let settings = SampleSettings { temperature: 1.0, top_p: 1.0, most_tokens: 1_000 };
    for sample in policy.sample(&requests(&policy, &grammar, 0..60), &settings).unwrap() {
        let plan = validate_round(&sample.text, &language, &[]).unwrap();
        let fields: Vec<Field> = (0..plan.agents().len())
            .flat_map(|at| [Field::Base(at), Field::Role(at), Field::Duty(at), Field::Capacity(at), Field::Share(at)])
            .chain([Field::AnswerBy, Field::Next])
            .collect();
        let spans: Vec<Span> = fields.iter().map(|field| plan.spans().get(*field).unwrap()).collect();
        let ranges: Vec<std::ops::Range<usize>> = spans.iter().map(|span| span.start..span.end).collect();
        let owners = owners(&sample.ends, &ranges);
        for (at, owner) in owners.iter().enumerate() {
            let start = if at == 0 { 0 } else { sample.ends[at - 1] };
            let token = start..sample.ends[at];
            let inside =
                |range: &std::ops::Range<usize>| token.end.min(range.end).saturating_sub(token.start.max(range.start));
            if let Some(owner) = owner {
                // No other field holds more of the token, and no more of it lies outside.
                let held = inside(&ranges[*owner]);
                assert!(ranges.iter().all(|range| inside(range) <= held) && 2 * held >= token.len());
            }
        }
        // The decisions are each written by at least one token that the grammar did not force.
        for (number, field) in fields.iter().enumerate() {
            if matches!(field, Field::Capacity(_) | Field::Base(_)) {
                let mine = owners.iter().enumerate().filter(|(_, owner)| **owner == Some(number));
                assert!(mine.clone().any(|(at, _)| !sample.forced[at]), "{field:?} in\n{}", sample.text);
            }
        }
    }
}
