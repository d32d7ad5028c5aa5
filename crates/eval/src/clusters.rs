//! Questions that look alike count as one draw.

use crate::Row;
use lemon_rollout::Case;
use std::collections::{BTreeMap, HashMap};

/// Notes in each row which questions of its set its own looks like, and says how many clusters there are.
pub fn mark_clusters(rows: &mut [Row], cases: &[Case]) -> usize {
    let mut sets: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        sets.entry(&case.set).or_default().push(case);
    }
    let (mut clusters, mut count) = (HashMap::new(), 0);
    for (set, cases) in sets {
        let questions: Vec<&str> = cases.iter().map(|case| case.item.task.question.as_str()).collect();
        let numbers = lemon_problems::clusters(&questions);
        count += numbers.iter().max().map_or(0, |last| last + 1);
        clusters.extend(cases.iter().zip(numbers).map(|(case, number)| ((set, case.item.position), number)));
    }
    for row in rows {
        row.cluster = clusters.get(&(&*row.set, row.item)).copied();
    }
    count
}
