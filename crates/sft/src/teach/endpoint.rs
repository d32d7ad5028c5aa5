//! The teacher behind an endpoint: a strong model is asked for teams, with the prompt that orchestrators get.
//!
//! Every text is validated; invalid ones are counted by error code. A team gets canonical ids ([`canonical_ids`]) and runs like any
//! other.

use super::{TeachContext, draw};
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_exec::Retry;
use lemon_exec::orchestrator::{Draft, Orchestrator, Prompted, Refused, WriteContext, specification_in};
use lemon_exec::worker::{AskError, Backend, Reply, Request};
use lemon_policy::pair::{Pair, Teacher, canonical_ids, dedupe};
use lemon_rollout::{Case, RolloutError};
use lemon_spec::{Code, Rejection, render, validate};
use lemon_trace::{Failure, FailureKind, ORCHESTRATOR};
use std::collections::BTreeMap;

/// How to ask.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndpointTeacherSettings {
    /// The level of the writer's backend that is asked.
    pub level: usize,
    /// Whether to ask for output that obeys the JSON Schema.
    pub structured: bool,
    /// How often each task is asked about, with another seed each time.
    pub asks: u32,
    /// Whether an invalid text may be repaired once.
    pub repair: bool,
    /// Runs for each pair; 0: nothing is run or measured.
    pub runs: u32,
    /// Tasks at a time.
    pub width: usize,
    /// When and how a failed call is tried again.
    pub retry: Retry,
}

impl Default for EndpointTeacherSettings {
    fn default() -> Self {
        EndpointTeacherSettings {
            level: 0,
            structured: false,
            asks: 1,
            repair: true,
            runs: 2,
            width: 8,
            retry: Retry::default(),
        }
    }
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndpointLessons {
    /// The pairs, in the order of the tasks.
    pub pairs: Vec<Pair>,
    /// Texts that were no teams, by what was wrong with them; one text counts once for each kind of fault.
    pub refused: BTreeMap<Code, usize>,
    /// Texts that were no teams.
    pub texts_refused: usize,
    /// Calls that brought no text.
    pub silent: usize,
    /// Why the last of those did not.
    pub failure: Option<Failure>,
}

/// Asks for a team for each of these tasks. Cancelled, it gives what was written by then.
///
/// # Errors
/// The sandbox failed.
pub async fn teach(
    context: &TeachContext<'_>,
    writer: &Backend,
    settings: &EndpointTeacherSettings,
) -> Result<EndpointLessons, RolloutError> {
    let asks = |case| (0..settings.asks).map(move |ask| Asking { context, writer, settings, case, ask });
    let works: Vec<Asking<'_>> = context.cases.iter().flat_map(asks).collect();
    let all: Vec<EndpointLessons> =
        stream::iter(works).map(Asking::pair).buffered(settings.width.max(1)).try_collect().await?;
    let mut asked = all.into_iter().fold(EndpointLessons::default(), EndpointLessons::with);
    asked.pairs = dedupe(asked.pairs);
    Ok(asked)
}

impl EndpointLessons {
    fn with(mut self, other: EndpointLessons) -> EndpointLessons {
        self.pairs.extend(other.pairs);
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
        self.texts_refused += other.texts_refused;
        self.silent += other.silent;
        self.failure = other.failure.or(self.failure);
        self
    }

    fn refuse(&mut self, rejection: &Rejection) {
        let codes: std::collections::BTreeSet<Code> = rejection.errors().map(|fault| fault.code).collect();
        for code in codes {
            *self.refused.entry(code).or_default() += 1;
        }
        self.texts_refused += 1;
    }
}

/// One task, asked about once.
struct Asking<'a> {
    context: &'a TeachContext<'a>,
    writer: &'a Backend,
    settings: &'a EndpointTeacherSettings,
    case: &'a Case,
    ask: u32,
}

impl Asking<'_> {
    async fn pair(self) -> Result<EndpointLessons, RolloutError> {
        let mut asked = EndpointLessons::default();
        let Some(spec) = self.team(&mut asked).await else { return Ok(asked) };
        let pair = self.context.pair(self.case, spec, Teacher::Endpoint, self.settings.runs).await?;
        asked.pairs.extend(pair);
        Ok(asked)
    }

    /// A valid team in our own writing, after one repair at most.
    async fn team(&self, asked: &mut EndpointLessons) -> Option<String> {
        let language = &self.context.env.language;
        let orchestrator = Prompted {
            level: self.settings.level,
            structured: self.settings.structured,
            fallback: None,
            models: Vec::new(),
        };
        let context = WriteContext {
            question: &self.case.item.task.question,
            round: 1,
            results: Vec::new(),
            language,
            form: lemon_exec::Form::default(),
            tokens_left: None,
            seed: self.context.seed,
        };
        let mut draft = orchestrator.draft(&context).await;
        let tries = ["draft", "repair"].into_iter().take(1 + usize::from(self.settings.repair));
        for occasion in tries {
            let asking = match draft {
                Ok(asking) => asking?,
                Err(error) => {
                    asked.silent += 1;
                    asked.failure = Some(Failure { kind: FailureKind::Orchestrator, message: error.to_string() });
                    return None;
                }
            };
            let text = self.text(asking, occasion, asked).await?;
            match validate(&text, language) {
                Ok(plan) => return Some(render(&canonical_ids(plan.spec())).text),
                Err(rejection) => {
                    asked.refuse(&rejection);
                    let refused = Refused { text: &rejection.source, diagnostics: &rejection.diagnostics };
                    draft = orchestrator.repair(&context, &refused).await;
                }
            }
        }
        None
    }

    /// The text of a draft; `None`: the call failed.
    async fn text(&self, draft: Draft, occasion: &str, asked: &mut EndpointLessons) -> Option<String> {
        let Draft::Ask { level, messages, schema } = draft else { return None };
        let known = self.writer.levels.get(level);
        let (case, ask) = (&self.case.item.task, self.ask.to_string());
        let request = Request {
            agent: ORCHESTRATOR.to_owned(),
            level,
            capacity: known.map(|level| level.name.clone()).unwrap_or_default(),
            messages,
            max_tokens: known.map_or(0, |level| level.max_tokens),
            temperature: known.and_then(|level| level.temperature),
            // Seeds of 31 bits are taken by every endpoint.
            seed: draw(self.context.seed, &[occasion, &case.id, &ask]) >> 33,
            schema,
            tools: None,
            agent_prompt: None,
            progress: None,
        };
        match self.reply(&request).await {
            // Half a specification may read like a whole one.
            Ok(reply) if reply.truncated => {
                asked.silent += 1;
                let message = format!("the text was cut off at {} tokens (max_tokens)", request.max_tokens);
                asked.failure = Some(Failure { kind: FailureKind::Truncated, message });
                None
            }
            Ok(reply) => Some(specification_in(&reply.text).to_owned()),
            Err(error) => {
                asked.silent += 1;
                asked.failure = Some(error.failure);
                None
            }
        }
    }

    /// A reply, tried again as the settings say.
    async fn reply(&self, request: &Request) -> Result<Reply, AskError> {
        let mut attempt = 1;
        loop {
            let cancelled = || AskError::free(FailureKind::Cancelled, "the lesson was cancelled");
            let error = tokio::select! {
                () = self.context.cancel.cancelled() => return Err(cancelled()),
                reply = self.call(request) => match reply {
                    Ok(reply) => return Ok(reply),
                    Err(error) => error,
                },
            };
            let draw = draw(request.seed, &["wait", &attempt.to_string()]);
            let wait = self.settings.retry.wait(attempt, error.retry_after, draw);
            match wait.filter(|_| error.worth_retrying()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
            attempt += 1;
        }
    }

    /// One call, in its turn.
    async fn call(&self, request: &Request) -> Result<Reply, AskError> {
        let Some(level) = self.writer.levels.get(request.level) else {
            return Err(AskError::free(FailureKind::Refused, "there is no such level"));
        };
        // A closed semaphore admits every call: no permit is needed.
        let _turn = level.gate.acquire().await.ok();
        self.writer.worker.ask(request).await
    }
}

#[cfg(test)]
mod tests;
