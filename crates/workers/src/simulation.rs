//! Workers for many tasks: models that are asked, a simulated world, or recorded replies.

use crate::Tell;
use crate::backend::WorkerFiles;
use crate::config::{Capacity, Config};
use crate::error::WorkersError;
use crate::kind::{Build, WorkerKind};
use crate::resolve::{Resolved, RunLimits};
use lemon_exec::{Backend, Budget, Settings};
use lemon_spec::Language;
use lemon_task::{Item, SetName};
use lemon_world::outcomes::{self, RecordedReply};
use lemon_world::{AgentNoise, Preset, Recorded, World};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// What a simulated world or recorded replies are made of.
pub struct Simulation<'a> {
    /// The simulated world.
    pub preset: Preset,
    /// Every item the workers may be asked about.
    pub items: Vec<&'a Item>,
    /// Whether agents keep their noise when their inputs change: for counterfactuals.
    pub shared_noise: bool,
    /// Whether an item that cannot be simulated is an error.
    pub strict: bool,
    /// The folder of task sets, for recorded replies.
    pub data: Option<&'a Path>,
    /// The task sets, for recorded replies.
    pub sets: Vec<SetName>,
    /// What becomes of a call that is not on record.
    pub on_miss: OnMiss,
}

/// What becomes of a call that is not on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMiss {
    /// It fails.
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
                Ok(WorkerSet { backend: build(&simulation)?, resolved: in_a_world(config, kind, tell), settings })
            }
        }
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

/// A configuration without capacities: worlds bring their own, with the default names.
fn in_a_world(config: &Config, kind: WorkerKind, tell: Tell) -> Resolved {
    let language = Arc::new(Language { limits: config.limits.clone(), ..Language::default() });
    Resolved { kind, config: config.with_capacities(Vec::new()), language, is_configured: false, tell }
}

/// What recorded models replied, by question.
///
/// # Errors
/// There is no folder of task sets, or its record cannot be read.
pub fn recorded_replies(
    data: Option<&Path>,
    sets: &[SetName],
) -> Result<HashMap<String, Vec<RecordedReply>>, WorkersError> {
    let Some(data) = data else {
        return Err(WorkersError::new("recorded replies are read from a folder").hint("name it with --data DIR"));
    };
    let mut replies = HashMap::new();
    for set in sets {
        replies.extend(outcomes::replies(data, *set).map_err(WorkersError::new)?);
    }
    Ok(replies)
}

/// A simulated world.
pub(crate) fn simulated(simulation: &Simulation<'_>) -> Result<Backend, WorkersError> {
    Ok(world(simulation)?.backend())
}

/// Recorded replies of real models.
pub(crate) fn recorded(simulation: &Simulation<'_>) -> Result<Backend, WorkersError> {
    let replies = recorded_replies(simulation.data, &simulation.sets)?;
    let on_miss = match simulation.on_miss {
        OnMiss::Simulate => Some(world(simulation)?),
        OnMiss::Fail => None,
    };
    Ok(Recorded::new(replies, on_miss).backend())
}

fn world(simulation: &Simulation<'_>) -> Result<World, WorkersError> {
    let noise = if simulation.shared_noise { AgentNoise::Kept } else { AgentNoise::Fresh };
    let world = World::new(simulation.preset, simulation.items.iter().copied()).with_noise(noise);
    match world.skipped() {
        count if count > 0 && simulation.strict => {
            Err(WorkersError::new(format!("{count} items have no published solution to simulate")))
        }
        _ => Ok(world),
    }
}
