//! Who answers, resolved once for all runs, and which models of the API that makes.

use crate::refusal::Refusal;
use lemon_exec::store::RunMeta;
use lemon_exec::{Backend, Orchestrator, Settings};
use lemon_spec::validate;
use lemon_workers::{OrchestratorKind, ReadyRun, Resolved, WorkersError, read_file};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;

/// The model that has the configured orchestrator write the team.
pub(crate) const DEFAULT: &str = "lemon";
/// What the name of a trained orchestrator begins with, before its folder.
const POLICY: &str = "lemon/policy:";
/// What the name of a team begins with.
const TEAM: &str = "lemon/";
/// How team files end.
const SUFFIX: &str = "yaml";
/// The record of a training, and the folder of the orchestrator that it made.
const TRAINING: (&str, &str) = ("metrics.jsonl", "model");
/// The file of a model that says what it is.
const MODEL: &str = "config.json";
/// How deep, and in how many folders, trainings are looked for.
const DEEPEST: usize = 3;
const MOST_FOLDERS: usize = 500;
/// Trained orchestrators that are kept loaded.
const MOST_POLICIES: usize = 4;

/// What writes the team of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TeamChoice {
    /// The configured orchestrator.
    #[default]
    Configured,
    /// This specification.
    Text(String),
    /// The trained orchestrator in this folder.
    Policy(PathBuf),
}

/// A model of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    /// Its name: `lemon`, `lemon/NAME`, `lemon/policy:PATH`.
    pub name: String,
    /// When its file was changed, in seconds of Unix time.
    pub created: u64,
}

/// The workers of this server.
pub struct Workers {
    /// The configuration with nothing left open.
    pub resolved: Resolved,
    /// The workers.
    pub backend: Backend,
    /// How runs are carried out.
    pub settings: Settings,
    /// What goes on record with every run.
    pub(crate) meta: RunMeta,
    orchestrator: Arc<dyn Orchestrator>,
    /// Where team files lie.
    teams: PathBuf,
    /// Where trained orchestrators lie.
    policies: PathBuf,
    loaded: Mutex<HashMap<PathBuf, Arc<dyn Orchestrator>>>,
}

impl Workers {
    pub(crate) fn new(ready: ReadyRun, teams: PathBuf, policies: PathBuf) -> Self {
        let ReadyRun { runner, resolved, meta } = ready;
        let (backend, settings, orchestrator) = (runner.backend, runner.settings, runner.orchestrator);
        Workers { resolved, backend, settings, meta, orchestrator, teams, policies, loaded: Mutex::default() }
    }

    /// Where team files lie.
    pub fn teams_folder(&self) -> &Path {
        &self.teams
    }

    /// The models, the default one first.
    pub fn models(&self) -> Vec<ServedModel> {
        // The protocol wants a time of every model: of a file that cannot be asked for it, 0.
        let changed = |path: &Path| {
            let time = std::fs::metadata(path).and_then(|about| about.modified()).ok();
            time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |since| since.as_secs())
        };
        let mut models = vec![ServedModel { name: DEFAULT.to_owned(), created: 0 }];
        // A folder that is not there has no teams.
        let entries = std::fs::read_dir(&self.teams).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut teams: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|it| it == SUFFIX) && path.is_file()).collect();
        teams.sort();
        for path in teams {
            if let Some(name) = path.file_stem().and_then(|stem| stem.to_str()).filter(|name| is_team_name(name)) {
                models.push(ServedModel { name: format!("{TEAM}{name}"), created: changed(&path) });
            }
        }
        let mut trained = Vec::new();
        find_trained(&self.policies, 0, &mut 0, &mut trained);
        trained.sort();
        models.extend(trained.iter().filter_map(|folder| {
            let name = folder.strip_prefix(&self.policies).ok()?.to_str()?;
            Some(ServedModel { name: format!("{POLICY}{name}"), created: changed(&folder.join(MODEL)) })
        }));
        models
    }

    /// What writes the team where a request names this model.
    ///
    /// # Errors
    /// There is no such model, or its file is no valid team.
    pub fn choice(&self, model: &str) -> Result<TeamChoice, Refusal> {
        let unknown = || {
            let fact = format!("the model `{model}` does not exist");
            let hint = "GET /v1/models lists the models: `lemon`, and `lemon/NAME` for each file NAME.yaml of the teams folder";
            let refusal = Refusal { param: Some("model".into()), ..Refusal::not_found(fact) };
            refusal.code("model_not_found").hint(hint)
        };
        if model == DEFAULT {
            return Ok(TeamChoice::Configured);
        }
        if let Some(path) = model.strip_prefix(POLICY) {
            return self.policy_folder(path).map(TeamChoice::Policy).ok_or_else(unknown);
        }
        let name = model.strip_prefix(TEAM).filter(|name| is_team_name(name)).ok_or_else(unknown)?;
        let path = self.teams.join(name).with_extension(SUFFIX);
        if !path.is_file() {
            return Err(unknown());
        }
        let text = read_file(&path)?;
        self.check(&text, "model")?;
        Ok(TeamChoice::Text(text))
    }

    /// That a text is a team.
    ///
    /// # Errors
    /// It is none; the message names every fault and its place.
    pub fn check(&self, text: &str, param: &str) -> Result<(), Refusal> {
        let Err(rejection) = validate(text, &self.resolved.language) else { return Ok(()) };
        let explained = lemon_spec::explain(&rejection.diagnostics, &rejection.source, "team", false);
        let fact = format!("the team is not valid\n{}", explained.trim_end());
        Err(Refusal::field(param, fact).hint("`lemon validate` checks a file"))
    }

    /// The folder of a trained orchestrator: below the folder of them, also where links lead.
    fn policy_folder(&self, path: &str) -> Option<PathBuf> {
        let relative = Path::new(path);
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let root = self.policies.canonicalize().ok()?;
        let folder = root.join(relative).canonicalize().ok()?;
        (is_plain && !path.is_empty() && folder.starts_with(&root) && folder.join(MODEL).is_file()).then_some(folder)
    }

    /// The orchestrator of a choice.
    ///
    /// # Errors
    /// A model cannot be loaded, or the specification's reviewer cannot be made.
    pub(crate) async fn orchestrator(&self, choice: &TeamChoice) -> Result<Arc<dyn Orchestrator>, WorkersError> {
        match choice {
            TeamChoice::Configured => Ok(self.orchestrator.clone()),
            TeamChoice::Text(text) => self.resolved.orchestrator(Some(text)),
            TeamChoice::Policy(folder) => {
                let mut loaded = self.loaded.lock().await;
                if let Some(orchestrator) = loaded.get(folder) {
                    return Ok(orchestrator.clone());
                }
                let mut resolved = self.resolved.clone();
                resolved.config.orchestrator.set_kind(OrchestratorKind::Policy);
                resolved.config.orchestrator.model = Some(folder.clone());
                // Loading takes a moment: a thread of its own does it, once.
                let load = move || resolved.orchestrator(None);
                let ended = tokio::task::spawn_blocking(load).await;
                let orchestrator =
                    ended.map_err(|error| WorkersError::new(format!("loading broke off: {error}")))??;
                if loaded.len() >= MOST_POLICIES {
                    loaded.clear();
                }
                loaded.insert(folder.clone(), orchestrator.clone());
                Ok(orchestrator)
            }
        }
    }
}

/// The trained orchestrators of trainings below a folder. Links and hidden folders are left out.
fn find_trained(folder: &Path, depth: usize, looked: &mut usize, found: &mut Vec<PathBuf>) {
    *looked += 1;
    let (record, model) = (folder.join(TRAINING.0), folder.join(TRAINING.1));
    if record.is_file() {
        found.extend(Some(model).filter(|model| model.join(MODEL).is_file()));
        return;
    }
    // A folder that cannot be read has nothing to offer.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_plain = |entry: &std::fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_plain(entry));
    for entry in folders {
        if depth < DEEPEST && *looked < MOST_FOLDERS {
            find_trained(&entry.path(), depth + 1, looked, found);
        }
    }
}

/// Whether a name can be that of a team file: letters, digits, `-`, `_` and inner dots.
fn is_team_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty()
        && name.len() <= 100
        && name.chars().all(is_plain)
        && !name.starts_with('.')
        && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orchestrators_of_trainings_are_found() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        };
        // From `other` on: no training, not ended, hidden, too deep.
        for path in [
            "quick/metrics.jsonl",
            "quick/model/config.json",
            "runs/long/metrics.jsonl",
            "runs/long/model/config.json",
            "other/model/config.json",
            "young/metrics.jsonl",
            ".old/metrics.jsonl",
            ".old/model/config.json",
            "a/b/c/d/metrics.jsonl",
            "a/b/c/d/model/config.json",
        ] {
            file(path);
        }
        let mut found = Vec::new();
        find_trained(root.path(), 0, &mut 0, &mut found);
        found.sort();
        assert_eq!(found, ["quick/model", "runs/long/model"].map(|path| root.path().join(path)));
    }

    #[test]
    fn names_of_teams_are_no_paths() {
        for (name, expected) in [
            ("pair", true),
            ("pair-2_b.v1", true),
            ("", false),
            (".hidden", false),
            ("../pair", false),
            ("a/b", false),
            ("a..b", false),
            ("a\\b", false),
            ("ä", false),
        ] {
            assert_eq!(is_team_name(name), expected, "{name}");
        }
    }
}
