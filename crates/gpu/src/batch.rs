//! What a step computes, and how it is laid out for the device.

use crate::error::GpuError;
use crate::kernels::{PROMPT_QUERIES, SPLIT};

/// Positions of a page.
pub const PAGE: usize = 16;

/// A token with this bit stands for the token that was drawn as that number in the previous step. So a step can be queued
/// before the host knows the tokens of the one before.
pub const OF_DRAW: u32 = 1 << 31;

/// One position to be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionRow {
    /// The token, or [`OF_DRAW`] and a number.
    pub token: u32,
    pub position: u32,
    /// Where the pages of its sequence begin in [`Batch::pages`].
    pub pages: u32,
}

/// How a token is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest.
    pub temperature: f32,
    /// Only the likeliest tokens that together have this probability are drawn.
    pub top_p: f32,
    /// The seed of the noise.
    pub seed: u64,
    /// The index of the token in its text.
    pub index: u64,
    /// The number of its mask in [`Batch::masks`].
    pub mask: Option<u32>,
}

/// The rows of a step. Rows of one sequence follow each other.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The positions to be computed.
    pub rows: Vec<PositionRow>,
    /// The pages of all sequences, one sequence after another.
    pub pages: Vec<u32>,
    /// Rows after which a token is drawn, and how.
    pub draws: Vec<(u32, Sampling)>,
    /// A bit for each token that may be drawn, in whole words for each mask.
    pub masks: Vec<u32>,
}

impl Batch {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.pages.clear();
        self.draws.clear();
        self.masks.clear();
    }
}

/// How many of each thing a step has. With the sizes, all addresses are fixed, so that a graph can be run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sizes {
    pub(crate) rows: usize,
    /// Sequences with one row.
    pub(crate) singles: usize,
    /// Blocks of queries of sequences with more rows.
    pub(crate) tiles: usize,
    pub(crate) draws: usize,
    /// The most parts that the positions of a single are divided into.
    pub(crate) parts: usize,
}

/// Where each input begins, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) tokens: usize,
    pub(crate) positions: usize,
    pub(crate) tables: usize,
    pub(crate) singles: usize,
    pub(crate) parts_before: usize,
    pub(crate) draw_rows: usize,
    pub(crate) tiles: usize,
    pub(crate) draws: usize,
    pub(crate) pages: usize,
}

/// Words of a draw, as the kernel has it.
const DRAW_WORDS: usize = 8;
const NO_MASK: u32 = u32::MAX;

impl Sizes {
    pub(crate) fn places(&self) -> Places {
        let mut end = 0;
        let mut next = |words: usize| {
            let start = end;
            end += words.next_multiple_of(4);
            start
        };
        Places {
            tokens: next(self.rows),
            positions: next(self.rows),
            tables: next(self.rows),
            singles: next(self.singles),
            parts_before: next(self.singles),
            draw_rows: next(self.draws),
            tiles: next(4 * self.tiles),
            draws: next(DRAW_WORDS * self.draws),
            pages: next(0),
        }
    }
}

/// The inputs of a step as the device gets them.
#[derive(Default)]
pub(crate) struct Inputs {
    pub(crate) words: Vec<u32>,
    singles: Vec<(u32, u32)>,
    tiles: Vec<[u32; 4]>,
    /// Parts of all singles that have more than one.
    pub(crate) all_parts: usize,
}

impl Inputs {
    /// Lays out a batch. In steps in which every sequence advances by one token, `padded` rows are computed; the surplus ones
    /// write to the page `spare`.
    pub(crate) fn lay_out(
        &mut self,
        batch: &Batch,
        group: usize,
        spare: u32,
        padded: impl Fn(usize) -> usize,
    ) -> Sizes {
        self.singles.clear();
        self.tiles.clear();
        self.all_parts = 0;
        let (mut at, mut most_parts) = (0, 1);
        while let Some(first) = batch.rows.get(at) {
            let follows = |(number, row): &(u32, &PositionRow)| {
                row.pages == first.pages && row.position == first.position + number
            };
            let count = (0..).zip(&batch.rows[at..]).take_while(follows).count();
            if count == 1 {
                let parts = (first.position as usize + 1).div_ceil(SPLIT);
                most_parts = most_parts.max(parts);
                self.singles.push((at as u32, self.all_parts as u32));
                self.all_parts += if parts > 1 { parts } else { 0 };
            } else {
                let starts = (0..count * group).step_by(PROMPT_QUERIES);
                // The longest tiles first, so that none begins last.
                self.tiles.extend(starts.rev().map(|start| [at as u32, count as u32, start as u32, 0]));
            }
            at += count;
        }
        let (rows, draws) = (batch.rows.len(), batch.draws.len());
        let pure = self.tiles.is_empty() && rows == draws;
        let width = if pure { padded(rows) } else { rows };
        let surplus = width - rows;
        let sizes = Sizes {
            rows: width,
            singles: self.singles.len() + surplus,
            tiles: self.tiles.len(),
            draws: draws + surplus,
            parts: most_parts.next_power_of_two(),
        };
        let places = sizes.places();
        self.words.clear();
        self.words.resize(places.pages, 0);
        let words = &mut self.words;
        for (at, row) in batch.rows.iter().enumerate() {
            words[places.tokens + at] = row.token;
            words[places.positions + at] = row.position;
            words[places.tables + at] = row.pages;
        }
        for at in rows..width {
            words[places.tables + at] = batch.pages.len() as u32;
        }
        let spare_rows = (rows..width).map(|row| (row as u32, 0));
        for (at, (row, parts)) in self.singles.iter().copied().chain(spare_rows.clone()).enumerate() {
            words[places.singles + at] = row;
            words[places.parts_before + at] = parts;
        }
        for (at, tile) in self.tiles.iter().enumerate() {
            words[places.tiles + 4 * at..][..4].copy_from_slice(tile);
        }
        let greedy = Sampling { temperature: 0.0, top_p: 1.0, seed: 0, index: 0, mask: None };
        let spare_draws = spare_rows.map(|(row, _)| (row, greedy));
        for (at, (row, sampling)) in batch.draws.iter().copied().chain(spare_draws).enumerate() {
            words[places.draw_rows + at] = row;
            words[places.draws + DRAW_WORDS * at..][..DRAW_WORDS].copy_from_slice(&draw_words(row, &sampling));
        }
        words.extend_from_slice(&batch.pages);
        words.push(spare);
        sizes
    }
}

/// A draw as the kernel has it.
fn draw_words(row: u32, sampling: &Sampling) -> [u32; DRAW_WORDS] {
    let inverse = 1.0 / sampling.temperature;
    // A temperature whose inverse overflows counts as zero, as on the CPU.
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    let (seed, index) = (sampling.seed, sampling.index);
    let mask = sampling.mask.unwrap_or(NO_MASK);
    let [seed, seed_high] = [seed as u32, (seed >> 32) as u32];
    let [index, index_high] = [index as u32, (index >> 32) as u32];
    [row, inverse.to_bits(), sampling.top_p.to_bits(), mask, seed, seed_high, index, index_high]
}

/// Checks a batch against the limits of a model. Kernels check nothing: whatever is wrong here would be read or written
/// somewhere else in memory.
pub(crate) fn check(batch: &Batch, limits: &Limits) -> Result<(), GpuError> {
    let refuse = |fact: String| Err(GpuError::Request(fact));
    let (rows, draws) = (batch.rows.len(), batch.draws.len());
    if rows == 0 || rows > limits.rows || draws > limits.draws {
        return refuse(format!(
            "expected 1 to {} rows and at most {} draws, found {rows} and {draws}",
            limits.rows, limits.draws
        ));
    }
    for row in &batch.rows {
        let page = row.pages as usize + row.position as usize / PAGE;
        let known = row.token & OF_DRAW != 0 && ((row.token & !OF_DRAW) as usize) < limits.draws;
        if row.position as usize >= limits.positions || page >= batch.pages.len() {
            return refuse(format!("position {} of a row has no page", row.position));
        }
        if !known && row.token as usize >= limits.vocabulary {
            return refuse(format!("token {} of a row: the model knows {}", row.token, limits.vocabulary));
        }
    }
    if let Some(page) = batch.pages.iter().find(|page| **page as usize >= limits.pages) {
        return refuse(format!("page {page} does not exist: there are {}", limits.pages));
    }
    let words = limits.vocabulary.div_ceil(32);
    let masks = batch.masks.len() / words.max(1);
    if batch.masks.len() > limits.draws * words || !batch.masks.len().is_multiple_of(words) {
        return refuse(format!("expected masks of {words} words, found {} words", batch.masks.len()));
    }
    let wrong = batch.draws.iter().find(|(row, sampling)| {
        let temperature = sampling.temperature;
        *row as usize >= rows
            || sampling.mask.is_some_and(|mask| mask as usize >= masks)
            || !(temperature.is_finite() && temperature >= 0.0 && sampling.top_p >= 0.0)
    });
    match wrong {
        Some((row, sampling)) => refuse(format!("a draw after row {row} cannot be made: {sampling:?}")),
        None => Ok(()),
    }
}

/// What a model was made for.
pub(crate) struct Limits {
    pub(crate) rows: usize,
    pub(crate) draws: usize,
    pub(crate) pages: usize,
    pub(crate) positions: usize,
    pub(crate) vocabulary: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Sampling = Sampling { temperature: 0.5, top_p: 1.0, seed: 1 << 40 | 3, index: 7, mask: None };
    const LIMITS: Limits = Limits { rows: 64, draws: 4, pages: 9, positions: 100, vocabulary: 40 };

    fn run(first: u32, count: u32, pages: u32) -> impl Iterator<Item = PositionRow> {
        (first..first + count).map(move |position| PositionRow { token: position % 40, position, pages })
    }

    /// A prompt of 45 tokens and two sequences that are being written.
    fn mixed() -> Batch {
        let rows = run(20, 1, 0).chain(run(0, 45, 2)).chain(run(31, 1, 5)).collect();
        Batch { rows, pages: vec![4, 8, 1, 2, 3, 5, 6], draws: vec![(0, PLAIN), (46, PLAIN)], masks: Vec::new() }
    }

    #[test]
    fn prompts_become_tiles_and_the_rest_singles() {
        let mut inputs = Inputs::default();
        let batch = mixed();
        assert_eq!(check(&batch, &LIMITS), Ok(()));
        let sizes = inputs.lay_out(&batch, 3, 9, |rows| rows + 5);
        assert_eq!(sizes, Sizes { rows: 47, singles: 2, tiles: 2, draws: 2, parts: 1 });
        let places = sizes.places();
        assert_eq!(inputs.words[places.singles..][..2], [0, 46]);
        assert_eq!(inputs.words[places.tiles..][..8], [1, 45, 128, 0, 1, 45, 0, 0]);
        assert_eq!(inputs.words[places.draw_rows..][..2], [0, 46]);
        let draw = [46, 2.0f32.to_bits(), 1.0f32.to_bits(), NO_MASK, 3, 1 << 8, 7, 0];
        assert_eq!(inputs.words[places.draws + 8..][..8], draw);
        assert_eq!(inputs.words[places.pages..], [4, 8, 1, 2, 3, 5, 6, 9]);
    }

    #[test]
    fn pure_steps_are_padded_and_surplus_rows_write_to_the_spare_page() {
        let mut inputs = Inputs::default();
        let rows: Vec<PositionRow> = run(600, 1, 0).chain(run(3, 1, 38)).chain(run(1_100, 1, 39)).collect();
        let draws = (0..3).map(|row| (row, PLAIN)).collect();
        let batch = Batch { rows, pages: (0..108).collect(), draws, masks: Vec::new() };
        let sizes = inputs.lay_out(&batch, 6, 200, |_| 4);
        assert_eq!(sizes, Sizes { rows: 4, singles: 4, tiles: 0, draws: 4, parts: 4 });
        let places = sizes.places();
        assert_eq!(inputs.words[places.parts_before..][..4], [0, 2, 2, 0]);
        assert_eq!(inputs.all_parts, 5);
        assert_eq!(inputs.words[places.singles..][..4], [0, 1, 2, 3]);
        let spare = inputs.words[places.tables + 3] as usize;
        assert_eq!(inputs.words[places.pages + spare], 200);
        assert_eq!(inputs.words[places.positions + 3], 0);
    }

    #[test]
    fn what_would_reach_beyond_memory_is_refused() {
        let refused = |change: fn(&mut Batch)| {
            let mut batch = mixed();
            change(&mut batch);
            check(&batch, &LIMITS).unwrap_err().to_string()
        };
        assert!(refused(|it| it.rows.clear()).contains("0 and 2"));
        assert!(refused(|it| it.rows[3].token = 40).contains("token 40"));
        assert!(refused(|it| it.rows[3].token = OF_DRAW | 4).contains("token"));
        assert!(refused(|it| it.rows[3].position = 100).contains("position 100"));
        assert!(refused(|it| it.rows[46].pages = 6).contains("no page"));
        assert!(refused(|it| it.pages[2] = 9).contains("page 9"));
        assert!(refused(|it| it.draws[1].0 = 47).contains("row 47"));
        assert!(refused(|it| it.draws[1].1.mask = Some(0)).contains("mask"));
        assert!(refused(|it| it.draws[1].1.temperature = f32::NAN).contains("NaN"));
        assert!(refused(|it| it.masks = vec![0; 3]).contains("3 words"));
        let mut batch = mixed();
        batch.rows[3].token = OF_DRAW | 3;
        (batch.masks, batch.draws[1].1.mask) = (vec![0; 2], Some(0));
        assert_eq!(check(&batch, &LIMITS), Ok(()));
    }
}
