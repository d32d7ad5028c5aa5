//! Saved teams, and the editor.

use super::{CapacityChoice, Section};
use crate::markup::{Markup, filters};
use crate::page::{Host, render};
use crate::run::graph;
use askama::Template;
use lemon_spec::Plan;
use lemon_trace::{Event, EventKind, Header, ORCHESTRATOR, Spend, Trace, VERSION, text};

/// A saved team.
#[derive(Debug, Clone)]
pub struct ListedTeam {
    pub name: String,
    /// The team, or the first fault of its text.
    pub plan: Result<Plan, String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct EditorPage {
    /// The name that is proposed.
    pub name: String,
    /// The name of the team that is edited, where it is saved.
    pub saved_as: Option<String>,
    pub text: String,
    /// The capacities, weakest first.
    pub capacities: Vec<CapacityChoice>,
    /// The base roles: names and titles.
    pub roles: Vec<(String, String)>,
    /// The task sets that a team can be measured on.
    pub sets: Vec<String>,
}

#[derive(Template)]
#[template(path = "app-teams.html")]
struct TeamsPage<'a> {
    host: Host,
    folder: &'a str,
    teams: Vec<TeamCard<'a>>,
}

struct TeamCard<'a> {
    name: &'a str,
    fault: Option<&'a str>,
    words: String,
    picture: Markup,
}

#[derive(Template)]
#[template(path = "app-editor.html")]
struct Editor<'a> {
    host: Host,
    title: String,
    page: &'a EditorPage,
}

/// The list of saved teams; `folder` is where they lie.
pub fn listed_teams(folder: &str, teams: &[ListedTeam]) -> String {
    let card = |(number, team): (usize, &'_ ListedTeam)| match &team.plan {
        Err(fault) => (Some(fault.clone()), String::new(), Markup::default(), number),
        Ok(plan) => {
            let agents = text::plural(plan.agents().len() as u64, "agent");
            let words = format!("{agents}, answer by {}", text::rule(plan.answer_rule()));
            // Names of arrow tips must differ between the pictures on a page.
            let picture = graph(&planned(plan)).replace("lemon-tip", &format!("lemon-tip-{number}"));
            (None, words, Markup::trusted(picture), number)
        }
    };
    let drawn: Vec<_> = teams.iter().enumerate().map(card).collect();
    let cards = teams.iter().zip(&drawn).map(|(team, (fault, words, picture, _))| TeamCard {
        name: &team.name,
        fault: fault.as_deref(),
        words: words.clone(),
        picture: picture.clone(),
    });
    render(&TeamsPage { host: Host::app(Section::Teams, "base.js"), folder, teams: cards.collect() })
}

pub fn editor(page: &EditorPage) -> String {
    let title = page.saved_as.as_ref().map_or_else(|| "New team".to_owned(), |name| format!("Team {name}"));
    render(&Editor { host: Host::app(Section::Teams, "team.js"), title, page })
}

/// A team that has not run, as a piece of a page.
pub fn drawn(plan: &Plan) -> String {
    graph(&planned(plan))
}

/// What is on record of a team before anything runs.
fn planned(plan: &Plan) -> Trace {
    let header = Header {
        version: VERSION,
        run_id: "this text".to_owned(),
        task_id: String::new(),
        question: String::new(),
        started_at_ms: 0,
        seed: 0,
        workers: String::new(),
    };
    let id_of = |number: &usize| plan.id(*number).map(str::to_owned);
    let decision = EventKind::Decision {
        round: 1,
        by: "fixed".to_owned(),
        model: None,
        text: plan.source().to_owned(),
        written: None,
    };
    let spawns = plan.agents().iter().map(|agent| EventKind::Spawn {
        to: agent.id.clone(),
        round: 1,
        base: agent.base.name.clone(),
        role: agent.role.clone(),
        capacity: agent.capacity.clone(),
        level: agent.level,
        after: agent.parents.iter().filter_map(id_of).collect(),
    });
    // With empty answers, so that the picture shows which agents the answer is made of, and how.
    let candidates = plan.answer_from().iter().filter_map(id_of);
    let candidates = candidates.map(|agent| lemon_trace::Candidate { agent, answer: String::new() });
    let aggregate = EventKind::Aggregate {
        round: 1,
        rule: plan.answer_rule(),
        candidates: candidates.collect(),
        chosen: None,
        answer: None,
    };
    let event = |(id, kind)| Event {
        id,
        t: 0.0,
        agent: ORCHESTRATOR.to_owned(),
        kind,
        spend: Spend::default(),
        edges: Vec::new(),
    };
    let kinds = std::iter::once(decision).chain(spawns).chain([aggregate]);
    Trace { header, events: (1..).zip(kinds).map(event).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_spec::{Language, validate};

    #[test]
    fn a_team_that_has_not_run_is_drawn_with_its_answer() {
        let text = "agents:\n  - {id: a, base: solver, capacity: small}\n  - {id: b, base: critic, capacity: large, after: [a]}\n";
        let plan = validate(text, &Language::default()).unwrap();
        let html = drawn(&plan);
        assert!(
            html.contains("data-agent=\"a\"") && html.contains("data-agent=\"b\"") && html.contains("class=\"answer\"")
        );
        assert!(!html.contains("<style") && !html.contains(" style="), "the policy of the application forbids both");
    }
}
