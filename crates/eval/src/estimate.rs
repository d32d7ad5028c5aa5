//! What an evaluation is likely to spend, and what it can spend at most, before its first call.

use crate::evaluate::{Evaluator, MethodRun, Work};
use crate::method::Ask;
use lemon_exec::orchestrator::{Draft, OrchestratorError, WriteContext};
use lemon_exec::{Forecast, Form, forecast_call};
use lemon_num::seed_of;
use lemon_spec::{Next, validate};
use lemon_trace::ORCHESTRATOR;

/// Items that are looked at for an estimate; the others are taken to be like them.
const MOST_ITEMS: usize = 100;

/// What many runs may spend.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SpendEstimate {
    pub runs: usize,
    /// Tokens that are likely, with replies of [`lemon_exec::LIKELY_REPLY`] tokens.
    pub likely: f64,
    /// The same in US dollars.
    pub likely_usd: f64,
    /// Tokens at most, attempts that fail and are tried again not counted.
    pub at_most: f64,
    /// The same in US dollars.
    pub at_most_usd: f64,
    /// Some teams, or some of their rounds, are written only when they are run: they come on top.
    pub more: bool,
}

impl SpendEstimate {
    /// Counts one more run of a team.
    pub fn add(&mut self, forecast: &Forecast) {
        self.runs += 1;
        self.likely += forecast.likely() as f64;
        self.likely_usd += forecast.likely_usd();
        self.at_most += forecast.tokens() as f64;
        self.at_most_usd += forecast.usd();
    }

    /// The same for so many times as many runs.
    pub fn times(self, factor: f64) -> Self {
        SpendEstimate {
            runs: (self.runs as f64 * factor).round() as usize,
            likely: self.likely * factor,
            likely_usd: self.likely_usd * factor,
            at_most: self.at_most * factor,
            at_most_usd: self.at_most_usd * factor,
            more: self.more,
        }
    }
}

impl Evaluator {
    /// What this work may spend. No worker is called; teams that a model would have to write are not known.
    ///
    /// # Errors
    /// An orchestrator failed.
    pub async fn estimate(&self, work: &Work) -> Result<SpendEstimate, OrchestratorError> {
        let mut sum = SpendEstimate::default();
        let every = work.cases.len().div_ceil(MOST_ITEMS).max(1);
        for method in &work.methods {
            for case in (0..work.cases.len()).step_by(every) {
                self.estimate_run(work, method, case, &mut sum).await?;
            }
        }
        let looked_at = (work.cases.len().div_ceil(every) * work.methods.len()).max(1);
        Ok(sum.times(work.runs() as f64 / looked_at as f64))
    }

    async fn estimate_run(
        &self,
        work: &Work,
        method: &MethodRun,
        case: usize,
        sum: &mut SpendEstimate,
    ) -> Result<(), OrchestratorError> {
        let Some(case) = work.cases.get(case) else { return Ok(()) };
        let seed = work.seeds.first().copied().unwrap_or(0);
        let question = &case.item.task.question;
        let text = match method.orchestrator(case, &self.env.language, work.capacity.as_deref(), seed) {
            _ if method.has_rule() => {
                let draw = seed_of(&[&method.method.name(), question, &seed.to_string()]);
                let capacity = method.method.capacity().or(work.capacity.as_deref());
                let ask = Ask::new(&case.item, &self.env.language, capacity, draw);
                method.method.spec(&ask)
            }
            // There is no team to estimate; the run will say so.
            Err(_) => None,
            Ok(writer) => {
                let tokens_left = self.env.settings.budget.tokens;
                let context = WriteContext {
                    question,
                    round: 1,
                    results: Vec::new(),
                    language: &self.env.language,
                    form: Form::of(question),
                    tokens_left,
                    seed,
                };
                match writer.draft(&context).await? {
                    Some(Draft::Text(text) | Draft::Guarded(text) | Draft::Learned { text, .. }) => Some(text),
                    Some(Draft::Plan { plan, .. }) => Some(plan.source().to_owned()),
                    Some(Draft::Ask { level, messages, .. }) => {
                        let known = self.env.backend.levels.get(level);
                        let call = known.map(|known| forecast_call(ORCHESTRATOR, &messages, level, known));
                        sum.add(&Forecast { calls: call.into_iter().collect() });
                        sum.more = true;
                        return Ok(());
                    }
                    None => None,
                }
            }
        };
        // A team that is none costs nothing.
        let plan = text.and_then(|text| validate(&text, &self.env.language).ok());
        let judge = self.env.language.roles.get("judge");
        let (Some(plan), Some(judge)) = (plan, judge) else {
            sum.add(&Forecast { calls: Vec::new() });
            return Ok(());
        };
        sum.more |= plan.next() == Next::Review && !method.has_rule();
        sum.add(&Forecast::new(&plan, question, &self.env.backend.levels, judge.clone()));
        Ok(())
    }
}
