//! A sequence that the scheduler is extending.

use crate::api::{Completion, CompletionRequest, CompletionUsage, EngineError, FinishReason};
use crate::queue::Job;
use crate::sampling::{SampledToken, SamplingParams};
use lemon_model::grammar::{Mask, NextTokens, Walk};
use lemon_model::{Constraint, Tokenizer};

/// A prompt and what has been written after it, and the blocks of its keys and values.
pub(crate) struct ActiveSequence {
    job: Job,
    /// The prompt, then the completion.
    tokens: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    pub(crate) read: usize,
    /// The blocks they lie in, in order.
    pub(crate) blocks: Vec<u32>,
    /// The largest value `read` ever had. After a preemption the sequence is read again.
    farthest: usize,
    reused: usize,
    logprobs: Vec<f32>,
    bytes: Vec<u8>,
    /// How many of these bytes were streamed.
    streamed: usize,
    finish: Option<Result<FinishReason, EngineError>>,
    /// Of all sequences: those with numbers that follow one another walk their grammars at the same time.
    number: usize,
    /// The grammar that holds, once the text of one was written.
    grammar: Option<Walk>,
    /// The tokens that the grammar offers next.
    mask: Option<Mask>,
}

impl ActiveSequence {
    pub(crate) fn new(job: Job, number: usize) -> ActiveSequence {
        ActiveSequence {
            tokens: job.request.prompt.clone(),
            job,
            read: 0,
            blocks: Vec::new(),
            farthest: 0,
            reused: 0,
            logprobs: Vec::new(),
            bytes: Vec::new(),
            streamed: 0,
            finish: None,
            number,
            grammar: None,
            mask: None,
        }
    }

    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens to read before the next one can be sampled.
    pub(crate) fn unread(&self) -> &[u32] {
        &self.tokens[self.read..]
    }

    /// Whether it ended or was cancelled.
    pub(crate) fn is_over(&self) -> bool {
        self.finish.is_some() || self.job.sender.is_over()
    }

    /// Records that `count` more tokens are in the cache: computed for this sequence, or found there.
    pub(crate) fn advance(&mut self, count: usize, found: bool) {
        self.read += count;
        let new = self.read.saturating_sub(self.farthest);
        self.farthest += new;
        // Tokens that this sequence computed itself before a preemption do not count as reused.
        let of_prompt = self.farthest.min(self.prompt_tokens()) - (self.farthest - new).min(self.prompt_tokens());
        self.reused += if found { of_prompt } else { 0 };
    }

    fn prompt_tokens(&self) -> usize {
        self.job.request.prompt.len()
    }

    /// How its next token is sampled; `mask` is the number of its mask in the batch.
    pub(crate) fn sampling(&self, mask: Option<u32>) -> SamplingParams {
        let CompletionRequest { temperature, top_p, seed, .. } = self.job.request;
        SamplingParams { temperature, top_p, seed, position: self.logprobs.len(), mask }
    }

    /// The tokens that may come next, where a grammar says so.
    pub(crate) fn mask(&self) -> Option<&Mask> {
        self.mask.as_ref()
    }

    /// Whether grammars may hold for what it writes.
    pub(crate) fn is_constrained(&self) -> bool {
        !self.job.request.constraints.is_empty()
    }

    /// Appends the next token; `None` (logits that are no numbers) ends the sequence with an error.
    pub(crate) fn push(&mut self, sampled: Option<SampledToken>, tokenizer: &Tokenizer) {
        let Some(SampledToken { token, logprob }) = sampled else {
            self.finish = Some(Err(EngineError::NotNumbers));
            return;
        };
        let before = self.bytes.len();
        self.append(token, logprob, tokenizer);
        if self.finish.is_none() && self.is_constrained() {
            self.constrain(token, before, tokenizer);
        }
    }

    fn append(&mut self, token: u32, logprob: f32, tokenizer: &Tokenizer) {
        self.tokens.push(token);
        self.logprobs.push(logprob);
        let finish = if tokenizer.ends().contains(&token) {
            Some(FinishReason::Stop)
        } else if self.reaches_stop(tokenizer.bytes(token)) {
            Some(FinishReason::StopString)
        } else if self.logprobs.len() >= self.job.request.max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        };
        self.finish = finish.map(Ok);
    }

    /// Follows the grammar that holds, or one whose text the token completes; `before` is where the token's bytes begin.
    fn constrain(&mut self, token: u32, before: usize, tokenizer: &Tokenizer) {
        self.grammar = match (self.grammar.take(), self.mask.take()) {
            // A token of the mask is always taken.
            (Some(mut walk), Some(_)) => walk.take(token).ok().map(|()| walk),
            (Some(walk), None) => Some(walk),
            (None, _) => self.begun(before),
        };
        // What the grammar leaves no choice about is written at once, and read with the next token.
        while let (Some(walk), None) = (&mut self.grammar, &self.finish) {
            match walk.next() {
                Ok(NextTokens::Forced(forced)) => {
                    for token in forced {
                        if tokenizer.ends().contains(&token) {
                            self.finish = Some(Ok(FinishReason::Stop));
                        }
                        if self.finish.is_some() {
                            break;
                        }
                        self.append(token, 0.0, tokenizer);
                    }
                }
                Ok(NextTokens::Choose(mask)) => {
                    self.mask = Some(mask);
                    return;
                }
                Ok(NextTokens::End) => self.finish = Some(Ok(FinishReason::Stop)),
                // Too large to be followed. The reply goes on without it, and the agent that reads it checks it.
                Err(_) => self.grammar = None,
            }
        }
    }

    /// The grammar whose text ends among the bytes from `before` on, after what follows that text.
    fn begun(&self, before: usize) -> Option<Walk> {
        self.job.request.constraints.iter().find_map(|Constraint { after, grammar }| {
            let start = (before + 1).saturating_sub(after.len());
            let written = self.bytes.get(start..)?;
            let found = written.windows(after.len().max(1)).rposition(|window| window == after.as_bytes())?;
            grammar.walk_after(self.number, written.get(found + after.len()..)?)
        })
    }

    /// Ends it with an error.
    pub(crate) fn fail(&mut self, error: EngineError) {
        self.finish = Some(Err(error));
    }

    /// Streams what is new and final: no half of a character, and nothing that may turn out to begin a stop string.
    pub(crate) fn stream(&mut self) {
        let Some(on_text) = &self.job.on_text else { return };
        let ended = self.finish.is_some();
        let longest = self.job.request.stop.iter().map(String::len).max().unwrap_or(0);
        let certain = if ended { self.bytes.len() } else { self.bytes.len().saturating_sub(longest.saturating_sub(1)) };
        let Some(new) = self.bytes.get(self.streamed..certain) else { return };
        // Invalid UTF-8 becomes the replacement character, here as in the whole completion.
        let whole = match std::str::from_utf8(new) {
            Err(error) if !ended => error.valid_up_to() + error.error_len().unwrap_or(0),
            _ => new.len(),
        };
        let Some(new) = new.get(..whole).filter(|new| !new.is_empty()) else { return };
        on_text(&String::from_utf8_lossy(new));
        self.streamed += whole;
    }

    /// Appends bytes and searches for a stop string that ends among them. The text is cut where the first one begins.
    fn reaches_stop(&mut self, bytes: &[u8]) -> bool {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let first = |stop: &String| {
            let stop = stop.as_bytes();
            let start = (before + 1).saturating_sub(stop.len());
            let found = self.bytes.get(start..)?.windows(stop.len().max(1)).position(|window| window == stop)?;
            Some(start + found)
        };
        match self.job.request.stop.iter().filter_map(first).min() {
            Some(end) => {
                self.bytes.truncate(end);
                true
            }
            None => false,
        }
    }

    /// Sends the completion to the caller.
    pub(crate) fn finish(self) {
        let Some(finish) = self.finish else { return };
        let usage = CompletionUsage {
            prompt: self.job.request.prompt.len(),
            reused: self.reused,
            completion: self.logprobs.len(),
        };
        let result = finish.map(|finish| Completion {
            text: String::from_utf8_lossy(&self.bytes).into_owned(),
            tokens: self.tokens[usage.prompt..].to_vec(),
            logprobs: self.logprobs,
            finish,
            usage,
        });
        self.job.sender.send(result);
    }
}
