//! `lemon baseline`: published methods that learn to design teams.

use super::eval::vectors;
use crate::args::{BaselineCommand, BaselineTrainArgs, Cli};
use crate::fault::Fault;
use crate::{notices, print_json, println, runtime};
use lemon::Error;
use lemon::jobs::evaluation::EvalJob;
use lemon::jobs::{EvalRequest, SavedTrainings};
use lemon_exec::store::Store;
use lemon_exec::{fresh_id, unix_ms};
use lemon_sandbox::Containment;
use lemon_workers::SharedLimits;
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub fn baseline(cli: &Cli, command: &BaselineCommand) -> Result<u8, Fault> {
    match command {
        BaselineCommand::Train(args) => train(cli, args),
    }
}

fn train(cli: &Cli, args: &BaselineTrainArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone(), "what was learned so far is kept"));
    let store_path = config.store_path(cli.store.as_deref());
    let request = EvalRequest {
        sets: args.sets.clone(),
        split: "test".to_owned(),
        data: args.data.clone(),
        methods: args.methods.clone(),
        capacity: args.capacity.clone(),
        workers: args.workers.name().to_owned(),
        world: args.world.into(),
        limit: Some(1),
        seeds: args.seeds.clone(),
        together: SharedLimits { tokens: args.budget_tokens, usd: None },
        started_at_ms: unix_ms(),
        training_tokens: args.rivals.training_tokens,
        encoder: args.rivals.encoder.clone(),
        vectors: vectors(&args.rivals, &store_path),
        ..EvalRequest::default()
    };
    let request = request.checked()?;
    let contained = Containment::unless(args.unsafe_no_sandbox);
    let store = || Ok::<_, Error>(Arc::new(Store::open(&store_path, config.store.sync)?));
    let eval_id = format!("e-{}", fresh_id());
    let job = EvalJob::prepare(&config, request, eval_id, contained, notices(args.quiet), &cancel, store);
    let job = runtime.block_on(job)?;
    let SavedTrainings { made, missing } = runtime.block_on(job.train_baselines(&args.out, &cancel))?;
    if args.json {
        let rows: Vec<_> = made.iter().map(|(folder, account)| json!({"folder": folder, "account": account})).collect();
        print_json(&rows)?;
    } else {
        for (folder, account) in &made {
            let seconds = format!("{:.1} s", account.seconds);
            println(&format!("{}: {} runs, {} tokens, {seconds}", folder.display(), account.runs, account.tokens))?;
        }
    }
    if missing > 0 {
        let fact = format!("{missing} of {} trainings did not end, and are not saved", made.len() + missing);
        return Err(Fault::new(fact)
            .hint("run the command again; --budget-tokens N bounds all trainings together")
            .code(1));
    }
    Ok(0)
}
