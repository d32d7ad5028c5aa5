//! Trains the policy that writes teams.

use crate::builder::{Lemon, Noise};
use crate::error::Error;
use lemon_model::DeviceChoice;
use lemon_train::Trained;
use lemon_train::build::tasks;
use lemon_train::by_recipe::{RecipeTraining, TrainProgress};
use lemon_train::metrics::StepMetrics;
use lemon_train::recipe::Recipe;
use lemon_workers::bundled;
use std::path::Path;

impl Lemon {
    /// Trains a policy by a recipe. The folder keeps checkpoints, metrics and a report; training that was interrupted resumes
    /// there. A language model is written to `model` in it. `watch` sees every step and returns whether to go on.
    ///
    /// In a simulated world the preset of this [`Lemon`] takes the place of the recipe's.
    ///
    /// # Errors
    /// The tasks, the policy or the folder cannot be used, or the workers cannot be reached.
    pub async fn train(
        &self,
        recipe: &Recipe,
        folder: &Path,
        mut watch: impl FnMut(&StepMetrics) -> bool,
    ) -> Result<Trained, Error> {
        let mut recipe = recipe.clone();
        recipe.tasks.world = self.world.unwrap_or(recipe.tasks.world);
        let tasks = tasks(&recipe.tasks, self.data.as_deref())?;
        let all = [&tasks.train[..], &tasks.held_out[..]].concat();
        let noise = if recipe.tasks.keep_noise { Noise::Shared } else { Noise::Fresh };
        let training = RecipeTraining {
            env: self.env_with(&all, noise).await?,
            taught_in_env: self.world.is_none(),
            bundled: bundled::orchestrator(self.workers.resolved.capacities()).files()?,
            device: DeviceChoice::default(),
            recipe: &recipe,
            tasks,
            folder,
        };
        let trained = training.train(|progress| match progress {
            TrainProgress::WarmStart(_) => true,
            TrainProgress::Step(metrics, _) => watch(metrics),
        });
        Ok(trained.await?)
    }
}
