//! A model on a server: its operations, and what is done before the first of them.

use crate::client::{Client, Twice};
use crate::session::Session;
use crate::settings::{Reduction, TokenLimits};
use crate::wire::{
    AdamParams, AskSample, Capabilities, CreateModel, CreatedModel, Datum, Forward, ForwardBackward, LoraConfig,
    LossInput, LossOutput, ModelInput, NamedWeights, OfModel, OptimStep, OptimStepOutput, Pending, Sampled,
    SampledText, SamplingParams, SaveForSampler, SavedForSampler, SavedWeights,
};
use crate::{ServerName, TinkerError};
use lemon_model::{OptimiserSettings, Sequence};
use serde::Deserialize;
use serde_json::Value;

/// How often weights are saved under another name where it is not known whether the server has them.
const NAMES: u64 = 3;

/// A model of a session.
pub(crate) struct RemoteModel {
    client: Client,
    pub session: Session,
    pub id: String,
    pub base: String,
    pub rank: usize,
    pub limits: TokenLimits,
    pub reduction: Reduction,
}

/// What weights are saved for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Weights {
    /// To be sampled.
    Sampled,
    /// To go on from, with the optimiser.
    State { steps: u64 },
    /// For other programs.
    Adapter { steps: u64 },
}

impl RemoteModel {
    /// Makes a model whose gradient and optimiser are empty.
    pub async fn make(
        client: Client,
        base: String,
        (rank, seed): (usize, u32),
        limits: TokenLimits,
        reduction: Option<Reduction>,
    ) -> Result<Self, TinkerError> {
        let Capabilities { supported_models } = client.ask("get_server_capabilities").await?;
        let names: Vec<&str> = supported_models.iter().map(|model| model.model_name.as_str()).collect();
        // A server takes any name, and fails at the first sample.
        if !names.contains(&base.as_str()) {
            let served = if names.is_empty() { "no model".to_owned() } else { format!("`{}`", names.join("`, `")) };
            return Err(TinkerError::OtherModel { served, wanted: base });
        }
        let session = Session::begin(&client).await?;
        let body = CreateModel { session_id: &session.id, base_model: &base, lora_config: LoraConfig { rank, seed } };
        let begun: Value = client.call("create_model", &body, Twice::Harmful).await?;
        let unread = |error: serde_json::Error| malformed("create_model", error.to_string());
        let Pending { request_id } = Pending::deserialize(&begun).map_err(unread)?;
        let CreatedModel { model_id: id } = CreatedModel::deserialize(&begun).map_err(unread)?;
        client.result::<Value>("create_model", &request_id).await?;
        let mut model = RemoteModel { client, session, id, base, rank, limits, reduction: Reduction::Sum };
        if let Err(error) = model.prepare(reduction).await {
            // Whether or not that succeeds: the server frees the place itself five minutes later.
            let _ = model.unload().await;
            return Err(error);
        }
        Ok(model)
    }

    /// Clears what another client may have left, and finds out how a loss is divided.
    async fn prepare(&mut self, reduction: Option<Reduction>) -> Result<(), TinkerError> {
        // The place of an adapter keeps the gradient of the model that had it before. A step of no length clears it, but moves
        // the memory of the optimiser, which is then read back.
        let SavedWeights { path } = self.save_as("begin").await?;
        self.optim_step(adam(&OptimiserSettings::default(), 0.0)).await?;
        self.reduction = match reduction {
            Some(known) => known,
            None => self.measure_reduction().await?,
        };
        self.load(&path).await
    }

    /// Frees the place of the model; asked for once.
    pub async fn unload(&self) -> Result<(), TinkerError> {
        let done = self.client.once::<Value>("unload_model", &OfModel { model_id: &self.id }).await;
        done.map(drop)
    }

    /// Whether the gradient of the same text twice is that of the text once, or twice that.
    async fn measure_reduction(&self) -> Result<Reduction, TinkerError> {
        let tokens: Vec<u32> = (0..4).map(|token| token % self.limits.vocabulary.max(1) as u32).collect();
        let prompt = tokens.get(..1).unwrap_or_default().to_vec();
        let datum = Datum::new(&Sequence { prompt, tokens, grammar: None });
        let mut norms = Vec::new();
        for times in [1, 2] {
            let input = LossInput { data: vec![datum.clone(); times], loss_fn: "cross_entropy", loss_fn_config: None };
            self.forward_backward(&input).await?;
            let norm = self.optim_step(adam(&OptimiserSettings::default(), 0.0)).await?;
            norms.push(
                norm.ok_or_else(|| TinkerError::Unmeasured("it does not tell the norm of a gradient".to_owned()))?,
            );
        }
        match norms.as_slice() {
            [once, twice] if (twice / once - 1.0).abs() < 0.05 => Ok(Reduction::Mean),
            [once, twice] if (twice / once - 2.0).abs() < 0.05 => Ok(Reduction::Sum),
            _ => Err(TinkerError::Unmeasured(format!("a text has the gradients {norms:?}, given once and twice"))),
        }
    }

    pub async fn forward(&self, forward_input: &LossInput) -> Result<LossOutput, TinkerError> {
        self.client.operate("forward", &Forward { model_id: &self.id, forward_input }, Twice::Harmless).await
    }

    pub async fn forward_backward(&self, forward_backward_input: &LossInput) -> Result<LossOutput, TinkerError> {
        let body = ForwardBackward { model_id: &self.id, forward_backward_input };
        self.client.operate("forward_backward", &body, Twice::Harmful).await
    }

    /// The norm of the gradient, where the server tells it.
    pub async fn optim_step(&self, adam_params: AdamParams) -> Result<Option<f64>, TinkerError> {
        let body = OptimStep { model_id: &self.id, adam_params };
        let done: OptimStepOutput = self.client.operate("optim_step", &body, Twice::Harmful).await?;
        Ok(done.gradient_norm())
    }

    pub async fn sample(
        &self,
        sampler: &str,
        number: usize,
        prompt: ModelInput,
        sampling_params: SamplingParams<'_>,
    ) -> Result<SampledText, TinkerError> {
        let body =
            AskSample { sampling_session_id: sampler, seq_id: number as u64, num_samples: 1, prompt, sampling_params };
        let Sampled { sequences } = self.client.operate("asample", &body, Twice::Harmless).await?;
        let count = sequences.len();
        sequences
            .into_iter()
            .next()
            .filter(|_| count == 1)
            .ok_or_else(|| malformed("asample", format!("expected one text, got {count}")))
    }

    /// Saves under the next number that is free; returns the name and how many numbers were tried. A name may be taken though no
    /// reply came; then the next one is as good.
    pub async fn save(&self, what: Weights, saved: u64) -> Result<(String, u64), TinkerError> {
        let mut tried = 1;
        loop {
            match self.save_once(what, saved + tried).await {
                Err(TinkerError::Unclear { .. }) if tried < NAMES => tried += 1,
                done => return Ok((done?, tried)),
            }
        }
    }

    async fn save_once(&self, what: Weights, number: u64) -> Result<String, TinkerError> {
        match what {
            Weights::Sampled => {
                let body = SaveForSampler { model_id: &self.id, sampling_session_seq_id: number, seq_id: number };
                let call = self.client.operate::<SavedForSampler>("save_weights_for_sampler", &body, Twice::Harmful);
                call.await.map(|saved| saved.sampling_session_id)
            }
            Weights::State { steps } => self.save_as(&format!("step-{steps}-{number}")).await.map(|saved| saved.path),
            Weights::Adapter { steps } => {
                let body = NamedWeights { model_id: &self.id, path: &format!("adapter-{steps}-{number}") };
                let call = self.client.operate::<SavedWeights>("save_weights_for_sampler", &body, Twice::Harmful);
                call.await.map(|saved| saved.path)
            }
        }
    }

    /// The archive of an adapter that was saved as [`Weights::Adapter`].
    pub async fn archive(&self, path: &str) -> Result<Vec<u8>, TinkerError> {
        let name = path.rsplit('/').next().unwrap_or_default();
        self.client.fetch("download", &format!("training_runs/{}/checkpoints/{name}/download", self.id)).await
    }

    async fn save_as(&self, path: &str) -> Result<SavedWeights, TinkerError> {
        let body = NamedWeights { model_id: &self.id, path };
        self.client.operate("save_weights", &body, Twice::Harmful).await
    }

    pub async fn load(&self, path: &str) -> Result<(), TinkerError> {
        let body = NamedWeights { model_id: &self.id, path };
        self.client.operate::<Value>("load_weights", &body, Twice::Harmless).await.map(drop)
    }
}

fn malformed(call: &'static str, fact: String) -> TinkerError {
    TinkerError::Malformed { server: ServerName::Tinker, call, fact }
}

pub(crate) fn adam(settings: &OptimiserSettings, learning_rate: f64) -> AdamParams {
    let OptimiserSettings { beta1, beta2, epsilon, weight_decay, .. } = *settings;
    AdamParams { learning_rate, beta1, beta2, eps: epsilon, weight_decay }
}
