//! The registry of worker kinds. A new kind is one entry in [`KINDS`] and the functions it names.

use crate::backend::{self, Built, WorkerFiles};
use crate::config::OrchestratorKind;
use crate::error::WorkersError;
use crate::resolve::Resolved;
use crate::simulation::{self, Simulation};
use lemon_exec::Backend;
use std::fmt;

/// What one kind of workers is, and how it is built.
pub struct Registration {
    /// Its name on the command line, in the configuration and on record.
    pub name: &'static str,
    /// Older names, which are still understood.
    pub aliases: &'static [&'static str],
    /// One line for help texts.
    pub about: &'static str,
    /// The commands that offer it.
    scope: &'static [Scope],
    cost: Cost,
    /// Where its capacities come from, in the order they are tried. Empty: it takes the configured ones and needs none.
    pub(crate) sources: &'static [Source],
    /// The orchestrator where the configuration names none.
    pub(crate) orchestrator: OrchestratorKind,
    /// Whether the guard holds its teams to what one plain call would answer.
    pub(crate) guarded: bool,
    /// Whether its models can be prompted to write teams.
    pub(crate) writes_teams: bool,
    pub(crate) build: Build,
}

/// Which commands offer a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `lemon run` and `lemon plan`.
    Run,
    /// Commands that run many tasks: `eval`, `credit`, `teach`, `train`, `ablate`.
    Tasks,
}

/// What a call costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cost {
    /// Nothing: no model is called.
    Nothing,
    /// Time of this machine.
    Compute,
    /// Money, or the machine of another owner.
    Money,
}

/// Where capacities come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The configuration and the flags.
    Configured,
    /// Those of the configuration that name a local model.
    ConfiguredLocal,
    /// A model server that runs on this machine.
    Server,
    /// Models that this program or another one put on this machine.
    Found,
    /// The models that ship with this program.
    Bundled,
}

/// The sources that are tried where no kind is named.
pub(crate) const DEFAULT_SOURCES: &[Source] = &[Source::Configured, Source::Server, Source::Found, Source::Bundled];

/// How the workers of a kind are built.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// From capacities and files.
    Worker(fn(&Resolved, &WorkerFiles) -> Result<Built, WorkersError>),
    /// From the tasks they will work on.
    Backend(fn(&Simulation<'_>) -> Result<Backend, WorkersError>),
}

const RUN: &[Scope] = &[Scope::Run];
const TASKS: &[Scope] = &[Scope::Tasks];
const BOTH: &[Scope] = &[Scope::Run, Scope::Tasks];

static SIM_ENTRY: Registration = Registration {
    name: "sim",
    aliases: &[],
    about: "A simulated world; no model is called",
    scope: TASKS,
    cost: Cost::Nothing,
    sources: &[],
    orchestrator: OrchestratorKind::Policy,
    guarded: false,
    writes_teams: false,
    build: Build::Backend(simulation::simulated),
};

static RECORDED_ENTRY: Registration = Registration {
    name: "replay",
    about: "Recorded replies of real models (from outcomes/ in the folder of task sets)",
    build: Build::Backend(simulation::recorded),
    ..SIM_ENTRY
};

static ENDPOINTS_ENTRY: Registration = Registration {
    name: "endpoints",
    aliases: &[],
    about: "The configured endpoints",
    scope: BOTH,
    cost: Cost::Money,
    sources: &[Source::Configured, Source::Server],
    orchestrator: OrchestratorKind::Policy,
    guarded: true,
    writes_teams: true,
    build: Build::Worker(backend::models),
};

static LOCAL_ENTRY: Registration = Registration {
    name: "local",
    about: "Models in this process: those of `local = …` in the configuration, or pulled ones, or the bundled ones",
    cost: Cost::Compute,
    sources: &[Source::ConfiguredLocal, Source::Found, Source::Bundled],
    ..ENDPOINTS_ENTRY
};

static BUNDLED_ENTRY: Registration = Registration {
    name: "bundled",
    aliases: &["box"],
    about: "The small models that ship with this program: they solve arithmetic word problems only",
    sources: &[Source::Bundled],
    guarded: false,
    writes_teams: false,
    ..LOCAL_ENTRY
};

static CASSETTE_ENTRY: Registration = Registration {
    name: "replay",
    aliases: &[],
    about: "A cassette",
    scope: RUN,
    cost: Cost::Nothing,
    sources: &[],
    orchestrator: OrchestratorKind::Policy,
    guarded: true,
    writes_teams: true,
    build: Build::Worker(backend::cassette),
};

static SCRIPTED_ENTRY: Registration = Registration {
    name: "scripted",
    about: "A script; no model is called",
    // A script answers for its orchestrator too.
    orchestrator: OrchestratorKind::Prompted,
    guarded: false,
    build: Build::Worker(backend::scripted),
    ..CASSETTE_ENTRY
};

/// No command offers it: a program that uses the library passes its worker as an object.
static OWN_ENTRY: Registration = Registration {
    name: "own",
    about: "A worker that a program passes to the library",
    scope: &[],
    guarded: false,
    build: Build::Worker(|_, _| Err(WorkersError::new("a worker of this kind is passed as an object"))),
    ..CASSETTE_ENTRY
};

/// All kinds that commands offer, in the order help texts list them.
pub const KINDS: &[WorkerKind] = &[
    WorkerKind::SIM,
    WorkerKind::RECORDED,
    WorkerKind::ENDPOINTS,
    WorkerKind::LOCAL,
    WorkerKind::BUNDLED,
    WorkerKind::CASSETTE,
    WorkerKind::SCRIPTED,
];

/// A kind of workers: an entry of the registry.
#[derive(Clone, Copy)]
pub struct WorkerKind(&'static Registration);

impl WorkerKind {
    /// A simulated world.
    pub const SIM: WorkerKind = WorkerKind(&SIM_ENTRY);
    /// Recorded replies of real models to tasks.
    pub const RECORDED: WorkerKind = WorkerKind(&RECORDED_ENTRY);
    /// OpenAI-compatible endpoints.
    pub const ENDPOINTS: WorkerKind = WorkerKind(&ENDPOINTS_ENTRY);
    /// Models of this process.
    pub const LOCAL: WorkerKind = WorkerKind(&LOCAL_ENTRY);
    /// The models that ship with this program.
    pub const BUNDLED: WorkerKind = WorkerKind(&BUNDLED_ENTRY);
    /// A cassette of calls.
    pub const CASSETTE: WorkerKind = WorkerKind(&CASSETTE_ENTRY);
    /// A script.
    pub const SCRIPTED: WorkerKind = WorkerKind(&SCRIPTED_ENTRY);
    /// A worker that a program passes to the library.
    pub const OWN: WorkerKind = WorkerKind(&OWN_ENTRY);

    /// The kinds that a command offers.
    pub fn all(scope: Scope) -> impl Iterator<Item = WorkerKind> {
        KINDS.iter().copied().filter(move |kind| kind.0.scope.contains(&scope))
    }

    /// The kind of this name, or of this older name.
    ///
    /// # Errors
    /// The commands of this scope know none.
    pub fn named(scope: Scope, name: &str) -> Result<WorkerKind, WorkersError> {
        WorkerKind::all(scope).find(|kind| kind.is_called(name)).ok_or_else(|| {
            let known = WorkerKind::all(scope).map(WorkerKind::name).collect::<Vec<_>>().join(", ");
            WorkersError::new(format!("unknown worker kind `{name}`; expected one of {known}"))
        })
    }

    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether this is its name, or an older one.
    pub fn is_called(self, name: &str) -> bool {
        self.0.name == name || self.0.aliases.contains(&name)
    }

    /// What the registry says of it.
    pub fn entry(self) -> &'static Registration {
        self.0
    }

    /// Whether models are called.
    pub fn asks_models(self) -> bool {
        self.0.cost != Cost::Nothing
    }

    /// Whether its calls cost money.
    pub fn costs_money(self) -> bool {
        self.0.cost == Cost::Money
    }

    /// Whether its models run in this process.
    pub fn is_in_process(self) -> bool {
        self.0.cost == Cost::Compute
    }
}

impl PartialEq for WorkerKind {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for WorkerKind {}

impl fmt::Debug for WorkerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_within_a_command() {
        for scope in [Scope::Run, Scope::Tasks] {
            let mut names: Vec<&str> = WorkerKind::all(scope)
                .flat_map(|kind| kind.entry().aliases.iter().copied().chain([kind.name()]))
                .collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{scope:?}");
        }
    }

    #[test]
    fn a_name_means_a_kind_of_its_command() {
        let check = |scope, name: &str, expected: Option<WorkerKind>| {
            assert_eq!(WorkerKind::named(scope, name).ok(), expected, "{name}");
        };
        check(Scope::Run, "replay", Some(WorkerKind::CASSETTE));
        check(Scope::Tasks, "replay", Some(WorkerKind::RECORDED));
        check(Scope::Run, "box", Some(WorkerKind::BUNDLED));
        check(Scope::Tasks, "bundled", Some(WorkerKind::BUNDLED));
        check(Scope::Run, "sim", None);
        let error = WorkerKind::named(Scope::Run, "x").unwrap_err();
        let expected = "unknown worker kind `x`; expected one of endpoints, local, bundled, replay, scripted";
        assert_eq!(error.fact, expected);
    }
}
