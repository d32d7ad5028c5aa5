//! Trains the policy that writes teams.

use crate::builder::{Lemon, Noise};
use crate::error::Error;
use lemon_exec::Settings;
use lemon_model::{DeviceChoice, Precision};
use lemon_train::build::{AnyPolicy, BuiltPolicy, build_policy, tasks};
use lemon_train::metrics::StepMetrics;
use lemon_train::recipe::Recipe;
use lemon_train::{TrainContext, Trained, train};
use lemon_workers::bundled;
use std::path::Path;
use std::sync::Arc;

impl Lemon {
    /// Trains a policy by a recipe. The folder keeps checkpoints and metrics; training that was interrupted resumes there. A
    /// language model is written to `model` in it. `watch` sees every step and returns whether to go on.
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
        let mut env = self.env_with(&all, noise).await?;
        env.settings = Settings { max_rounds: recipe.rollouts.rounds.max(1), ..env.settings };
        env.weights = recipe.reward.weights();
        let packed = bundled::orchestrator(self.workers.resolved.capacities()).files()?;
        let warm = folder.join("warm");
        // In a simulated world the lessons of a warm start have tasks of their own, which this one does not know.
        let place = (self.world.is_none().then_some(&env), warm.as_path());
        let (device, language) = (DeviceChoice::default(), self.language());
        let BuiltPolicy { mut policy, encoder } =
            build_policy(&recipe, packed, device, language, place, |_| true).await?;
        let mut reference = match recipe.update.kl > 0.0 {
            true => Some(build_policy(&recipe, packed, device, language, place, |_| true).await?.policy),
            false => None,
        };
        let context = TrainContext {
            env: Arc::new(env),
            encoder: encoder.as_ref(),
            cases: Arc::new(tasks.train),
            held_out: Arc::new(tasks.held_out),
            reference: reference.as_mut().map(|policy| &*policy.trainable()),
        };
        let trained = train(&context, policy.trainable(), &recipe, folder, |metrics, _| watch(metrics)).await?;
        if let AnyPolicy::Language(policy) = &policy {
            policy.save(&folder.join("model"), Precision::Bf16)?;
        }
        Ok(trained)
    }
}
