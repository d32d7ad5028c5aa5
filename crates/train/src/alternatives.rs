//! Which counterfactuals a team allows: other values of its fields, and its prefix teams.

use crate::recipe::CreditSettings;
use lemon_spec::edit::{Change, Decision, Edit, Edited, Family, apply, edits, prefix_truncations};
use lemon_spec::{AnswerRule, Language, Next, Plan, render, validate_round};

/// A team that differs from a plan in one decision.
#[derive(Debug, Clone)]
pub(crate) struct Alternative {
    pub edit: Edit,
    pub edited: Edited,
    /// A prefix team of so many agents of this round; `None`: another value of a field.
    pub prefix: Option<usize>,
}

/// Every alternative that the settings ask for. Other values of a capacity are all levels, not the neighbours alone: with some of
/// the values the best one cannot be found.
pub(crate) fn alternatives(plan: &Plan, language: &Language, settings: &CreditSettings) -> Vec<Alternative> {
    let wanted = |edit: &Edit| {
        settings.families.contains(&edit.family)
            && edit.family != Family::Message
            && (edit.forward || !settings.simplify_only)
            && !(settings.prefix_truncation && edit.family == Family::Agent)
    };
    let mut found = Vec::new();
    for edit in edits(plan, language).into_iter().filter(wanted) {
        // An edit that does not apply, for instance because of a limit, is no alternative.
        let Ok(edited) = apply(plan, &edit, language) else { continue };
        let further = if settings.simplify_only { Vec::new() } else { further_levels(&edit, &edited, language) };
        found.push(Alternative { edit, edited, prefix: None });
        found.extend(further);
    }
    if settings.prefix_truncation && settings.families.contains(&Family::Agent) {
        found.extend(prefix_teams(plan, language));
    }
    found
}

/// The capacities beyond a neighbouring one, in the same direction.
fn further_levels(edit: &Edit, neighbour: &Edited, language: &Language) -> Vec<Alternative> {
    let mut levels: Vec<Alternative> = Vec::new();
    if edit.family != Family::Capacity {
        return levels;
    }
    let mut plan = neighbour.plan.clone();
    // Beyond the last capacity the edit does not apply.
    while let Ok(next) = apply(&plan, edit, language) {
        plan = next.plan.clone();
        // The field is that of the plan itself, not that of the level between.
        let (before, before_canonical) = (neighbour.before, neighbour.before_canonical);
        levels.push(Alternative {
            edit: edit.clone(),
            edited: Edited { before, before_canonical, ..next },
            prefix: None,
        });
    }
    levels
}

/// The teams that end before each agent, and the team of all its agents: those that no other agent reads vote, and the run stops.
/// How a prefix team ends does not depend on what was written later. So its reward is a function of the prefix alone.
fn prefix_teams(plan: &Plan, language: &Language) -> Vec<Alternative> {
    let truncated = prefix_truncations(plan, language).into_iter().filter_map(|edit| {
        // More answers than a list may have: there is no such prefix team.
        let edited = apply(plan, &edit, language).ok()?;
        Some((edit, edited))
    });
    let mut teams: Vec<(Edit, Edited)> = truncated.collect();
    teams.extend(whole(plan));
    let close = |(edit, edited): (Edit, Edited)| {
        let agents = edited.plan.agents().len();
        let edited = closed(edited, language)?;
        Some(Alternative { edit, edited, prefix: Some(agents) })
    };
    teams.into_iter().filter_map(close).collect()
}

/// The team of all agents of the plan, as the prefix team before the end.
fn whole(plan: &Plan) -> Option<(Edit, Edited)> {
    let field = lemon_spec::Field::AnswerFrom;
    let change = Change::PrefixTruncation { agent: String::new() };
    let edit = Edit { family: Family::Agent, decision: Decision::Spawn, forward: true, change };
    let canonical = plan.spans().get(field)?;
    let edited = Edited {
        plan: plan.clone(),
        field,
        before: Some(canonical),
        before_canonical: canonical,
        after: canonical,
        withhold: None,
        also_changed: Vec::new(),
    };
    Some((edit, edited))
}

/// A prefix team with the end that all prefix teams have. `None` where no agent could answer.
fn closed(edited: Edited, language: &Language) -> Option<Edited> {
    let plan = &edited.plan;
    let mut spec = plan.spec().clone();
    if !spec.agents.is_empty() {
        let is_read = |id: &String| spec.agents.iter().any(|agent| agent.after.contains(id));
        spec.answer.from = spec.agents.iter().map(|agent| agent.id.clone()).filter(|id| !is_read(id)).collect();
    }
    spec.answer.by = if spec.answer.from.len() > 1 { AnswerRule::Vote } else { AnswerRule::Last };
    spec.next = Next::Stop;
    // More answers than a list may have: there is no such prefix team.
    let plan = validate_round(&render(&spec).text, language, plan.earlier_ids()).ok()?;
    Some(Edited { plan, ..edited })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_spec::validate;

    fn plan(agents: &[(&str, &str, &str)], by: &str) -> Plan {
        let entry = |(id, capacity, after): &(&str, &str, &str)| {
            format!(
                "  - id: {id}\n    base: solver\n    capacity: {capacity}\n    after: [{after}]\n    share: reply\n"
            )
        };
        let entries: String = agents.iter().map(entry).collect();
        let last = agents.last().unwrap().0;
        let text = format!("agents:\n{entries}answer: {{from: [{last}], by: {by}}}\nnext: review\n");
        let language = Language::default();
        let text = render(validate(&text, &language).unwrap().spec()).text;
        validate(&text, &language).unwrap()
    }

    #[test]
    fn every_level_is_an_alternative_and_knows_its_place() {
        let (language, settings) = (Language::default(), CreditSettings::default());
        for capacity in ["small", "medium", "large"] {
            let plan = plan(&[("a1", capacity, "")], "last");
            let levels: Vec<String> = alternatives(&plan, &language, &settings)
                .iter()
                .filter(|it| it.edit.family == Family::Capacity)
                .map(|it| {
                    let before = it.edited.before.unwrap().of(plan.source());
                    assert_eq!(before, capacity);
                    let written = it.edited.plan.spec().agents[0].capacity.clone();
                    assert_eq!(it.edited.after.of(it.edited.plan.source()), written);
                    written
                })
                .collect();
            let mut all = levels.clone();
            all.push(capacity.to_owned());
            all.sort();
            assert_eq!(all, ["large", "medium", "small"], "{capacity}: {levels:?}");
            let paper = CreditSettings { simplify_only: true, ..settings.clone() };
            let lower =
                alternatives(&plan, &language, &paper).into_iter().filter(|it| it.edit.family == Family::Capacity);
            assert_eq!(lower.count(), usize::from(capacity != "small"), "one level down");
        }
    }

    #[test]
    fn prefix_teams_do_not_depend_on_what_follows() {
        let (language, settings) = (Language::default(), CreditSettings::default());
        let teams = |plan: &Plan| -> Vec<(usize, String)> {
            let found = alternatives(plan, &language, &settings).into_iter();
            found.filter_map(|it| Some((it.prefix?, it.edited.plan.source().to_owned()))).collect()
        };
        let agents = [("a1", "small", ""), ("a2", "large", ""), ("a3", "small", "a1")];
        let expected = teams(&plan(&agents, "vote"));
        assert_eq!(expected.iter().map(|(agents, _)| *agents).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(teams(&plan(&agents, "judge")), expected);
        // Another third agent: the teams before it are the same.
        let other = teams(&plan(&[agents[0], agents[1], ("a3", "large", "a2")], "last"));
        assert_eq!((&other[..2], other[2] == expected[2]), (&expected[..2], false));
        assert!(expected.iter().all(|(_, text)| text.ends_with("next: stop\n")), "{expected:?}");
    }
}
