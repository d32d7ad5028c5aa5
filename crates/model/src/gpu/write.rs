//! Samples texts on a GPU: tokens are drawn on the device.

use crate::PolicyError;
use crate::api::{Sample, SampleRequest, SampleSettings};
use crate::gpu::failed;
use crate::tokenizer::Tokenizer;
use crate::write::{Writing, length_of, write_all};
use lemon_gpu::{Batch, Model, PAGE, PositionRow, Sampling};

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
    let mut batch = Batch::default();
    write_all(tokenizer, requests, settings, length, places, &mut |writing| {
        step(model, &mut batch, writing, settings, (pages, most.0, words))
    })
}

/// More tokens of each text are read, and one more is drawn for each that has no more.
fn step(
    model: &mut Model,
    batch: &mut Batch,
    writing: &mut [Option<Writing<'_>>],
    settings: &SampleSettings,
    (pages, most_rows, words): (usize, usize, usize),
) -> Result<(), PolicyError> {
    batch.clear();
    let mut drawing = Vec::new();
    for (place, text) in writing.iter_mut().enumerate() {
        let Some(text) = text else { continue };
        let count = text.unread().len().min(most_rows - batch.rows.len());
        if count == 0 {
            continue;
        }
        let (table, read) = (batch.pages.len() as u32, text.read());
        let tokens = text.unread().iter().take(count);
        let row =
            |(at, token): (usize, &u32)| PositionRow { token: *token, position: (read + at) as u32, pages: table };
        batch.rows.extend(tokens.enumerate().map(row));
        batch.pages.extend((0..(read + count).div_ceil(PAGE)).map(|page| (place * pages + page) as u32));
        if count == text.unread().len() {
            let mask = text.mask().map(|mask| {
                let number = batch.masks.len() / words;
                batch.masks.extend(mask.words().iter().take(words));
                batch.masks.resize((number + 1) * words, 0);
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
    let pending = model.submit(batch).map_err(failed)?;
    let drawn = model.wait(pending).map_err(failed)?;
    for (place, drawn) in drawing.into_iter().zip(drawn) {
        let token = drawn.token.ok_or_else(|| PolicyError::Request("the model's logits are not numbers".to_owned()))?;
        if let Some(Some(text)) = writing.get_mut(place) {
            // Without noise there is no other choice.
            text.take(token, if settings.temperature == 0.0 { 0.0 } else { drawn.chosen })?;
        }
    }
    Ok(())
}
