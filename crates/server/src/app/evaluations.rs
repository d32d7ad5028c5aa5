//! Evaluations: the list, the page of one with its items, and two side by side.

use super::folders::{holding, named};
use super::{NoPage, Page, fields::Fields, look};
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::extract::{Path, State};
use lemon_eval::report::files::ROWS;
use lemon_eval::report::items::{ItemDetail, chosen, reply_detail};
use lemon_eval::report::{page_of, words};
use lemon_eval::{EvalComparison, Evaluation, MethodComparison, MethodReport, Report, compare as change};
use lemon_exec::store::{Store, StoreError};
use lemon_view::app::{ListedEvaluation, ListedMethod, Section, SideBySide, evaluations, side_by_side};
use lemon_view::evaluation::hosted;
use lemon_view::table::{Align, Cell, Column, Table};
use serde::de::DeserializeOwned;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

/// What the list reads of an evaluation.
const REPORT: &str = "report.json";
/// Evaluations in the list.
const MOST_LISTED: usize = 200;
/// Where `lemon eval` writes, beside the store.
const EVALS: &str = "evals";

/// The folders that results are looked for in.
pub(super) fn roots(app: &AppState) -> Vec<PathBuf> {
    let beside = app.store.path().with_file_name(EVALS);
    app.config.results.iter().cloned().chain([beside]).collect()
}

pub(super) fn told(roots: &[PathBuf]) -> Vec<String> {
    roots.iter().map(|root| root.display().to_string()).collect()
}

pub async fn list(State(app): State<Arc<AppState>>) -> Result<Page, NoPage> {
    let work = move || {
        let roots = roots(&app);
        let mut listed: Vec<(u64, ListedEvaluation)> = holding(&roots, REPORT)
            .into_iter()
            .take(MOST_LISTED)
            .map(|found| match read::<Report>(&found.path.join(REPORT)) {
                Ok(report) => (report.set_up.started_at_ms, of(found.name, &report)),
                Err(refusal) => {
                    let title = found.name.clone();
                    (0, ListedEvaluation { name: found.name, title, fault: Some(refusal.fact), ..Default::default() })
                }
            })
            .collect();
        // Newest first.
        listed.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
        let listed: Vec<ListedEvaluation> = listed.into_iter().map(|(_, listed)| listed).collect();
        Ok(Page(evaluations(&told(&roots), &listed)))
    };
    look(work).await.map_err(NoPage::at(Section::Evaluations))
}

fn of(name: String, report: &Report) -> ListedEvaluation {
    let mut methods: Vec<&MethodReport> = report.methods.iter().collect();
    methods.sort_by(|a, b| b.accuracy.total_cmp(&a.accuracy));
    let method = |it: &MethodReport| ListedMethod {
        name: it.method.clone(),
        accuracy: it.accuracy,
        interval: it.interval,
        tokens: it.tokens,
        on_front: it.on_front,
    };
    ListedEvaluation {
        name,
        title: words::title(&report.set_up),
        set_up: words::set_up(&report.set_up).join(" · "),
        methods: methods.into_iter().map(method).collect(),
        fault: None,
    }
}

fn read<T: DeserializeOwned>(path: &FilePath) -> Result<T, Refusal> {
    let failed = |fact: String| Refusal::internal(format!("{}: {fact}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_reader(std::io::BufReader::new(file)).map_err(|error| failed(error.to_string()))
}

fn evaluation(app: &AppState, name: &str) -> Result<Evaluation, Refusal> {
    let folder = named(&roots(app), REPORT, name);
    let folder = folder.ok_or_else(|| Refusal::not_found(format!("there is no evaluation `{name}`")))?;
    read(&folder.join(ROWS))
}

pub async fn page(State(app): State<Arc<AppState>>, Path(name): Path<String>) -> Result<Page, NoPage> {
    let work = move || {
        let evaluation = evaluation(&app, &name)?;
        let details = details(&evaluation, &app.store)?;
        Ok(Page(hosted(&page_of(&Report::new(&evaluation), &evaluation, &details))))
    };
    look(work).await.map_err(NoPage::at(Section::Evaluations))
}

/// What was asked and replied, as far as the runs are in this store. What was expected stands in the task set only; a right
/// answer is shown where a method gave one.
fn details(evaluation: &Evaluation, store: &Store) -> Result<Vec<ItemDetail>, StoreError> {
    let mut details = Vec::new();
    for rows in chosen(evaluation) {
        let trace = |row: &&lemon_eval::Row| match store.trace(&row.run_id) {
            Ok(trace) => Ok(Some(trace)),
            // The evaluation may come from another machine.
            Err(StoreError::NoSuchRun(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let traces = rows.iter().map(trace).collect::<Result<Vec<_>, _>>()?;
        let (Some(first), Some(trace)) = (rows.first(), traces.iter().flatten().next()) else { continue };
        let right = rows.iter().find(|row| row.right).and_then(|row| row.answer.as_deref());
        let expected = right.map_or_else(|| "No method was right; the task set has it.".to_owned(), str::to_owned);
        let reply = |(row, trace): (&&lemon_eval::Row, &Option<lemon_trace::Trace>)| {
            let page = trace.as_ref().map(|_| format!("/runs/{}", row.run_id));
            lemon_eval::report::items::ReplyDetail { page, ..reply_detail(row, trace.as_ref()) }
        };
        details.push(ItemDetail {
            set: first.set.to_string(),
            item_id: first.item_id.to_string(),
            question: trace.header.question.clone(),
            expected,
            replies: rows.iter().zip(&traces).map(reply).collect(),
        });
    }
    Ok(details)
}

pub async fn compare(State(app): State<Arc<AppState>>, fields: Fields) -> Result<Page, NoPage> {
    let names: Vec<String> = fields.all("e").map(str::to_owned).collect();
    let work = move || {
        let [a, b] = <[String; 2]>::try_from(names).map_err(|names| {
            let fact = format!("expected two evaluations to compare, found {}", names.len());
            Refusal::bad(fact).hint("choose two in the list of evaluations")
        })?;
        let comparison = change(&evaluation(&app, &a)?, &evaluation(&app, &b)?);
        Ok(Page(side_by_side(&beside(&comparison, [a, b]))))
    };
    look(work).await.map_err(NoPage::at(Section::Evaluations))
}

fn beside(comparison: &EvalComparison, names: [String; 2]) -> SideBySide {
    let set_ups = [&comparison.a, &comparison.b];
    let titles = set_ups.map(|it| format!("{} · {}", words::title(it), words::set_up(it).join(" · ")));
    let mut findings = comparison.warnings.clone();
    if comparison.methods.is_empty() {
        findings.push("The two evaluations share no method on a common item.".to_owned());
    }
    for (methods, name) in [(&comparison.methods_only_a, "A"), (&comparison.methods_only_b, "B")] {
        if !methods.is_empty() {
            findings.push(format!("Only in {name}: {}.", words::list(methods)));
        }
    }
    SideBySide {
        names,
        titles,
        findings,
        tables: vec![("Methods that both have".to_owned(), table(&comparison.methods))],
    }
}

fn table(methods: &[MethodComparison]) -> Table {
    let column = |(name, align)| Column { name, align };
    let columns = [
        ("Method", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("Change, points", Align::Right),
        ("95 % interval", Align::Right),
        ("p (Holm)", Align::Right),
        ("Tokens A", Align::Right),
        ("Tokens B", Align::Right),
        ("Now right", Align::Right),
        ("Now wrong", Align::Right),
        ("Items", Align::Right),
    ];
    let row = |it: &MethodComparison| {
        let [low, high] = it.interval.map(words::points);
        vec![
            Cell::text(&it.method),
            Cell::text(&words::percent(it.accuracy[0])),
            Cell::text(&words::percent(it.accuracy[1])),
            Cell::text(&words::points(it.change)),
            Cell::text(&words::range(&low, &high)),
            Cell::text(&words::p_value(it.holm_p)),
            Cell::text(&words::number(it.tokens[0])),
            Cell::text(&words::number(it.tokens[1])),
            Cell::text(&it.gained.items.to_string()),
            Cell::text(&it.lost.items.to_string()),
            Cell::text(&it.items.to_string()),
        ]
    };
    let caption =
        "B less A on the items that both have: bootstrap over items, permutation test corrected over the methods.";
    Table {
        columns: columns.into_iter().map(column).collect(),
        rows: methods.iter().map(row).collect(),
        caption: caption.to_owned(),
    }
}
