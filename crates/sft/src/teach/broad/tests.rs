//! What is drawn is valid, canonical, within the policy's grammar, broad, and the same each time.

use super::drawn::{DUTIES, ROLES};
use super::*;
use crate::teach::fixture::{Fixture, check_pairs};
use lemon_exec::orchestrator::RoundResult;
use lemon_model::Tokenizer;
use lemon_policy::LanguagePromptEncoder;
use lemon_spec::{Agent, AnswerRule, Shape, Share, validate, validate_round};
use lemon_task::{SetName, compose};
use lemon_trace::AgentStatus;
use lemon_world::{SkillFit, fit};
use std::collections::BTreeMap;

/// A policy could have written every one of them.
#[track_caller]
fn check_writable(pairs: &[Pair], agents: usize) {
    let tokenizer = Tokenizer::train(pairs.iter().map(|pair| pair.spec.clone()), 600, &["<|end|>"]).unwrap();
    let shape = Shape { agents, ..Shape::default() };
    let encoder = LanguagePromptEncoder::new(tokenizer, Arc::new(Language::default()), shape, 4_096);
    for pair in pairs {
        let earlier: Vec<String> = pair.results.iter().map(|told| told.agent.clone()).collect();
        assert!(encoder.grammar(&earlier).unwrap().encode(&pair.spec).is_ok(), "{}", pair.spec);
    }
}

fn spec(pair: &Pair) -> Spec {
    let earlier: Vec<String> = pair.results.iter().map(|told| told.agent.clone()).collect();
    let plan = validate_round(&pair.spec, &Language::default(), &earlier).unwrap();
    assert!(plan.warnings().is_empty(), "{}", pair.spec);
    plan.spec().clone()
}

/// The share of these for which something holds lies between these.
#[track_caller]
fn check_share<T>(of: &[T], holds: impl Fn(&T) -> bool, least: f64, most: f64) {
    let share = of.iter().filter(|one| holds(one)).count() as f64 / of.len() as f64;
    assert!((least..=most).contains(&share), "{share} of {}", of.len());
}

#[tokio::test]
async fn every_pair_is_valid_and_writable_and_all_kinds_of_teams_occur() {
    let fixture = Fixture::new(&SetName::PUBLIC, 60);
    let pairs = teach(&fixture.context(5), &BroadSettings::default()).await.unwrap();
    check_pairs(&pairs);
    check_writable(&pairs, Shape::default().agents);
    let (first, second): (Vec<Pair>, Vec<Pair>) = pairs.into_iter().partition(|pair| pair.round == 1);
    assert!(first.len() > 800 && second.len() > 200, "{} and {}", first.len(), second.len());
    check_first_rounds(&first.iter().map(spec).collect::<Vec<_>>());
    check_second_rounds(&second);
}

fn check_first_rounds(teams: &[Spec]) {
    for (agents, share) in [(1, 0.20), (2, 0.35), (3, 0.30), (4, 0.15)] {
        check_share(teams, |team| team.agents.len() == agents, share - 0.05, share + 0.05);
    }
    check_share(teams, |team| team.next == Next::Review, 0.25, 0.35);
    for rule in AnswerRule::WITHOUT_CODE {
        check_share(teams, |team| team.answer.by == *rule, 0.08, 0.85);
        check_share(teams, |team| team.answer.by == *rule && team.answer.from.len() > 1, 0.02, 0.30);
    }
    check_share(teams, |team| team.answer.by == AnswerRule::Judge && team.next == Next::Review, 0.0, 0.0);
    let agents: Vec<&Agent> = teams.iter().flat_map(|team| &team.agents).collect();
    for (level, share) in [("small", 0.30), ("medium", 0.35), ("large", 0.35)] {
        check_share(&agents, |agent| agent.capacity == level, share - 0.04, share + 0.04);
    }
    for base in ["solver", "expert", "programmer", "planner", "critic", "verifier"] {
        check_share(&agents, |agent| agent.base == base, 0.03, 0.40);
    }
    check_share(&agents, |agent| agent.duty.is_none(), 0.21, 0.29);
    check_share(&agents, |agent| DUTIES.contains(&agent.duty.as_deref().unwrap_or_default()), 0.21, 0.29);
    check_share(&agents, |agent| ROLES.contains(&agent.role.as_deref().unwrap_or_default()), 0.21, 0.29);
    check_share(&agents, |agent| agent.share == Share::Answer, 0.15, 0.40);
}

fn check_second_rounds(pairs: &[Pair]) {
    let disputed = |pair: &Pair| {
        let stated: Vec<String> =
            pair.results.iter().filter_map(|told| answer::extract(told.reply.as_deref()?)).collect();
        answer::distinct(&stated).len() > 1
    };
    let (disputed, settled): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| disputed(pair));
    check_share(&disputed, |pair| spec(pair).agents.is_empty(), 0.10, 0.40);
    check_share(&disputed, |pair| spec(pair).agents.len() == 2, 0.20, 0.55);
    check_share(&settled, |pair| spec(pair).agents.is_empty(), 0.40, 0.60);
    check_share(&settled, |pair| spec(pair).agents.len() == 1, 0.40, 0.60);
    for pair in pairs {
        let team = spec(pair);
        assert_eq!(team.next, Next::Stop);
        // New agents answer, and one of them reads all earlier ones.
        let own: Vec<&String> = team.agents.iter().map(|agent| &agent.id).collect();
        assert!(own.is_empty() || team.answer.from.iter().all(|id| own.contains(&id)), "{}", pair.spec);
        assert!(team.agents.first().is_none_or(|agent| agent.after.len() == pair.results.len()));
    }
}

#[tokio::test]
async fn pairs_are_the_same_for_a_seed_and_measured_where_that_is_asked() {
    let fixture = Fixture::new(&[SetName::Gsm8k, SetName::Mmlu], 15);
    let settings = BroadSettings { runs: 1, per_task: 3, ..BroadSettings::default() };
    let pairs = teach(&fixture.context(5), &settings).await.unwrap();
    assert!(pairs.iter().all(|pair| pair.reward.is_some() && pair.runs == 1 && pair.teacher == Teacher::Broad));
    assert_eq!(teach(&fixture.context(5), &settings).await.unwrap(), pairs);
    assert_ne!(teach(&fixture.context(6), &settings).await.unwrap(), pairs);
    // A task's teams do not hang on which other tasks there are.
    let alone = Fixture { cases: vec![fixture.cases[3].clone()], ..Fixture::new(&[SetName::Gsm8k, SetName::Mmlu], 15) };
    let alone = teach(&alone.context(5), &settings).await.unwrap();
    assert!(!alone.is_empty() && alone.iter().all(|pair| pairs.contains(pair)));
}

#[tokio::test]
async fn rounds_are_written_as_the_settings_say_and_a_cancelled_lesson_ends() {
    let fixture = Fixture::new(&[SetName::Svamp], 20);
    let count = async |settings: BroadSettings| {
        let pairs = teach(&fixture.context(1), &settings).await.unwrap();
        let review = pairs.iter().filter(|pair| pair.spec.ends_with("next: review\n")).count();
        (pairs.len(), review, pairs.iter().filter(|pair| pair.round == 2).count())
    };
    let once = BroadSettings { per_task: 1, ..BroadSettings::default() };
    assert_eq!(count(BroadSettings { review: 0.0, ..once }).await, (20, 0, 0));
    assert_eq!(count(BroadSettings { review: 1.0, ..once }).await, (40, 20, 20));
    assert_eq!(count(BroadSettings { review: 1.0, second_rounds: false, ..once }).await, (20, 20, 0));
    assert_eq!(count(BroadSettings { per_task: 0, ..once }).await, (0, 0, 0));
    fixture.cancel.cancel();
    assert_eq!(count(BroadSettings { review: 1.0, ..once }).await, (0, 0, 0));
}

#[tokio::test]
async fn teams_with_planners_read_every_plan_and_all_solvers_vote() {
    let fixture = Fixture::new(&[SetName::Gsm8k], 60);
    let settings = BroadSettings { advised: 1.0, review: 0.0, ..BroadSettings::default() };
    let pairs = teach(&fixture.context(5), &settings).await.unwrap();
    check_pairs(&pairs);
    check_writable(&pairs, Shape::default().agents);
    let teams: Vec<Spec> = pairs.iter().map(spec).collect();
    for team in &teams {
        let (planners, solvers): (Vec<&Agent>, Vec<&Agent>) = team.agents.iter().partition(|it| it.base == "planner");
        let is_read = |planner: &&Agent| solvers.iter().any(|solver| solver.after.contains(&planner.id));
        assert!(!planners.is_empty() && planners.iter().all(is_read));
        assert_eq!(team.answer.from, solvers.iter().map(|it| it.id.clone()).collect::<Vec<_>>());
        assert_eq!(team.answer.by, AnswerRule::Vote);
        assert!(planners.iter().all(|it| it.share == Share::Reply));
    }
    for agents in 3..=6 {
        check_share(&teams, |team| team.agents.len() == agents, 0.12, 0.4);
    }
    check_share(&teams, |team| team.agents.iter().filter(|it| it.base == "planner").count() == 2, 0.1, 0.35);
}

#[tokio::test]
async fn voters_read_no_agent_and_more_of_them_follow() {
    let fixture = Fixture::new(&[SetName::Gsm8k], 60);
    let settings = BroadSettings { voting: 1.0, ..BroadSettings::default() };
    let pairs = teach(&fixture.context(5), &settings).await.unwrap();
    check_pairs(&pairs);
    check_writable(&pairs, MANY);
    for pair in &pairs {
        let team = spec(pair);
        let all = pair.results.iter().map(|told| &told.agent).chain(team.agents.iter().map(|agent| &agent.id));
        assert!(team.answer.from.iter().eq(all), "{}", pair.spec);
        assert!(team.agents.iter().all(|agent| agent.after.is_empty() && agent.base != "planner"));
        assert!(team.agents.len() <= if team.next == Next::Review { FEW } else { MANY });
    }
    let (first, second): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| pair.round == 1);
    check_share(&first, |pair| spec(pair).next == Next::Review, 0.4, 0.6);
    let agents: Vec<Agent> = pairs.iter().flat_map(|pair| spec(pair).agents).collect();
    let is_reworded = |agent: &Agent| {
        let duty = agent.duty.clone().unwrap_or_default();
        ["Reword", "Rephrase", "Paraphrase"].iter().any(|word| duty.starts_with(word))
    };
    check_share(&agents, is_reworded, 0.4, 0.6);
    // Workers of the simulated world state no confidence, so every first round gets more votes.
    check_share(&second, |pair| spec(pair).agents.is_empty(), 0.0, 0.0);
}

#[tokio::test]
async fn a_given_team_begins_with_two_and_as_many_follow_as_chance_says() {
    let fixture = Fixture::new(&[SetName::Gsm8k], 80);
    let agent = |id: usize| format!("  - {{id: a{id}, base: solver, capacity: large, duty: <worked>}}\n");
    let all: String = (1..=6).map(agent).collect();
    let text = format!("agents:\n{all}answer: {{from: [a1, a2, a3, a4, a5, a6], by: vote}}\n");
    let team = validate(&text, &Language::default()).unwrap().spec().clone();
    let pairs = teach_in_two_rounds(&fixture.context(5), &team).await.unwrap();
    check_pairs(&pairs);
    check_writable(&pairs, 6);
    let (first, second): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| pair.round == 1);
    assert!(first.len() == 80 && second.len() > 60, "{} and {}", first.len(), second.len());
    assert!(first.iter().all(|pair| spec(pair).agents.len() == 2 && spec(pair).next == Next::Review));
    for agents in 1..=4 {
        check_share(&second, |pair| spec(pair).agents.len() == agents, 0.04, if agents == 4 { 0.8 } else { 0.3 });
    }
    assert!(second.iter().all(|pair| spec(pair).answer.from.len() == 2 + spec(pair).agents.len()));
    let alone = Spec { agents: team.agents[..1].to_vec(), ..team };
    assert!(teach_in_two_rounds(&fixture.context(5), &alone).await.unwrap().is_empty());
}

#[test]
fn the_surer_an_answer_is_the_more_often_it_stands() {
    let (language, question) = (Language::default(), "Ana has 3 pens and buys 4. How many?");
    let stands = |replies: [(&str, Option<u8>); 2]| {
        let result = |at: usize| RoundResult {
            agent: ["a1", "a2"][at],
            role: "Solver",
            status: AgentStatus::Done,
            reply: Some(replies[at].0),
            sure: replies[at].1,
        };
        let results = vec![result(0), result(1)];
        let context = WriteContext {
            question,
            round: 2,
            results,
            language: &language,
            form: Default::default(),
            tokens_left: None,
            seed: 0,
        };
        let answer = Answer { from: vec!["a1".to_owned(), "a2".to_owned()], by: AnswerRule::Vote };
        let adds_no_agent = |seed: u64| {
            let reviewer = Reviewer {
                answer: answer.clone(),
                further: Further::Voters,
                features: featurize(question, None),
                seed,
            };
            reviewer.review(&context).agents.is_empty()
        };
        (0..1_000).filter(|seed| adds_no_agent(*seed)).count()
    };
    let check = |replies, least, most| assert!((least..=most).contains(&stands(replies)), "{replies:?}");
    check([("#### 7", Some(90)), ("#### 7", Some(70))], 750, 850);
    check([("#### 7", Some(90)), ("#### 8", Some(70))], 400, 500);
    check([("#### 7", Some(20)), ("#### 8", Some(20))], 70, 130);
    check([("#### 7", None), ("#### 7", Some(70))], 0, 0);
}

#[tokio::test]
async fn a_language_that_cannot_say_it_gets_no_pairs_that_are_wrong() {
    let mut fixture = Fixture::new(&[SetName::Gsm8k], 20);
    let mut narrow = Language::default();
    narrow.limits.agents = 2;
    fixture.env.language = Arc::new(narrow.clone());
    let pairs = teach(&fixture.context(1), &BroadSettings::default()).await.unwrap();
    assert!(!pairs.is_empty() && pairs.iter().all(|pair| pair.fault(&narrow).is_none()));
}

#[test]
fn what_is_drawn_hangs_on_no_word_of_the_task() {
    let settings = BroadSettings { advised: 0.4, voting: 0.4, ..BroadSettings::default() };
    let (language, mut shapes) = (Language::default(), BTreeMap::<usize, Vec<Spec>>::new());
    for item in [SetName::Gsm8k, SetName::Mmlu, SetName::Aqua].iter().flat_map(|set| compose(*set, 5, 3)) {
        let question = &item.task.question;
        for seed in 0..40 {
            let (mut team, _) = team(question, &featurize(question, None), &settings, &language, seed);
            assert!(validate(&render(&team).text, &language).is_ok());
            team.agents.iter_mut().for_each(|agent| (agent.role, agent.duty) = (None, None));
            shapes.entry(seed as usize).or_default().push(team);
        }
    }
    assert!(shapes.values().all(|teams| teams.iter().all(|team| *team == teams[0])));
}

#[test]
fn general_words_name_no_skill() {
    for words in ROLES.iter().chain(&DUTIES) {
        assert_eq!(fit(&[], words), SkillFit::Neutral, "{words}");
    }
}
