//! The thread that has the model: it decides what each step computes.

use super::blocks::{Blocks, ROOT, Tokens};
use super::crew::{Crew, Member, Work, lock};
use super::network::{Batch, Network, Row};
use super::queue::{Next, Queue};
use super::room::{Cache, Room};
use super::text::Text;
use super::{EngineSettings, Gauges};
use crate::Tokenizer;
use crate::ops::paged::BLOCK;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The model and what a step needs; the threads of a crew work in it.
pub(super) struct Machine {
    pub(super) network: Network,
    cache: Cache,
    /// One for each batch of a step.
    rooms: Vec<Room>,
    /// What a step computes: one batch is computed by all threads together; of several, each by one thread. As many as there
    /// are rooms, and some may be empty. Written between steps, read in them.
    batches: RwLock<Vec<Batch>>,
    /// The next batch to be taken.
    next: AtomicUsize,
}

impl Machine {
    /// A model with room for steps of so many rows and draws and a cache of so many blocks, for a crew of this size; `None`
    /// if there is no memory for it.
    pub(super) fn new(network: Network, rows: usize, draws: usize, blocks: usize, threads: usize) -> Option<Machine> {
        let count = if network.is_small() { threads.max(1) } else { 1 };
        Some(Machine {
            cache: Cache::new(&network, blocks)?,
            rooms: (0..count).map(|_| Room::new(&network, rows, draws)).collect::<Option<_>>()?,
            batches: RwLock::new((0..count).map(|_| Batch::default()).collect()),
            next: AtomicUsize::new(0),
            network,
        })
    }

    /// The logits of a batch that is computed alone, for tests.
    #[cfg(test)]
    pub(super) fn logits_of(&mut self, batch: Batch) -> Vec<Vec<f32>> {
        let (count, vocabulary) = (batch.draws.len(), self.network.config.vocabulary);
        *self.batches.get_mut().unwrap() = vec![batch];
        let me = Member::alone();
        self.share(&me);
        assert_eq!(me.walked(), self.network.parts(), "a step has the parts it says");
        (0..count).map(|draw| self.rooms[0].logits_of(draw, vocabulary)).collect()
    }
}

impl Work for Machine {
    fn share(&self, me: &Member<'_>) {
        let batches = self.batches.read().unwrap_or_else(PoisonError::into_inner);
        let busy = batches.iter().filter(|batch| !batch.rows.is_empty()).count();
        // One is the first.
        if let (1, Some(batch), Some(room)) = (busy, batches.first(), self.rooms.first()) {
            return self.network.step(me, batch, room, &self.cache);
        }
        loop {
            let at = self.next.fetch_add(1, Ordering::AcqRel);
            let (Some(batch), Some(room)) = (batches.get(at), self.rooms.get(at)) else { return };
            if !batch.rows.is_empty() {
                self.network.step(&Member::alone(), batch, room, &self.cache);
            }
        }
    }
}

/// Rows that a batch of its own is worth, at least.
const LEAST_ROWS: usize = 4;

/// Texts that are being written, and what is left of the cache.
pub(super) struct Desk {
    machine: Arc<Machine>,
    work: Arc<dyn Work>,
    tokenizer: Tokenizer,
    queue: Arc<Queue>,
    gauges: Arc<Gauges>,
    settings: EngineSettings,
    blocks: Blocks,
    /// In the order in which they came.
    running: Vec<Text>,
    /// Texts that had to make room, first of all to go on.
    paused: VecDeque<Text>,
    /// Blocks that are being computed in this step.
    claimed: HashSet<(u32, Tokens)>,
    /// For each running text, the tokens it reads in this step, and the batch it is in.
    planned: Vec<(usize, usize)>,
}

impl Desk {
    pub(super) fn new(
        machine: Arc<Machine>,
        tokenizer: Tokenizer,
        queue: Arc<Queue>,
        gauges: Arc<Gauges>,
        settings: EngineSettings,
        blocks: usize,
    ) -> Desk {
        Desk {
            work: machine.clone(),
            machine,
            tokenizer,
            queue,
            gauges,
            settings,
            blocks: Blocks::new(blocks),
            running: Vec::new(),
            paused: VecDeque::new(),
            claimed: HashSet::new(),
            planned: Vec::new(),
        }
    }

    /// Works until the queue is closed.
    pub(super) fn run(mut self) {
        loop {
            self.let_go();
            if self.queue.is_closed() || !self.admit() {
                return;
            }
            if self.plan() {
                self.step();
            }
            self.show();
        }
    }

    /// Ends texts that are complete or that nobody waits for.
    fn let_go(&mut self) {
        self.paused.retain(|text| !text.is_over());
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].is_over() {
                let mut text = self.running.remove(at);
                release(&mut self.blocks, &mut text);
                text.end();
            } else {
                at += 1;
            }
        }
    }

    /// Lets texts in while there are places, waiting for one where there is nothing else to do. False: no more will come.
    fn admit(&mut self) -> bool {
        while self.running.len() < self.settings.width {
            // Every text that is being written may need a block soon; one that comes needs some for all it has to read.
            let text = match self.paused.pop_front() {
                Some(text) => text,
                None => {
                    if self.running.is_empty() {
                        self.show();
                    }
                    match self.queue.pop(self.running.is_empty()) {
                        Next::Job(job) => Text::new(*job),
                        Next::Empty => return true,
                        Next::Closed => return false,
                    }
                }
            };
            let needed = text.tokens().len() / BLOCK + 1 + self.running.len();
            if !self.running.is_empty() && needed > self.blocks.available() {
                self.paused.push_front(text);
                return true;
            }
            self.running.push(text);
        }
        true
    }

    /// Says what the next step computes: one row of each text that is being written, and rows of prompts up to a chunk.
    /// False: nothing.
    fn plan(&mut self) -> bool {
        self.claimed.clear();
        self.planned.clear();
        let mut left = self.settings.chunk;
        // Texts that make room for others are taken from the end, so that none is planned already.
        while let at = self.planned.len()
            && at < self.running.len()
        {
            self.find(at);
            let count = self.rows_of(at, left);
            let count = if count > 0 && !self.make_room(at, count) { 0 } else { count };
            let Some(text) = self.running.get(at) else { break };
            if text.unread().len() > 1 {
                left -= count;
            }
            self.planned.push((count, 0));
        }
        self.fill_batches()
    }

    /// Puts planned rows into as many batches as are worth it, whole texts each. False: there is none.
    fn fill_batches(&mut self) -> bool {
        let rows: usize = self.planned.iter().map(|(count, _)| count).sum();
        let machine = Arc::clone(&self.machine);
        let mut batches = machine.batches.write().unwrap_or_else(PoisonError::into_inner);
        for batch in batches.iter_mut() {
            batch.clear();
        }
        let shared = machine.network.is_worth_sharing(rows);
        let used = if shared { batches.len().min(rows / LEAST_ROWS).max(1) } else { 1 };
        let (mut number, mut done) = (0, 0);
        for (text, (count, batch)) in self.running.iter().zip(&mut self.planned) {
            // The next batch begins where its share of all rows does.
            number = (done * used).checked_div(rows).unwrap_or(0).max(number);
            *batch = number;
            done += *count;
            if let (1.., Some(batch)) = (*count, batches.get_mut(number)) {
                add_rows(batch, text, *count);
            }
        }
        rows > 0
    }

    /// Takes over what others have computed of this text's beginning. The last token is always read, since the next one
    /// is drawn from what is computed there.
    fn find(&mut self, at: usize) {
        let text = &mut self.running[at];
        while let Some((parent, tokens)) = next_block(text).filter(|_| self.settings.share) {
            let Some(block) = self.blocks.find(parent, &tokens) else { return };
            text.blocks.push(block);
            text.advance(BLOCK, true);
        }
    }

    /// How many tokens of a text are read in this step, if so many rows of prompts are left.
    fn rows_of(&mut self, at: usize, left: usize) -> usize {
        let text = &self.running[at];
        let unread = text.unread().len();
        if unread == 1 {
            return 1;
        }
        // Another text computes the same in this step: in the next one it is found.
        if let Some(key) = next_block(text).filter(|_| self.settings.share)
            && left > 0
            && !self.claimed.insert(key)
        {
            return 0;
        }
        if unread <= left {
            return unread;
        }
        // Up to the end of a block, where something may be found again.
        let end = (text.read + left) / BLOCK * BLOCK;
        end.saturating_sub(text.read)
    }

    /// Gives a text the blocks for so many more tokens; texts that came later may have to pause for it. False: it had to
    /// pause itself.
    fn make_room(&mut self, at: usize, count: usize) -> bool {
        loop {
            let text = &mut self.running[at];
            if text.blocks.len() * BLOCK >= text.read + count {
                return true;
            }
            if let Some(block) = self.blocks.take() {
                text.blocks.push(block);
                continue;
            }
            // There is one: `at`. The first text never has to pause, because the cache has room for the longest.
            let Some(mut last) = self.running.pop() else { return false };
            release(&mut self.blocks, &mut last);
            self.paused.push_front(last);
            if at == self.running.len() {
                return false;
            }
        }
    }

    /// Computes what was planned and gives each text its token.
    fn step(&mut self) {
        let machine = Arc::clone(&self.machine);
        machine.next.store(0, Ordering::Release);
        let rows = self.planned.iter().map(|(count, _)| count).sum();
        if machine.network.is_worth_sharing(rows) {
            self.settings.crew.run(&self.work);
        } else {
            Crew::alone(&*self.work);
        }
        let mut drawn: Vec<_> = machine.rooms.iter().map(|room| (0, lock(&room.drawn))).collect();
        for (text, (count, batch)) in self.running.iter_mut().zip(&self.planned) {
            if *count == 0 {
                continue;
            }
            let complete = text.unread().len() == *count;
            let first = text.read / BLOCK;
            text.advance(*count, false);
            if self.settings.share {
                keep(&mut self.blocks, text, first);
            }
            if let (true, Some((next, drawn))) = (complete, drawn.get_mut(*batch)) {
                text.push(drawn.get(*next).copied().flatten(), &self.tokenizer);
                *next += 1;
            }
        }
    }

    fn show(&self) {
        let set = |gauge: &AtomicUsize, value| gauge.store(value, Ordering::Release);
        let all = self.gauges.cache_tokens.load(Ordering::Acquire);
        set(&self.gauges.read_tokens, all - self.blocks.available() * BLOCK);
        set(&self.gauges.cached_tokens, self.blocks.filled() * BLOCK);
        // Last: who sees nothing running sees nothing read.
        set(&self.gauges.running, self.running.len());
    }
}

impl Drop for Desk {
    /// However the thread ends, nobody waits for it.
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// What the next block of a text will hold, where it is at the start of one and will be beyond it.
fn next_block(text: &Text) -> Option<(u32, Tokens)> {
    if !text.read.is_multiple_of(BLOCK) || text.unread().len() <= BLOCK {
        return None;
    }
    let parent = (text.read / BLOCK).checked_sub(1).map_or(Some(ROOT), |last| text.blocks.get(last).copied())?;
    Some((parent, *text.unread().first_chunk()?))
}

/// Puts the blocks of a text that became full into the tree.
fn keep(blocks: &mut Blocks, text: &mut Text, first: usize) {
    for at in first..text.read / BLOCK {
        let parent = at.checked_sub(1).map_or(ROOT, |last| text.blocks[last]);
        let Some(tokens) = text.tokens()[at * BLOCK..].first_chunk().copied() else { return };
        text.blocks[at] = blocks.keep(text.blocks[at], parent, &tokens);
    }
}

/// A text reads nothing of the cache any more. The last block first, so that of a beginning the end goes first.
fn release(blocks: &mut Blocks, text: &mut Text) {
    while let Some(block) = text.blocks.pop() {
        blocks.leave(block);
    }
    text.read = 0;
}

fn add_rows(batch: &mut Batch, text: &Text, count: usize) {
    let start = batch.blocks.len() as u32; // Blocks are numbered in u32.
    batch.blocks.extend_from_slice(&text.blocks);
    for (at, token) in text.unread().iter().take(count).enumerate() {
        batch.rows.push(Row { token: *token, position: (text.read + at) as u32, blocks: start });
    }
    if text.unread().len() == count {
        batch.draws.push((batch.rows.len() as u32 - 1, text.choice())); // A row was just added.
    }
}
