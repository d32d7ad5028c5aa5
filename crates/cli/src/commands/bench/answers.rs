//! `lemon bench answers`: what `lemon run` answers, beside one plain call to the same model, question by question.

use crate::args::{AnswersArgs, Cli};
use crate::fault::{Fault, read_file};
use crate::{notices, print, println, runtime};
use lemon::jobs::answers::{AnswersJob, AnswersRequest};
use lemon_eval::questions::{self, CheckedQuestion, QuestionError};
use lemon_sandbox::Containment;
use lemon_workers::Config;
use tokio_util::sync::CancellationToken;

pub fn answers(cli: &Cli, args: &AnswersArgs) -> Result<u8, Fault> {
    let mut asked = Vec::new();
    for file in &args.questions {
        asked.extend(questions::of_file(file, &read_file(file)?).map_err(fault)?);
    }
    for set in &args.sets {
        asked.extend(questions::of_set(set, args.data.as_deref(), &args.split, args.limit).map_err(fault)?);
    }
    if asked.is_empty() {
        return Err(Fault::new("there are no questions").hint("give --questions FILE, or --set gsm8k --data DIR"));
    }
    let config = cli.config(&args.endpoints)?;
    runtime()?.block_on(compare(&config, args, asked))
}

fn fault(error: QuestionError) -> Fault {
    match error {
        QuestionError::Sandbox(error) => error.into(),
        error => Fault { hint: error.hint().map(str::to_owned), ..Fault::new(error) },
    }
}

async fn compare(config: &Config, args: &AnswersArgs, asked: Vec<CheckedQuestion>) -> Result<u8, Fault> {
    let request = AnswersRequest {
        methods: args.methods.clone(),
        budget: args.budget_tokens,
        width: args.width,
        seed: args.seed,
        containment: Containment::unless(args.unsafe_no_sandbox),
    };
    let job = AnswersJob::prepare(config, request, &asked, notices(false)).await?;
    let cancel = CancellationToken::new();
    tokio::spawn(crate::commands::run::cancel_on_signal(cancel.clone(), "what was answered is compared"));
    let count = asked.len();
    eprintln!(
        "{count} questions, {} methods; at most {} tokens a reply{}",
        job.methods(),
        job.most_reply_tokens(),
        args.budget_tokens.map_or(String::new(), |budget| format!("; budget {budget} tokens"))
    );
    let mut done = 0;
    let rows = job.run(asked, &cancel, |row| {
        let mark = |passes| if passes { "passes" } else { "fails" };
        let marks: Vec<String> = row.outcomes.iter().map(|it| format!("{} {}", it.method, mark(it.passes))).collect();
        done += 1;
        eprintln!("{done} of {count}  {} {}: {}", row.set, row.id, marks.join(", "));
    });
    let rows = rows.await?;
    if rows.is_empty() {
        return Err(Fault::new("no question was answered by all methods")
            .hint("raise --budget-tokens; `lemon doctor` checks the endpoint"));
    }
    let table = job.table(&rows, count);
    if args.json {
        for row in &rows {
            print(&(serde_json::to_string(row).map_err(Fault::new)? + "\n"))?;
        }
    } else {
        println(table.trim_end())?;
    }
    if let Some(out) = &args.out {
        std::fs::write(out, &table).map_err(|error| Fault::new(format!("{}: {error}", out.display())))?;
    }
    eprintln!("the guard of `lemon run` goes by this: {}", job.add_evidence(&rows)?.display());
    Ok(u8::from(rows.len() < count))
}
