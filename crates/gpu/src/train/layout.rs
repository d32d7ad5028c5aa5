//! What is learned from in one pass, and how its rows lie on the device.

use crate::error::GpuError;
use crate::shape::ModelShape;

/// Rows of a block of attention.
const SPAN: usize = 64;
/// Rows are filled up to a multiple of this.
const FILLED: usize = 128;

/// Texts that begin alike: what they share is computed once.
#[derive(Debug, Clone, Default)]
pub struct TrainGroup {
    /// The tokens that all texts begin with.
    pub shared: Vec<u32>,
    pub texts: Vec<TrainText>,
}

/// A text after what it shares with others.
#[derive(Debug, Clone, Default)]
pub struct TrainText {
    /// The tokens that are read: at least one.
    pub tokens: Vec<u32>,
    /// What was chosen after some of them.
    pub choices: Vec<ChosenToken>,
}

/// A token that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChosenToken {
    /// The place of the token before it in [`TrainText::tokens`].
    pub after: u32,
    pub token: u32,
    /// The number of the mask of what could have been chosen, in [`TrainBatch::masks`].
    pub mask: Option<u32>,
}

/// The texts of one pass.
#[derive(Debug, Clone, Default)]
pub struct TrainBatch {
    /// The texts, by what they share.
    pub groups: Vec<TrainGroup>,
    /// A bit for each token that could have been chosen, in whole words for each mask.
    pub masks: Vec<u32>,
}

impl TrainBatch {
    /// Rows that are computed, without those that fill up.
    pub fn rows(&self) -> usize {
        let of_group =
            |group: &TrainGroup| group.shared.len() + group.texts.iter().map(|text| text.tokens.len()).sum::<usize>();
        self.groups.iter().map(of_group).sum()
    }
}

/// Rows of a block of attention, as the kernels have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    row: usize,
    own: (usize, usize),
    other: (usize, usize),
}

impl Stretch {
    fn words(self) -> [u32; 8] {
        let Stretch { row, own, other } = self;
        [row, own.0, own.1, other.0, other.1, 0, 0, 0].map(|it| it as u32)
    }

    /// How much a block of queries has to do.
    fn work(&self) -> usize {
        self.other.1 - self.other.0 + self.row - self.own.0
    }
}

/// A pass as the device gets it. Places are in words.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) words: Vec<u32>,
    /// Rows with those that fill up.
    pub(crate) rows: usize,
    pub(crate) choices: usize,
    /// Blocks of queries, and of keys.
    pub(crate) stretches: usize,
    /// Different tokens.
    pub(crate) tokens: usize,
    pub(crate) at_tokens: usize,
    pub(crate) at_positions: usize,
    pub(crate) at_queries: usize,
    pub(crate) at_keys: usize,
    pub(crate) at_chosen: usize,
    pub(crate) at_targets: usize,
    pub(crate) at_lists: usize,
    pub(crate) at_order: usize,
}

impl Layout {
    /// Checks a batch and lays it out.
    pub(crate) fn new(
        batch: &TrainBatch,
        shape: &ModelShape,
        most_rows: usize,
        most_positions: usize,
    ) -> Result<Layout, GpuError> {
        let refuse = |fact: String| Err(GpuError::Request(fact));
        let real = batch.rows();
        let rows = real.next_multiple_of(FILLED);
        if real == 0 || rows > most_rows {
            return refuse(format!("expected 1 to {most_rows} rows in a pass, found {real}"));
        }
        let words_of_mask = shape.vocabulary.div_ceil(32);
        let masks = batch.masks.len() / words_of_mask;
        let (mut tokens, mut positions) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let (mut queries, mut keys) = (Vec::new(), Vec::new());
        let (mut chosen, mut targets) = (Vec::new(), Vec::new());
        let mut stretch = |own: (usize, usize), before: (usize, usize), after: (usize, usize)| {
            for row in (own.0..own.1).step_by(SPAN) {
                queries.push(Stretch { row, own, other: before });
                keys.push(Stretch { row, own, other: after });
            }
        };
        for group in &batch.groups {
            let shared = group.shared.len();
            let start = tokens.len();
            tokens.extend_from_slice(&group.shared);
            positions.extend(0..shared as u32);
            let end_of_shared = tokens.len();
            for text in &group.texts {
                let first = tokens.len();
                if text.tokens.is_empty() || shared + text.tokens.len() > most_positions {
                    let found = shared + text.tokens.len();
                    return refuse(format!("expected texts of 1 to {most_positions} tokens, found {found}"));
                }
                tokens.extend_from_slice(&text.tokens);
                positions.extend((shared..shared + text.tokens.len()).map(|position| position as u32));
                stretch((first, tokens.len()), (start, end_of_shared), (0, 0));
                for choice in &text.choices {
                    let inside = (choice.after as usize) < text.tokens.len()
                        && (choice.token as usize) < shape.vocabulary
                        && choice.mask.is_none_or(|mask| (mask as usize) < masks);
                    if !inside {
                        return refuse(format!("{choice:?} is not one of a text of {} tokens", text.tokens.len()));
                    }
                    chosen.push((first + choice.after as usize) as u32);
                    targets.extend([choice.token, choice.mask.unwrap_or(u32::MAX)]);
                }
            }
            stretch((start, end_of_shared), (0, 0), (end_of_shared, tokens.len()));
        }
        if let Some(token) = tokens.iter().find(|token| **token as usize >= shape.vocabulary) {
            return refuse(format!("token {token} of a text: the model knows {}", shape.vocabulary));
        }
        stretch((real, rows), (0, 0), (0, 0));
        let (lists, order) = by_token(&tokens);
        tokens.resize(rows, 0);
        positions.resize(rows, 0);
        // What takes longest begins first.
        queries.sort_by_key(|it| std::cmp::Reverse(it.work()));
        keys.sort_by_key(|it| std::cmp::Reverse(it.own.1 - it.row + it.other.1 - it.other.0));
        let mut layout =
            Layout { rows, choices: chosen.len(), stretches: queries.len(), tokens: lists.len(), ..Layout::default() };
        let flat = |stretches: &[Stretch]| stretches.iter().flat_map(|it| it.words()).collect::<Vec<u32>>();
        layout.at_tokens = layout.push(&tokens);
        layout.at_positions = layout.push(&positions);
        layout.at_queries = layout.push(&flat(&queries));
        layout.at_keys = layout.push(&flat(&keys));
        layout.at_chosen = layout.push(&chosen);
        layout.at_targets = layout.push(&targets);
        layout.at_lists = layout.push(lists.as_flattened());
        layout.at_order = layout.push(&order);
        Ok(layout)
    }

    fn push(&mut self, words: &[u32]) -> usize {
        let start = self.words.len();
        self.words.extend_from_slice(words);
        // Some are read four at a time.
        self.words.resize(self.words.len().next_multiple_of(64), 0);
        start
    }
}

/// The rows of each token: its number, and from where to where they are in the order.
fn by_token(tokens: &[u32]) -> (Vec<[u32; 4]>, Vec<u32>) {
    let mut order: Vec<u32> = (0..tokens.len() as u32).collect();
    let token = |row: &u32| tokens.get(*row as usize).copied().unwrap_or(0);
    order.sort_by_key(token); // Stable: rows stay in order.
    let mut lists: Vec<[u32; 4]> = Vec::new();
    for (at, row) in (0u32..).zip(&order) {
        match lists.last_mut() {
            Some(list) if list[0] == token(row) => list[2] = at + 1,
            _ => lists.push([token(row), at, at + 1, 0]),
        }
    }
    (lists, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tokens: &[u32], choices: &[(u32, u32)]) -> TrainText {
        let choice = |(after, token): &(u32, u32)| ChosenToken { after: *after, token: *token, mask: None };
        TrainText { tokens: tokens.to_vec(), choices: choices.iter().map(choice).collect() }
    }

    fn batch() -> TrainBatch {
        let first = TrainGroup {
            shared: (0..70).collect(),
            texts: vec![text(&[70, 5], &[(0, 9), (1, 3)]), text(&[70, 6, 7], &[(2, 8)])],
        };
        let alone = TrainGroup { shared: Vec::new(), texts: vec![text(&[5; 10], &[(0, 5)])] };
        TrainBatch { groups: vec![first, alone], masks: Vec::new() }
    }

    #[test]
    fn shared_beginnings_are_computed_once_and_seen_by_all() {
        let layout = Layout::new(&batch(), &ModelShape::smol_135m(), 256, 100).unwrap();
        assert_eq!((layout.rows, layout.choices), (128, 4));
        let words = |at: usize, count: usize| layout.words[at..at + count].to_vec();
        assert_eq!(words(layout.at_positions, 76)[68..], [68, 69, 70, 71, 70, 71, 72, 0]);
        assert_eq!(words(layout.at_chosen, 4), [70, 71, 74, 75]);
        assert_eq!(words(layout.at_targets, 4), [9, u32::MAX, 3, u32::MAX]);
        let stretches =
            |at: usize| -> Vec<Vec<u32>> { words(at, 8 * 6).chunks(8).map(|it| it[..5].to_vec()).collect() };
        let (queries, keys) = (stretches(layout.at_queries), stretches(layout.at_keys));
        assert_eq!(layout.stretches, 6);
        for seen in [[70, 70, 72, 0, 70], [72, 72, 75, 0, 70], [64, 0, 70, 0, 0], [75, 75, 85, 75, 75]] {
            assert!(queries.contains(&seen.to_vec()), "{seen:?} in {queries:?}");
        }
        for seen in [[0, 0, 70, 70, 75], [64, 0, 70, 70, 75], [72, 72, 75, 0, 0], [85, 85, 128, 0, 0]] {
            assert!(keys.contains(&seen.to_vec()), "{seen:?} in {keys:?}");
        }
    }

    #[test]
    fn rows_are_found_by_their_token() {
        let (lists, order) = by_token(&[3, 1, 3, 2, 1]);
        assert_eq!(lists, [[1, 0, 2, 0], [2, 2, 3, 0], [3, 3, 5, 0]]);
        assert_eq!(order, [1, 4, 3, 0, 2]);
    }

    #[test]
    fn what_is_not_in_the_batch_or_the_model_is_refused() {
        let refused = |change: fn(&mut TrainBatch)| {
            let mut batch = batch();
            change(&mut batch);
            Layout::new(&batch, &ModelShape::smol_135m(), 128, 100).unwrap_err().to_string()
        };
        assert!(refused(|it| it.groups.clear()).contains("found 0"));
        assert!(refused(|it| it.groups[0].shared = vec![0; 99]).contains("101"));
        assert!(refused(|it| it.groups[1].texts[0].tokens = vec![1; 60]).contains("found 135"));
        assert!(refused(|it| it.groups[1].texts[0].tokens[3] = 49_152).contains("49152"));
        assert!(refused(|it| it.groups[0].texts[0].choices[0].after = 2).contains("2 tokens"));
        assert!(refused(|it| it.groups[0].texts[0].choices[0].mask = Some(0)).contains("mask"));
    }
}
