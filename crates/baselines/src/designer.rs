//! What a method learned: it designs a team for each task, and is kept in a folder.

use crate::aflow::FoundWorkflow;
use crate::arg_designer::ArgDesigner;
use crate::arg_designer::net::ArgNet;
use crate::cards::Domain;
use crate::edges::EdgeDesigner;
use crate::encoder::Encoder;
use crate::error::BaselineError;
use crate::g_designer::GcnDesigner;
use crate::g_designer::paper::VariationalDesigner;
use crate::graph::SpecFrame;
use crate::masrouter::net::RouterNet;
use crate::nn::NetWeights;
use crate::ofa_mas::OfaDesigner;
use crate::ofa_mas::net::OfaNet;
use crate::trials::TrainingAccount;
use async_trait::async_trait;
use lemon_eval::{CaseWriters, Training};
use lemon_exec::orchestrator::{Draft, Orchestrator, OrchestratorError, WriteContext};
use lemon_num::{Random, seed_of};
use lemon_rollout::Case;
use lemon_spec::{Spec, render};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// What a method learned for a set.
pub enum Designer {
    /// GPTSwarm, AgentPrune, AgentDropout.
    Edges(EdgeDesigner),
    /// G-Designer as in the public code.
    Gcn(GcnDesigner),
    /// G-Designer as in the paper.
    Variational(VariationalDesigner),
    /// ARG-Designer.
    Arg(ArgDesigner),
    /// OFA-MAS.
    Ofa(OfaDesigner),
    /// MasRouter.
    Router(RouterNet),
    /// AFlow: one workflow for all tasks.
    Workflow(FoundWorkflow),
}

/// What a method learned.
pub struct TrainedRival {
    /// Its name.
    pub method: String,
    /// The seed it learned with.
    pub seed: u64,
    /// What made the vectors of texts, where it reads them.
    pub encoder: Option<String>,
    /// What learning has cost.
    pub account: TrainingAccount,
    /// What its specifications are made with.
    pub frame: SpecFrame,
    /// By set; a method that learns one model for all sets has an empty name for it.
    pub designers: BTreeMap<String, (Domain, Designer)>,
}

/// The name of the set in that of a set and split.
pub fn set_of(set: &str) -> &str {
    set.split('/').next().unwrap_or(set)
}

impl Designer {
    /// A team for a question.
    ///
    /// # Errors
    /// The encoder or a tensor operation failed.
    pub fn design(
        &self,
        frame: &SpecFrame,
        question: &str,
        domain: Domain,
        encoder: &Encoder,
        random: &mut Random,
    ) -> Result<Spec, BaselineError> {
        let query = || encoder.encode(question);
        let graph = match self {
            Designer::Edges(designer) => designer.draw(random).0,
            Designer::Gcn(designer) => designer.design(&query()?, random)?,
            Designer::Variational(designer) => designer.design(&query()?, random)?,
            Designer::Arg(designer) => designer.design(&query()?, random)?,
            Designer::Ofa(designer) => designer.design(&query()?, random)?,
            Designer::Router(router) => router.design(&query()?, domain, random)?,
            Designer::Workflow(found) => return Ok(found.spec.clone()),
        };
        Ok(frame.spec(&graph, domain))
    }

    fn weights(&self) -> Option<&NetWeights> {
        match self {
            Designer::Gcn(designer) => Some(designer.weights()),
            Designer::Variational(designer) => Some(designer.weights()),
            Designer::Arg(designer) => Some(designer.net.weights()),
            Designer::Ofa(designer) => Some(designer.net.weights()),
            Designer::Router(router) => Some(router.weights()),
            Designer::Edges(_) | Designer::Workflow(_) => None,
        }
    }
}

/// What a folder says of a designer, besides its tensors.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Kept {
    Edges { edges: EdgeDesigner },
    Gcn,
    Variational,
    Arg { sizes: (usize, usize) },
    Ofa,
    Router,
    Workflow(FoundWorkflow),
}

#[derive(Serialize, Deserialize)]
struct KeptFile {
    method: String,
    seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoder: Option<String>,
    account: TrainingAccount,
    frame: SpecFrame,
    designers: BTreeMap<String, (Domain, Kept)>,
}

const FILE: &str = "baseline.json";

impl TrainedRival {
    /// A team for a case, drawn with this seed.
    ///
    /// # Errors
    /// Nothing was learned, or the encoder or a tensor operation failed.
    pub fn design(&self, case: &Case, encoder: &Encoder, seed: u64) -> Result<Spec, BaselineError> {
        self.design_for(&case.item.task.question, set_of(&case.set), Domain::of(case), encoder, seed)
    }

    fn design_for(
        &self,
        question: &str,
        set: &str,
        domain: Domain,
        encoder: &Encoder,
        seed: u64,
    ) -> Result<Spec, BaselineError> {
        let of_domain = || self.designers.values().find(|(learned, _)| *learned == domain);
        let found = self.designers.get(set).or_else(|| self.designers.get("")).or_else(of_domain);
        let Some((_, designer)) = found else {
            return Err(BaselineError::Unfit(format!("`{}` learned nothing for the set `{set}`", self.method)));
        };
        let mut random = Random::new(seed_of(&["draw", question, &seed.to_string()]));
        designer.design(&self.frame, question, domain, encoder, &mut random)
    }

    /// What reports say of the training.
    pub fn report(&self, case: Option<&Case>, encoder: &Encoder, chosen: Option<&str>) -> Training {
        let spec = case.and_then(|case| self.design(case, encoder, self.seed).ok());
        Training {
            method: self.method.clone(),
            runs: self.account.runs,
            tokens: self.account.worker_tokens,
            spec: spec.map(|spec| render(&spec).text).unwrap_or_default(),
            seed: self.seed,
            items: self.account.items,
            optimiser_tokens: self.account.optimiser_tokens,
            seconds: self.account.seconds,
            chosen: chosen.map(str::to_owned),
            encoder: self.encoder.clone(),
        }
    }

    /// Writes it into a folder.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), BaselineError> {
        let failed = |error: &dyn std::fmt::Display| BaselineError::File(folder.to_owned(), error.to_string());
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        let mut designers = BTreeMap::new();
        for (set, (domain, designer)) in &self.designers {
            let kept = match designer {
                Designer::Edges(edges) => Kept::Edges { edges: edges.clone() },
                Designer::Gcn(_) => Kept::Gcn,
                Designer::Variational(_) => Kept::Variational,
                Designer::Arg(designer) => Kept::Arg { sizes: designer.sizes },
                Designer::Ofa(_) => Kept::Ofa,
                Designer::Router(_) => Kept::Router,
                Designer::Workflow(found) => Kept::Workflow(found.clone()),
            };
            if let Some(weights) = designer.weights() {
                candle_core::safetensors::save(&weights.copies()?, folder.join(tensors(set)))?;
            }
            designers.insert(set.clone(), (*domain, kept));
        }
        let file = KeptFile {
            method: self.method.clone(),
            seed: self.seed,
            encoder: self.encoder.clone(),
            account: self.account.clone(),
            frame: self.frame.clone(),
            designers,
        };
        let text = serde_json::to_string_pretty(&file).map_err(|error| failed(&error))?;
        // Last and at once: a folder with this file is whole.
        let new = folder.join(FILE).with_extension("json.new");
        let written = std::fs::write(&new, text + "\n").and_then(|()| std::fs::rename(&new, folder.join(FILE)));
        written.map_err(|error| failed(&error))
    }

    /// What learning has cost, by a folder.
    ///
    /// # Errors
    /// The file is missing or none of these.
    pub fn account_in(folder: &Path) -> Result<TrainingAccount, BaselineError> {
        Ok(read(folder)?.account)
    }

    /// Whether a folder holds what a method learned.
    pub fn is_kept(folder: &Path) -> bool {
        folder.join(FILE).is_file()
    }

    /// Reads a folder.
    ///
    /// # Errors
    /// A file is missing or of another model, or it was trained with vectors of another encoder.
    pub fn load(folder: &Path, encoder: &Encoder) -> Result<Self, BaselineError> {
        let file = read(folder)?;
        if let Some(name) = file.encoder.as_deref().filter(|name| *name != encoder.name()) {
            let fact = format!("it was trained with vectors of {name}, not of {}", encoder.name());
            return Err(BaselineError::File(folder.join(FILE), fact));
        }
        let mut designers = BTreeMap::new();
        for (set, (domain, kept)) in file.designers {
            let weights = || -> Result<NetWeights, BaselineError> {
                let tensors = candle_core::safetensors::load(folder.join(tensors(&set)), &candle_core::Device::Cpu)?;
                Ok(NetWeights::loaded(tensors))
            };
            let designer = match kept {
                Kept::Edges { edges } => Designer::Edges(edges),
                Kept::Gcn => Designer::Gcn(GcnDesigner::new(domain, weights()?, encoder)?),
                Kept::Variational => Designer::Variational(VariationalDesigner::new(domain, weights()?, encoder)?),
                Kept::Arg { sizes } => {
                    Designer::Arg(ArgDesigner { net: ArgNet::new(domain, weights()?, encoder)?, sizes })
                }
                Kept::Ofa => Designer::Ofa(OfaDesigner { net: OfaNet::new(weights()?, encoder)? }),
                Kept::Router => Designer::Router(RouterNet::new(file.frame.capacities.len(), weights()?, encoder)?),
                Kept::Workflow(found) => Designer::Workflow(found),
            };
            designers.insert(set, (domain, designer));
        }
        let KeptFile { method, seed, encoder, account, frame, .. } = file;
        Ok(TrainedRival { method, seed, encoder, account, frame, designers })
    }
}

fn read(folder: &Path) -> Result<KeptFile, BaselineError> {
    let path = folder.join(FILE);
    let failed = |error: &dyn std::fmt::Display| BaselineError::File(path.clone(), error.to_string());
    let text = std::fs::read_to_string(&path).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

fn tensors(set: &str) -> String {
    let name: String = set.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{}.safetensors", if name.is_empty() { "all" } else { &name })
}

/// A method as it was learned with each seed. A run gets the teams of its own seed; they are drawn anew for it.
pub struct TrainedTeams {
    pub by_seed: BTreeMap<u64, Arc<TrainedRival>>,
    /// What makes vectors of texts.
    pub encoder: Arc<Encoder>,
}

impl CaseWriters for TrainedTeams {
    fn writer(&self, case: &Case, seed: u64) -> Option<Arc<dyn Orchestrator>> {
        let trained = self.by_seed.get(&seed).or_else(|| self.by_seed.values().next())?.clone();
        let (set, domain) = (set_of(&case.set).to_owned(), Domain::of(case));
        Some(Arc::new(DrawnTeam { trained, encoder: self.encoder.clone(), set, domain }))
    }
}

/// Draws the team of one task.
struct DrawnTeam {
    trained: Arc<TrainedRival>,
    encoder: Arc<Encoder>,
    set: String,
    domain: Domain,
}

#[async_trait]
impl Orchestrator for DrawnTeam {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        if context.round != 1 {
            return Ok(None);
        }
        let (trained, encoder) = (self.trained.clone(), self.encoder.clone());
        let (set, domain, question, seed) = (self.set.clone(), self.domain, context.question.to_owned(), context.seed);
        let failed = |reason: String| OrchestratorError::Policy { model: self.trained.method.clone(), reason };
        let design = move || trained.design_for(&question, &set, domain, &encoder, seed);
        let designed = tokio::task::spawn_blocking(design).await.map_err(|error| failed(error.to_string()))?;
        let spec = designed.map_err(|error| failed(error.to_string()))?;
        Ok(Some(Draft::Text(render(&spec).text)))
    }
}
