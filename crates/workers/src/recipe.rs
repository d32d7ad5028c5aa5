//! What another machine needs to make the same workers, as plain data. It holds no secret: keys stay in environment variables.

use crate::Tell;
use crate::config::{Capacity, Config};
use crate::error::WorkersError;
use crate::kind::{Scope, WorkerKind};
use crate::resolve::Resolved;
use crate::simulation::{Simulation, WorkerSet};
use lemon_exec::worker::mask_url;
use lemon_spec::Limits;
use lemon_task::{Item, SealedItem};
use lemon_world::{Choices, Preset};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The workers of a machine, for another.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerRecipe {
    kind: String,
    capacities: Vec<(String, Capacity)>,
    limits: Limits,
    budget_tokens: Option<u64>,
    /// The simulated world, where the workers are one.
    world: Option<WorldRecipe>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorldRecipe {
    preset: Preset,
    choices: Option<Choices>,
    items: Vec<SealedItem>,
    shared_noise: bool,
    strict: bool,
}

impl From<Simulation<'_>> for WorldRecipe {
    fn from(Simulation { preset, choices, items, shared_noise, strict, .. }: Simulation<'_>) -> Self {
        WorldRecipe { preset, choices, items: items.into_iter().map(Item::sealed).collect(), shared_noise, strict }
    }
}

impl WorkerRecipe {
    /// The recipe of these workers. `simulation` is asked for only where no models are called.
    ///
    /// # Errors
    /// Another machine could not make the same workers.
    pub fn new<'a>(
        config: &Config,
        resolved: &Resolved,
        budget_tokens: Option<u64>,
        simulation: impl FnOnce() -> Result<Simulation<'a>, WorkersError>,
    ) -> Result<Self, WorkersError> {
        let (kind, capacities) = (resolved.kind, resolved.capacities());
        let refused = |fact: &str, hint: &str| Err(WorkersError::new(format!("{fact} on a cluster")).hint(hint));
        if kind == WorkerKind::RECORDED {
            return refused("recorded replies are not served", "they cost nothing: leave --cluster out");
        }
        if config.roles.folder.is_some() {
            return refused("a folder of roles is not used", "leave [roles] out of lemon.toml");
        }
        if !config.tools.is_empty() {
            return refused("tools are not offered", "leave [tools] out of lemon.toml");
        }
        if kind == WorkerKind::ENDPOINTS && !resolved.is_configured {
            return refused(
                "a server that was found on this machine is not asked",
                "write an address that all machines reach into lemon.toml",
            );
        }
        for (name, capacity) in capacities {
            if mask_url(&capacity.base_url) != capacity.base_url {
                let fact = format!("the address of capacity `{name}` holds a secret, which is not sent");
                return refused(&fact, "name an environment variable with api_key_env; every worker needs it");
            }
        }
        let world = match kind.asks_models() {
            true => None,
            false => Some(simulation()?.into()),
        };
        let (kind, capacities) = (kind.name().to_owned(), capacities.to_vec());
        Ok(WorkerRecipe { kind, capacities, limits: config.limits.clone(), budget_tokens, world })
    }

    /// The recipe of a simulated world with the limits of every language.
    pub fn of_world(simulation: Simulation<'_>) -> Self {
        let (kind, world) = (WorkerKind::SIM.name().to_owned(), Some(simulation.into()));
        WorkerRecipe { kind, capacities: Vec::new(), limits: Limits::default(), budget_tokens: None, world }
    }

    /// Models that are files of the machine that the recipe comes from: for each capacity, the path.
    pub fn model_paths(&self) -> Vec<(String, PathBuf)> {
        let file = |(name, capacity): &(String, Capacity)| {
            let path = Path::new(capacity.local.as_deref()?);
            path.exists().then(|| (name.clone(), path.to_owned()))
        };
        self.capacities.iter().filter_map(file).collect()
    }

    /// The same with the model of a capacity at another path.
    #[must_use]
    pub fn with_model(mut self, capacity: &str, path: &Path) -> Self {
        for (_, found) in self.capacities.iter_mut().filter(|(name, _)| name == capacity) {
            found.local = Some(path.to_string_lossy().into_owned());
        }
        self
    }

    /// Makes the workers.
    ///
    /// # Errors
    /// They cannot be made on this machine.
    pub async fn build(self, tell: Tell) -> Result<WorkerSet, WorkersError> {
        let WorkerRecipe { kind, capacities, limits, budget_tokens, world } = self;
        let own = |(_, it): &(String, Capacity)| it.api_key_env.clone().filter(|name| name.starts_with("LEMON_"));
        if let Some(variable) = capacities.iter().find_map(own) {
            // What this worker is let into the cluster with must not be sent to an address that a job names.
            let fact = format!("a job asks for the variable `{variable}`, which is not sent to endpoints");
            return Err(WorkersError::new(fact).hint("name the key of an endpoint without LEMON_ before it"));
        }
        let kind = WorkerKind::named(Scope::Tasks, &kind)?;
        let mut config = Config::default().with_capacities(capacities);
        config.limits = limits;
        let items: Vec<Item> = match &world {
            Some(world) => world.items.iter().cloned().map(Item::from).collect(),
            None => Vec::new(),
        };
        let simulation = || match world {
            None => Ok(Simulation::default()),
            Some(WorldRecipe { preset, choices, shared_noise, strict, .. }) => {
                let items = items.iter().collect();
                Ok(Simulation { preset, choices, items, shared_noise, strict, ..Simulation::default() })
            }
        };
        WorkerSet::new(&config, kind, &[], budget_tokens, simulation, tell).await
    }
}
