//! Assigns the tokens of a text to its fields.

use std::ops::Range;

/// For each token, given by where it ends in the text (in bytes), the field that holds most of it; of two that hold as much,
/// the earlier. `None` if no field holds any of it, or if more of it stands outside all fields than in any one.
///
/// The fields are leaves: no two of them overlap. For fields within others (an agent's entry and what is in it), ask twice.
///
/// A token that lies within a field belongs to it, and a field owns no token that it does not overlap. So a field whose
/// boundaries are token boundaries owns exactly its tokens. A field that is a small part of a large token owns none.
pub fn owners(ends: &[usize], fields: &[Range<usize>]) -> Vec<Option<usize>> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| owner(start..*end, fields)).collect()
}

fn owner(token: Range<usize>, fields: &[Range<usize>]) -> Option<usize> {
    let mut outside = token.len();
    let mut most = (None, 0);
    for (number, field) in fields.iter().enumerate() {
        let held = (token.start.max(field.start)..token.end.min(field.end)).len();
        outside = outside.saturating_sub(held);
        if held > most.1 {
            most = (Some(number), held);
        }
    }
    most.0.filter(|_| most.1 >= outside)
}
