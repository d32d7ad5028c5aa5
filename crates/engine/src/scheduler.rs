//! The scheduler: it owns the model's thread and decides what each step computes.

use crate::api::{EngineError, EngineSettings};
use crate::backend::{Backend, Sampled};
use crate::engine::Gauges;
use crate::kernels::paged_attention::BLOCK;
use crate::network::{Batch, Row};
use crate::prefix_cache::{PrefixCache, ROOT, Tokens};
use crate::queue::{Next, RequestQueue};
use crate::sampling::SampledToken;
use crate::sequence::ActiveSequence;
use lemon_model::Tokenizer;
use rayon::prelude::*;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sequences that are being extended, and the blocks of the cache.
pub(crate) struct Scheduler {
    backend: Backend,
    tokenizer: Tokenizer,
    queue: Arc<RequestQueue>,
    gauges: Arc<Gauges>,
    settings: EngineSettings,
    blocks: PrefixCache,
    /// In order of arrival.
    running: Vec<ActiveSequence>,
    /// Sequences that were preempted for lack of blocks. They resume before new requests start.
    preempted: VecDeque<ActiveSequence>,
    /// Keys of blocks that are being computed in this step.
    claimed: HashSet<(u32, Tokens)>,
    /// For each running sequence, the tokens it reads in this step and the number of its batch.
    planned: Vec<(usize, usize)>,
    sampled: Sampled,
    /// Sequences that were ever started.
    started: usize,
}

impl Scheduler {
    pub(crate) fn new(
        backend: Backend,
        tokenizer: Tokenizer,
        queue: Arc<RequestQueue>,
        gauges: Arc<Gauges>,
        settings: EngineSettings,
        blocks: usize,
    ) -> Scheduler {
        Scheduler {
            backend,
            tokenizer,
            queue,
            gauges,
            settings,
            blocks: PrefixCache::new(blocks),
            running: Vec::new(),
            preempted: VecDeque::new(),
            claimed: HashSet::new(),
            planned: Vec::new(),
            sampled: Sampled::new(),
            started: 0,
        }
    }

    /// Runs until the queue is closed.
    pub(crate) fn run(mut self) {
        loop {
            self.retire();
            if self.queue.is_closed() || !self.admit() {
                return;
            }
            if self.plan()
                && let Err(error) = self.step()
            {
                return self.fail(&error);
            }
            self.publish();
        }
    }

    /// Ends sequences that are complete or cancelled.
    fn retire(&mut self) {
        self.preempted.retain(|sequence| !sequence.is_over());
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].is_over() {
                let mut sequence = self.running.remove(at);
                release(&mut self.blocks, &mut sequence);
                sequence.finish();
            } else {
                at += 1;
            }
        }
    }

    /// Starts sequences while there are places; blocks for a request if nothing is running. False: the queue is closed.
    fn admit(&mut self) -> bool {
        while self.running.len() < self.settings.width {
            let sequence = match self.preempted.pop_front() {
                Some(sequence) => sequence,
                None => {
                    if self.running.is_empty() {
                        self.publish();
                    }
                    match self.queue.pop(self.running.is_empty()) {
                        Next::Job(job) => {
                            self.started += 1;
                            ActiveSequence::new(*job, self.started)
                        }
                        Next::Empty => return true,
                        Next::Closed => return false,
                    }
                }
            };
            // A new sequence needs blocks for all it has to read, and every running one may need a block soon.
            let needed = sequence.tokens().len() / BLOCK + 1 + self.running.len();
            if !self.running.is_empty() && needed > self.blocks.available() {
                self.preempted.push_front(sequence);
                return true;
            }
            self.running.push(sequence);
        }
        true
    }

    /// Plans the next step: one row for each sequence that is being written, and rows of prompts up to a chunk. False: there
    /// is nothing to compute.
    fn plan(&mut self) -> bool {
        self.claimed.clear();
        self.planned.clear();
        let mut left = self.settings.chunk;
        // Preemption takes sequences from the end, so none of them is planned already.
        while let at = self.planned.len()
            && at < self.running.len()
        {
            self.reuse_prefix(at);
            let count = self.rows_for(at, left);
            let count = if count > 0 && !self.allocate(at, count) { 0 } else { count };
            let Some(sequence) = self.running.get(at) else { break };
            if sequence.unread().len() > 1 {
                left -= count;
            }
            self.planned.push((count, 0));
        }
        self.fill_batches()
    }

    /// Distributes the planned rows over as many batches as are worth it, whole sequences each. False: there are no rows.
    fn fill_batches(&mut self) -> bool {
        let rows: usize = self.planned.iter().map(|(count, _)| count).sum();
        let (running, planned) = (&self.running, &mut self.planned);
        self.backend.fill(rows, |batches, used| {
            let (mut number, mut done) = (0, 0);
            for (sequence, (count, batch)) in running.iter().zip(planned) {
                // A batch begins where its share of all rows does.
                number = (done * used).checked_div(rows).unwrap_or(0).max(number);
                *batch = number;
                done += *count;
                if let (1.., Some(batch)) = (*count, batches.get_mut(number)) {
                    add_rows(batch, sequence, *count);
                }
            }
        });
        rows > 0
    }

    /// Takes over blocks of the sequence's prefix that are in the cache. The last token is always computed, because the next
    /// one is sampled from its logits.
    fn reuse_prefix(&mut self, at: usize) {
        let sequence = &mut self.running[at];
        while let Some((parent, tokens)) = next_block(sequence).filter(|_| self.settings.share) {
            let Some(block) = self.blocks.find(parent, &tokens) else { return };
            sequence.blocks.push(block);
            sequence.advance(BLOCK, true);
        }
    }

    /// How many tokens of a sequence are read in this step if `left` prompt rows are left.
    fn rows_for(&mut self, at: usize, left: usize) -> usize {
        let sequence = &self.running[at];
        let unread = sequence.unread().len();
        if unread == 1 {
            return 1;
        }
        // Another sequence computes the same block in this step; the next step finds it in the cache.
        if let Some(key) = next_block(sequence).filter(|_| self.settings.share)
            && left > 0
            && !self.claimed.insert(key)
        {
            return 0;
        }
        if unread <= left {
            return unread;
        }
        // Up to the end of a block, so that the cache can share it.
        let end = (sequence.read + left) / BLOCK * BLOCK;
        end.saturating_sub(sequence.read)
    }

    /// Gives a sequence blocks for `count` more tokens, if need be by preempting later sequences. False: the sequence itself
    /// was preempted.
    fn allocate(&mut self, at: usize, count: usize) -> bool {
        loop {
            let sequence = &mut self.running[at];
            if sequence.blocks.len() * BLOCK >= sequence.read + count {
                return true;
            }
            if let Some(block) = self.blocks.take() {
                sequence.blocks.push(block);
                continue;
            }
            // `pop` returns one: `at` is running. The first sequence is never preempted: the cache holds the longest.
            let Some(mut last) = self.running.pop() else { return false };
            release(&mut self.blocks, &mut last);
            self.preempted.push_front(last);
            if at == self.running.len() {
                return false;
            }
        }
    }

    /// Computes the planned step and appends a token to each sequence that was read completely.
    fn step(&mut self) -> Result<(), EngineError> {
        let rows = self.planned.iter().map(|(count, _)| count).sum();
        self.backend.run(rows, &self.settings, &mut self.sampled)?;
        let mut sampled: Vec<_> = self.sampled.iter().map(|tokens| (0, tokens)).collect();
        let mut drawn = Vec::with_capacity(self.running.len());
        for (sequence, (count, batch)) in self.running.iter_mut().zip(&self.planned) {
            if *count == 0 {
                continue;
            }
            let complete = sequence.unread().len() == *count;
            let first = sequence.read / BLOCK;
            sequence.advance(*count, false);
            if self.settings.share {
                cache_full_blocks(&mut self.blocks, sequence, first);
            }
            if let (true, Some((next, tokens))) = (complete, sampled.get_mut(*batch)) {
                drawn.push((sequence, tokens.get(*next).copied().flatten()));
                *next += 1;
            }
        }
        // What a grammar allows next takes longest to find, so threads share the sequences that have one.
        let tokenizer = &self.tokenizer;
        let push =
            |(sequence, token): &mut (&mut ActiveSequence, Option<SampledToken>)| sequence.push(*token, tokenizer);
        if drawn.iter().filter(|(sequence, _)| sequence.is_constrained()).count() > 1 {
            drawn.par_iter_mut().for_each(push);
        } else {
            drawn.iter_mut().for_each(push);
        }
        drawn.into_iter().for_each(|(sequence, _)| sequence.stream());
        Ok(())
    }

    /// Ends everything: the device failed.
    fn fail(&mut self, error: &EngineError) {
        for mut sequence in self.running.drain(..).chain(self.preempted.drain(..)) {
            sequence.fail(error.clone());
            sequence.finish();
        }
        self.queue.close_because(error);
    }

    /// Publishes the gauges.
    fn publish(&self) {
        let set = |gauge: &AtomicUsize, value| gauge.store(value, Ordering::Release);
        let all = self.gauges.cache_tokens.load(Ordering::Acquire);
        set(&self.gauges.read_tokens, all - self.blocks.available() * BLOCK);
        set(&self.gauges.cached_tokens, self.blocks.filled() * BLOCK);
        // Last: a reader that sees no running sequence also sees no tokens being read.
        set(&self.gauges.running, self.running.len());
    }
}

impl Drop for Scheduler {
    /// Closes the queue however the thread ends, so that no caller waits forever.
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The key of the next block of a sequence, if the sequence is at the start of a block and goes beyond it.
fn next_block(sequence: &ActiveSequence) -> Option<(u32, Tokens)> {
    if !sequence.read.is_multiple_of(BLOCK) || sequence.unread().len() <= BLOCK {
        return None;
    }
    let parent =
        (sequence.read / BLOCK).checked_sub(1).map_or(Some(ROOT), |last| sequence.blocks.get(last).copied())?;
    Some((parent, *sequence.unread().first_chunk()?))
}

/// Puts the blocks of a sequence that became full into the prefix cache.
fn cache_full_blocks(blocks: &mut PrefixCache, sequence: &mut ActiveSequence, first: usize) {
    for at in first..sequence.read / BLOCK {
        let parent = at.checked_sub(1).map_or(ROOT, |last| sequence.blocks[last]);
        let Some(tokens) = sequence.tokens()[at * BLOCK..].first_chunk().copied() else { return };
        sequence.blocks[at] = blocks.keep(sequence.blocks[at], parent, &tokens);
    }
}

/// Releases all blocks of a sequence, the last one first, so that eviction shortens a prefix from its end.
fn release(blocks: &mut PrefixCache, sequence: &mut ActiveSequence) {
    while let Some(block) = sequence.blocks.pop() {
        blocks.leave(block);
    }
    sequence.read = 0;
}

fn add_rows(batch: &mut Batch, sequence: &ActiveSequence, count: usize) {
    let start = batch.blocks.len() as u32; // Blocks are numbered in u32.
    batch.blocks.extend_from_slice(&sequence.blocks);
    for (at, token) in sequence.unread().iter().take(count).enumerate() {
        batch.rows.push(Row { token: *token, position: (sequence.read + at) as u32, blocks: start });
    }
    if sequence.unread().len() == count {
        let mask = sequence.mask().map(|mask| {
            batch.masks.push(mask.clone());
            batch.masks.len() as u32 - 1 // A mask was just added.
        });
        batch.samples.push((batch.rows.len() as u32 - 1, sequence.sampling(mask))); // A row was just added.
    }
}
