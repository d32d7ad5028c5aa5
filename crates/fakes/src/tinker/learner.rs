//! What a fake server computes: each model is one number θ, and every token has the log-probability −2 + θ. So the gradient of a loss
//! is a sum that a test can do by hand. Places of adapters behave as in SkyRL 0.3.0: gradients stay in a place when its model goes, and
//! weights that are sampled are put into it.

use super::TinkerWorld;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of an operation.
pub(super) enum Outcome {
    Done(Value),
    /// Any JSON text, or what is none.
    Text(String),
    Failed(String),
    Crashed,
    Never,
}

/// The reply to a request, and the result that is asked for later.
type Taken = (Value, Option<Outcome>);
/// A status and its reason.
type Refused = (u16, String);

/// What is trained: the number, and how often the optimiser moved it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Weights {
    theta: f64,
    /// The mean of gradients, as an optimiser remembers it.
    momentum: f64,
}

/// A place for an adapter.
#[derive(Default)]
struct Place {
    model: Option<String>,
    weights: Weights,
    /// The sum of gradients, and of how many texts.
    gradient: f64,
    texts: f64,
    /// Which weights were put here to be sampled.
    loaded: Option<String>,
}

/// The state of a server.
pub(super) struct Learner {
    pub world: TinkerWorld,
    sessions: BTreeSet<String>,
    places: Vec<Place>,
    /// Saved weights by their address.
    saved: BTreeMap<String, Weights>,
    /// Weights to be sampled, by session: the model's name and what was saved.
    samplers: BTreeMap<String, (String, Weights)>,
    /// Adapters for other programs, by model and name.
    adapters: BTreeMap<(String, String), f64>,
    /// Models so far, so that names are never used again.
    made: usize,
}

impl Learner {
    pub fn new(world: TinkerWorld) -> Self {
        let (gradient, texts) = (world.left_gradient, if world.left_gradient == 0.0 { 0.0 } else { 1.0 });
        let places = (0..world.places).map(|_| Place { gradient, texts, ..Place::default() }).collect();
        Learner {
            world,
            sessions: BTreeSet::new(),
            places,
            saved: BTreeMap::new(),
            samplers: BTreeMap::new(),
            adapters: BTreeMap::new(),
            made: 0,
        }
    }

    pub fn forget(&mut self) {
        self.sessions.clear();
        self.places.iter_mut().for_each(|place| *place = Place::default());
    }

    /// The number of an adapter that was saved.
    pub fn adapter(&self, model: &str, name: &str) -> Option<f64> {
        self.adapters.get(&(model.to_owned(), name.to_owned())).copied()
    }

    pub fn weights(&self) -> Vec<Option<f64>> {
        self.places.iter().map(|place| place.model.as_ref().map(|_| place.weights.theta)).collect()
    }

    /// Does what is asked for.
    pub fn take(&mut self, call: &str, body: &Value) -> Result<Taken, Refused> {
        let pending = |outcome: Outcome| Ok((json!({"status": "pending"}), Some(outcome)));
        match call {
            "create_session" => {
                let id = format!("session_{}", self.sessions.len() + 1);
                self.sessions.insert(id.clone());
                Ok((json!({"session_id": id}), None))
            }
            "session_heartbeat" => {
                self.session(body)?;
                Ok((json!({"type": "session_heartbeat"}), None))
            }
            "create_model" => self.create(body),
            "unload_model" => {
                let at = self.place(body)?;
                // Its gradient stays.
                let place = &mut self.places[at];
                (place.model, place.loaded, place.weights) = (None, None, Weights::default());
                pending(Outcome::Done(json!({"status": "unloaded"})))
            }
            "forward" => {
                let at = self.place(body)?;
                pending(self.pass(at, &body["forward_input"], false))
            }
            "forward_backward" => {
                let at = self.place(body)?;
                pending(self.pass(at, &body["forward_backward_input"], true))
            }
            "optim_step" => {
                let at = self.place(body)?;
                pending(Outcome::Done(self.places[at].step(&body["adam_params"], self.world.averages)))
            }
            "save_weights" => {
                let at = self.place(body)?;
                let address = format!("tinker://{}/weights/{}", text(&body["model_id"]), text(&body["path"]));
                if self.saved.contains_key(&address) {
                    return Err((409, format!("Checkpoint '{}' already exists", text(&body["path"]))));
                }
                self.saved.insert(address.clone(), self.places[at].weights);
                pending(Outcome::Done(json!({"path": address, "type": "save_weights"})))
            }
            "load_weights" => {
                let at = self.place(body)?;
                let Some(weights) = self.saved.get(text(&body["path"])) else {
                    return Err((404, format!("Checkpoint not found: {}", text(&body["path"]))));
                };
                self.places[at].weights = *weights;
                pending(Outcome::Done(json!({"type": "load_weights"})))
            }
            "save_weights_for_sampler" => {
                let at = self.place(body)?;
                let model = text(&body["model_id"]);
                if let Some(path) = body["path"].as_str() {
                    let theta = self.places[at].weights.theta;
                    self.adapters.insert((model.to_owned(), path.to_owned()), theta);
                    return pending(Outcome::Done(json!({"path": format!("tinker://{model}/{path}")})));
                }
                let id = format!("sampling_{model}_{}_{}", body["sampling_session_seq_id"], body["seq_id"]);
                if self.samplers.contains_key(&id) {
                    return Err((409, format!("Checkpoint '{id}' already exists")));
                }
                self.samplers.insert(id.clone(), (model.to_owned(), self.places[at].weights));
                pending(Outcome::Done(json!({"path": null, "sampling_session_id": id})))
            }
            "asample" => self.sample(body),
            _ => Err((404, "Not Found".to_owned())),
        }
    }

    fn session(&self, body: &Value) -> Result<(), Refused> {
        let known = self.sessions.contains(text(&body["session_id"]));
        known.then_some(()).ok_or_else(|| (404, "Session not found".to_owned()))
    }

    fn place(&self, body: &Value) -> Result<usize, Refused> {
        let model = text(&body["model_id"]);
        let here = self.places.iter().position(|place| place.model.as_deref() == Some(model));
        here.ok_or_else(|| (404, "Model not found".to_owned()))
    }

    fn create(&mut self, body: &Value) -> Result<Taken, Refused> {
        self.session(body)?;
        self.made += 1;
        let model = format!("model_{}", self.made);
        let reply = json!({"model_id": model, "status": "created"});
        let free = self.places.iter_mut().find(|place| place.model.is_none());
        let outcome = match free {
            Some(place) => {
                (place.model, place.weights) = (Some(model.clone()), Weights::default());
                Outcome::Done(json!({"model_id": model, "lora_config": body["lora_config"]}))
            }
            None => Outcome::Failed(format!("Maximum number of LoRA adapters ({}) reached", self.world.places + 1)),
        };
        Ok((reply, Some(outcome)))
    }

    /// Log-probabilities, and the gradient where it is wanted.
    fn pass(&mut self, at: usize, input: &Value, learns: bool) -> Outcome {
        let Some(data) = input["data"].as_array().filter(|data| !data.is_empty()) else { return Outcome::Never };
        let (vocabulary, averages) = (u64::from(self.world.vocabulary), self.world.averages);
        let theta = self.places[at].weights.theta;
        let mut outputs = Vec::new();
        for datum in data {
            let inputs = &datum["loss_fn_inputs"];
            let targets = list(&inputs["target_tokens"]["data"]);
            if targets.iter().any(|token| *token as u64 >= vocabulary) {
                return Outcome::Crashed;
            }
            // Lists that are too short are filled up without a word.
            let filled = |name: &str| {
                let mut values = list(&inputs[name]["data"]);
                values.resize(targets.len(), 0.0);
                values
            };
            let (weights, advantages, old) = (filled("weights"), filled("advantages"), filled("logprobs"));
            let score = theta - 2.0;
            let slope = |token: usize| match text(&input["loss_fn"]) {
                "cross_entropy" => -weights[token],
                _ => -weights[token] * advantages[token] * (score - old[token]).exp(),
            };
            let gradient: f64 = (0..targets.len()).map(slope).sum();
            if learns {
                let whole: f64 = weights.iter().sum();
                self.places[at].gradient += if averages { gradient / whole.max(1e-9) } else { gradient };
                self.places[at].texts += 1.0;
            }
            outputs.push(json!({"logprobs": {"data": vec![score; targets.len()]}}));
        }
        Outcome::Done(json!({"loss_fn_output_type": "scalar", "loss_fn_outputs": outputs, "metrics": {}}))
    }

    fn sample(&mut self, body: &Value) -> Result<Taken, Refused> {
        let id = text(&body["sampling_session_id"]).to_owned();
        let Some((model, saved)) = self.samplers.get(&id).cloned() else {
            return Err((404, "Sampling session not found".to_owned()));
        };
        let at = self.place(&json!({"model_id": model}))?;
        let place = &mut self.places[at];
        if place.loaded.as_deref() != Some(&id) {
            // What was trained since is lost: so the real one does.
            (place.weights.theta, place.loaded) = (saved.theta, Some(id));
        }
        let params = &body["sampling_params"];
        let seed = params["seed"].as_u64().unwrap_or(u64::MAX);
        if seed > u64::from(u32::MAX >> 1) {
            return Err((400, format!("Python integer {seed} out of bounds for int32")));
        }
        let texts = self.world.texts.len().max(1) as u64;
        let mut tokens = self.world.texts.get((seed % texts) as usize).cloned().unwrap_or_default();
        tokens.truncate(params["max_tokens"].as_u64().unwrap_or(0) as usize);
        let logprobs = vec![place.weights.theta - 2.0; tokens.len()];
        let sequences = json!([{"stop_reason": "stop", "tokens": tokens, "logprobs": logprobs}]);
        Ok((json!({"status": "pending"}), Some(Outcome::Done(json!({"sequences": sequences})))))
    }
}

impl Place {
    /// Moves the number against its gradient, with a memory: what a checkpoint lacks shows in the steps after it.
    fn step(&mut self, adam: &Value, averages: bool) -> Value {
        let gradient = if averages { self.gradient / self.texts.max(1.0) } else { self.gradient };
        let (rate, beta) = (number(&adam["learning_rate"]), number(&adam["beta1"]));
        self.weights.momentum = beta * self.weights.momentum + (1.0 - beta) * gradient;
        self.weights.theta -= rate * self.weights.momentum;
        (self.gradient, self.texts) = (0.0, 0.0);
        json!({"metrics": {"skyrl.ai/grad_norm": gradient.abs(), "skyrl.ai/learning_rate": rate}})
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn list(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().map(number).collect()
}
