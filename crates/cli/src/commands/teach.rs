//! `lemon teach`: pairs of tasks and specifications that a model can learn from.

use crate::args::Cli;
use crate::args::policy::{AimName, TeachArgs, TeacherName};
use crate::fault::{Fault, read_file};
use crate::{notices, print_json, println, runtime};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon::jobs::teaching::{LessonTeacher, TeachJob, TeachRequest};
use lemon_policy::pair;
use lemon_sandbox::Containment;
use lemon_sft::teach::SearchProgress;
use lemon_sft::teach::broad::BroadSettings;
use lemon_sft::teach::rules::{Aim, RulesSettings};
use lemon_sft::teach::search::{Pooling, TeamSearchSettings};
use std::cell::Cell;
use std::io::BufWriter;
use std::path::Path;
use tokio_util::sync::CancellationToken;

pub fn teach(cli: &Cli, args: &TeachArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone(), "what is made so far is written"));
    let request = TeachRequest {
        sets: args.sets.clone(),
        data: args.data.clone(),
        count: args.count,
        problems: args.problems,
        problem_steps: args.problem_steps,
        workers: args.workers,
        world: args.world.into(),
        seed: args.seed,
        containment: Containment::unless(args.unsafe_no_sandbox),
    };
    let job = runtime.block_on(TeachJob::prepare(&config, &request, notices(args.quiet)))?;
    let bar = ProgressBar::new(0).with_style(style());
    if args.quiet || args.teacher != TeacherName::Search {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let told = Cell::new(0);
    let watch = |tried: &SearchProgress| {
        bar.set_length(tried.of as u64);
        bar.set_position(tried.teams as u64);
        let (reward, success) = (tried.best.reward, 100.0 * tried.best.success);
        let best = format!("best: reward {reward:.3}, {success:.1} % right, {:.0} tokens", tried.best.tokens);
        // A bar is drawn on terminals only. Elsewhere every tenth is said.
        let tenth = 10 * tried.teams / tried.of.max(1);
        if bar.is_hidden() && !args.quiet && told.replace(tenth) < tenth {
            eprintln!("{}/{} teams · {best}", tried.teams, tried.of);
        }
        bar.set_message(best);
    };
    if !args.quiet {
        eprintln!("{} tasks", job.cases.len());
    }
    let made = runtime.block_on(job.teach(teacher(args)?, &cancel, &watch));
    bar.finish_and_clear();
    let lessons = made?;
    let at = |error: std::io::Error| Fault::new(format!("{}: {error}", args.out.display()));
    if let Some(folder) = args.out.parent() {
        std::fs::create_dir_all(folder).map_err(at)?;
    }
    pair::write(&lessons.pairs, BufWriter::new(std::fs::File::create(&args.out).map_err(at)?)).map_err(at)?;
    if args.json {
        return print_json(&lessons);
    }
    if !args.quiet {
        eprintln!("{}", lessons.in_words());
    }
    println(&args.out.display().to_string())
}

fn teacher(args: &TeachArgs) -> Result<LessonTeacher, Fault> {
    Ok(match args.teacher {
        TeacherName::Rules => {
            let aim = match args.aim {
                AimName::Thrift => Aim::Thrift,
                AimName::Reward => Aim::Reward,
            };
            LessonTeacher::Rules(RulesSettings { aim, runs: args.runs, ..Default::default() }, args.everyday)
        }
        TeacherName::Search => {
            let team = |path: &Path| Ok::<_, Fault>((path.display().to_string(), read_file(path)?));
            let settings = TeamSearchSettings {
                pooling: if args.one_for_all { Pooling::Kind } else { Pooling::Cluster },
                teams: args.teams,
                drawn: args.drawn,
                challengers: args.challengers,
                most_agents: args.most_agents.into(),
                two_rounds: args.two_rounds,
                runs: args.search_runs,
                lesson_runs: args.runs,
                ..Default::default()
            };
            LessonTeacher::Search(Box::new(settings), args.team.as_deref().map(team).transpose()?)
        }
        TeacherName::Endpoint => LessonTeacher::Endpoint(args.runs),
        TeacherName::Broad => LessonTeacher::Broad(BroadSettings { runs: args.runs, ..Default::default() }),
    })
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} teams · {msg} · {eta} left");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}
