//! Samples texts for training: many at once, each with its own grammar, seed and place in the cache.

use crate::api::{Finish, Sample, SampleRequest, SampleSettings};
use crate::draw::{Drawn, draw};
use crate::grammar::{Mask, NextTokens, Walk};
use crate::model::Model;
use crate::rows::{Cache, Part, Rows};
use crate::{PolicyError, Tokenizer};
use candle_core::{DType, Tensor};
use lemon_num::Random;
use rayon::prelude::*;
use std::collections::VecDeque;

/// Texts that are written at a time.
const WIDTH: usize = 64;
/// On a GPU, where a step takes as long for many texts as for few: as many as the cache can hold.
const WIDEST: usize = 512;
const CACHE_BYTES: usize = 2 << 30;

/// Samples one text for each request and its known first tokens, as many at a time as there are places; a finished text frees its place for the next.
pub(crate) fn write(
    model: &Model,
    tokenizer: &Tokenizer,
    requests: &[(&SampleRequest, &[u32])],
    settings: &SampleSettings,
) -> Result<Vec<Sample>, PolicyError> {
    let length = length_of(requests, settings, model.config.positions);
    let config = &model.config;
    let width = if model.device.is_cpu() {
        WIDTH
    } else {
        let numbers = 2 * config.layers * config.kv_heads * config.head_dim * (length + 1);
        (CACHE_BYTES / (numbers * model.dtype.size_in_bytes()).max(1)).clamp(WIDTH, WIDEST)
    };
    let places = width.min(requests.len());
    let mut cache =
        Cache::new(config.layers, config.kv_heads, config.head_dim, places, length, model.dtype, &model.device)?;
    write_all(tokenizer, requests, settings, length, places, &mut |writing| step(model, writing, &mut cache, settings))
}

/// The tokens that the longest text can have, its prompt included.
pub(crate) fn length_of(requests: &[(&SampleRequest, &[u32])], settings: &SampleSettings, positions: usize) -> usize {
    let longest = requests.iter().map(|(request, _)| request.prompt.len()).max().unwrap_or(0) + settings.most_tokens;
    longest.min(positions)
}

/// Goes on with the texts that are being written.
type Step<'s, 'r> = dyn FnMut(&mut [Option<Writing<'r>>]) -> Result<(), PolicyError> + 's;

/// Samples texts with a step that goes on with those that are being written, one at each place.
pub(crate) fn write_all<'r>(
    tokenizer: &'r Tokenizer,
    requests: &[(&'r SampleRequest, &'r [u32])],
    settings: &SampleSettings,
    length: usize,
    places: usize,
    step: &mut Step<'_, 'r>,
) -> Result<Vec<Sample>, PolicyError> {
    let mut waiting: VecDeque<(usize, (&SampleRequest, &[u32]))> = requests.iter().copied().enumerate().collect();
    let mut writing: Vec<Option<Writing<'_>>> = (0..places).map(|_| None).collect();
    let mut written: Vec<Option<Sample>> = requests.iter().map(|_| None).collect();
    loop {
        for place in &mut writing {
            // Some texts end before anything has to be asked: then the place takes the next at once.
            while place.is_none() {
                let Some((number, (request, given))) = waiting.pop_front() else { break };
                let mut text = Writing::new(number, (request, given), tokenizer, length, settings.most_tokens)?;
                text.advance()?;
                if text.finish.is_some() {
                    written[number] = Some(text.end()); // A number of `requests`.
                } else {
                    *place = Some(text);
                }
            }
        }
        if writing.iter().all(Option::is_none) {
            break;
        }
        step(&mut writing)?;
        for place in &mut writing {
            if place.as_ref().is_some_and(|text| text.finish.is_some())
                && let Some(text) = place.take()
            {
                let number = text.number;
                written[number] = Some(text.end());
            }
        }
    }
    // Nothing is dropped: the loop ends when no request waits and no place is taken.
    Ok(written.into_iter().flatten().collect())
}

/// One more token for each text.
fn step(
    model: &Model,
    writing: &mut [Option<Writing<'_>>],
    cache: &mut Cache,
    settings: &SampleSettings,
) -> Result<(), PolicyError> {
    let parts: Vec<Part<'_>> = writing
        .iter()
        .enumerate()
        .filter_map(|(place, text)| Some((place, text.as_ref()?)))
        .map(|(place, text)| Part { tokens: &text.unread, before: text.read, place })
        .collect();
    let rows = Rows::of_parts(&parts, cache, &model.device);
    let last = rows.last_of_parts(&parts);
    let count = last.len();
    let hidden = model.ops.gather_rows(&model.hidden(&rows, Some(cache))?, &last)?;
    let logits = model.logits(&hidden)?.to_dtype(DType::F32)?;
    let values = logits.to_vec2::<f32>()?;

    let mut chosen = Vec::with_capacity(count);
    for (text, logits) in writing.iter_mut().flatten().zip(&values) {
        let drawn = draw(logits, text.mask.as_ref(), settings, &mut text.random);
        chosen.push(drawn.ok_or_else(|| PolicyError::Request("the model's logits are not numbers".to_owned()))?);
    }
    let logprobs = if chosen.iter().any(|drawn| drawn.logprob.is_none()) {
        let tokens: Vec<u32> = chosen.iter().map(|drawn| drawn.token).collect();
        let masks: Vec<Option<&Mask>> = writing.iter().flatten().map(|text| text.mask.as_ref()).collect();
        let targets = Tensor::from_vec(tokens, count, &model.device)?;
        let allowed = allowed(&masks, model.config.vocabulary, model)?;
        let logprobs =
            model.ops.gathered_logprob(&logits, &targets, allowed.as_ref(), f64::from(settings.temperature))?;
        logprobs.to_vec1::<f32>()?
    } else {
        Vec::new()
    };
    let logprob = |at: usize, drawn: &Drawn| drawn.logprob.or_else(|| logprobs.get(at).copied()).unwrap_or(f32::NAN);
    let drawn: Vec<(u32, f32)> =
        chosen.iter().enumerate().map(|(at, drawn)| (drawn.token, logprob(at, drawn))).collect();
    take_all(writing.iter_mut().flatten().zip(drawn).collect())
}

/// Goes on with tokens that were drawn, many texts at a time: what may come next takes longest to find.
pub(crate) fn take_all(drawn: Vec<(&mut Writing<'_>, (u32, f32))>) -> Result<(), PolicyError> {
    drawn.into_par_iter().try_for_each(|(text, (token, logprob))| text.take(token, logprob))
}

/// The masks of several rows, as the operations take them; `None` if nothing is masked.
pub(crate) fn allowed(
    masks: &[Option<&Mask>],
    vocabulary: usize,
    model: &Model,
) -> Result<Option<Tensor>, PolicyError> {
    if masks.iter().all(Option::is_none) {
        return Ok(None);
    }
    let width = vocabulary.div_ceil(32);
    let mut words = Vec::with_capacity(masks.len() * width);
    for mask in masks {
        let before = words.len();
        words.extend(mask.map(|mask| mask.words()).unwrap_or_default().iter().take(width));
        words.resize(before + width, if mask.is_some() { 0 } else { u32::MAX });
    }
    Ok(Some(Tensor::from_vec(words, (masks.len(), width), &model.device)?))
}

/// A text that is being written.
pub(crate) struct Writing<'r> {
    number: usize,
    /// The first tokens, where they are known.
    given: &'r [u32],
    tokenizer: &'r Tokenizer,
    walk: Option<Walk>,
    /// What may come next.
    mask: Option<Mask>,
    seed: u64,
    random: Random,
    /// Tokens that the model has read.
    read: usize,
    /// Tokens that it has not: the prompt at first, then what came since.
    unread: Vec<u32>,
    /// Tokens that may still be written.
    left: usize,
    bytes: Vec<u8>,
    tokens: Vec<u32>,
    ends: Vec<usize>,
    logprobs: Vec<f32>,
    forced: Vec<bool>,
    finish: Option<Finish>,
}

impl<'r> Writing<'r> {
    fn new(
        number: usize,
        (request, given): (&'r SampleRequest, &'r [u32]),
        tokenizer: &'r Tokenizer,
        length: usize,
        most: usize,
    ) -> Result<Self, PolicyError> {
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(PolicyError::Request("a prompt has to have at least one token".to_owned()));
        }
        if prompt >= length {
            let fact = format!("the prompt has {prompt} tokens, the model reads {length} in all: shorten the task");
            return Err(PolicyError::Request(fact));
        }
        Ok(Writing {
            number,
            given,
            tokenizer,
            walk: request.grammar.as_ref().map(|grammar| grammar.walk_of(number)),
            mask: None,
            seed: request.seed,
            random: Random::new(request.seed),
            read: 0,
            unread: request.prompt.clone(),
            left: most.min(length - prompt),
            bytes: Vec::new(),
            tokens: Vec::new(),
            ends: Vec::new(),
            logprobs: Vec::new(),
            forced: Vec::new(),
            finish: None,
        })
    }

    /// Tokens that were read, and those that have to be.
    pub(crate) fn read(&self) -> usize {
        self.read
    }

    pub(crate) fn unread(&self) -> &[u32] {
        &self.unread
    }

    /// Counts the first tokens that had to be read as read.
    pub(crate) fn forget_read(&mut self, count: usize) {
        self.read += count;
        self.unread.drain(..count);
    }

    /// What may come next; `None`: anything.
    pub(crate) fn mask(&self) -> Option<&Mask> {
        self.mask.as_ref()
    }

    /// Whether nothing more is written.
    pub(crate) fn is_over(&self) -> bool {
        self.finish.is_some()
    }

    /// The noise seed.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Tokens that were written.
    pub(crate) fn written(&self) -> usize {
        self.tokens.len()
    }

    /// Goes on with a token that was drawn after everything was read.
    pub(crate) fn take(&mut self, token: u32, logprob: f32) -> Result<(), PolicyError> {
        self.forget_read(self.unread.len());
        self.push(token, logprob, false);
        if let (Some(walk), None) = (&mut self.walk, self.finish) {
            walk.take(token)?;
        }
        self.advance()
    }

    /// Takes what the grammar forces, up to the next choice or the end.
    fn advance(&mut self) -> Result<(), PolicyError> {
        while self.finish.is_none() {
            let known = self.given.get(self.tokens.len()).copied();
            let Some(walk) = &mut self.walk else {
                let Some(token) = known else { return Ok(()) };
                self.push(token, 0.0, false);
                continue;
            };
            match walk.next()? {
                NextTokens::Choose(mask) => {
                    let Some(token) = known else {
                        self.mask = Some(mask);
                        return Ok(());
                    };
                    walk.take(token)?;
                    self.push(token, 0.0, false);
                }
                NextTokens::Forced(tokens) => {
                    for token in tokens {
                        if self.finish.is_none() {
                            self.push(token, 0.0, true);
                        }
                    }
                }
                NextTokens::End => self.finish = Some(Finish::Stop),
            }
        }
        Ok(())
    }

    fn push(&mut self, token: u32, logprob: f32, forced: bool) {
        if self.left == 0 {
            self.finish = Some(Finish::Length);
            return;
        }
        self.left -= 1;
        self.unread.push(token);
        self.tokens.push(token);
        self.logprobs.push(logprob);
        self.forced.push(forced);
        if self.tokenizer.ends().contains(&token) {
            self.finish = Some(Finish::Stop);
        } else {
            self.bytes.extend_from_slice(self.tokenizer.bytes(token));
            if self.left == 0 {
                self.finish = Some(Finish::Length);
            }
        }
        self.ends.push(self.bytes.len());
    }

    fn end(self) -> Sample {
        Sample {
            text: String::from_utf8_lossy(&self.bytes).into_owned(),
            tokens: self.tokens,
            ends: self.ends,
            logprobs: self.logprobs,
            forced: self.forced,
            finish: self.finish.unwrap_or(Finish::Length),
        }
    }
}
