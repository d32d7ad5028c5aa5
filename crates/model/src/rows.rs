//! The positions of all texts of a batch, and the cache of keys and values.

use candle_core::{DType, Device, Result, Tensor};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// R positions to be computed at once.
pub(crate) struct Rows {
    /// Their tokens.
    pub(crate) tokens: Vec<u32>,
    /// Where each stands in its text.
    pub(crate) positions: Vec<u32>,
    /// Which rows of the keys each may see.
    pub(crate) visible: Arc<Vec<Range<usize>>>,
    /// Where each one's own key goes in a cache; empty without one.
    pub(crate) slots: Vec<u32>,
    /// The rows as windows of equal length, (windows, length), for devices that need it so. Each window sees its own
    /// stretch of the keys only.
    pub(crate) windows: (usize, usize),
    /// Keys in the stretch of a window.
    pub(crate) keys: usize,
    in_windows: OnceLock<Tensor>,
    of_texts: OnceLock<Tensor>,
}

/// A text, or the next part of one.
pub(crate) struct Part<'a> {
    pub(crate) tokens: &'a [u32],
    /// What was read of this text before, which a cache holds.
    pub(crate) before: usize,
    /// The text's place in the cache.
    pub(crate) place: usize,
}

impl Rows {
    /// Whole texts, one after another, and the row at which each begins.
    pub(crate) fn of_texts(texts: &[&[u32]]) -> (Rows, Vec<usize>) {
        let mut rows = Gathered::default();
        let mut starts = Vec::with_capacity(texts.len());
        for text in texts {
            starts.push(rows.tokens.len());
            rows.push_text(text);
        }
        let count = rows.tokens.len();
        (rows.finish((1, count), count), starts)
    }

    /// The same packed into windows as long as the longest, for attention by matrices; what is left of a window is filled.
    pub(crate) fn in_windows(texts: &[&[u32]]) -> (Rows, Vec<usize>) {
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let windows = packed(texts, longest);
        let mut rows = Gathered::default();
        let mut starts = vec![0; texts.len()];
        for (number, window) in windows.iter().enumerate() {
            for text in window {
                starts[*text] = rows.tokens.len(); // A number of `texts`.
                rows.push_text(texts[*text]);
            }
            // Padding rows see themselves alone; their results are not used.
            for row in rows.tokens.len()..(number + 1) * longest {
                rows.push(0, 0, row..row + 1, None);
            }
        }
        (rows.finish((windows.len(), longest), longest), starts)
    }

    /// The next parts of texts whose beginnings are in the cache. On devices that need windows, every place of the cache is
    /// one, whether its text goes on or not.
    pub(crate) fn of_parts(parts: &[Part<'_>], cache: &Cache, device: &Device) -> Rows {
        let mut rows = Gathered::default();
        if device.is_cpu() {
            for part in parts {
                rows.push_part(part, cache.length);
            }
            let count = rows.tokens.len();
            return rows.finish((1, count), cache.places * cache.length);
        }
        let longest = parts.iter().map(|part| part.tokens.len()).max().unwrap_or(0);
        for place in 0..cache.places {
            if let Some(part) = parts.iter().find(|part| part.place == place) {
                rows.push_part(part, cache.length);
            }
            // The last slot of a place is kept free for rows that only fill a window.
            let spare = (place + 1) * cache.length - 1;
            while rows.tokens.len() < (place + 1) * longest {
                rows.push(0, 0, spare..spare + 1, Some(spare));
            }
        }
        rows.finish((cache.places, longest), cache.length)
    }

    /// The row that predicts what follows each part.
    pub(crate) fn last_of_parts(&self, parts: &[Part<'_>]) -> Vec<u32> {
        let mut end = 0;
        let row = |part: &Part<'_>| {
            end += part.tokens.len();
            let row = if self.windows.0 == 1 { end } else { part.place * self.windows.1 + part.tokens.len() };
            row as u32 - 1 // A part has at least one token.
        };
        parts.iter().map(row).collect()
    }

    /// What each row may see, counted from the start of its window's keys: (windows, length, 2).
    pub(crate) fn visible_in_windows(&self, device: &Device) -> Result<&Tensor> {
        if let Some(made) = self.in_windows.get() {
            return Ok(made);
        }
        let (windows, length) = self.windows;
        let mut ranges = Vec::with_capacity(self.visible.len() * 2);
        for (row, visible) in self.visible.iter().enumerate() {
            let start = if windows == 1 { 0 } else { row / length.max(1) * self.keys };
            ranges.extend([visible.start - start, visible.end - start].map(|it| it as u32));
        }
        let made = Tensor::from_vec(ranges, (windows, length, 2), device)?;
        Ok(self.in_windows.get_or_init(|| made))
    }

    /// Where the text of each row of [`Rows::of_texts`] begins, and before which row it ends: (R, 2).
    pub(crate) fn bounds_of_texts(&self, device: &Device) -> Result<&Tensor> {
        if let Some(made) = self.of_texts.get() {
            return Ok(made);
        }
        let count = self.visible.len();
        let (mut bounds, mut end) = (vec![0u32; 2 * count], count);
        for (row, visible) in self.visible.iter().enumerate().rev() {
            (bounds[2 * row], bounds[2 * row + 1]) = (visible.start as u32, end as u32);
            if visible.start == row {
                end = row;
            }
        }
        let made = Tensor::from_vec(bounds, (count, 2), device)?;
        Ok(self.of_texts.get_or_init(|| made))
    }
}

/// Texts in windows of a length, by number: the longest first, each into the first window that has room.
fn packed(texts: &[&[u32]], length: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|text| std::cmp::Reverse(texts[*text].len())); // Stable: of equals the first.
    let mut windows: Vec<(usize, Vec<usize>)> = Vec::new();
    for text in order {
        let size = texts[text].len();
        match windows.iter_mut().find(|(used, _)| used + size <= length) {
            Some((used, window)) => {
                *used += size;
                window.push(text);
            }
            None => windows.push((size, vec![text])),
        }
    }
    windows.into_iter().map(|(_, window)| window).collect()
}

#[derive(Default)]
struct Gathered {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    visible: Vec<Range<usize>>,
    slots: Vec<u32>,
}

impl Gathered {
    fn push(&mut self, token: u32, position: usize, visible: Range<usize>, slot: Option<usize>) {
        self.tokens.push(token);
        // Texts are far shorter than u32::MAX tokens: their vectors would not fit the memory otherwise.
        self.positions.push(position as u32);
        self.visible.push(visible);
        self.slots.extend(slot.map(|slot| slot as u32));
    }

    /// The next part of a text that has a place of this length in a cache.
    fn push_part(&mut self, part: &Part<'_>, length: usize) {
        let start = part.place * length;
        for (at, token) in part.tokens.iter().enumerate() {
            let position = part.before + at;
            self.push(*token, position, start..start + position + 1, Some(start + position));
        }
    }

    /// A whole text; each position sees those before it.
    fn push_text(&mut self, text: &[u32]) {
        let start = self.tokens.len();
        for (position, token) in text.iter().enumerate() {
            self.push(*token, position, start..start + position + 1, None);
        }
    }

    fn finish(self, windows: (usize, usize), keys: usize) -> Rows {
        Rows {
            tokens: self.tokens,
            positions: self.positions,
            visible: Arc::new(self.visible),
            slots: self.slots,
            windows,
            keys,
            in_windows: OnceLock::new(),
            of_texts: OnceLock::new(),
        }
    }
}

/// Keys and values of texts that are being written: for each layer two tensors (KV, places · length, D).
pub(crate) struct Cache {
    layers: Vec<(Tensor, Tensor)>,
    /// Texts it can hold.
    places: usize,
    /// Positions a text may have.
    length: usize,
}

impl Cache {
    pub(crate) fn new(
        layers: usize,
        kv_heads: usize,
        head_dim: usize,
        places: usize,
        length: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Cache> {
        // One more than a text needs: rows that only fill a window have to be put somewhere.
        let length = length + 1;
        let empty = || Tensor::zeros((kv_heads, places * length, head_dim), dtype, device);
        let layers = (0..layers).map(|_| Ok((empty()?, empty()?))).collect::<Result<_>>()?;
        Ok(Cache { layers, places, length })
    }

    pub(crate) fn layer(&mut self, number: usize) -> Result<&mut (Tensor, Tensor)> {
        match self.layers.get_mut(number) {
            Some(layer) => Ok(layer),
            None => candle_core::bail!("the cache has no layer {number}"),
        }
    }
}
