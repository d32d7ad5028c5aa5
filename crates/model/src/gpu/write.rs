//! Samples texts on a GPU: tokens are drawn on the device.
//!
//! Where a grammar says what may come next, the CPU needs about as long as the device. So texts are written in two halves: while
//! the device computes a step of one, the CPU finds what may come next in the other.

use crate::PolicyError;
use crate::api::{Sample, SampleRequest, SampleSettings};
use crate::gpu::failed;
use crate::tokenizer::Tokenizer;
use crate::write::{Writing, length_of, take_all, write_all};
use lemon_gpu::{Batch, Model, PAGE, Pending, PositionRow, Sampling};

/// Texts with grammars from which two halves are worth reading the weights twice.
const WORTH_HALVES: usize = 128;

/// Samples one text for each request and its known first tokens. `most`: rows of a step, and texts at a time.
pub(crate) fn write(
    model: &mut Model,
    positions: usize,
    tokenizer: &Tokenizer,
    requests: &[(&SampleRequest, &[u32])],
    settings: &SampleSettings,
    most: (usize, usize),
) -> Result<Vec<Sample>, PolicyError> {
    let length = length_of(requests, settings, positions);
    let pages = length.div_ceil(PAGE).max(1);
    let places = (model.pages() / pages).min(most.1).min(requests.len());
    if places == 0 && !requests.is_empty() {
        let room = model.pages() * PAGE;
        return Err(PolicyError::Device(format!("a text of {length} tokens does not fit a cache of {room} tokens")));
    }
    let words = model.shape().vocabulary.div_ceil(32);
    let mut steps = Steps { model, settings, pages, rows: most.0, words, batch: Batch::default(), queued: None };
    let written = write_all(tokenizer, requests, settings, length, places, &mut |writing| steps.go_on(writing));
    // After an error a step may still be queued, whose slot the next call needs.
    if let Some((pending, _)) = steps.queued.take() {
        steps.model.wait(pending).map_err(failed)?;
    }
    written
}

/// A step that was queued, and the places that it draws for.
type Queued = Option<(Pending, Vec<usize>)>;

/// The steps of texts at their places.
struct Steps<'m> {
    model: &'m mut Model,
    settings: &'m SampleSettings,
    /// Pages of a text.
    pages: usize,
    /// Rows of a step at most.
    rows: usize,
    /// Words of a mask.
    words: usize,
    batch: Batch,
    /// The step of the second half that is still being computed.
    queued: Queued,
}

impl Steps<'_> {
    /// Goes on with all texts, or with the two halves in turn.
    fn go_on(&mut self, writing: &mut [Option<Writing<'_>>]) -> Result<(), PolicyError> {
        let masked = writing.iter().flatten().filter(|text| text.mask().is_some()).count();
        let halves = if masked < WORTH_HALVES { 1 } else { 2 };
        if halves == 1 {
            let queued = self.queued.take();
            self.take(queued, writing)?;
        }
        let first = self.submit(writing, 0, halves)?;
        if halves == 2 {
            let queued = self.queued.take();
            self.take(queued, writing)?;
            self.queued = self.submit(writing, 1, halves)?;
        }
        self.take(first, writing)
    }

    /// Queues a step of every `of`-th text from the first on: more tokens of each are read, and one more is drawn for each that
    /// has no more.
    fn submit(&mut self, writing: &mut [Option<Writing<'_>>], first: usize, of: usize) -> Result<Queued, PolicyError> {
        let (batch, settings) = (&mut self.batch, self.settings);
        batch.clear();
        let mut drawing = Vec::new();
        for (place, text) in writing.iter_mut().enumerate().skip(first).step_by(of) {
            let Some(text) = text.as_mut().filter(|text| !text.is_over()) else { continue };
            let count = text.unread().len().min(self.rows - batch.rows.len());
            if count == 0 {
                continue;
            }
            let (table, read) = (batch.pages.len() as u32, text.read());
            let tokens = text.unread().iter().take(count);
            let row =
                |(at, token): (usize, &u32)| PositionRow { token: *token, position: (read + at) as u32, pages: table };
            batch.rows.extend(tokens.enumerate().map(row));
            batch.pages.extend((0..(read + count).div_ceil(PAGE)).map(|page| (place * self.pages + page) as u32));
            if count == text.unread().len() {
                let mask = text.mask().map(|mask| {
                    let number = batch.masks.len() / self.words;
                    batch.masks.extend(mask.words().iter().take(self.words));
                    batch.masks.resize((number + 1) * self.words, 0);
                    number as u32
                });
                let (temperature, top_p) = (settings.temperature, settings.top_p);
                let sampling = Sampling { temperature, top_p, seed: text.seed(), index: text.written() as u64, mask };
                batch.draws.push((batch.rows.len() as u32 - 1, sampling));
                drawing.push(place);
            } else {
                text.forget_read(count);
            }
        }
        if batch.rows.is_empty() {
            return Ok(None);
        }
        Ok(Some((self.model.submit(batch).map_err(failed)?, drawing)))
    }

    /// Waits for a step and goes on with what was drawn.
    fn take(&mut self, queued: Queued, writing: &mut [Option<Writing<'_>>]) -> Result<(), PolicyError> {
        let Some((pending, drawing)) = queued else { return Ok(()) };
        let drawn = self.model.wait(pending).map_err(failed)?;
        let mut drawn = drawing.into_iter().zip(drawn).peekable();
        let mut taken = Vec::new();
        for (place, text) in writing.iter_mut().enumerate() {
            let Some((_, drawn)) = drawn.next_if(|(of, _)| *of == place) else { continue };
            let token =
                drawn.token.ok_or_else(|| PolicyError::Request("the model's logits are not numbers".to_owned()))?;
            if let Some(text) = text {
                // Without noise there is no other choice.
                taken.push((text, (token, if self.settings.temperature == 0.0 { 0.0 } else { drawn.chosen })));
            }
        }
        take_all(taken)
    }
}
