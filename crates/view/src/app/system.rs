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
