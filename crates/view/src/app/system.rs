//! What the server works with: models, keys, budgets, the store. Nothing can be changed here.

use super::Section;
use crate::markup::filters;
use crate::page::{Host, render};
use askama::Template;

/// The state of the server, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemPage {
    /// Facts about the server: a name and a value each.
    pub facts: Vec<(String, String)>,
    /// What serves each capacity.
    pub models: Vec<ModelRow>,
    /// The cluster, where one is watched; or why it cannot be seen.
    pub cluster: Option<Result<ClusterState, String>>,
    /// Other models and servers on this machine.
    pub found: Vec<(String, String)>,
    /// Keys of the API.
    pub keys: Vec<KeyRow>,
    /// The limits of a run, where it has any.
    pub budget: Vec<(String, String)>,
}

/// What serves a capacity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelRow {
    /// The capacity.
    pub capacity: String,
    /// The model.
    pub model: String,
    /// Where it is served, without secrets.
    pub place: String,
    /// What its tokens cost.
    pub price: String,
    /// How it is, once it was asked: `ready`, or what is wrong.
    pub status: Option<Result<String, String>>,
}

/// Machines that make runs for others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// Figures of the whole: a name and a value each.
    pub facts: Vec<(String, String)>,
    pub workers: Vec<ClusterWorker>,
    /// The last runs that were given up, newest first.
    pub letters: Vec<GivenUp>,
}

/// A worker process of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterWorker {
    pub name: String,
    pub version: String,
    /// Runs under way, of how many at a time.
    pub busy: String,
    pub done: String,
    pub failed: String,
    /// Runs a second.
    pub rate: String,
}

/// A run that no worker could make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenUp {
    pub task: String,
    pub error: String,
    /// How often it was tried, and by whom last.
    pub tried: String,
    /// When, in words.
    pub when: String,
}

/// A key of the API. The key itself is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRow {
    /// Whose.
    pub name: String,
    /// What it may spend.
    pub limits: String,
    /// What it has spent.
    pub spent: String,
}

#[derive(Template)]
#[template(path = "app-system.html")]
struct Page<'a> {
    host: Host,
    page: &'a SystemPage,
}

/// The page.
pub fn system(page: &SystemPage) -> String {
    render(&Page { host: Host::app(Section::System, "base.js"), page })
}
