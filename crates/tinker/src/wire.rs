//! The messages of the protocol, as far as they are used.

use lemon_model::Sequence;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeStruct};

/// What the protocol calls its client; servers only keep it.
pub(crate) const SDK_VERSION: &str = "0.22.0";

#[derive(Serialize)]
pub(crate) struct CreateSession {
    pub tags: [&'static str; 1],
    pub sdk_version: &'static str,
}

#[derive(Serialize)]
pub(crate) struct OfSession<'a> {
    pub session_id: &'a str,
}

#[derive(Deserialize)]
pub(crate) struct CreatedSession {
    pub session_id: String,
}

#[derive(Deserialize)]
pub(crate) struct Capabilities {
    pub supported_models: Vec<Supported>,
}

#[derive(Deserialize)]
pub(crate) struct Supported {
    pub model_name: String,
}

#[derive(Serialize)]
pub(crate) struct CreateModel<'a> {
    pub session_id: &'a str,
    pub base_model: &'a str,
    pub lora_config: LoraConfig,
}

#[derive(Serialize)]
pub(crate) struct LoraConfig {
    pub rank: usize,
    pub seed: u32,
}

#[derive(Deserialize)]
pub(crate) struct CreatedModel {
    pub model_id: String,
}

#[derive(Serialize)]
pub(crate) struct OfModel<'a> {
    pub model_id: &'a str,
}

/// An operation that is begun.
#[derive(Deserialize)]
pub(crate) struct Pending {
    #[serde(deserialize_with = "text_or_number")]
    pub request_id: String,
}

/// Servers take texts alone, whatever they gave.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Id {
        Text(String),
        Number(u64),
    }
    Ok(match Id::deserialize(deserializer)? {
        Id::Text(text) => text,
        Id::Number(number) => number.to_string(),
    })
}

#[derive(Serialize)]
pub(crate) struct Retrieve<'a> {
    pub request_id: &'a str,
}

/// Tokens as the protocol writes them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelInput(pub Vec<u32>);

impl Serialize for ModelInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Chunk<'a> {
            r#type: &'static str,
            tokens: &'a [u32],
        }
        let mut input = serializer.serialize_struct("ModelInput", 1)?;
        input.serialize_field("chunks", &[Chunk { r#type: "encoded_text", tokens: &self.0 }])?;
        input.end()
    }
}

/// A list of numbers as the protocol writes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TensorData<T>(pub Vec<T>);

/// What the protocol calls a type of numbers.
pub(crate) trait Numbers: Serialize {
    const NAME: &'static str;
}

impl Numbers for u32 {
    const NAME: &'static str = "int64";
}

impl Numbers for f32 {
    const NAME: &'static str = "float32";
}

impl<T: Numbers> Serialize for TensorData<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tensor = serializer.serialize_struct("TensorData", 3)?;
        tensor.serialize_field("data", &self.0)?;
        tensor.serialize_field("dtype", T::NAME)?;
        tensor.serialize_field("shape", &[self.0.len()])?;
        tensor.end()
    }
}

/// A text to score or to learn from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Datum {
    pub model_input: ModelInput,
    pub loss_fn_inputs: LossInputs,
}

/// What the loss of a text is made of: one number for each token that is predicted, those of the prompt included.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LossInputs {
    pub target_tokens: TensorData<u32>,
    pub weights: TensorData<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantages: Option<TensorData<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<TensorData<f32>>,
}

impl Datum {
    /// A text whose tokens weigh 1, and those of its prompt nothing.
    pub fn new(sequence: &Sequence) -> Datum {
        let Sequence { prompt, tokens, .. } = sequence;
        let read = tokens.len().saturating_sub(1);
        let input = [prompt.as_slice(), tokens.get(..read).unwrap_or_default()].concat();
        let targets = [prompt.get(1..).unwrap_or_default(), tokens].concat();
        Datum {
            model_input: ModelInput(input),
            loss_fn_inputs: LossInputs {
                target_tokens: TensorData(targets),
                weights: behind_prompt(sequence, std::iter::repeat_n(1.0, tokens.len())),
                advantages: None,
                logprobs: None,
            },
        }
    }

    /// The same with advantages and old log-probabilities, one for each token of the text.
    pub fn with(mut self, sequence: &Sequence, advantages: Vec<f32>, old: &[f32]) -> Datum {
        self.loss_fn_inputs.advantages = Some(behind_prompt(sequence, advantages.into_iter()));
        self.loss_fn_inputs.logprobs = Some(behind_prompt(sequence, old.iter().copied()));
        self
    }
}

/// Numbers of the tokens of a text, with zeros for those of the prompt that are predicted.
fn behind_prompt(sequence: &Sequence, values: impl Iterator<Item = f32>) -> TensorData<f32> {
    TensorData(std::iter::repeat_n(0.0, sequence.prompt.len().saturating_sub(1)).chain(values).collect())
}

/// The loss of some texts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LossInput {
    pub data: Vec<Datum>,
    pub loss_fn: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_fn_config: Option<Clip>,
}

/// Between which ratios nothing is clipped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Clip {
    pub clip_low_threshold: f32,
    pub clip_high_threshold: f32,
}

#[derive(Serialize)]
pub(crate) struct Forward<'a> {
    pub model_id: &'a str,
    pub forward_input: &'a LossInput,
}

#[derive(Serialize)]
pub(crate) struct ForwardBackward<'a> {
    pub model_id: &'a str,
    pub forward_backward_input: &'a LossInput,
}

#[derive(Deserialize)]
pub(crate) struct LossOutput {
    pub loss_fn_outputs: Vec<TextOutput>,
}

#[derive(Deserialize)]
pub(crate) struct TextOutput {
    pub logprobs: FloatData,
}

#[derive(Deserialize)]
pub(crate) struct FloatData {
    pub data: Vec<f32>,
}

#[derive(Serialize)]
pub(crate) struct OptimStep<'a> {
    pub model_id: &'a str,
    pub adam_params: AdamParams,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct AdamParams {
    pub learning_rate: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
}

#[derive(Deserialize)]
pub(crate) struct OptimStepOutput {
    #[serde(default)]
    pub metrics: Option<std::collections::BTreeMap<String, f64>>,
}

impl OptimStepOutput {
    /// The norm of the gradient, by whatever prefix a server names it.
    pub fn gradient_norm(&self) -> Option<f64> {
        let metrics = self.metrics.as_ref()?;
        metrics.iter().find(|(name, _)| name.rsplit('/').next() == Some("grad_norm")).map(|(_, norm)| *norm)
    }
}

#[derive(Serialize)]
pub(crate) struct NamedWeights<'a> {
    pub model_id: &'a str,
    pub path: &'a str,
}

#[derive(Deserialize)]
pub(crate) struct SavedWeights {
    pub path: String,
}

#[derive(Serialize)]
pub(crate) struct SaveForSampler<'a> {
    pub model_id: &'a str,
    pub sampling_session_seq_id: u64,
    pub seq_id: u64,
}

#[derive(Deserialize)]
pub(crate) struct SavedForSampler {
    pub sampling_session_id: String,
}

#[derive(Serialize)]
pub(crate) struct AskSample<'a> {
    pub sampling_session_id: &'a str,
    pub seq_id: u64,
    pub num_samples: u32,
    pub prompt: ModelInput,
    pub sampling_params: SamplingParams<'a>,
}

#[derive(Serialize)]
pub(crate) struct SamplingParams<'a> {
    pub max_tokens: usize,
    pub temperature: f32,
    pub top_p: f32,
    pub seed: u32,
    pub stop: &'a [u32],
}

#[derive(Deserialize)]
pub(crate) struct Sampled {
    pub sequences: Vec<SampledText>,
}

#[derive(Deserialize)]
pub(crate) struct SampledText {
    pub tokens: Vec<u32>,
    pub logprobs: Option<Vec<f32>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_predicted_token_has_its_numbers() {
        let sequence = Sequence { prompt: vec![1, 2, 3], tokens: vec![4, 5], grammar: None };
        let datum = Datum::new(&sequence).with(&sequence, vec![0.5, -0.5], &[-1.0, -2.0]);
        let tensor = |data: serde_json::Value, dtype: &str| json!({"data": data, "dtype": dtype, "shape": [4]});
        let expected = json!({
            "model_input": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3, 4]}]},
            "loss_fn_inputs": {
                "target_tokens": tensor(json!([2, 3, 4, 5]), "int64"),
                "weights": tensor(json!([0.0, 0.0, 1.0, 1.0]), "float32"),
                "advantages": tensor(json!([0.0, 0.0, 0.5, -0.5]), "float32"),
                "logprobs": tensor(json!([0.0, 0.0, -1.0, -2.0]), "float32"),
            },
        });
        assert_eq!(serde_json::to_value(&datum).unwrap(), expected);
    }

    #[test]
    fn ids_and_norms_are_read_in_every_form() {
        let id = |text: &str| serde_json::from_str::<Pending>(text).map(|pending| pending.request_id);
        assert_eq!(id(r#"{"request_id": "7"}"#).unwrap(), "7");
        assert_eq!(id(r#"{"request_id": 7, "status": "pending"}"#).unwrap(), "7");
        assert!(id(r#"{"request_id": null}"#).is_err());
        let norm = |text: &str| serde_json::from_str::<OptimStepOutput>(text).unwrap().gradient_norm();
        assert_eq!(norm(r#"{"metrics": {"skyrl.ai/grad_norm": 2.5, "skyrl.ai/learning_rate": 0.1}}"#), Some(2.5));
        assert_eq!(norm(r#"{"metrics": {"grad_norm": 2.5}}"#), Some(2.5));
        assert_eq!([norm(r#"{"metrics": null}"#), norm("{}")], [None, None]);
    }
}
