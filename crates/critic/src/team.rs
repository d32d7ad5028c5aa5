//! Teams as counts of calls by level, and the teams that may be asked next.

use serde::{Deserialize, Serialize};

/// The levels that a critic tells apart, cheapest first: how a model is asked to reply.
pub const LEVELS: [&str; 3] = ["brief", "program", "reasoned"];

/// Calls of each level at most.
pub(crate) const MOST: [usize; 3] = [2, 3, 5];

/// How many calls of each level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct TeamCounts(pub [u8; 3]);

/// All recorded programs and reasoners that are left.
pub(crate) const ALL_LEFT: usize = 13;

/// The teams that may be asked in one round. That at [`ALL_LEFT`] stands for all programs and reasoners that are left.
pub(crate) const TEAMS: [TeamCounts; 20] = [
    TeamCounts([1, 0, 0]),
    TeamCounts([0, 1, 0]),
    TeamCounts([0, 0, 1]),
    TeamCounts([0, 1, 1]),
    TeamCounts([1, 0, 1]),
    TeamCounts([1, 1, 0]),
    TeamCounts([0, 0, 2]),
    TeamCounts([0, 1, 2]),
    TeamCounts([0, 2, 0]),
    TeamCounts([0, 0, 3]),
    TeamCounts([0, 0, 4]),
    TeamCounts([0, 2, 2]),
    TeamCounts([0, 2, 3]),
    TeamCounts([0, 3, 4]),
    TeamCounts([2, 0, 0]),
    TeamCounts([2, 0, 1]),
    TeamCounts([1, 0, 2]),
    TeamCounts([2, 0, 2]),
    TeamCounts([1, 1, 1]),
    TeamCounts([0, 0, 5]),
];

/// The position of the strongest level.
pub(crate) const STRONGEST: usize = 2;

/// One call of the strongest level: what the guard compares with.
pub(crate) const ONE_REASONER: usize = 2;

/// Teams with a second team that follows unless all answers agree: positions in [`TEAMS`]. What such a plan is worth counts
/// that a later round is asked only where it is needed. Their positions follow those of the teams.
pub(crate) const PLANS: [(usize, usize); 18] = [
    (3, 13),
    (3, 7),
    (3, 6),
    (3, 2),
    (6, 13),
    (6, 6),
    (4, 9),
    (4, 6),
    (2, 13),
    (2, 7),
    (2, 6),
    (7, 13),
    (4, 10),
    (15, 6),
    (15, 10),
    (16, 9),
    (18, 13),
    (18, 7),
];

/// The first team of a choice, and the one that follows it unless all answers agree. `None`: there is no such choice.
pub(crate) fn choice(position: usize) -> Option<(usize, Option<usize>)> {
    match position.checked_sub(TEAMS.len()) {
        None => Some((position, None)),
        Some(plan) => PLANS.get(plan).map(|(first, then)| (*first, Some(*then))),
    }
}

/// How many choices there are.
pub(crate) const CHOICES: usize = TEAMS.len() + PLANS.len();

impl TeamCounts {
    /// Nothing asked yet.
    pub(crate) const NONE: TeamCounts = TeamCounts([0; 3]);

    /// Every prefix within [`MOST`], the empty one first.
    pub(crate) fn all() -> impl Iterator<Item = TeamCounts> {
        let most = MOST.map(|most| u8::try_from(most).unwrap_or(u8::MAX));
        (0..=most[0]).flat_map(move |brief| {
            (0..=most[1])
                .flat_map(move |program| (0..=most[2]).map(move |reasoned| TeamCounts([brief, program, reasoned])))
        })
    }

    /// Whether this prefix can follow from one team, so that it is reached often.
    pub(crate) fn is_usual(self) -> bool {
        self == TeamCounts::NONE || TEAMS.contains(&self)
    }

    /// The position of this prefix in [`TeamCounts::all`].
    pub(crate) fn position(self) -> usize {
        let [brief, program, reasoned] = self.counts();
        (brief * (MOST[1] + 1) + program) * (MOST[2] + 1) + reasoned
    }

    /// The counts.
    pub(crate) fn counts(self) -> [usize; 3] {
        self.0.map(usize::from)
    }

    /// All calls.
    pub fn calls(self) -> usize {
        self.counts().iter().sum()
    }

    /// The prefix after one of [`TEAMS`] was asked on top of this one, where no level has more than `available` calls.
    /// `None`: it does not fit, or adds nothing.
    pub(crate) fn after(self, team: usize, available: [usize; 3]) -> Option<TeamCounts> {
        let add = TEAMS.get(team)?;
        let mut end = self;
        if team == ALL_LEFT && available[1].min(available[2]) == 0 {
            // Without programs it would be the same team as four reasoners.
            return None;
        }
        for level in 0..3 {
            let most = available[level].min(MOST[level]);
            let wanted = match (team == ALL_LEFT, add.0[level] > 0) {
                (true, true) => most.max(self.counts()[level]),
                _ => self.counts()[level] + usize::from(add.0[level]),
            };
            if wanted > most.max(self.counts()[level]) {
                return None;
            }
            end.0[level] = u8::try_from(wanted).ok()?;
        }
        (end != self).then_some(end)
    }

    /// The calls that `self` has beyond `before`.
    pub(crate) fn beyond(self, before: TeamCounts) -> TeamCounts {
        let mut more = self;
        more.0.iter_mut().zip(before.0).for_each(|(more, before)| *more = more.saturating_sub(before));
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn positions_follow_the_order() {
        let all: Vec<TeamCounts> = TeamCounts::all().collect();
        assert_eq!(all.len(), 3 * 4 * 6);
        assert!(all.iter().enumerate().all(|(at, counts)| counts.position() == at));
        assert_eq!(all.first(), Some(&TeamCounts::NONE));
    }

    #[test]
    fn all_that_is_left_is_what_the_record_has() {
        let some = TeamCounts([0, 1, 1]);
        assert_eq!(some.after(ALL_LEFT, [1, 2, 4]), Some(TeamCounts([0, 2, 4])));
        assert_eq!(some.after(ALL_LEFT, [1, 1, 1]), None);
        assert_eq!(some.after(ALL_LEFT, [2, 3, 9]), Some(TeamCounts([0, 3, 5])));
        assert_eq!(some.after(9, [1, 3, 4]), Some(TeamCounts([0, 1, 4])));
        assert_eq!(some.after(9, [1, 3, 3]), None);
    }

    proptest! {
        #[test]
        fn no_team_exceeds_what_there_is(start in 0usize..72, team in 0usize..20, available in [0usize..3, 0..4, 0..6]) {
            let before = TeamCounts::all().nth(start).unwrap();
            let fits = before.counts().iter().zip(available).all(|(count, most)| *count <= most);
            if let Some(end) = before.after(team, available).filter(|_| fits) {
                prop_assert!(end.calls() > before.calls());
                prop_assert!(end.counts().iter().zip(available).all(|(count, most)| *count <= most));
                prop_assert_eq!(end.beyond(before).calls(), end.calls() - before.calls());
            }
        }
    }
}
