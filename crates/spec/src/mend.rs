//! Mending what a model misspelt: a name that is nearly one of the names that may stand there.

use crate::{Language, Plan, Rejection, validate_round};

/// Passes over a text. Each mends all misspelt names that are known by then; a second one finds those behind them.
const MOST_PASSES: usize = 3;

/// A plan for a text whose only faults are names for which validation knows what was meant ("did you mean …?"). The plan's
/// [`Plan::source`] is the mended text. `None`: there is another fault, or the text has none.
pub fn mend(rejection: &Rejection, language: &Language, earlier: &[String]) -> Option<Plan> {
    let mut rejection = rejection.clone();
    for _ in 0..MOST_PASSES {
        let text = corrected(&rejection)?;
        match validate_round(&text, language, earlier) {
            Ok(plan) => return Some(plan),
            Err(next) if next.source == rejection.source => return None,
            Err(next) => rejection = next,
        }
    }
    None
}

/// The text with every misspelt name replaced. `None`: one of its faults is another one.
fn corrected(rejection: &Rejection) -> Option<String> {
    let mut changes = Vec::new();
    for fault in rejection.errors() {
        let meant = fault.hint.as_deref()?.strip_prefix("did you mean `")?.strip_suffix("`?")?;
        changes.push((fault.span, meant));
    }
    changes.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = rejection.source.clone();
    for (span, meant) in changes {
        // A span that does not fit the text would be a defect; the text is then left to the model.
        text.get(span.start..span.end)?;
        text.replace_range(span.start..span.end, meant);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;

    #[track_caller]
    fn check(text: &str, mended: Option<&str>) {
        let language = Language::default();
        let rejection = validate(text, &language).expect_err("the text must have a fault");
        let plan = mend(&rejection, &language, &[]);
        assert_eq!(plan.as_ref().map(Plan::source), mended, "{text}");
    }

    #[test]
    fn misspelt_names_are_mended() {
        check(
            "agents: [{id: solve, base: solvr, capacity: small}]",
            Some("agents: [{id: solve, base: solver, capacity: small}]"),
        );
        check(
            "agents: [{id: solve1, base: Solver, capacity: Large}, {id: b, base: critic, capacity: large, after: [solve_1]}]",
            Some(
                "agents: [{id: solve1, base: solver, capacity: large}, {id: b, base: critic, capacity: large, after: [solve1]}]",
            ),
        );
        check(
            "agents: [{id: a, base: \"solvr\", capacity: small}]\nanswer: {from: [a], by: votes}",
            Some("agents: [{id: a, base: solver, capacity: small}]\nanswer: {from: [a], by: vote}"),
        );
    }

    #[test]
    fn other_faults_are_left_to_the_model() {
        check("agents: [{id: a, base: wizard, capacity: small}]", None);
        check("agents: [{id: a, base: solvr}]", None);
        check("agents: []", None);
        check("agents: [", None);
    }
}
