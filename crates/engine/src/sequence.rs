//! A text that is being written.

use super::choose::{Choice, Drawn};
use super::queue::Job;
use super::{Finish, Reply, Request, ServeError, Usage};
use crate::Tokenizer;

/// A text that is being written, and where its keys and values lie.
pub(super) struct Text {
    job: Job,
    /// The prompt, then the reply.
    tokens: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    pub(super) read: usize,
    /// The blocks they lie in, in order.
    pub(super) blocks: Vec<u32>,
    /// The farthest it was ever read: after a pause it is read again.
    farthest: usize,
    reused: usize,
    logprobs: Vec<f32>,
    bytes: Vec<u8>,
    /// How many of these bytes were told.
    told: usize,
    finish: Option<Result<Finish, ServeError>>,
}

impl Text {
    pub(super) fn new(job: Job) -> Text {
        Text {
            tokens: job.request.prompt.clone(),
            job,
            read: 0,
            blocks: Vec::new(),
            farthest: 0,
            reused: 0,
            logprobs: Vec::new(),
            bytes: Vec::new(),
            told: 0,
            finish: None,
        }
    }

    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens that are to be read before the next one can be drawn.
    pub(super) fn unread(&self) -> &[u32] {
        &self.tokens[self.read..]
    }

    /// Whether it ended, or nobody waits for it.
    pub(super) fn is_over(&self) -> bool {
        self.finish.is_some() || self.job.promise.is_over()
    }

    /// Some tokens are in the cache now; computed for this text, or found there.
    pub(super) fn advance(&mut self, count: usize, found: bool) {
        self.read += count;
        let new = self.read.saturating_sub(self.farthest);
        self.farthest += new;
        // What this text computed itself before a pause is no saving.
        let of_prompt = self.farthest.min(self.prompt()) - (self.farthest - new).min(self.prompt());
        self.reused += if found { of_prompt } else { 0 };
    }

    fn prompt(&self) -> usize {
        self.job.request.prompt.len()
    }

    /// How its next token is chosen.
    pub(super) fn choice(&self) -> Choice {
        let Request { temperature, top_p, seed, .. } = self.job.request;
        Choice { temperature, top_p, seed, position: self.logprobs.len() }
    }

    /// Takes the next token.
    pub(super) fn push(&mut self, drawn: Option<Drawn>, tokenizer: &Tokenizer) {
        let Some(Drawn { token, logprob }) = drawn else {
            self.finish = Some(Err(ServeError::NotNumbers));
            return;
        };
        self.tokens.push(token);
        self.logprobs.push(logprob);
        let finish = if tokenizer.ends().contains(&token) {
            Some(Finish::Stop)
        } else if self.reaches_stop(tokenizer.bytes(token)) {
            Some(Finish::StopString)
        } else if self.logprobs.len() >= self.job.request.max_tokens {
            Some(Finish::Length)
        } else {
            None
        };
        self.finish = finish.map(Ok);
        self.tell();
    }

    /// Tells what is new and certain: no half of a character, and nothing that may turn out to begin a stop string.
    fn tell(&mut self) {
        let Some(tell) = &self.job.tell else { return };
        let ended = self.finish.is_some();
        let longest = self.job.request.stop.iter().map(String::len).max().unwrap_or(0);
        let certain = if ended { self.bytes.len() } else { self.bytes.len().saturating_sub(longest.saturating_sub(1)) };
        let Some(new) = self.bytes.get(self.told..certain) else { return };
        // What is no text becomes the replacement character, here as in the whole reply.
        let whole = match std::str::from_utf8(new) {
            Err(error) if !ended => error.valid_up_to() + error.error_len().unwrap_or(0),
            _ => new.len(),
        };
        let Some(new) = new.get(..whole).filter(|new| !new.is_empty()) else { return };
        tell(&String::from_utf8_lossy(new));
        self.told += whole;
    }

    /// Adds bytes and looks for a stop string that ends among them; the text then ends where the first one begins.
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

    /// Hands the reply over.
    pub(super) fn end(self) {
        let Some(finish) = self.finish else { return };
        let usage =
            Usage { prompt: self.job.request.prompt.len(), reused: self.reused, completion: self.logprobs.len() };
        let reply = finish.map(|finish| Reply {
            text: String::from_utf8_lossy(&self.bytes).into_owned(),
            tokens: self.tokens[usage.prompt..].to_vec(),
            logprobs: self.logprobs,
            finish,
            usage,
        });
        self.job.promise.keep(reply);
    }
}
