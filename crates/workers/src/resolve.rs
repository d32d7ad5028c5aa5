//! The configuration that a command works with, computed once: which workers answer, and what each capacity is served by.

use crate::bundled;
use crate::config::{CAPACITIES, Capacity, Config, check_prices};
use crate::discover::{self, Server, ServerModels};
use crate::error::WorkersError;
use crate::kind::{DEFAULT_SOURCES, Source, WorkerKind};
use crate::local::{OUT_OF_REACH, is_word_problem};
use crate::{Tell, models};
use lemon_exec::{Budget, Settings};
use lemon_spec::Language;
use std::sync::Arc;

/// Why the bundled models refuse tasks.
const WHY: &str = "they solve arithmetic word problems only";

/// A configuration with nothing left open: the workers are found, the capacities are known.
#[derive(Clone)]
pub struct Resolved {
    /// The kind of workers, as traces name it.
    pub kind: WorkerKind,
    /// The configuration. Its capacities are those that answer.
    pub config: Config,
    /// The roles, capacities and limits of specifications.
    pub language: Arc<Language>,
    /// Whether the capacities are configured. Of those that were found, `tell` has heard.
    pub is_configured: bool,
    pub(crate) tell: Tell,
}

/// What one run may spend, over what the configuration says.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunLimits {
    /// The budget; what is absent comes from the configuration.
    pub budget: Budget,
    /// Whether every call is made again, although its reply is on record.
    pub no_reuse: bool,
}

/// Capacities that were found, and where.
struct Capacities {
    kind: WorkerKind,
    capacity: Vec<(String, Capacity)>,
    /// What a person should know of them.
    notice: Option<String>,
    is_configured: bool,
}

impl Resolved {
    /// Finds workers of this kind. Where no kind is named, the first of: configured capacities, a server that runs on this
    /// machine, models that are on this machine, the bundled models.
    ///
    /// # Errors
    /// There are none of the kind, or none that could answer these questions; or a role file cannot be used.
    pub async fn new(
        config: &Config,
        kind: Option<WorkerKind>,
        questions: &[&str],
        tell: Tell,
    ) -> Result<Self, WorkersError> {
        let Capacities { kind, capacity, notice, is_configured } = find(config, kind, tell).await?;
        let config = config.with_capacities(capacity);
        let language = Arc::new(config.language()?);
        let resolved = Resolved { kind, config, language, is_configured, tell };
        let warning = resolved.check_questions(questions)?;
        notice.into_iter().chain(warning).for_each(|line| tell(&line));
        Ok(resolved)
    }

    /// The capacities, weakest first, with what serves each.
    pub fn capacities(&self) -> &[(String, Capacity)] {
        &self.config.capacity
    }

    /// The models, each once. Addresses are left out: they may hold secrets.
    pub fn model_names(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (_, capacity) in self.capacities() {
            let name = capacity.model_name();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    /// How runs are carried out: flags over environment over file.
    ///
    /// # Errors
    /// A budget in US dollars where prices are missing.
    pub fn settings(&self, limits: &RunLimits) -> Result<Settings, WorkersError> {
        let (run, file) = (&self.config.run, Budget::from(self.config.budget));
        let budget = Budget {
            tokens: limits.budget.tokens.or(file.tokens),
            usd: limits.budget.usd.or(file.usd),
            calls: limits.budget.calls.or(file.calls),
            seconds: limits.budget.seconds.or(file.seconds),
        };
        if budget.usd.is_some() {
            check_prices(self.capacities())?;
        }
        let default = Settings::default();
        Ok(Settings {
            budget,
            max_parallel: run.max_parallel.unwrap_or(default.max_parallel).max(1),
            max_rounds: run.max_rounds.unwrap_or(default.max_rounds).max(1),
            on_parent_failure: run.on_parent_failure.unwrap_or_default(),
            tool_calls: run.max_tool_calls.unwrap_or(default.tool_calls),
            decisions: default.decisions,
            retry: run.retry,
            least_reply_tokens: run.least_reply_tokens.unwrap_or(default.least_reply_tokens).max(1),
            // Replies that cost nothing are not worth keeping.
            reuse: self.kind.asks_models() && !limits.no_reuse && run.reuse.unwrap_or(true),
            shared: None,
        })
    }

    /// That these workers would not refuse a question at once.
    ///
    /// # Errors
    /// They would.
    pub fn check_question(&self, question: &str) -> Result<(), WorkersError> {
        self.check_questions(&[question]).map(|_| ())
    }

    /// A warning where the bundled models would refuse some of the questions.
    ///
    /// # Errors
    /// They would refuse all of them.
    fn check_questions(&self, questions: &[&str]) -> Result<Option<String>, WorkersError> {
        if !(self.kind.is_in_process() && bundled::serve_all(self.capacities())) {
            return Ok(None);
        }
        let refused = questions.iter().filter(|question| !is_word_problem(question)).count();
        let fact = match (refused, questions.len()) {
            (0, _) => return Ok(None),
            (1, 1) => format!("the bundled models solve {OUT_OF_REACH}"),
            (refused, all) if refused < all => {
                return Ok(Some(format!("warning: the bundled models will refuse {refused} of {all} tasks: {WHY}")));
            }
            (_, all) => format!("the bundled models would refuse all {all} tasks: {WHY}"),
        };
        Err(WorkersError::new(fact).hint(bundled::STRONGER))
    }
}

async fn find(config: &Config, kind: Option<WorkerKind>, tell: Tell) -> Result<Capacities, WorkersError> {
    let sources = match kind {
        None => DEFAULT_SOURCES,
        Some(kind) if kind.entry().sources.is_empty() => {
            return Ok(Capacities { kind, capacity: config.capacity.clone(), notice: None, is_configured: false });
        }
        Some(kind) => kind.entry().sources,
    };
    for source in sources {
        if let Some(found) = look_at(*source, config, tell).await? {
            return Ok(found);
        }
    }
    Err(WorkersError::new("no endpoint is configured").hint(
        "give --base-url and --model, or write a lemon.toml with `lemon init`; \
         `--workers bundled` uses the small models that ship with this program",
    ))
}

async fn look_at(source: Source, config: &Config, tell: Tell) -> Result<Option<Capacities>, WorkersError> {
    let found =
        |kind, capacity, notice| Some(Capacities { kind, capacity, notice: Some(notice), is_configured: false });
    Ok(match source {
        Source::Configured | Source::ConfiguredLocal => configured(config, source == Source::ConfiguredLocal)?,
        Source::Server => {
            let servers = discover::running_servers(&discover::ports()?, tell).await?;
            let served = servers.iter().find_map(served);
            served.and_then(|(capacity, notice)| found(WorkerKind::ENDPOINTS, capacity, notice))
        }
        Source::Found => found_models().and_then(|(capacity, notice)| found(WorkerKind::LOCAL, capacity, notice)),
        Source::Bundled => {
            let notice = format!("{}\n{}", bundled::NOTICE, bundled::STRONGER);
            found(WorkerKind::BUNDLED, bundled::capacities(), notice)
        }
    })
}

fn configured(config: &Config, local_only: bool) -> Result<Option<Capacities>, WorkersError> {
    let is_local = |(_, capacity): &(String, Capacity)| capacity.local.is_some();
    let mut capacity = config.capacity.clone();
    capacity.retain(|capacity| !local_only || is_local(capacity));
    // Half an address must not be completed by what happens to be found.
    if config.flags.is_half() && (capacity.is_empty() || capacity.iter().any(is_local)) {
        return Err(WorkersError::new("--base-url and --model belong together")
            .hint("give both, or neither; a model that `lemon models list` shows needs no --base-url"));
    }
    if capacity.is_empty() {
        return Ok(None);
    }
    let kind = if capacity.iter().all(is_local) { WorkerKind::LOCAL } else { WorkerKind::ENDPOINTS };
    Ok(Some(Capacities { kind, capacity, notice: None, is_configured: true }))
}

/// The models of a server as capacities, and what to say of them.
fn served(server: &Server) -> Option<(Vec<(String, Capacity)>, String)> {
    let ServerModels { small, medium, large } = server.levels()?;
    let capacity = |(name, model): (&str, String)| (name.to_owned(), Capacity::new(&server.base_url, &model, None));
    let notice = format!("{} at {} answers; nothing else is configured", server.kind, server.base_url);
    Some((CAPACITIES.into_iter().zip([small, medium, large]).map(capacity).collect(), notice))
}

/// The models on this machine as capacities: the largest three, or fewer more than once.
fn found_models() -> Option<(Vec<(String, Capacity)>, String)> {
    let models = models::usable();
    let largest = models.first()?;
    let nth = |rank: usize| models.get(rank.min(models.len() - 1)).unwrap_or(largest);
    let capacity = |(rank, name): (usize, &str)| (name.to_owned(), Capacity::local(&nth(rank).name));
    let mut capacities: Vec<_> = CAPACITIES.into_iter().rev().enumerate().map(capacity).collect();
    capacities.reverse();
    let names = models.iter().take(CAPACITIES.len()).map(|model| model.name.as_str()).collect::<Vec<_>>().join(", ");
    Some((capacities, format!("models in this process answer: {names}; nothing else is configured")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EndpointFlags;

    fn resolved(config: &Config, kind: Option<WorkerKind>, questions: &[&str]) -> Result<Resolved, WorkersError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Resolved::new(config, kind, questions, |_| {}))
    }

    fn with_flags(toml: &str, base_url: Option<&str>, model: Option<&str>) -> Config {
        let config: Config = toml::from_str(toml).unwrap();
        let flags = EndpointFlags {
            base_url: base_url.map(Into::into),
            model: model.map(Into::into),
            ..EndpointFlags::default()
        };
        config.with_endpoint(flags)
    }

    #[test]
    fn configured_capacities_answer_first() {
        let check = |toml: &str, kind: Option<WorkerKind>, expected: WorkerKind, capacities: &[&str]| {
            let found = resolved(&with_flags(toml, None, None), kind, &[]).unwrap();
            assert_eq!((found.kind, found.is_configured), (expected, expected.entry().sources.len() > 1), "{toml}");
            assert_eq!(found.language.capacities, capacities, "{toml}");
        };
        let mixed = "[capacity.a]\nlocal = 'bundled:small'\n[capacity.b]\nbase_url = 'http://a'\nmodel = 'm'\n";
        check(mixed, None, WorkerKind::ENDPOINTS, &["a", "b"]);
        check(mixed, Some(WorkerKind::LOCAL), WorkerKind::LOCAL, &["a"]);
        check(mixed, Some(WorkerKind::BUNDLED), WorkerKind::BUNDLED, &["small", "medium", "large"]);
        check(mixed, Some(WorkerKind::SCRIPTED), WorkerKind::SCRIPTED, &["a", "b"]);
    }

    #[test]
    fn half_an_address_is_refused() {
        for (toml, kind) in [("", None), ("[capacity.a]\nlocal = 'x'\n", Some(WorkerKind::LOCAL))] {
            let error = resolved(&with_flags(toml, None, Some("m")), kind, &[]).err().unwrap();
            assert_eq!(error.fact, "--base-url and --model belong together");
        }
        // The file has the other half.
        let file = "[capacity.a]\nbase_url = 'http://a'\nmodel = 'm'\n";
        assert_eq!(resolved(&with_flags(file, None, Some("n")), None, &[]).unwrap().model_names(), "n");
    }

    #[test]
    fn bundled_models_refuse_what_they_cannot_solve() {
        let check = |questions: &[&str], expected: Option<&str>| {
            let error = resolved(&Config::default(), Some(WorkerKind::BUNDLED), questions).err();
            assert_eq!(error.is_some(), expected.is_some(), "{questions:?}");
            assert!(error.is_none_or(|error| error.fact.contains(expected.unwrap())));
        };
        let (sum, poem) = ("Ana has 3 pens and buys 4. How many?", "Write a poem.");
        check(&[sum, poem], None);
        check(&[poem], Some("arithmetic word problems only, and this is not one"));
        check(&[poem, poem], Some("would refuse all 2 tasks"));
        check(&[], None);
    }
}
