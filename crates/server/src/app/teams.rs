//! Saved teams, and the editor: the same checks as `lemon validate`.

use super::credit::SETS;
use super::{NoPage, Page, ask, fields::Fields, look};
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lemon_exec::Forecast;
use lemon_spec::edit::{apply, edits};
use lemon_spec::{Diagnostic, Language, Plan, Span, render, validate};
use lemon_view::app::{EditorPage, ListedTeam, Section, drawn, editor, listed_teams};
use lemon_workers::read_file;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// What a new team begins with.
const NEW: &str = "agents:\n  - {id: a1, base: solver, capacity: CAPACITY}\n  - {id: a2, base: solver, capacity: CAPACITY, duty: Set up \
                   the equation first.}\n  - {id: check, base: critic, capacity: CAPACITY, after: [a1, a2]}\nanswer: {from: [check], by: last}\n";
/// Teams that the list shows.
const MOST_TEAMS: usize = 500;
/// Edits that are shown; each is applied to make its text.
const MOST_EDITS: usize = 300;
/// The longest name.
const NAME_CHARS: usize = 64;

/// Whether a name can be that of a team which is saved here: it is a file name and nothing else on every system.
fn is_name(name: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    (1..=NAME_CHARS).contains(&name.len())
        && name.chars().all(is_plain)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// The file of a team.
fn file(app: &AppState, name: &str) -> Result<PathBuf, Refusal> {
    if !is_name(name) {
        let fact = format!("expected a name of at most {NAME_CHARS} letters, digits, `_` and `-`, found `{name}`");
        return Err(Refusal::field("name", fact));
    }
    Ok(app.workers.teams_folder().join(format!("{name}.yaml")))
}

fn saved(app: &AppState, name: &str) -> Result<String, Refusal> {
    let path = file(app, name)?;
    if !path.is_file() {
        return Err(Refusal::not_found(format!("there is no team `{name}`")));
    }
    Ok(read_file(&path)?)
}

pub async fn list(State(app): State<Arc<AppState>>) -> Result<Page, NoPage> {
    let work = move || {
        let mut names: Vec<String> =
            app.workers.models().into_iter().filter_map(|model| team_name(&model.name)).collect();
        names.truncate(MOST_TEAMS);
        let team = |name: String| {
            let plan = saved(&app, &name).map_err(|refusal| refusal.fact).and_then(|text| {
                validate(&text, &app.workers.resolved.language).map_err(|rejection| rejection.to_string())
            });
            ListedTeam { name, plan }
        };
        let teams: Vec<ListedTeam> = names.into_iter().map(team).collect();
        Ok(Page(listed_teams(&app.workers.teams_folder().display().to_string(), &teams)))
    };
    look(work).await.map_err(NoPage::at(Section::Teams))
}

/// The name of a saved team that the editor can open.
fn team_name(model: &str) -> Option<String> {
    model.strip_prefix(ask::TEAM).filter(|name| is_name(name)).map(str::to_owned)
}

pub async fn edit(State(app): State<Arc<AppState>>, fields: Fields) -> Result<Page, NoPage> {
    let (name, run) = (fields.get("name").map(str::to_owned), fields.get("run").map(str::to_owned));
    let work = move || {
        let text = match (&name, &run) {
            (Some(name), _) => saved(&app, name)?,
            (None, Some(run)) => ask::team_of(&app.store, run)?
                .ok_or_else(|| Refusal::not_found(format!("the run `{run}` has no team")))?,
            (None, None) => {
                let capacities = &app.workers.resolved.language.capacities;
                NEW.replace("CAPACITY", capacities.first().map_or("small", String::as_str))
            }
        };
        let roles = app.workers.resolved.language.roles.iter();
        let roles = roles.map(|role| (role.name.clone(), format!("{}: {}", role.title, role.duty))).collect();
        let page = EditorPage {
            name: name.clone().unwrap_or_default(),
            saved_as: name,
            text,
            capacities: ask::choices(&app),
            roles,
            sets: SETS.map(str::to_owned).to_vec(),
        };
        Ok(Page(editor(&page)))
    };
    look(work).await.map_err(NoPage::at(Section::Teams))
}

/// A text to check or to save.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TeamText {
    text: String,
    /// Whether it may take the place of another team.
    #[serde(default)]
    overwrite: bool,
}

/// What is wrong with a text, or what it comes to: its picture, the edits that apply, and what it can cost.
pub async fn check(State(app): State<Arc<AppState>>, Json(sent): Json<TeamText>) -> Result<Json<Value>, Refusal> {
    look(move || Ok(Json(checked(&app, &sent.text)))).await
}

fn checked(app: &AppState, text: &str) -> Value {
    let language = &app.workers.resolved.language;
    match validate(text, language) {
        Err(rejection) => {
            json!({ "valid": false, "diagnostics": diagnostics(text, &rejection.diagnostics) })
        }
        Ok(plan) => {
            let forecast = language.roles.get("judge").map(|judge| {
                let forecast = Forecast::new(&plan, "", &app.workers.backend.levels, judge.clone());
                json!({ "tokens": forecast.tokens(), "likely": forecast.likely() })
            });
            json!({
                "valid": true,
                "diagnostics": diagnostics(text, plan.warnings()),
                "agents": plan.agents().len(),
                "graph": drawn(&plan),
                "edits": edits_of(&plan, language),
                "forecast": forecast,
            })
        }
    }
}

/// The edits with the texts they make. One that withholds a message at run time has no text of its own.
fn edits_of(plan: &Plan, language: &Language) -> Vec<Value> {
    let canonical = render(plan.spec()).text;
    let rows = edits(plan, language).into_iter().take(MOST_EDITS).filter_map(|edit| {
        let edited = apply(plan, &edit, language).ok()?;
        let text = edited.plan.source();
        (edited.withhold.is_none() && text != canonical).then(|| {
            json!({ "family": edit.family.to_string(), "description": edit.describe(), "forward": edit.forward, "spec": text })
        })
    });
    rows.collect()
}

/// Diagnostics with places as a browser counts them: in UTF-16 units.
fn diagnostics(text: &str, found: &[Diagnostic]) -> Vec<Value> {
    let units = |offset: usize| text.get(..text.floor_char_boundary(offset)).unwrap_or_default().encode_utf16().count();
    let told = |it: &Diagnostic| {
        let Span { start, end } = it.span;
        json!({
            "code": it.code, "severity": it.severity, "line": it.line, "column": it.column,
            "start": units(start), "end": units(end), "message": it.message, "hint": it.hint,
        })
    };
    found.iter().map(told).collect()
}

/// The text of a saved team.
pub async fn read(State(app): State<Arc<AppState>>, Path(name): Path<String>) -> Result<Json<Value>, Refusal> {
    look(move || Ok(Json(json!({ "name": name, "text": saved(&app, &name)? })))).await
}

/// Saves a team. Only a valid one is saved: a file of the folder is a model of the API.
pub async fn save(
    State(app): State<Arc<AppState>>,
    Path(name): Path<String>,
    Json(sent): Json<TeamText>,
) -> Result<StatusCode, Refusal> {
    look(move || {
        let path = file(&app, &name)?;
        if let Err(rejection) = validate(&sent.text, &app.workers.resolved.language) {
            return Err(Refusal::field("text", format!("the team is not valid: {rejection}")));
        }
        let is_taken = path.symlink_metadata().is_ok();
        if is_taken && !sent.overwrite {
            let fact = format!("there is a team `{name}` already");
            return Err(Refusal::new(StatusCode::CONFLICT, "invalid_request_error", fact));
        }
        put(&path, &sent.text).map_err(|error| Refusal::internal(format!("{}: {error}", path.display())))?;
        Ok(if is_taken { StatusCode::OK } else { StatusCode::CREATED })
    })
    .await
}

/// Written beside its place first: a cut-off write leaves the old file, and a link in its place is replaced, not followed.
fn put(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let new = path.with_extension(format!("{}-{}.new", std::process::id(), lemon_exec::fresh_id()));
    let written = std::fs::File::create_new(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let moved = written.and_then(|()| std::fs::rename(&new, path));
    if moved.is_err() {
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_plain() {
        for name in ["a", "my-team_2", "A1"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(NAME_CHARS + 1);
        for name in ["", ".", "..", "../a", "a/b", "a\\b", "a.b", "-a", "_a", "a\0", "ä", "a b", "con:", &long] {
            assert!(!is_name(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_one_part_of_a_path(name in "[a-zA-Z0-9_./\\\\ -]{0,12}") {
            let path = std::path::Path::new("teams").join(format!("{name}.yaml"));
            prop_assert!(!is_name(&name) || path.components().count() == 2);
        }

        #[test]
        fn places_are_within_the_text(text in "(agents|: |\\[|\\]|\\{|\\}|id|ä|🍋|\n|a|,){0,20}") {
            if let Err(rejection) = validate(&text, &Language::default()) {
                let length = text.encode_utf16().count() as u64;
                for told in diagnostics(&text, &rejection.diagnostics) {
                    let (start, end) = (told["start"].as_u64().unwrap(), told["end"].as_u64().unwrap());
                    prop_assert!(start <= end && end <= length, "{told} of {length}");
                }
            }
        }
    }
}
