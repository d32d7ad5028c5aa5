//! Workers for many tasks: models that are asked, a simulated world, or recorded replies.

use crate::Tell;
use crate::backend::WorkerFiles;
use crate::config::{Capacity, Config};
use crate::error::WorkersError;
use crate::kind::{Build, WorkerKind};
use crate::resolve::{Resolved, RunLimits};
use lemon_exec::{Backend, Budget, Settings};
use lemon_spec::{Effort, Language, Style};
use lemon_task::{Item, SetName};
use lemon_world::{AgentNoise, Choices, Preset, Recorded, Recordings, SamplePool, World};
use std::path::Path;
use std::sync::Arc;

/// What a simulated world or recorded replies are made of.
#[derive(Default)]
pub struct Simulation<'a> {
    /// The simulated world.
    pub preset: Preset,
    /// Every item the workers may be asked about.
    pub items: Vec<&'a Item>,
    /// Figures in place of those of the preset.
    pub choices: Option<Choices>,
    /// Whether agents keep their noise when their inputs change: for counterfactuals.
    pub shared_noise: bool,
    /// Whether an item that cannot be simulated is an error.
    pub strict: bool,
    /// The recorded calls, where the workers serve them.
    pub recordings: Option<Arc<Recordings>>,
    /// Which of several recorded samples are served.
    pub pool: SamplePool,
    /// What becomes of a call that is not on record.
    pub on_miss: OnMiss,
}

impl Simulation<'_> {
    /// How agents of each capacity reply.
    fn styles(&self) -> &[Option<Style>] {
        self.recordings.as_deref().map_or_else(|| self.preset.styles(), Recordings::styles)
    }
}

/// What becomes of a call that is not on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMiss {
    #[default]
    Fail,
    /// The simulated world answers.
    Simulate,
}

/// Workers for many tasks, and how runs are carried out with them.
pub struct WorkerSet {
    /// What answers.
    pub backend: Backend,
    /// The configuration. In a simulated world it has no capacities.
    pub resolved: Resolved,
    /// How runs are carried out.
    pub settings: Settings,
}

impl WorkerSet {
    /// The workers of this kind for these tasks. `simulation` is asked for only where no models are called.
    ///
    /// # Errors
    /// There are none of this kind, or they cannot be used.
    pub async fn new<'a>(
        config: &Config,
        kind: WorkerKind,
        questions: &[&str],
        budget_tokens: Option<u64>,
        simulation: impl FnOnce() -> Result<Simulation<'a>, WorkersError>,
        tell: Tell,
    ) -> Result<Self, WorkersError> {
        let budget = Budget { tokens: budget_tokens, ..Budget::default() };
        match kind.entry().build {
            Build::Worker(_) => {
                let resolved = Resolved::new(config, Some(kind), questions, tell).await?;
                let (backend, _) = resolved.backend(&WorkerFiles::default())?;
                let settings = resolved.settings(&RunLimits { budget, no_reuse: false })?;
                Ok(WorkerSet { backend, resolved, settings })
            }
            Build::Backend(build) => {
                let simulation = simulation()?;
                let settings = Settings { budget, reuse: false, ..Settings::default() };
                let backend = build(&simulation)?;
                let language = language(config, &backend, simulation.styles());
                Ok(WorkerSet { backend, resolved: in_a_world(config, kind, language, tell), settings })
            }
        }
    }

    /// The same with the base roles of recorded calls, for specifications that name them.
    #[must_use]
    pub fn with_roles_of(mut self, recordings: &Recordings) -> Self {
        let language = Arc::make_mut(&mut self.resolved.language);
        recordings.roles().iter().for_each(|role| language.roles.insert(role.clone()));
        self
    }

    /// The capacities with what serves each; none in a simulated world.
    pub fn capacities(&self) -> &[(String, Capacity)] {
        self.resolved.capacities()
    }

    /// Which capacities have a price, in the order of the language.
    pub fn priced(&self) -> Vec<bool> {
        let config = &self.resolved.config;
        let is_priced = |name: &String| config.capacity(name).is_some_and(|capacity| capacity.price.is_some());
        self.resolved.language.capacities.iter().map(is_priced).collect()
    }
}

/// What specifications may say to these workers.
fn language(config: &Config, backend: &Backend, styles: &[Option<Style>]) -> Language {
    let capacities = backend.levels.iter().map(|level| level.name.clone()).collect();
    let efforts = styles.iter().map(|style| Effort { style: *style, price: None }).collect();
    Language { limits: config.limits.clone(), capacities, efforts, ..Language::default() }
}

/// A configuration without capacities: worlds bring their own.
fn in_a_world(config: &Config, kind: WorkerKind, language: Language, tell: Tell) -> Resolved {
    let language = Arc::new(language);
    Resolved { kind, config: config.with_capacities(Vec::new()), language, is_configured: false, tell }
}

/// The recorded calls about these sets, at these levels (all that are served by default where none is named). Kinds of calls
/// that are not served are told.
///
/// # Errors
/// There is no folder of task sets, or its record cannot be read.
pub fn recordings(
    data: Option<&Path>,
    sets: &[SetName],
    levels: &[String],
    tell: Tell,
) -> Result<Arc<Recordings>, WorkersError> {
    let Some(data) = data else {
        return Err(WorkersError::new("recorded replies are read from a folder").hint("name it with --data DIR"));
    };
    let recordings = Recordings::read(data, sets, levels).map_err(WorkersError::new)?;
    for (kind, lines) in recordings.unknown() {
        tell(&format!(
            "warning: {lines} recorded calls of the kind {kind} are not served; kinds.toml has no entry for it"
        ));
    }
    Ok(Arc::new(recordings))
}

/// A simulated world.
pub(crate) fn simulated(simulation: &Simulation<'_>) -> Result<Backend, WorkersError> {
    Ok(world(simulation)?.backend())
}

/// Recorded replies of real models.
pub(crate) fn recorded(simulation: &Simulation<'_>) -> Result<Backend, WorkersError> {
    let Some(recordings) = &simulation.recordings else {
        return Err(WorkersError::new("recorded replies are read from a folder").hint("name it with --data DIR"));
    };
    let on_miss = match simulation.on_miss {
        OnMiss::Simulate if simulation.preset.levels() != recordings.levels() => {
            let (simulated, recorded) = (simulation.preset.levels().join(", "), recordings.levels().join(", "));
            let fact = format!(
                "misses cannot be simulated: the world `{}` has the levels {simulated}, the recordings have {recorded}",
                simulation.preset.as_str()
            );
            return Err(WorkersError::new(fact).hint("choose another world, or levels that it has with --levels"));
        }
        OnMiss::Simulate => Some(world(simulation)?),
        OnMiss::Fail => None,
    };
    Ok(Recorded::new(recordings.clone(), on_miss).with_pool(simulation.pool).backend())
}

fn world(simulation: &Simulation<'_>) -> Result<World, WorkersError> {
    let noise = if simulation.shared_noise { AgentNoise::Kept } else { AgentNoise::Fresh };
    let world = World::new(simulation.preset, simulation.items.iter().copied()).with_noise(noise);
    let world = world.with_choices(simulation.choices.unwrap_or(simulation.preset.choices()));
    match world.skipped() {
        count if count > 0 && simulation.strict => {
            Err(WorkersError::new(format!("{count} items have no published solution to simulate")))
        }
        _ => Ok(world),
    }
}
