//! What do teams earn in the calibrated world? Every fixed method at every level, single agents whose duty names the skill,
//! and the teachers, on composed items and, where a folder of published sets is given, on those.
//!
//! `cargo run -p lemon-sft --example rewards -- [--data DIR] [--items 300] [--seeds 3] [--teach 250] [SET…]`

use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_eval::{Ask, METHODS, Method};
use lemon_policy::featurize;
use lemon_rollout::{Case, Earned, Grader, RolloutEnv, RolloutError};
use lemon_sandbox::Sandbox;
use lemon_sft::teach::{BRIEF, TeachContext, WORKED, rules, search, worded};
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, Share, Spec, render};
use lemon_task::{Item, SetName, Source, compose, load};
use lemon_world::{Preset, World};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const SETS: [SetName; 6] =
    [SetName::Gsm8k, SetName::Svamp, SetName::MultiArith, SetName::Aqua, SetName::Mmlu, SetName::HumanEval];

type Fault = Box<dyn std::error::Error>;

struct Arguments {
    data: Option<PathBuf>,
    items: usize,
    seeds: u64,
    teach: usize,
    sets: Vec<SetName>,
}

impl Arguments {
    fn parse() -> Result<Self, Fault> {
        let mut read = Arguments { data: None, items: 300, seeds: 3, teach: 250, sets: Vec::new() };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
            match word.as_str() {
                "--data" => read.data = Some(value()?.into()),
                "--items" => read.items = value()?.parse()?,
                "--seeds" => read.seeds = value()?.parse()?,
                "--teach" => read.teach = value()?.parse()?,
                set => read.sets.push(set.parse()?),
            }
        }
        if read.sets.is_empty() {
            read.sets = SETS.to_vec();
        }
        Ok(read)
    }
}

/// A way to write teams, by the case and the seed.
struct Policy {
    name: String,
    write: Box<Write>,
}

type Write = dyn Fn(&Case, u64) -> String;

impl Policy {
    fn new(name: impl Into<String>, write: impl Fn(&Case, u64) -> String + 'static) -> Self {
        Policy { name: name.into(), write: Box::new(write) }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Fault> {
    let arguments = Arguments::parse()?;
    let groups = groups(&arguments)?;
    let lessons = lesson_cases(&arguments)?;
    let each: Vec<Case> = lessons.iter().step_by(5).cloned().collect();
    let all = groups.iter().flat_map(|(_, cases)| cases).chain(&lessons);
    let env = rollout_env(all.map(|case| &case.item))?;
    let cancel = CancellationToken::new();

    let teach = TeachContext { env: &env, cases: &lessons, world: None, seed: 11, cancel: &cancel, watch: None };
    eprintln!("searching for teams on {} tasks", lessons.len());
    let best_teams = Arc::new(search::find(&teach, &search::TeamSearchSettings::default()).await?);
    show(&best_teams);
    let few = search::TeamSearchSettings {
        pooling: search::Pooling::Task,
        teams: 16,
        runs: 4,
        ..search::TeamSearchSettings::default()
    };
    let teach_each = TeachContext { cases: &each, ..teach };
    let own = search::find_each(&teach_each, &few).await?;
    curse(&env, &each, &own, &best_teams, &cancel).await?;

    let policies = policies(&best_teams, &each, &own);
    let mut totals: BTreeMap<(bool, String), Vec<Earned>> = BTreeMap::new();
    for (name, cases) in &groups {
        println!("\n{name}: {} items, {} seeds", cases.len(), arguments.seeds);
        let mut lines = Vec::new();
        for policy in &policies {
            let earned = measure(&env, cases, policy, arguments.seeds, &cancel).await?;
            totals.entry((name.starts_with("composed"), policy.name.clone())).or_default().push(earned);
            lines.push((earned, policy.name.clone()));
        }
        print(lines);
    }
    for composed in [true, false] {
        let means = totals.iter().filter(|((of, _), _)| *of == composed).map(|((_, name), earned)| {
            let sum = earned.iter().fold(Earned::default(), |sum, one| sum.plus(one));
            (sum.over(earned.len() as f64), name.clone())
        });
        println!("\nmean over sets, {}", if composed { "composed" } else { "published" });
        print(means.collect());
    }
    Ok(())
}

fn print(mut lines: Vec<(Earned, String)>) {
    lines.sort_by(|a, b| b.0.reward.total_cmp(&a.0.reward));
    for (earned, name) in lines {
        println!("  {name:<28} {:7.4} {:6.3} {:7.0}", earned.reward, earned.success, earned.tokens);
    }
}

fn show(best_teams: &search::BestTeams) {
    for (cluster, found) in &best_teams.teams {
        let agent = |agent: &Agent| {
            let duty = agent.duty.as_deref().unwrap_or("~");
            format!(
                "{} {} {duty} reads [{}] hands on {}",
                agent.capacity,
                agent.base,
                agent.after.join(" "),
                agent.share
            )
        };
        let agents: Vec<String> = found.team.agents.iter().map(agent).collect();
        let (by, from) = (found.team.answer.by, found.team.answer.from.join(" "));
        println!(
            "{cluster:?}: {} → {by} of {from} ({:.3} in {} runs)",
            agents.join("; "),
            found.earned.reward,
            found.runs
        );
    }
}

/// Evenly spread items of each set, composed and published, to measure on.
fn groups(arguments: &Arguments) -> Result<Vec<(String, Vec<Case>)>, Fault> {
    let mut groups = Vec::new();
    for set in &arguments.sets {
        groups.push((format!("composed {set}"), cases(&format!("composed/{set}"), compose(*set, arguments.items, 2))));
        if let Some(folder) = &arguments.data {
            let items = load(&Source::Folder(folder.clone()), *set, "test")?.items;
            groups.push((format!("{set} test"), cases(&format!("{set}/test"), spread(items, arguments.items))));
        }
    }
    Ok(groups)
}

/// Items to teach with: composed with another seed, and the official training or development splits where there are any.
fn lesson_cases(arguments: &Arguments) -> Result<Vec<Case>, Fault> {
    let mut lessons = Vec::new();
    for set in &arguments.sets {
        lessons.extend(cases(&format!("lesson/{set}"), compose(*set, arguments.teach, 1)));
        let split = match set {
            SetName::Gsm8k => Some("train"),
            SetName::Aqua => Some("dev"),
            SetName::Mmlu => Some("val"),
            _ => None,
        };
        if let (Some(folder), Some(split)) = (&arguments.data, split) {
            let items = load(&Source::Folder(folder.clone()), *set, split)?.items;
            lessons.extend(cases(&format!("{set}/{split}"), spread(items, arguments.teach)));
        }
    }
    Ok(lessons)
}

fn spread(items: Vec<Item>, count: usize) -> Vec<Item> {
    let step = (items.len() / count.max(1)).max(1);
    items.into_iter().step_by(step).take(count).collect()
}

fn cases(set: &str, items: Vec<Item>) -> Vec<Case> {
    let set: Arc<str> = set.into();
    items.into_iter().map(|item| Case { set: set.clone(), item }).collect()
}

fn rollout_env<'a>(items: impl Iterator<Item = &'a Item>) -> Result<RolloutEnv, Fault> {
    let items: Vec<&Item> = items.collect();
    let sandbox = match Grader::needs_sandbox(items.iter().copied()) {
        true => Some(Sandbox::new(Default::default())?),
        false => None,
    };
    let backend = World::new(Preset::Calibrated, items).backend();
    Ok(RolloutEnv::new(backend, Arc::new(Language::default()), Default::default(), Grader::new(sandbox)))
}

/// The subject of a case, where it may be used.
fn subject(case: &Case, told: bool) -> Option<&str> {
    case.item.task.subject.as_deref().filter(|_| told)
}

fn policies(best_teams: &Arc<search::BestTeams>, each: &[Case], own: &[search::Found]) -> Vec<Policy> {
    let mut policies = fixed();
    for level in ["small", "medium", "large"] {
        for (mark, told) in [(WORKED, false), (BRIEF, false), (BRIEF, true)] {
            let name = format!("one {level} {mark}{}", if told { ", told the subject" } else { "" });
            policies.push(Policy::new(name, move |case, seed| {
                let question = &case.item.task.question;
                render(&worded(&alone(level, mark, case), &featurize(question, subject(case, told)), question, seed))
                    .text
            }));
        }
    }
    for (aim, told) in [(rules::Aim::Thrift, false), (rules::Aim::Thrift, true), (rules::Aim::Reward, false)] {
        let name = format!("rules, {aim:?}{}", if told { ", told the subject" } else { "" });
        policies.push(Policy::new(name, move |case, seed| {
            render(&rules::team(&case.item.task.question, subject(case, told), aim, &Language::default(), seed)).text
        }));
    }
    for told in [false, true] {
        let best_teams = best_teams.clone();
        let name = format!("search, pooled{}", if told { ", told the subject" } else { "" });
        policies.push(Policy::new(name, move |case, seed| {
            render(&best_teams.team(&case.item.task.question, subject(case, told), &Language::default(), seed)).text
        }));
    }
    policies.push(imitator(each, own));
    policies
}

/// Every rule of [`METHODS`] at each level and with all levels in turn.
fn fixed() -> Vec<Policy> {
    let mut policies = Vec::new();
    let methods = METHODS.iter().filter_map(|kind| kind.name.parse::<Method>().ok());
    for method in methods.filter(|method| method.source().is_none() && method.check(&[]).is_ok()) {
        for capacity in [Some("small"), Some("medium"), Some("large"), None] {
            let (method, language) = (method.clone(), Language::default());
            let name = format!("{} {}", method.name(), capacity.unwrap_or("mixed"));
            policies.push(Policy::new(name, move |case, seed| {
                method.spec(&Ask::new(&case.item, &language, capacity, seed)).unwrap_or_default()
            }));
        }
    }
    policies
}

fn alone(level: &str, mark: &str, case: &Case) -> Spec {
    let base = if Grader::needs_sandbox([&case.item]) { "programmer" } else { "solver" };
    let agent = Agent {
        id: "a1".to_owned(),
        base: base.to_owned(),
        role: None,
        duty: Some(mark.to_owned()),
        capacity: level.to_owned(),
        after: Vec::new(),
        share: Share::Reply,
        tools: Vec::new(),
    };
    let answer = Answer { from: vec!["a1".to_owned()], by: AnswerRule::Last };
    Spec { agents: vec![agent], answer, next: Next::Stop }
}

/// A policy that learned from the best team of each task: a new task gets the team of a task of the same cluster.
fn imitator(each: &[Case], own: &[search::Found]) -> Policy {
    let mut seen: BTreeMap<search::TaskCluster, Vec<Spec>> = BTreeMap::new();
    for (case, found) in each.iter().zip(own) {
        let cluster = search::TaskCluster::of(&featurize(&case.item.task.question, None));
        seen.entry(cluster).or_default().push(found.team.clone());
    }
    Policy::new("search, each task, imitated", move |case, seed| {
        let question = &case.item.task.question;
        let features = featurize(question, None);
        let cluster = search::TaskCluster::of(&features);
        let near = seen.iter().filter(|(known, _)| known.kind == cluster.kind);
        let teams = near.min_by_key(|(known, _)| known.band.abs_diff(cluster.band)).map(|(_, teams)| teams);
        let drawn = (case.item.position as u64).wrapping_mul(7919).wrapping_add(seed.wrapping_mul(104_729)) as usize;
        let team = teams.and_then(|teams| teams.get(drawn % teams.len().max(1)));
        team.map(|team| render(&worded(team, &features, question, seed)).text).unwrap_or_default()
    })
}

/// How much of the reward in a search is noise: the same teams on the same tasks, with new seeds.
async fn curse(
    env: &RolloutEnv,
    each: &[Case],
    own: &[search::Found],
    best_teams: &search::BestTeams,
    cancel: &CancellationToken,
) -> Result<(), RolloutError> {
    let seeds: Vec<u64> = (900..904).collect();
    let (mut promised, mut own_fresh, mut pooled) = (0.0, 0.0, 0.0);
    for (case, found) in each.iter().zip(own) {
        let question = &case.item.task.question;
        let features = featurize(question, case.item.task.subject.as_deref());
        let text = render(&worded(&found.team, &features, question, 1)).text;
        let team = render(&best_teams.team(question, case.item.task.subject.as_deref(), &Language::default(), 1)).text;
        promised += found.earned.reward;
        own_fresh += env.mean(case, &text, &seeds, cancel).await?.unwrap_or_default().reward;
        pooled += env.mean(case, &team, &seeds, cancel).await?.unwrap_or_default().reward;
    }
    let count = own.len().max(1) as f64;
    println!(
        "\n{} lesson tasks, each searched by itself: promised {:.4}, with fresh seeds {:.4}",
        own.len(),
        promised / count,
        own_fresh / count
    );
    println!("the pooled teams on the same tasks, fresh seeds: {:.4}", pooled / count);
    Ok(())
}

async fn measure(
    env: &RolloutEnv,
    cases: &[Case],
    policy: &Policy,
    seeds: u64,
    cancel: &CancellationToken,
) -> Result<Earned, RolloutError> {
    let works = (1..=seeds).flat_map(|seed| cases.iter().map(move |case| (case, seed)));
    let written = works.map(|(case, seed)| (case, seed, (policy.write)(case, seed)));
    let runs = written.map(|(case, seed, text)| async move { env.run(case, &text, seed, cancel).await });
    let earned: Vec<Option<Earned>> = stream::iter(runs).buffered(16).try_collect().await?;
    let sum = earned.iter().flatten().fold(Earned::default(), |sum, one| sum.plus(one));
    Ok(sum.over(earned.len().max(1) as f64))
}
