use super::*;
use crate::compare::compare;
use crate::row::StudyRow;
use crate::samples::{learned, row, studies};
use proptest::prelude::*;

/// Whether a text is one well-formed element: tags closed in order, attributes quoted, nothing unescaped.
fn is_well_formed(svg: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    let mut elements = 0;
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start);
        let Some(end) = tag.find('>') else { return false };
        let inside = &tag[1..end];
        let name = inside.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        let is_text_safe = before
            .split('&')
            .skip(1)
            .all(|after| ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|entity| after.starts_with(entity)));
        if !is_text_safe || inside.contains('<') || inside.matches('"').count() % 2 == 1 || name.is_empty() {
            return false;
        }
        if inside.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else {
            elements += usize::from(open.is_empty());
            if !inside.ends_with('/') {
                open.push(name);
            }
        }
        rest = &tag[end + 1..];
    }
    open.is_empty() && elements == 1 && rest.trim().is_empty()
}

/// Every figure of these rows.
fn all(rows: &[StudyRow]) -> Vec<(String, String)> {
    let comparisons = compare(rows, &["plain-shared", "plain", "never"]);
    let every: Vec<&Comparison> = comparisons.iter().collect();
    let mut figures = vec![
        ("stops".to_owned(), stops(&every)),
        ("map".to_owned(), map(&grid_of_arms(&every, "plain"))),
        ("axes".to_owned(), map(&grid_of_axes(&every, "plain", "full", "noise", "team"))),
    ];
    for comparison in &comparisons {
        let arms: Vec<&str> = comparison.arms.iter().map(|arm| arm.arm.as_str()).collect();
        let at = format!("{} {}", comparison.study, comparison.regime);
        figures.push((format!("curves {at}"), curves(comparison, &arms)));
        figures.extend(["plain", "absent"].map(|arm| (format!("forest {arm} {at}"), forest(comparison, arm))));
        figures.extend(arms.iter().map(|arm| (format!("economy {arm} {at}"), economy(comparison, arm))));
    }
    figures
}

#[test]
fn figures_are_well_formed() {
    for (name, svg) in all(&studies()) {
        assert!(is_well_formed(&svg), "{name}: {svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
    }
    let broken = ["", "<a>", "<a></b>", "<a>&</a>", "<a b=\"></a>", "<a/><b/>", "<a></a>rest"];
    assert_eq!(broken.map(is_well_formed), [false; 7]);
}

#[test]
fn small_figures_are_as_they_were() {
    let arms = [("full", 1.2), ("plain", 1.1), ("no <agent>", 1.09)];
    let rows: Vec<StudyRow> =
        (0..8).flat_map(|seed| arms.map(|(arm, reward)| learned("table", "noise=0.1", arm, seed, reward))).collect();
    let comparison = &compare(&rows, &["plain"])[0];
    insta::assert_snapshot!("forest", forest(comparison, "plain"));
    insta::assert_snapshot!("map", map(&grid_of_arms(&[comparison], "plain")));
    insta::assert_snapshot!("stops", stops(&[comparison]));
    insta::assert_snapshot!("economy", economy(comparison, "full"));
    let short: Vec<StudyRow> = rows.into_iter().map(|row| StudyRow { curve: Vec::new(), ..row }).collect();
    insta::assert_snapshot!("curves", curves(&compare(&short, &[])[0], &["full", "plain", "none"]));
}

#[test]
fn nothing_is_said_to_be_nothing() {
    let check = |svg: String, said: &str| assert!(is_well_formed(&svg) && svg.contains(said), "{svg}");
    let lone = &compare(&[row("plain", 0, 1.0)], &["plain"])[0];
    check(stops(&[]), "No runs to show.");
    check(map(&grid_of_arms(&[], "plain")), "No runs to compare.");
    check(map(&grid_of_axes(&[lone], "plain", "full", "noise", "team")), "No runs to compare.");
    check(curves(lone, &[]), "no run of these arms has a curve");
    check(curves(lone, &["other"]), "no run of these arms has a curve");
    check(forest(lone, "plain"), "no other arm to compare");
    check(economy(lone, "plain"), "no counterfactual was run");
}

#[test]
fn grids_lie_along_their_axes() {
    let rows: Vec<StudyRow> = studies().into_iter().filter(|row| row.study == "map").collect();
    let comparisons = compare(&rows, &["plain"]);
    let regimes: Vec<&Comparison> = comparisons.iter().collect();
    let grid = grid_of_axes(&regimes, "plain", "full", "noise", "team");
    assert_eq!((grid.rows[2].as_str(), grid.columns.join(" ").as_str()), ("noise=0.5", "team=2 team=10"));
    let by_arm = grid_of_arms(&regimes, "plain");
    assert_eq!(
        (by_arm.columns.join(" ").as_str(), by_arm.rows[1].as_str()),
        ("full plain-shared", "noise=0.1 team=10")
    );
    assert_eq!(grid.cells[0][1], by_arm.cells[1][0]);
}

proptest! {
    #[test]
    fn whatever_stands_in_the_rows_figures_are_well_formed(
        name: String,
        regime: String,
        rewards in prop::collection::vec(prop::num::f64::ANY, 0..6),
    ) {
        let of = |arm: &str| {
            let row = |(seed, reward): (u64, &f64)| StudyRow { regime: regime.clone(), ..learned("table", "", arm, seed, *reward) };
            (0..).zip(&rewards).map(row).collect::<Vec<_>>()
        };
        for (figure, svg) in all(&[of(&name), of("plain")].concat()) {
            prop_assert!(is_well_formed(&svg), "{}: {}", figure, svg);
            prop_assert!(!svg.contains("\"NaN") && !svg.contains("inf "), "{}", figure);
        }
    }
}
