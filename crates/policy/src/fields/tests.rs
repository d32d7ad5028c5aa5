mod learning;

use super::*;
use crate::fields::FirstTeams;
use crate::trainable::{Encoded, PromptEncoder};
use lemon_exec::orchestrator::{RoundResult, WriteContext};
use lemon_spec::edit::{self, Change, Family};
use lemon_spec::{AnswerRule, Field, Next, Plan, Share, render, validate_round};
use lemon_trace::AgentStatus;
use lemon_world::SkillFit;
use proptest::prelude::*;
use std::sync::Arc;

const QUESTIONS: [&str; 5] = [
    "A coat costs 80 dollars and is 15 percent off. What is the price?",
    "How many legs do two cats have?",
    "Which acid is it?\n\nA) one\nB) two\nC) three\nD) four",
    "At which speed?\n\nA) 1\nB) 2\nC) 3\nD) 4\nE) 5",
    "Complete it.\n```python\ndef f(text: str):\n    \"\"\"Reverse the string.\"\"\"\n```",
];
const FIRST: [FirstTeams; 3] = [FirstTeams::Large, FirstTeams::Lean, FirstTeams::Uniform];
const ROUNDS: u32 = 3;

/// An agent of an earlier round and its reply.
type Earlier = (&'static str, &'static str);

fn start(slots: usize, kinds: usize, first: FirstTeams) -> FieldStart {
    FieldStart { slots, kinds, first, lean: 1.5, ..FieldStart::default() }
}

fn pair(start: &FieldStart) -> (FieldTable, FieldPromptEncoder) {
    let language = Arc::new(Language::default());
    (FieldTable::new(start, &language).unwrap(), FieldPromptEncoder::new(start, language, ROUNDS).unwrap())
}

/// The request for a round after these agents, each with its answer.
fn request(encoder: &FieldPromptEncoder, question: &str, round: u32, earlier: &[Earlier], seed: u64) -> SampleRequest {
    let result = |(agent, reply): &(&'static str, &'static str)| RoundResult {
        agent,
        role: "Solver",
        status: AgentStatus::Done,
        reply: Some(reply),
        sure: None,
    };
    let (language, results) = (Language::default(), earlier.iter().map(result).collect());
    encoder
        .request(&WriteContext {
            question,
            round,
            results,
            language: &language,
            form: Default::default(),
            tokens_left: None,
            seed,
        })
        .unwrap()
}

/// The briefs of all tests: questions of every kind, in the first round, in a later one and in the last.
fn requests(encoder: &FieldPromptEncoder, seed: u64) -> Vec<(Vec<String>, SampleRequest)> {
    let rounds: [(u32, &[Earlier]); 4] = [
        (1, &[]),
        (2, &[("a1", "Answer: 7"), ("a2", "Answer: 7.0")]),
        (2, &[("a1", "Answer: 7"), ("a3", "Answer: 8"), ("judge", "Answer: 8")]),
        (3, &[("a1", "7"), ("a2", "8"), ("a3", "9"), ("a4", "7"), ("no", "7")]),
    ];
    let mut all = Vec::new();
    for (at, question) in QUESTIONS.iter().enumerate() {
        for (round, earlier) in rounds {
            let ids = earlier.iter().map(|(id, _)| (*id).to_owned()).collect();
            all.push((ids, request(encoder, question, round, earlier, seed * 101 + at as u64 * 10 + u64::from(round))));
        }
    }
    all
}

fn one(table: &FieldTable, request: &SampleRequest, temperature: f32) -> Sample {
    let settings = SampleSettings { temperature, ..SampleSettings::default() };
    table.sample(std::slice::from_ref(request), &settings).unwrap().remove(0)
}

fn sequence(request: &SampleRequest, tokens: &[u32]) -> Sequence {
    Sequence { prompt: request.prompt.clone(), tokens: tokens.to_vec(), grammar: None }
}

fn fields(plan: &Plan) -> Vec<Field> {
    let agent = |slot: usize| {
        [
            Field::Id(slot),
            Field::Base(slot),
            Field::Duty(slot),
            Field::Capacity(slot),
            Field::After(slot),
            Field::Share(slot),
        ]
    };
    (0..plan.agents().len()).flat_map(agent).chain([Field::AnswerBy, Field::Next]).collect()
}

/// A sample is a canonical team, its values cover their fields, and it can be read back and scored as it was written.
#[track_caller]
fn check_sample(
    table: &FieldTable,
    encoder: &FieldPromptEncoder,
    earlier: &[String],
    request: &SampleRequest,
    temperature: f32,
) -> Plan {
    let sample = one(table, request, temperature);
    let plan = validate_round(&sample.text, &Language::default(), earlier)
        .unwrap_or_else(|it| panic!("{it}\n{}", sample.text));
    assert_eq!(render(plan.spec()).text, sample.text);
    assert_eq!(plan.warnings(), []);
    let count = sample.tokens.len();
    assert_eq!([sample.ends.len(), sample.logprobs.len(), sample.forced.len()], [count; 3]);
    assert_eq!((sample.tokens.last(), sample.ends.last()), (Some(&layout::END), Some(&sample.text.len())));
    assert!(sample.ends.is_sorted() && sample.finish == Finish::Stop);

    let starts = std::iter::once(0).chain(sample.ends.iter().copied());
    let pieces: Vec<_> = starts.zip(&sample.ends).map(|(start, end)| start..*end).collect();
    let values: Vec<_> =
        pieces.iter().zip(&sample.tokens).filter(|(_, token)| table.layout.value(**token).is_some()).collect();
    let written: Vec<_> =
        values.iter().filter(|(piece, _)| !piece.is_empty()).map(|(piece, _)| (*piece).clone()).collect();
    let spans: Vec<_> =
        fields(&plan).into_iter().map(|field| plan.spans().get(field).unwrap()).map(|it| it.start..it.end).collect();
    assert_eq!(written, spans, "{}", sample.text);
    // "No more agents" is a value without bytes, behind the last entry.
    let enough: Vec<_> = values.iter().filter(|(piece, _)| piece.is_empty()).map(|(piece, _)| piece.start).collect();
    let behind = sample.text.find("answer: ").unwrap();
    assert_eq!(enough, if plan.agents().len() < table.layout.slots { vec![behind] } else { vec![] });

    let encoded = encoder.encode(request, &sample.text, &[]);
    assert_eq!(encoded, Some(Encoded { tokens: sample.tokens.clone(), ends: sample.ends.clone() }));
    let scores = table.score(&[sequence(request, &sample.tokens)], temperature).unwrap();
    assert_eq!(scores[0], sample.logprobs);
    for (logprob, forced) in sample.logprobs.iter().zip(&sample.forced) {
        assert!(if *forced { *logprob == 0.0 } else { *logprob <= 0.0 && logprob.is_finite() });
    }
    plan
}

#[test]
fn whatever_is_written_is_a_team_and_is_read_back() {
    for first in FIRST {
        for (slots, kinds) in [(1, 1), (2, 3), (4, 4), (6, 7)] {
            let (table, encoder) = pair(&start(slots, kinds, first));
            for seed in 0..4 {
                for (earlier, request) in requests(&encoder, seed) {
                    for temperature in [1.0, 0.5, 0.0] {
                        let plan = check_sample(&table, &encoder, &earlier, &request, temperature);
                        assert!(plan.agents().len() <= slots && (plan.agents().is_empty() <= !earlier.is_empty()));
                    }
                }
            }
        }
    }
}

/// Without readers every call is about the task alone, and a later round answers for all rounds.
#[test]
fn without_readers_no_agent_and_no_judge_reads_another() {
    for first in FIRST {
        let (table, encoder) = pair(&FieldStart { readers: false, ..start(4, 4, first) });
        for (earlier, request) in (0..8).flat_map(|seed| requests(&encoder, seed)) {
            let plan = check_sample(&table, &encoder, &earlier, &request, 1.0);
            let spec = plan.spec();
            assert!(spec.agents.iter().all(|agent| agent.after.is_empty()), "{}", plan.source());
            assert!(spec.answer.by != AnswerRule::Judge, "{}", plan.source());
            let all = earlier.iter().chain(spec.agents.iter().map(|agent| &agent.id));
            assert!(spec.answer.from.iter().eq(all), "{}", plan.source());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_table_writes_teams(
        slots in 1usize..=8,
        kinds in 1usize..6,
        at in 0usize..20,
        seed: u64,
        temperature in 0.2f32..3.0,
        spread in 0.0f32..6.0,
    ) {
        let (mut table, encoder) = pair(&start(slots, kinds, FirstTeams::Uniform));
        let mut random = Random::new(seed);
        table.logits.iter_mut().for_each(|logit| *logit = spread * ((random.next_u64() >> 40) as f32 / (1 << 24) as f32 - 0.5));
        let (earlier, mut request) = requests(&encoder, 0).swap_remove(at);
        request.seed = seed;
        check_sample(&table, &encoder, &earlier, &request, temperature);
    }

    #[test]
    fn no_tokens_and_no_prompt_make_it_panic(
        prompt in proptest::collection::vec(prop_oneof![0u32..4, any::<u32>()], 0..12),
        tokens in proptest::collection::vec(prop_oneof![0u32..200, any::<u32>()], 0..12),
        text in "(?s).{0,80}",
    ) {
        let (table, encoder) = pair(&FieldStart::default());
        let request = SampleRequest { prompt, grammar: None, seed: 1 };
        let _ = table.sample(std::slice::from_ref(&request), &SampleSettings::default());
        let _ = table.score(&[sequence(&request, &tokens)], 1.0);
        prop_assert_eq!(encoder.encode(&request, &text, &tokens), None);
    }
}

#[test]
fn a_text_of_each_kind_looks_like_this() {
    let (table, encoder) = pair(&start(3, 4, FirstTeams::Large));
    let first = one(&table, &request(&encoder, QUESTIONS[0], 1, &[], 4), 1.0).text;
    let later = [("a1", "Answer: 7"), ("a2", "Answer: 8"), ("judge", "Answer: 8")];
    let second = one(&table, &request(&encoder, QUESTIONS[2], 2, &later, 9), 1.0).text;
    let likeliest = one(&table, &request(&encoder, QUESTIONS[0], 1, &[], 4), 0.0).text;
    insta::assert_snapshot!(format!("{first}---\n{second}---\n{likeliest}"));
}

#[test]
fn the_same_seed_writes_the_same_whatever_is_asked_beside_it() {
    let (table, encoder) = pair(&FieldStart::default());
    let requests: Vec<SampleRequest> = requests(&encoder, 3).into_iter().map(|(_, request)| request).collect();
    let settings = SampleSettings::default();
    let together = table.sample(&requests, &settings).unwrap();
    for (request, sample) in requests.iter().zip(&together) {
        assert_eq!(one(&table, request, 1.0), *sample);
    }
    assert!(together.iter().any(|sample| sample.text != together[0].text));
    let short = table.sample(&requests[..1], &SampleSettings { most_tokens: 7, ..settings }).unwrap().remove(0);
    assert_eq!((short.finish, short.tokens.as_slice()), (Finish::Length, &together[0].tokens[..7]));
    assert_eq!(short.text, together[0].text[..together[0].ends[6]]);
    assert!(table.sample(&requests, &SampleSettings { top_p: 0.9, ..settings }).is_err());
}

#[test]
fn prompts_tell_the_kind_and_the_stage() {
    let encoder = |kinds: usize| pair(&start(2, kinds, FirstTeams::Uniform)).1;
    for question in QUESTIONS {
        assert_eq!(encoder(1).kind(question), 0);
    }
    assert_eq!(encoder(4).kind(QUESTIONS[2]), 0);
    let features = |difficulty: f64| crate::features::TaskFeatures {
        kind: crate::features::TaskKind::Number,
        difficulty,
        skills: Vec::new(),
    };
    let kinds_of = |kinds: usize, difficulties: &[f64]| -> Vec<usize> {
        difficulties.iter().map(|it| scene::kind(&features(*it), kinds)).collect()
    };
    assert_eq!(kinds_of(2, &[-9.0, 0.0, 9.0]), [1, 1, 1]);
    assert_eq!(kinds_of(3, &[-9.0, -0.01, 0.0, 9.0]), [1, 1, 2, 2]);
    assert_eq!(kinds_of(4, &[-9.0, -0.41, -0.39, 0.39, 0.41, 9.0, f64::NAN]), [1, 1, 2, 2, 3, 3, 1]);
    assert_eq!(kinds_of(5, &[-0.81, -0.79, -0.01, 0.01, 0.79, 0.81]), [1, 2, 2, 3, 3, 4]);

    let result = |reply, status| RoundResult { agent: "a1", role: "Solver", status, reply, sure: None };
    let done = |reply| result(Some(reply), AgentStatus::Done);
    assert_eq!(scene::stage(&[]), 0);
    assert_eq!(scene::stage(&[done("Answer: 7"), done("so it is\nAnswer: 7.0")]), 1);
    assert_eq!(scene::stage(&[done("Answer: 7"), done("Answer: 8")]), 2);
    assert_eq!(scene::stage(&[done("Answer: 7"), result(None, AgentStatus::Failed)]), 2);
    assert_eq!(scene::stage(&[result(None, AgentStatus::Failed), result(None, AgentStatus::Failed)]), 2);
}

#[test]
fn duties_name_what_the_task_needs_and_what_it_does_not() {
    for question in QUESTIONS {
        let features = crate::features::featurize(question, None);
        let skills = scene::Skills::of(&features);
        let needed = if features.skills.is_empty() { SkillFit::Neutral } else { SkillFit::Helps };
        assert_eq!(skills.duty(0), None);
        assert_eq!(lemon_world::fit(&features.skills, &skills.duty(1).unwrap()), needed, "{question}");
        assert_eq!(lemon_world::fit(&features.skills, &skills.duty(2).unwrap()), SkillFit::Misses, "{question}");
    }
}

#[test]
fn teams_come_as_often_as_their_probabilities_say() {
    let (table, encoder) = pair(&FieldStart { lean: 0.7, ..start(3, 1, FirstTeams::Large) });
    for earlier in [&[][..], &[("a1", "7"), ("a2", "8")]] {
        let draws = 20_000u64;
        let round = if earlier.is_empty() { 1 } else { 2 };
        let requests: Vec<SampleRequest> = (0..draws)
            .map(|seed| SampleRequest {
                seed: Random::new(seed).next_u64(),
                ..request(&encoder, QUESTIONS[0], round, earlier, 0)
            })
            .collect();
        let samples = table.sample(&requests, &SampleSettings::default()).unwrap();
        let mut counts = vec![0f64; table.layout.width()];
        for (place, value) in samples.iter().flat_map(|it| &it.tokens).filter_map(|token| table.layout.value(*token)) {
            counts[place.first + value] += 1.0;
        }
        for (name, values) in table.probabilities(0, if earlier.is_empty() { 0 } else { 2 }) {
            let place = table.layout.places().iter().find(|place| table.layout.name(place.choice) == name).unwrap();
            let total: f64 = counts[place.first..][..place.values].iter().sum();
            assert!((values.iter().map(|(_, p)| p).sum::<f64>() - 1.0).abs() < 1e-9);
            for (value, (value_name, p)) in values.iter().enumerate() {
                let error = (counts[place.first + value] / total - p).abs();
                assert!(error < 4.5 * (p * (1.0 - p) / total).sqrt(), "{name} {value_name}: {p}, off by {error}");
            }
        }
    }
    assert_eq!(table.probabilities(1, 0), []);
    assert_eq!(table.probabilities(0, 3), []);
}

#[test]
fn edits_are_encoded_or_left_alone() {
    let language = Language::default();
    let (mut encoded, mut left) = (0, 0);
    for first in FIRST {
        let (table, encoder) = pair(&start(4, 4, first));
        for (earlier, request) in (0..3).flat_map(|seed| requests(&encoder, seed)) {
            let plan = check_sample(&table, &encoder, &earlier, &request, 1.0);
            let review = scene::setting(&request.prompt, 4).unwrap().review;
            for edit in edit::edits(&plan, &language) {
                let edited = edit::apply(&plan, &edit, &language).unwrap();
                let found = encoder.encode(&request, edited.plan.source(), &[]);
                let always = match edit.family {
                    Family::Capacity | Family::Share | Family::Answer | Family::Duty | Family::Message => Some(true),
                    Family::Stop => Some(review || edit.change == Change::Stop),
                    // A table has no words for roles and tools, and writes none.
                    Family::Role | Family::Tool => Some(false),
                    Family::Dependency | Family::Agent => None,
                };
                assert!(always.is_none_or(|always| always == found.is_some()), "{edit:?}\n{}", plan.source());
                let Some(found) = found else {
                    left += 1;
                    continue;
                };
                encoded += 1;
                let scores = table.score(&[sequence(&request, &found.tokens)], 1.0).unwrap();
                assert!(scores[0].iter().all(|score| score.is_finite()));
                // The value that was changed to is one token, at the place that the edit says.
                let starts = std::iter::once(0).chain(found.ends.iter().copied());
                let pieces = starts.zip(&found.ends).map(|(start, end)| (start, *end));
                let after = (edited.after.start, edited.after.end);
                let here: Vec<u32> =
                    pieces.zip(&found.tokens).filter(|(piece, _)| *piece == after).map(|(_, token)| *token).collect();
                assert_eq!(here.iter().filter(|token| table.layout.value(**token).is_some()).count(), 1, "{edit:?}");
            }
        }
    }
    assert!(encoded > 1_500 && left > 100, "{encoded} {left}");
}

#[test]
fn what_a_table_cannot_write_is_not_encoded() {
    let (table, encoder) = pair(&start(2, 1, FirstTeams::Large));
    let request = request(&encoder, QUESTIONS[0], 1, &[], 1);
    let text = one(&table, &request, 0.0).text;
    let check = |from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert_eq!(encoder.encode(&request, &changed, &[]), None, "{changed}");
    };
    assert!(encoder.encode(&request, &text, &[]).is_some(), "{text}");
    check("base: solver", "base: programmer");
    check("role: ~", "role: Tutor");
    check("duty: ~", "duty: Work out the chemistry.");
    check("capacity: large", "capacity: \"large\"");
    check("{from: [a2]", "{from: [a1, a2]");
    check("after: [a1]", "after: []");
    check("next: stop", "next: never");
    check("agents:\n", "# A team.\nagents:\n");
    assert_eq!(encoder.encode(&request, &text.replace("a2", "b"), &[]), None);
    let last = SampleRequest {
        prompt: {
            let mut it = request.prompt.clone();
            it[2] = 0;
            it
        },
        ..request.clone()
    };
    assert!(encoder.encode(&request, &text.replace("next: stop", "next: review"), &[]).is_some());
    assert_eq!(encoder.encode(&last, &text.replace("next: stop", "next: review"), &[]), None);
}

#[test]
fn first_teams_are_as_they_are_called() {
    let (large, encoder) = pair(&FieldStart::default());
    let plan = |table: &FieldTable, round: u32, earlier: &[Earlier]| {
        let request = request(&encoder, QUESTIONS[0], round, earlier, 1);
        let ids: Vec<String> = earlier.iter().map(|(id, _)| (*id).to_owned()).collect();
        validate_round(&one(table, &request, 0.0).text, &Language::default(), &ids).unwrap()
    };
    let team = plan(&large, 1, &[]);
    let reads: Vec<usize> = team.agents().iter().map(|agent| agent.parents.len()).collect();
    assert_eq!(reads, [0, 1, 2, 3]);
    assert!(team.agents().iter().all(|agent| agent.capacity == "large" && agent.share == Share::Reply));
    assert!(team.agents()[1..].iter().all(|agent| agent.base.name == "critic"));
    assert_eq!((team.answer_rule(), team.next()), (AnswerRule::Vote, Next::Stop));
    let lean = pair(&start(4, 4, FirstTeams::Lean)).0;
    let team = plan(&lean, 1, &[]);
    assert_eq!((team.agents().len(), team.agents()[0].capacity.as_str()), (1, "small"));
    assert_eq!(plan(&lean, 2, &[("a1", "7")]).agents().len(), 0);
    assert_eq!(plan(&large, 2, &[("a1", "7")]).agents()[0].parents, [0]);
    let uniform = pair(&start(4, 4, FirstTeams::Uniform)).0;
    assert!(uniform.logits.iter().all(|logit| *logit == 0.0));
}

#[test]
fn impossible_tables_are_refused() {
    let language = Language::default();
    for wrong in [start(0, 4, FirstTeams::Large), start(9, 4, FirstTeams::Large), start(4, 0, FirstTeams::Large)] {
        assert!(FieldTable::new(&wrong, &language).is_err(), "{wrong:?}");
    }
    let poor = Language { capacities: Vec::new(), ..Language::default() };
    assert!(FieldTable::new(&FieldStart::default(), &poor).is_err());
    // With one level there is nothing to choose, and it is no choice.
    let one_level = Arc::new(Language { capacities: vec!["large".to_owned()], ..Language::default() });
    let table = FieldTable::new(&FieldStart::default(), &one_level).unwrap();
    assert!(table.probabilities(0, 0).iter().all(|(name, _)| !name.contains("capacity")));
}
