//! The list of runs, the page of one, two side by side, and exports.

use super::{NoPage, Page, fields::Fields, look};
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use lemon_exec::store::{FoundRun, RunEnd, RunOrdering, RunSearch, Store};
use lemon_trace::Trace;
use lemon_trace::export::jsonl::write_jsonl;
use lemon_trace::export::otlp::otlp_json;
use lemon_trace::export::schema::{Content, schema};
use lemon_view::app::{ListedRun, RunFilters, RunsPage, Section, choose, compare as side_by_side, runs};
use lemon_view::run::{hosted, html, svg};
use std::sync::Arc;

/// Runs on a page of the list.
const PER_PAGE: u64 = 50;
/// The last page that can be asked for.
const MOST_PAGES: u64 = 1_000_000;
/// Runs to choose from for a comparison.
const TO_CHOOSE: u64 = 60;

pub async fn list(State(app): State<Arc<AppState>>, fields: Fields) -> Result<Page, NoPage> {
    let filters = RunFilters {
        text: fields.text("q"),
        end: fields.text("end"),
        team: fields.text("team"),
        from: fields.text("from"),
        to: fields.text("to"),
        tokens: fields.text("tokens"),
        order: fields.text("order"),
        page: fields.get("page").and_then(|page| page.parse().ok()).unwrap_or(1).clamp(1, MOST_PAGES),
    };
    let store = app.store.clone();
    let work = move || {
        let (found, total) = store.search(&search(&filters)?, (filters.page - 1) * PER_PAGE, PER_PAGE)?;
        let runs = found.into_iter().map(listed).collect();
        let teams = store.models_asked()?.iter().map(|model| team_name(model)).collect();
        Ok(runs_page(RunsPage { filters, runs, total, per_page: PER_PAGE, teams }))
    };
    look(work).await.map_err(NoPage::at(Section::Runs))
}

fn runs_page(page: RunsPage) -> Page {
    Page(runs(&page))
}

/// What a form asks for. What cannot be understood is refused: a filter that silently does nothing would mislead.
fn search(filters: &RunFilters) -> Result<RunSearch, Refusal> {
    let number = |name: &str, text: &str| match text.trim() {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| Refusal::field(name, format!("{name}: expected a number, found `{text}`"))),
    };
    let day = |name: &str, text: &str| match text.trim() {
        "" => Ok(None),
        text => match start_of_day(text) {
            Some(ms) => Ok(Some(ms)),
            None => Err(Refusal::field(name, format!("{name}: expected a day such as 2026-11-18, found `{text}`"))),
        },
    };
    Ok(RunSearch {
        text: filters.text.clone(),
        end: match filters.end.as_str() {
            "" => RunEnd::Any,
            "running" => RunEnd::Running,
            "interrupted" => RunEnd::Interrupted,
            "budget" => RunEnd::Budget,
            reason => RunEnd::Reason(reason.to_owned()),
        },
        model: Some(filters.team.as_str()).filter(|team| !team.is_empty()).map(model_name),
        from_ms: day("from", &filters.from)?,
        // The last day counts whole.
        before_ms: day("to", &filters.to)?.map(|ms: u64| ms.saturating_add(DAY_MS)),
        least_tokens: number("tokens", &filters.tokens)?,
        order: match filters.order.as_str() {
            "tokens" => RunOrdering::Tokens,
            "cost" => RunOrdering::Cost,
            "time" => RunOrdering::Time,
            _ => RunOrdering::Newest,
        },
    })
}

const DAY_MS: u64 = 86_400_000;

/// When a day of the form `2026-11-18` begins, in milliseconds of Unix time, in UTC as all dates here.
fn start_of_day(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1 March of year 0, in which leap days come last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    u64::try_from(days - 719_468).ok()?.checked_mul(DAY_MS)
}

/// How the list names a model of the API, and back.
fn team_name(model: &str) -> String {
    model
        .strip_prefix(super::ask::TEAM)
        .unwrap_or(if model == ORCHESTRATED { BY_ORCHESTRATOR } else { model })
        .to_owned()
}

fn model_name(team: &str) -> String {
    match team {
        BY_ORCHESTRATOR => ORCHESTRATED.to_owned(),
        team if NO_FILES.contains(&team) || team.starts_with("the team of ") => team.to_owned(),
        team => format!("{}{team}", super::ask::TEAM),
    }
}

const ORCHESTRATED: &str = "lemon";
const BY_ORCHESTRATOR: &str = "by the orchestrator";
/// Teams that are no files.
const NO_FILES: [&str; 2] = ["one agent", "a text"];

fn listed(FoundRun { row, model }: FoundRun) -> ListedRun {
    ListedRun {
        id: row.run_id,
        question: row.question,
        answer: row.answer,
        stop_reason: row.stop_reason,
        running: row.running,
        tokens: row.tokens,
        usd: row.cost_usd,
        seconds: row.wall_s,
        agents: row.agents,
        team: model.filter(|model| model != ORCHESTRATED).map(|model| team_name(&model)),
        started_at_ms: row.started_at_ms,
    }
}

/// The trace of a run: of one that is under way as far as it has come.
async fn trace(app: &Arc<AppState>, name: String) -> Result<Trace, Refusal> {
    let store = app.store.clone();
    look(move || load(&store, &name)).await
}

fn load(store: &Store, name: &str) -> Result<Trace, Refusal> {
    Ok(store.trace(&store.find_run(name)?)?)
}

pub async fn page(State(app): State<Arc<AppState>>, Path(id): Path<String>) -> Result<Page, NoPage> {
    let trace = trace(&app, id).await.map_err(NoPage::at(Section::Runs))?;
    Ok(Page(hosted(&trace)))
}

pub async fn compare(State(app): State<Arc<AppState>>, fields: Fields) -> Result<Page, NoPage> {
    let store = app.store.clone();
    let chosen: Vec<String> = ["run", "a", "b"].iter().flat_map(|name| fields.all(name)).map(str::to_owned).collect();
    let work = move || match chosen.as_slice() {
        [a, b] => Ok(Page(side_by_side(&load(&store, a)?, &load(&store, b)?))),
        [a] => {
            let one = load(&store, a)?;
            // Runs of the same question first: those are what one compares.
            let words = RunSearch { text: one.header.question.clone(), ..RunSearch::default() };
            let (mut found, _) = store.search(&words, 0, TO_CHOOSE)?;
            if found.len() < 2 {
                found = store.search(&RunSearch::default(), 0, TO_CHOOSE)?.0;
            }
            let found: Vec<ListedRun> = found.into_iter().map(listed).collect();
            Ok(Page(choose(&one.header.run_id, &found)))
        }
        chosen => {
            let fact = format!("expected two runs to compare, found {}", chosen.len());
            Err(Refusal::bad(fact).hint("choose two in the list of runs"))
        }
    };
    look(work).await.map_err(NoPage::at(Section::Runs))
}

pub async fn export(
    State(app): State<Arc<AppState>>,
    Path((id, format)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let trace = trace(&app, id).await?;
    let (media_type, suffix, text) = match format.as_str() {
        "html" => ("text/html; charset=utf-8", "html", html(&trace)),
        "svg" => ("image/svg+xml", "svg", svg(&trace)),
        "jsonl" => {
            let mut lines = Vec::new();
            write_jsonl(&trace, &mut lines).map_err(Refusal::internal)?;
            ("application/jsonl", "jsonl", String::from_utf8_lossy(&lines).into_owned())
        }
        "otlp" => ("application/json", "otlp.json", otlp_json(&trace)),
        "schema" => {
            let value = serde_json::to_string_pretty(&schema(&trace, Content::Included)).map_err(Refusal::internal)?;
            ("application/json", "json", value)
        }
        other => {
            let known = "html, svg, jsonl, otlp or schema";
            return Err(Refusal::not_found(format!("expected the format {known}, found `{other}`")));
        }
    };
    // A page with scripts of its own is a file to keep, never a page of this server.
    let plain: String =
        trace.header.run_id.chars().filter(|char| char.is_ascii_alphanumeric() || "-_.".contains(*char)).collect();
    let name = format!("attachment; filename=\"{plain}.{suffix}\"");
    let name = HeaderValue::from_str(&name).map_err(Refusal::internal)?;
    let kind = HeaderValue::from_static(media_type);
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_begin_at_midnight() {
        for (day, expected) in [
            ("1970-01-01", Some(0)),
            ("2000-02-29", Some(951_782_400_000)),
            ("2000-03-01", Some(951_868_800_000)),
            ("2026-01-01", Some(1_767_225_600_000)),
            ("2026-13-01", None),
            ("2026-01", None),
            ("yesterday", None),
            ("-1-1-1", None),
            ("99999999999999999999-01-01", None),
        ] {
            assert_eq!(start_of_day(day), expected, "{day}");
        }
    }

    #[test]
    fn a_filter_that_cannot_be_understood_is_refused() {
        let with = |tokens: &str, from: &str| {
            search(&RunFilters { tokens: tokens.into(), from: from.into(), ..RunFilters::default() })
        };
        assert_eq!(with("12", "").unwrap().least_tokens, Some(12));
        assert!(with("many", "").unwrap_err().fact.contains("`many`"));
        assert!(with("", "today").unwrap_err().fact.contains("`today`"));
    }

    #[test]
    fn names_of_teams_lead_back_to_models() {
        for model in ["lemon", "lemon/pair", "one agent", "a text", "the team of r-1", "lemon/policy:a/b"] {
            assert_eq!(model_name(&team_name(model)), model);
        }
    }
}
