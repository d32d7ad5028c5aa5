//! Matrices with the same input, one under another: query, key and value.

use super::panels::{Input, LANES, Panels, WeightForm, hash};
use lemon_model::{PolicyError, TensorRows};
use std::ops::Range;

/// Matrices with the same input. Those that are stored alike are one matrix.
pub(crate) struct Stack {
    parts: Vec<Panels>,
}

impl Stack {
    /// Packs the rows of some matrices, one matrix under another.
    pub(crate) fn pack(mut rows: Vec<TensorRows<'_>>, form: WeightForm) -> Result<Stack, PolicyError> {
        let mut parts = Vec::new();
        while let Some(first) = rows.first() {
            let stored = first.stored().filter(|_| form == WeightForm::Stored);
            let alike = |it: &TensorRows<'_>| it.stored().filter(|_| form == WeightForm::Stored) == stored;
            let rest = rows.split_off(rows.iter().take_while(|it| alike(it)).count());
            parts.push(Panels::pack(&rows, form)?);
            rows = rest;
        }
        Ok(Stack { parts })
    }

    /// Its matrices.
    pub(crate) fn parts(&self) -> &[Panels] {
        &self.parts
    }

    /// All outputs.
    pub(crate) fn outs(&self) -> usize {
        self.parts.iter().map(|part| part.outs).sum()
    }

    /// The number of panels.
    pub(crate) fn count(&self) -> usize {
        self.parts.iter().map(Panels::count).sum()
    }

    /// A hash of all weights.
    pub(crate) fn fingerprint(&self) -> u64 {
        match self.parts.as_slice() {
            [part] => part.fingerprint(),
            parts => hash(parts.iter().map(Panels::fingerprint)),
        }
    }

    /// Multiplies rows with the outputs of some panels. `put` gets each row, outputs, and their products.
    pub(crate) fn multiply(
        &self,
        input: Input<'_>,
        panels: Range<usize>,
        mut put: impl FnMut(usize, Range<usize>, &[f32]),
    ) {
        let (mut first_panel, mut first_out) = (0, 0);
        for part in &self.parts {
            let end = first_panel + part.count();
            let here = panels.start.max(first_panel)..panels.end.min(end);
            if !here.is_empty() {
                part.multiply(input, here.start - first_panel..here.end - first_panel, |row, panel, products| {
                    let outs = panel * LANES..((panel + 1) * LANES).min(part.outs);
                    let products = &products[..outs.len()];
                    put(row, first_out + outs.start..first_out + outs.end, products);
                });
            }
            (first_panel, first_out) = (end, first_out + part.outs);
        }
    }
}
