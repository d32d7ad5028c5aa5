//! What a profile may spend, before its first call.

use super::ProfileWork;
use super::pairs::{applicable, reached};
use crate::budget::Cost;
use crate::counterfactual::Counterfactuals;
use lemon_eval::SpendEstimate;
use lemon_exec::{CallForecast, Forecast};

/// What a profile may spend, before its first call: every team whole, and of a counterfactual what its edit can reach.
pub fn estimate(runs: &Counterfactuals<'_>, work: &ProfileWork<'_>) -> SpendEstimate {
    let env = runs.env;
    let edits = applicable(work, &env.language, runs.reviewer.is_some());
    let Some(judge) = env.language.roles.get("judge") else { return SpendEstimate::default() };
    let reached: Vec<Vec<String>> = edits.iter().map(|(edit, _)| reached(work.plan, edit)).collect();
    let mut sum = SpendEstimate::default();
    for case in work.cases {
        let question = &case.item.task.question;
        let whole = Forecast::new(work.plan, question, &env.backend.levels, judge.clone());
        sum.add(&whole);
        for reached in &reached {
            let again = |call: &&CallForecast| call.is_judge || reached.contains(&call.agent);
            sum.add(&Forecast { calls: whole.calls.iter().filter(again).cloned().collect() });
        }
    }
    let most = work.cases.iter().map(|case| {
        let edited = edits.iter().map(|(_, edited)| runs.most(case, &edited.plan));
        std::iter::once(runs.most(case, work.plan)).chain(edited).sum::<Cost>()
    });
    let most: Cost = most.sum();
    let sum = SpendEstimate { at_most: most.tokens as f64, at_most_usd: most.usd, ..sum };
    sum.times(work.seeds.len() as f64)
}
