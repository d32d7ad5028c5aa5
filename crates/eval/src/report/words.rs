//! How an evaluation was set up, in words. Numbers are written as `lemon-view` writes them.

pub use lemon_view::words::*;

use crate::SetUp;

/// What was compared: `7 methods on gsm8k/test and math/test`.
pub fn title(set_up: &SetUp) -> String {
    let sets = if set_up.sets.is_empty() { String::new() } else { format!(" on {}", list(&set_up.sets)) };
    format!("{}{sets}", plural(set_up.methods.len(), "method"))
}

/// How it was set up, in short parts.
pub fn set_up(set_up: &SetUp) -> Vec<String> {
    let seeds: Vec<String> = set_up.seeds.iter().take(5).map(u64::to_string).collect();
    let seeds = match set_up.seeds.len() {
        0 => None,
        1 => Some(format!("seed {}", seeds.concat())),
        2..=5 => Some(format!("seeds {}", list(&seeds))),
        many => Some(format!("{many} seeds")),
    };
    let capacity = set_up.capacity.as_deref().unwrap_or("mixed");
    let date = (set_up.started_at_ms > 0).then(|| date(set_up.started_at_ms));
    let parts = [
        Some(set_up.eval_id.clone()).filter(|id| !id.is_empty()),
        date,
        Some(match set_up.clusters {
            None => plural(set_up.items, "item"),
            Some(clusters) => format!("{} in {}", plural(set_up.items, "item"), plural(clusters, "cluster")),
        }),
        Some(format!("{} workers", set_up.workers)).filter(|_| !set_up.workers.is_empty()),
        Some(format!("{capacity} capacity")),
        seeds,
    ];
    parts.into_iter().flatten().collect()
}

/// The day of a Unix time in UTC: `2026-03-09`.
fn date(ms: u64) -> String {
    let minute = lemon_trace::text::date(ms);
    minute.split(' ').next().unwrap_or(&minute).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |ms, expected: &str| assert_eq!(date(ms), expected);
        check(0, "1970-01-01");
        check(951_782_400_000, "2000-02-29");
        check(951_868_800_000, "2000-03-01");
        check(1_767_225_599_999, "2025-12-31");
        check(1_767_225_600_000, "2026-01-01");
        // As far as it goes.
        check(u64::MAX, "584556019-04-03");
    }

    #[test]
    fn set_ups() {
        let check = |set_up_: SetUp, expected: &str| assert_eq!(set_up(&set_up_).join(" · "), expected);
        check(SetUp::default(), "0 items · mixed capacity");
        let clusters = SetUp { items: 7, clusters: Some(1), ..SetUp::default() };
        check(clusters, "7 items in 1 cluster · mixed capacity");
        let full = SetUp {
            eval_id: "e1".into(),
            started_at_ms: 1_767_225_600_000,
            items: 200,
            workers: "sim".into(),
            capacity: Some("small".into()),
            seeds: vec![0, 1],
            ..SetUp::default()
        };
        check(full.clone(), "e1 · 2026-01-01 · 200 items · sim workers · small capacity · seeds 0 and 1");
        let many = SetUp { seeds: (0..9).collect(), ..full };
        check(many, "e1 · 2026-01-01 · 200 items · sim workers · small capacity · 9 seeds");
        assert_eq!(list(&["a", "b", "c"].map(String::from)), "a, b and c");
    }
}
