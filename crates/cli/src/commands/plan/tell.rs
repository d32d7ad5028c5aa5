//! A plan in words and as JSON.

use super::Known;
use crate::args::RunArgs;
use crate::fault::Fault;
use crate::{one_line, print_json, println};
use lemon::jobs::plan::{PlannedTeam, usd};
use lemon_exec::{Budget, BudgetFit, CallForecast};
use lemon_workers::Capacity;
use serde_json::{Value, json};

/// Tokens that the faults of a first try may take in the prompt of a second.
const FAULTS: u64 = 2_000;
/// The longest role that is shown.
const ROLE_CHARS: usize = 40;

/// Shows a team and what it can cost.
pub fn written(args: &RunArgs, known: &Known<'_>, team: &PlannedTeam) -> Result<u8, Fault> {
    match args.json {
        true => print_json(&team_json(known, team))?,
        false => println(team_text(known, team).trim_end())?,
    };
    if let Some(run_id) = team.run_id.as_ref().filter(|_| !args.quiet) {
        eprintln!("writing the team took {} tokens; `lemon run --resume {run_id}` runs this very team", team.spent);
    }
    Ok(0)
}

/// Says what it costs to have the team written.
pub fn unwritten(args: &RunArgs, known: &Known<'_>, capacity: &str, first: &CallForecast) -> Result<u8, Fault> {
    // The second try reads the first, and what was wrong with it.
    let tokens_in = first.tokens_in.saturating_add(2 * first.tokens_out).saturating_add(FAULTS);
    let second = CallForecast { tokens_in, ..first.clone() };
    let model = model(known.levels, first.level);
    if args.json {
        let call = |call: &CallForecast| {
            let (tokens_in, tokens_out, tokens) = (call.tokens_in, call.tokens_out, call.tokens());
            let usd = usd(known.levels, [call].into_iter());
            json!({ "tokens_in": tokens_in, "tokens_out": tokens_out, "tokens": tokens, "usd": usd })
        };
        let writer =
            json!({ "capacity": capacity, "model": model, "first_try": call(first), "second_try": call(&second) });
        return print_json(&json!({ "question": known.question, "written": false, "writer": writer }));
    }
    let by = model.map_or_else(|| format!("`{capacity}`"), |model| format!("`{capacity}` ({})", plain(&model)));
    let at_most = |call: &CallForecast| amount(call.tokens(), usd(known.levels, [call].into_iter()));
    println(&format!(
        "the team is not written: a model writes it, {by}, and that call is paid for\n\
         writing it costs at most {}, and at most {} more if the first try is not valid\n\
         what the team costs is known once it is written: `--write` has it written and runs nothing",
        at_most(first),
        at_most(&second)
    ))
}

fn team_json(known: &Known<'_>, team: &PlannedTeam) -> Value {
    let agent = |(call, fit): (&CallForecast, &BudgetFit)| {
        let row = row(known, team, call);
        let (fits, reply) = match fit {
            BudgetFit::Whole => ("whole", call.tokens_out),
            BudgetFit::Cut(tokens) => ("cut", *tokens),
            BudgetFit::NotStarted(_) => ("not_started", 0),
        };
        json!({
            "id": call.agent, "base": row.base, "role": row.role, "capacity": row.capacity, "model": row.model,
            "after": row.reads, "judge": call.is_judge,
            "tokens_in": call.tokens_in, "tokens_out": call.tokens_out, "tokens": call.tokens(), "usd": row.usd,
            "within_budget": fits, "reply_within_budget": reply,
        })
    };
    let PlannedTeam { by, model, plan, forecast, fits, more_rounds, spent, run_id } = team;
    json!({
        "question": known.question,
        "written": true,
        "by": by,
        "writer_model": model,
        "spec": plan.spec(),
        "agents": forecast.calls.iter().zip(fits).map(agent).collect::<Vec<_>>(),
        "calls": forecast.calls.len(),
        "tokens": forecast.tokens(),
        "usd": usd(known.levels, forecast.calls.iter()),
        "more_rounds": more_rounds,
        "budget": known.settings.budget,
        "within_budget": fits.iter().all(|fit| *fit == BudgetFit::Whole),
        "spent_on_writing": spent,
        "run_id": run_id,
    })
}

fn team_text(known: &Known<'_>, team: &PlannedTeam) -> String {
    let writer = team.model.as_ref().map(|model| format!(" ({})", plain(model))).unwrap_or_default();
    let mut text = format!("the team, written by {}{writer}:\n", plain(&team.by));
    text += &table(known, team);
    let answer = &team.plan.spec().answer;
    text += &format!("answer: {} of {}\n", answer.by, answer.from.join(", "));
    let calls = &team.forecast.calls;
    let all = amount(team.forecast.tokens(), usd(known.levels, calls.iter()));
    let calls = if calls.len() == 1 { "1 call".to_owned() } else { format!("{} calls", calls.len()) };
    text += &format!("at most {all}, {calls}; a call that fails and is tried again can cost as much again\n");
    let with_tools = team.plan.agents().iter().filter(|agent| !agent.tools.is_empty()).count();
    if with_tools > 0 {
        let most = known.settings.tool_calls;
        text += &format!(
            "not in these figures: up to {most} calls of tools for each agent that has some, and its replies to them\n"
        );
    }
    if team.more_rounds > 0 {
        let rounds = if team.more_rounds == 1 { "round" } else { "rounds" };
        text += &format!("plus up to {} more {rounds}, written when the results are known\n", team.more_rounds);
    }
    text + &budget(known, team)
}

/// What is shown of an agent.
struct AgentLine {
    base: String,
    role: String,
    capacity: String,
    model: Option<String>,
    reads: Vec<String>,
    usd: Option<f64>,
}

fn row(known: &Known<'_>, team: &PlannedTeam, call: &CallForecast) -> AgentLine {
    let agent = team.plan.agents().iter().find(|agent| agent.id == call.agent && !call.is_judge);
    let ids = || team.plan.agents().iter().map(|agent| agent.id.clone());
    let (base, role, capacity, reads) = match agent {
        Some(agent) => {
            let reads = agent.parents.iter().filter_map(|parent| ids().nth(*parent)).collect();
            (agent.base.name.clone(), agent.role.clone(), agent.capacity.clone(), reads)
        }
        // A judge stands in no text.
        None => {
            let capacity = known.capacities.get(call.level).cloned().unwrap_or_default();
            ("judge".to_owned(), "decides between them".to_owned(), capacity, team.plan.spec().answer.from.clone())
        }
    };
    let usd = usd(known.levels, [call].into_iter());
    AgentLine { base, role, capacity, model: model(known.levels, call.level), reads, usd }
}

fn table(known: &Known<'_>, team: &PlannedTeam) -> String {
    let heads = ["agent", "role", "model", "reads", "prompt", "reply", "tokens", "USD"].map(str::to_owned);
    let mut rows = vec![heads];
    for call in &team.forecast.calls {
        let AgentLine { base, role, capacity, model, reads, usd } = row(known, team, call);
        let model = model.map(|model| format!("{capacity}: {}", plain(&model))).unwrap_or(capacity);
        rows.push([
            call.agent.clone(),
            format!("{} ({base})", plain(&role)),
            model,
            if reads.is_empty() { "–".to_owned() } else { reads.join(", ") },
            call.tokens_in.to_string(),
            call.tokens_out.to_string(),
            call.tokens().to_string(),
            usd.map_or("–".to_owned(), money),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let line = |row: &[String; 8]| {
        let cell = |(column, cell): (usize, &String)| match column < 4 {
            true => format!("{cell:<width$}", width = widths[column]),
            false => format!("{cell:>width$}", width = widths[column]),
        };
        format!("  {}\n", row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  "))
    };
    rows.iter().map(line).collect()
}

/// What the budget of a run leaves of the team.
fn budget(known: &Known<'_>, team: &PlannedTeam) -> String {
    let Budget { tokens, usd, calls, seconds } = known.settings.budget;
    let limits = [
        tokens.map(|limit| format!("{limit} tokens")),
        usd.map(|limit| format!("{} USD", money(limit))),
        calls.map(|limit| if limit == 1 { "1 call".to_owned() } else { format!("{limit} calls") }),
        seconds.map(|limit| format!("{limit} seconds")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() {
        return "budget: none\n".to_owned();
    }
    let limits = limits.join(", ");
    let cut = |(call, fit): (&CallForecast, &BudgetFit)| match fit {
        BudgetFit::Whole => None,
        BudgetFit::Cut(tokens) => Some(format!("  {}: its reply is cut at {tokens} tokens", call.agent)),
        BudgetFit::NotStarted(limit) => {
            Some(format!("  {}: does not start, for want of {}", call.agent, limit.as_str()))
        }
    };
    let cuts: Vec<String> = team.forecast.calls.iter().zip(&team.fits).filter_map(cut).collect();
    match cuts.is_empty() {
        true => format!("budget: {limits}; the first round fits\n"),
        false => format!("budget: {limits}; if every reply is as long as it may be:\n{}\n", cuts.join("\n")),
    }
}

/// The model that serves a capacity.
fn model(levels: &[(String, Capacity)], level: usize) -> Option<String> {
    let (_, capacity) = levels.get(level)?;
    Some(capacity.local.clone().unwrap_or_else(|| capacity.model.clone()))
}

fn amount(tokens: u64, usd: Option<f64>) -> String {
    match usd {
        Some(usd) => format!("{tokens} tokens ({} USD)", money(usd)),
        None => format!("{tokens} tokens"),
    }
}

fn money(usd: f64) -> String {
    format!("{usd:.4}")
}

/// A text that models or servers wrote, on one line and without anything a terminal would obey.
fn plain(text: &str) -> String {
    let line: String = one_line(text).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    match line.chars().count() > ROLE_CHARS {
        true => line.chars().take(ROLE_CHARS - 1).chain(['…']).collect(),
        false => line,
    }
}
