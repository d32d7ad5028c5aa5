//! The pages of the application that `lemon serve` shows, and what they load.
//!
//! The pages of runs, evaluations and trainings are those that are exported ([`crate::run`], [`crate::evaluation`],
//! [`crate::training`]); here are the others. The policy of the application allows no style and no script inside of a page: all
//! of them are files, and what a script inserts was made by this crate.

mod approval;
mod ask;
mod assets;
mod compare;
mod lists;
mod runs;
mod system;
mod teams;

pub use ask::{AskPage, CapacityChoice, ask, ended};
pub use assets::{Asset, asset};
pub use compare::{choose, compare};
pub use lists::{ListedEvaluation, ListedMethod, ListedTraining, SideBySide, evaluations, side_by_side, trainings};
pub use runs::{ListedRun, RunFilters, RunsPage, runs};
pub use system::{ClusterState, ClusterWorker, GivenUp, KeyRow, ModelRow, SystemPage, system};
pub use teams::{EditorPage, ListedTeam, drawn, editor, listed_teams};

pub(crate) use approval::waiting;

use crate::markup::filters;
use crate::page::{Host, render};
use askama::Template;

/// The entries of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// A question and its answer.
    Ask,
    /// All runs, and the page of one.
    Runs,
    /// Saved teams, and the editor.
    Teams,
    /// Evaluations.
    Evaluations,
    /// Trainings.
    Trainings,
    /// Models, keys and the store.
    System,
}

/// An entry of the navigation.
pub(crate) struct Entry {
    pub place: Section,
    pub name: &'static str,
    pub path: &'static str,
    /// The way of its picture, in a square of 24.
    pub icon: &'static str,
}

pub(crate) const ENTRIES: [Entry; 6] = [
    Entry { place: Section::Ask, name: "Ask", path: "/ask", icon: "M4 5h16v11H10l-4.500 4V16H4z" },
    Entry { place: Section::Runs, name: "Runs", path: "/runs", icon: "M4 6h16M4 12h16M4 18h10" },
    Entry {
        place: Section::Teams,
        name: "Teams",
        path: "/teams",
        icon: "M3.500 6a2.500 2.500 0 1 0 5 0a2.500 2.500 0 1 0-5 0M3.500 18a2.500 2.500 0 1 0 5 0a2.500 2.500 0 1 0-5 0\
               M15.500 12a2.500 2.500 0 1 0 5 0a2.500 2.500 0 1 0-5 0M8.300 7.200l7.200 3.600M8.300 16.800l7.200-3.600",
    },
    Entry { place: Section::Evaluations, name: "Evaluations", path: "/evaluations", icon: "M5 20V11M12 20V4M19 20v-6" },
    Entry {
        place: Section::Trainings,
        name: "Trainings",
        path: "/trainings",
        icon: "M4 4v16h16M7 16c4 0 4-8 7-8 2 0 3 1 6-2",
    },
    Entry {
        place: Section::System,
        name: "System",
        path: "/system",
        icon: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.500v5M9 14.500v5",
    },
];

/// The exports of a run: how the address names them, and how the page does.
pub const EXPORTS: [(&str, &str); 5] = [
    ("html", "Page (HTML)"),
    ("svg", "Graph (SVG)"),
    ("jsonl", "Events (JSON lines)"),
    ("otlp", "OpenTelemetry (OTLP JSON)"),
    ("schema", "Orchestration trace (JSON)"),
];

#[derive(Template)]
#[template(path = "app-note.html")]
struct NotePage<'a> {
    host: Host,
    title: &'a str,
    fact: &'a str,
    hint: Option<&'a str>,
}

/// A page that says why there is no other.
pub fn note(place: Section, title: &str, fact: &str, hint: Option<&str>) -> String {
    render(&NotePage { host: Host::app(place, "base.js"), title, fact, hint })
}

#[derive(Template)]
#[template(path = "app-login.html")]
struct LoginPage {
    host: Host,
}

/// Where a browser gives its key.
pub fn login() -> String {
    render(&LoginPage { host: Host::app(Section::Ask, "base.js") })
}

/// A state of a run in few words, and how it is coloured.
pub(crate) fn state(stop_reason: Option<&str>, running: bool) -> (String, &'static str) {
    match (stop_reason, running) {
        (Some("answered"), _) => ("answered".to_owned(), "good"),
        (Some(reason), _) => (reason.replace('_', " "), "odd"),
        (None, true) => ("running".to_owned(), "going"),
        (None, false) => ("interrupted".to_owned(), "odd"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::hosted;
    use lemon_trace::sample::eight;
    use proptest::prelude::*;

    /// What the policy of the application forbids on a page: it would silently not work.
    #[track_caller]
    fn assert_allowed(html: &str) {
        for part in ["<style", " style=\"", " onclick=", " onload=", "javascript:", "<base", "http-equiv"] {
            assert!(!html.contains(part), "{part} in {html}");
        }
        for script in html.split("<script").skip(1) {
            let head = script.split('>').next().unwrap();
            assert!(head.contains("src=\"/app/") || head.contains("application/json"), "{head}");
        }
        for text in html.split(" src=\"").skip(1).chain(html.split("<link ").skip(1)) {
            assert!(text.contains("/app/"), "{text}");
        }
    }

    fn pages(words: &str) -> Vec<String> {
        let mut trace = eight();
        trace.header.question = words.to_owned();
        let run = ListedRun {
            id: words.to_owned(),
            question: words.to_owned(),
            answer: Some(words.to_owned()),
            ..ListedRun::default()
        };
        let listed = ListedEvaluation {
            name: words.to_owned(),
            title: words.to_owned(),
            methods: vec![ListedMethod {
                name: words.to_owned(),
                accuracy: 0.5,
                interval: [0.4, 0.6],
                ..ListedMethod::default()
            }],
            ..ListedEvaluation::default()
        };
        let filters = RunFilters { text: words.to_owned(), page: 1, ..RunFilters::default() };
        vec![
            hosted(&trace),
            compare(&trace, &eight()),
            choose(words, std::slice::from_ref(&run)),
            ended(&trace),
            ask(&AskPage {
                notice: Some(words.to_owned()),
                examples: vec![words.to_owned()],
                teams: vec![words.to_owned()],
                ..AskPage::default()
            }),
            runs(&RunsPage { filters, runs: vec![run], total: 1, per_page: 1, teams: vec![words.to_owned()] }),
            evaluations(&[words.to_owned()], &[listed.clone(), listed]),
            trainings(&[words.to_owned()], &[ListedTraining { name: words.to_owned(), ..ListedTraining::default() }]),
            editor(&EditorPage { name: words.to_owned(), text: words.to_owned(), ..EditorPage::default() }),
            system(&SystemPage { facts: vec![(words.to_owned(), words.to_owned())], ..SystemPage::default() }),
            system(&SystemPage { cluster: Some(Err(words.to_owned())), ..SystemPage::default() }),
            system(&SystemPage { cluster: Some(Ok(cluster(words))), ..SystemPage::default() }),
            note(Section::Runs, words, words, Some(words)),
            login(),
        ]
    }

    fn cluster(words: &str) -> ClusterState {
        let words = || words.to_owned();
        let worker = ClusterWorker {
            name: words(),
            version: words(),
            busy: words(),
            done: words(),
            failed: words(),
            rate: words(),
        };
        let letter = GivenUp { task: words(), error: words(), tried: words(), when: words() };
        ClusterState { facts: vec![(words(), words())], workers: vec![worker], letters: vec![letter] }
    }

    #[test]
    fn pages_keep_to_the_policy() {
        pages("What is 2 + 2?").iter().for_each(|page| assert_allowed(page));
        let training = crate::training::hosted(&crate::training::TrainingReport::default());
        assert_allowed(&training);
    }

    #[test]
    fn every_page_has_one_heading_of_the_first_rank_and_a_main_part() {
        for page in pages("a").into_iter().filter(|page| page.starts_with("<!doctype")) {
            assert!(page.matches("<h1").count() <= 1 && page.matches("<main id=\"content\"").count() == 1, "{page}");
            assert!(page.contains("<html lang=\"en\">") && page.contains("Skip to content"));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn no_words_become_markup(words in ".{0,9}<(script|img src=x onerror=y|/textarea|/pre|base)>.{0,9}[\"'&].{0,9}") {
            for page in pages(&words) {
                for mark in ["<script>", "<img", "<base"] {
                    prop_assert!(!page.contains(mark), "{mark} in {page}");
                }
                // One that belongs to the page closes, as it opens.
                prop_assert_eq!(page.matches("</textarea").count(), page.matches("<textarea").count());
            }
        }
    }
}
