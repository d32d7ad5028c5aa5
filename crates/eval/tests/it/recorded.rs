//! Fixed teams on recorded real replies: what an orchestrator that chooses has to beat. Skipped where no recordings are at hand.
//!
//! `LEMON_TEST_DATA=DIR cargo test -p lemon-eval --test it recorded -- --nocapture` prints the tables.

use lemon_eval::{Method, MethodRun};
use lemon_exec::Settings;
use lemon_exec::orchestrator::{Fixed, Orchestrator};
use lemon_num::stats::{RunCluster, mean_interval};
use lemon_rollout::{Case, Grader, Outcome, RolloutEnv, RolloutRequest, UnknownReason};
use lemon_spec::{Effort, Language};
use lemon_task::{SetName, Source, load};
use lemon_world::{Recorded, Recordings, SamplePool, is_to_fit};
use std::path::PathBuf;
use std::sync::Arc;

const SETS: [(SetName, &str); 6] = [
    (SetName::Gsm8k, "test"),
    (SetName::Svamp, "test"),
    (SetName::MultiArith, "test"),
    (SetName::Aqua, "test"),
    (SetName::Mmlu, "val"),
    (SetName::HumanEval, "test"),
];
const SOLVER: &str = "base: solver, capacity: reasoned";
/// The teams: what the table calls each, the method or the specification, the level of its agents, runs an item.
const TEAMS: [(&str, &str, &str, u64); 16] = [
    ("SmolLM2, reasoned", "cot", "smol", 1),
    ("brief", "brief", "brief", 1),
    ("program", "program", "program", 1),
    ("plain", "plain", "reasoned", 1),
    ("reasoned (cot)", "cot", "reasoned", 1),
    ("vote of 2 (sc-cot)", "sc-cot:2", "reasoned", 3),
    ("vote of 3", "sc-cot:3", "reasoned", 3),
    ("vote of 4", "sc-cot:4", "reasoned", 1),
    ("1 program, 2 reasoners", "mixed:1", "reasoned", 3),
    ("3 programs, 4 reasoners", "mixed", "reasoned", 1),
    ("agree, else 5 more", "agree", "reasoned", 3),
    ("critic of the whole reply", "critic-whole 1", "reasoned", 1),
    ("critic of the answer", "critic", "reasoned", 1),
    ("judge of 3 whole replies", "judge-whole 3", "reasoned", 1),
    ("judge of 3 answers", "judge", "reasoned", 1),
    ("solver that reads 2 (debate)", "solver 2", "reasoned", 1),
];

fn public_data() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("LEMON_TEST_DATA")?);
    folder.join("outcomes/real_qwen_solve.jsonl.gz").exists().then_some(folder)
}

/// The mean of a team on a set: accuracy, weighted tokens, and the share of runs that are not on record.
#[derive(Clone, Default)]
struct Figures {
    items: Vec<RunCluster>,
    weighted: f64,
    missing: usize,
    runs: usize,
}

impl Figures {
    fn accuracy(&self) -> Option<f64> {
        let known: f64 = self.items.iter().map(|item| f64::from(item.runs)).sum();
        (self.missing == 0 && known > 0.0).then(|| self.items.iter().map(|item| item.sum).sum::<f64>() / known)
    }

    fn weighted(&self) -> f64 {
        self.weighted / self.runs.max(1) as f64
    }
}

fn team(name: &str, level: &str, case: &Case, language: &Language, seed: u64) -> Arc<dyn Orchestrator> {
    if let Some((base, count)) = name.split_once(' ') {
        let count: usize = count.parse().unwrap();
        let agents: String = (1..=count).map(|at| format!("  - {{id: a{at}, {SOLVER}}}\n")).collect();
        let read = (1..=count).map(|at| format!("a{at}")).collect::<Vec<_>>().join(", ");
        let reader = format!("  - {{id: last, base: {base}, capacity: {level}, after: [{read}]}}\n");
        return Arc::new(Fixed { text: format!("agents:\n{agents}{reader}"), reviewer: None });
    }
    let run = MethodRun::by_rule(name.parse::<Method>().unwrap());
    run.orchestrator(case, language, Some(level), seed).unwrap()
}

async fn run(
    env: &RolloutEnv,
    recordings: &Recordings,
    cases: &[Case],
    (name, level, runs): (&str, &str, u64),
) -> Figures {
    let mut figures = Figures::default();
    for case in cases {
        let mut cluster = RunCluster::default();
        for seed in 0..runs {
            let team = team(name, level, case, &env.language, seed);
            let rollout = env.rollout(RolloutRequest::new(case, team, seed)).await.unwrap();
            let agents = &rollout.summary.agents;
            figures.weighted +=
                agents.iter().map(|agent| agent.tokens_in as f64 / 4.0 + agent.tokens_out as f64).sum::<f64>();
            figures.runs += 1;
            // Programs are graded as they were when they were recorded; nothing is run here.
            let graded = || {
                let answered = rollout.summary.answered_by.as_ref()?;
                let reply = agents.iter().find(|agent| agent.id == *answered)?.reply.as_ref()?;
                let calls = &recordings.get(&case.item.task.question)?.calls;
                calls.iter().find(|call| *call.text == **reply)?.correct
            };
            let right = match &rollout.outcome {
                Outcome::Scored(score) => Some(score.right),
                Outcome::Unknown(UnknownReason::NotGradable) => graded(),
                Outcome::Unknown(_) => None,
            };
            match right {
                Some(right) => {
                    cluster.sum += f64::from(u8::from(right));
                    cluster.runs += 1;
                }
                None => figures.missing += 1,
            }
        }
        figures.items.push(cluster);
    }
    figures
}

#[tokio::test]
async fn fixed_teams_on_recorded_replies() {
    let Some(data) = public_data() else {
        println!("skipped: LEMON_TEST_DATA names no folder with recordings");
        return;
    };
    let levels = ["smol", "brief", "program", "reasoned"].map(str::to_owned);
    let recordings = Arc::new(Recordings::read(&data, &SETS.map(|(set, _)| set), &levels).unwrap());
    let efforts = recordings.styles().iter().map(|style| Effort { style: *style, price: None }).collect();
    let mut language = Language { capacities: levels.to_vec(), efforts, ..Language::default() };
    recordings.roles().iter().for_each(|role| language.roles.insert(role.clone()));
    let backend = Recorded::new(recordings.clone(), None).with_pool(SamplePool::Auto).backend();
    let settings = Settings { reuse: false, ..Settings::default() };
    let env = RolloutEnv::new(backend, Arc::new(language), settings, Grader::new(None));
    let mut all: Vec<(&str, Vec<[Figures; 2]>)> = TEAMS.iter().map(|(title, ..)| (*title, Vec::new())).collect();
    let began = std::time::Instant::now();
    let mut runs = 0;
    for (set, split) in SETS {
        let items = load(&Source::Folder(data.clone()), set, split).unwrap().items;
        let case = |item| Case { set: format!("{set}/{split}").into(), item };
        let known = items.into_iter().filter(|item| recordings.knows(&item.task.question));
        let is_train = |case: &Case| is_to_fit(&format!("{set}/{split}/{}", case.item.task.id));
        let (train, held_out): (Vec<Case>, Vec<Case>) = known.map(case).partition(is_train);
        println!("{set}/{split}: {} items to train on, {} held out", train.len(), held_out.len());
        for ((_, row), (_, name, level, seeds)) in all.iter_mut().zip(TEAMS) {
            let halves = [
                run(&env, &recordings, &train, (name, level, seeds)).await,
                run(&env, &recordings, &held_out, (name, level, seeds)).await,
            ];
            runs += halves.iter().map(|half| half.runs).sum::<usize>();
            row.push(halves);
        }
    }
    println!("{runs} runs in {:.1} s", began.elapsed().as_secs_f64());
    println!(
        "\nall recorded items; accuracy % with 95 % interval @ weighted tokens; – where the team is not on record"
    );
    for (title, row) in &all {
        let cells = row.iter().map(|[a, b]| {
            let both = Figures {
                items: [a.items.clone(), b.items.clone()].concat(),
                weighted: a.weighted + b.weighted,
                missing: a.missing + b.missing,
                runs: a.runs + b.runs,
            };
            let Some(accuracy) = both.accuracy() else {
                return format!("– ({} of {} missing)", both.missing, both.runs);
            };
            let [low, high] = mean_interval(&both.items, Some([0.0, 1.0]), 1);
            format!("{:.1} ({:.1}–{:.1}) @ {:.0}", 100.0 * accuracy, 100.0 * low, 100.0 * high, both.weighted())
        });
        println!("| {title} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    // Where a team is not on record for a set, the best it can be reduced to: votes without programs, one agent for programs.
    let reduced = |title: &str| match title {
        "1 program, 2 reasoners" => "vote of 2 (sc-cot)",
        "3 programs, 4 reasoners" | "agree, else 5 more" => "vote of 4",
        _ => "reasoned (cot)",
    };
    let find = |title: &str| &all.iter().find(|(known, _)| *known == title).unwrap().1;
    let mut means: [Vec<(&str, f64)>; 2] = Default::default();
    for (half, name) in ["half to train on", "held-out half"].into_iter().enumerate() {
        println!("\nmean over the six sets, {name}: accuracy @ weighted tokens; reward at 0.05 a thousand tokens");
        for (title, row) in &all {
            let mut parts: Vec<(f64, f64)> = Vec::new();
            let mut replaced = 0;
            for (at, halves) in row.iter().enumerate() {
                let own = halves[half].accuracy().map(|accuracy| (accuracy, halves[half].weighted()));
                let other = || {
                    let figures = [reduced(title), "reasoned (cot)"].map(|title| &find(title)[at][half]);
                    figures.into_iter().find_map(|figures| Some((figures.accuracy()?, figures.weighted()))).unwrap()
                };
                replaced += usize::from(own.is_none());
                parts.push(own.unwrap_or_else(other));
            }
            let accuracy = parts.iter().map(|part| part.0).sum::<f64>() / parts.len() as f64;
            let tokens = parts.iter().map(|part| part.1).sum::<f64>() / parts.len() as f64;
            means[half].push((*title, accuracy));
            println!(
                "  {title:<30} {:5.1} @ {tokens:6.0}   {:.3}   ({replaced} sets reduced)",
                100.0 * accuracy,
                accuracy - 0.05 * tokens / 1000.0
            );
        }
    }
    // The gate of a study: without a price of tokens, a fixed team must be worth 0.05 more than the best single agent.
    for half in means {
        let accuracy = |title: &str| half.iter().find(|(known, _)| *known == title).unwrap().1;
        let single = ["brief", "program", "reasoned (cot)"].map(accuracy).into_iter().fold(0.0, f64::max);
        let best = accuracy("3 programs, 4 reasoners");
        println!("gate: best single agent {single:.3}, three programs and four reasoners {best:.3}");
        assert!(best - single >= 0.05, "a team is not worth {best} against {single}");
    }
}
