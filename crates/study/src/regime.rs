//! The names of regimes and arms, and the order in which readers expect them.

use std::cmp::Ordering;

/// Words that have an order of their own.
const DIFFICULTIES: [&str; 3] = ["easy", "middle", "hard"];

/// Arms that come first: the method, what it is compared with, and other forms of credit; then rules of stopping. All others
/// follow by name.
const ARMS: [&str; 15] = [
    "full",
    "plain-shared",
    "plain",
    "global",
    "paper",
    "paper-shared",
    "tree",
    "one-agent",
    "fixed-team",
    "preference",
    "purchased",
    "never",
    "random",
    "always",
    "trained",
];

/// The `name=value` pairs of a regime, whatever stands between them.
pub fn axes(regime: &str) -> Vec<(&str, &str)> {
    let parts = regime.split(|char: char| char.is_whitespace() || matches!(char, ',' | ';'));
    parts.filter_map(|part| part.split_once('=')).collect()
}

/// Axis by axis; values as numbers where they are, so that 10 comes after 9.
pub fn order(left: &str, right: &str) -> Ordering {
    let (left_axes, right_axes) = (axes(left), axes(right));
    let different = left_axes.iter().zip(&right_axes).map(|((name, value), (other_name, other_value))| {
        name.cmp(other_name).then_with(|| value_order(value, other_value))
    });
    let by_axes = different.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
    by_axes.then_with(|| left_axes.len().cmp(&right_axes.len())).then_with(|| left.cmp(right))
}

/// The order of two values of one axis.
pub fn value_order(left: &str, right: &str) -> Ordering {
    let difficulty = |value: &str| DIFFICULTIES.iter().position(|known| *known == value);
    match (left.parse::<f64>(), right.parse::<f64>(), difficulty(left), difficulty(right)) {
        (Ok(left), Ok(right), ..) => left.total_cmp(&right),
        // Numbers before words: otherwise the order of three values could go round in a circle.
        (Ok(_), Err(_), ..) => Ordering::Less,
        (Err(_), Ok(_), ..) => Ordering::Greater,
        (_, _, Some(left), Some(right)) => left.cmp(&right),
        (_, _, Some(_), None) => Ordering::Less,
        (_, _, None, Some(_)) => Ordering::Greater,
        _ => left.cmp(right),
    }
}

/// The order of two arms.
pub fn arm_order(left: &str, right: &str) -> Ordering {
    let rank = |arm: &str| ARMS.iter().position(|known| *known == arm).unwrap_or(ARMS.len());
    rank(left).cmp(&rank(right)).then_with(|| left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn regimes_are_read() {
        let check = |regime, expected: &[(&str, &str)]| assert_eq!(axes(regime), expected);
        check("", &[]);
        check("anything", &[]);
        check("noise=0.2", &[("noise", "0.2")]);
        check("noise=0.2, team=4", &[("noise", "0.2"), ("team", "4")]);
        check("noise=0.2 team=a=b", &[("noise", "0.2"), ("team", "a=b")]);
    }

    #[test]
    fn they_come_in_the_order_readers_expect() {
        let check = |mut regimes: Vec<&str>| {
            let expected = regimes.clone();
            regimes.reverse();
            regimes.sort_by(|left, right| order(left, right));
            assert_eq!(regimes, expected);
        };
        check(vec!["team=2", "team=9", "team=10"]);
        check(vec!["noise=0.05", "noise=0.1", "noise=none"]);
        check(vec!["", "difficulty=easy", "difficulty=middle", "difficulty=hard", "difficulty=other"]);
        check(vec!["noise=1 team=2", "noise=1 team=10", "noise=2 team=2"]);
        let mut arms = vec!["no-agent", "plain", "corrected", "global", "full", "plain-shared"];
        arms.sort_by(|left, right| arm_order(left, right));
        assert_eq!(arms, ["full", "plain-shared", "plain", "global", "corrected", "no-agent"]);
    }

    proptest! {
        #[test]
        fn the_order_is_one(names in prop::collection::vec("(([ab]=)?(easy|hard|[0-9]{1,2}|NaN|x)[, ]?){0,2}", 3)) {
            let [a, b, c] = [&names[0], &names[1], &names[2]];
            prop_assert_eq!(order(a, b), order(b, a).reverse());
            if order(a, b).is_le() && order(b, c).is_le() {
                prop_assert!(order(a, c).is_le());
            }
        }
    }
}
