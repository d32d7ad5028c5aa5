//! Which block of the key/value cache holds what. A block holds sixteen positions of a sequence; sequences with the same
//! prefix share blocks. Full blocks form a tree keyed by their tokens. Blocks without readers stay in the tree until their
//! memory is needed; the least recently used goes first.

use crate::kernels::paged_attention::BLOCK;
use std::collections::{BTreeSet, HashMap};

/// The parent of blocks that begin a sequence.
pub(crate) const ROOT: u32 = u32::MAX;

/// The tokens of a full block.
pub(crate) type Tokens = [u32; BLOCK];

/// The blocks of a cache, by number.
pub(crate) struct PrefixCache {
    blocks: Vec<Block>,
    /// Which block holds these tokens after that parent. Keys are compared in full: a hash collision cannot share wrongly.
    tree: HashMap<(u32, Tokens), u32>,
    /// Empty blocks.
    free: Vec<u32>,
    /// Leaves of the tree without readers, by last use. Only leaves may be evicted: the number of a block is part of its
    /// children's keys.
    idle: BTreeSet<(u64, u32)>,
    /// Blocks without readers, in the tree or not.
    available: usize,
    clock: u64,
}

#[derive(Clone, Default)]
struct Block {
    readers: usize,
    /// Its key in the tree.
    key: Option<(u32, Tokens)>,
    children: usize,
    used: u64,
}

impl PrefixCache {
    pub(crate) fn new(count: usize) -> PrefixCache {
        PrefixCache {
            blocks: vec![Block::default(); count],
            tree: HashMap::new(),
            free: (0..count as u32).rev().collect(), // A cache of more than u32::MAX blocks fits no memory.
            idle: BTreeSet::new(),
            available: count,
            clock: 0,
        }
    }

    /// Blocks that [`Self::take`] could return now.
    pub(crate) fn available(&self) -> usize {
        self.available
    }

    /// Blocks that hold something.
    pub(crate) fn filled(&self) -> usize {
        self.blocks.len() - self.free.len()
    }

    /// An empty block with the caller as its reader; `None` if all blocks have readers.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let block = self.free.pop().or_else(|| self.evict())?;
        self.block(block).readers = 1;
        self.available -= 1;
        Some(block)
    }

    /// The block that holds these tokens after that parent; the caller becomes a reader.
    pub(crate) fn find(&mut self, parent: u32, tokens: &Tokens) -> Option<u32> {
        let block = *self.tree.get(&(parent, *tokens))?;
        self.block(block).readers += 1;
        if self.block(block).readers == 1 {
            self.available -= 1;
            let used = self.block(block).used;
            self.idle.remove(&(used, block));
        }
        Some(block)
    }

    /// Puts a full block into the tree. If another block holds the same tokens, that one is returned instead: both hold the
    /// same bits.
    pub(crate) fn keep(&mut self, block: u32, parent: u32, tokens: &Tokens) -> u32 {
        if let Some(same) = self.find(parent, tokens) {
            self.leave(block);
            return same;
        }
        self.tree.insert((parent, *tokens), block);
        self.block(block).key = Some((parent, *tokens));
        if parent != ROOT {
            self.block(parent).children += 1;
        }
        block
    }

    /// Removes the caller from the readers of a block.
    pub(crate) fn leave(&mut self, block: u32) {
        self.clock += 1;
        let clock = self.clock;
        let left = self.block(block);
        left.readers -= 1;
        if left.readers > 0 {
            return;
        }
        left.used = clock;
        let (in_tree, leaf) = (left.key.is_some(), left.children == 0);
        self.available += 1;
        match (in_tree, leaf) {
            (false, _) => self.free.push(block),
            (true, true) => {
                self.idle.insert((clock, block));
            }
            (true, false) => {}
        }
    }

    fn evict(&mut self) -> Option<u32> {
        let (_, block) = self.idle.pop_first()?;
        let (parent, tokens) = self.block(block).key.take()?; // Idle blocks are in the tree.
        self.tree.remove(&(parent, tokens));
        if parent != ROOT {
            let above = self.block(parent);
            above.children -= 1;
            if above.children == 0 && above.readers == 0 {
                let used = above.used;
                self.idle.insert((used, parent));
            }
        }
        Some(block)
    }

    /// Never out of bounds: only this type hands out block numbers.
    fn block(&mut self, block: u32) -> &mut Block {
        &mut self.blocks[block as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a sequence of blocks, found or made as far as there is memory.
    fn read(blocks: &mut PrefixCache, text: &[u32], contents: &mut HashMap<u32, Vec<u32>>) -> Vec<u32> {
        let mut held: Vec<u32> = Vec::new();
        for at in 0..text.len() {
            let parent = held.last().copied().unwrap_or(ROOT);
            let tokens = [text[at]; BLOCK];
            if let Some(found) = blocks.find(parent, &tokens) {
                assert_eq!(contents[&found], text[..=at], "a block holds what it is said to");
                held.push(found);
                continue;
            }
            let Some(own) = blocks.take() else { break };
            contents.insert(own, text[..=at].to_vec());
            held.push(blocks.keep(own, parent, &tokens));
        }
        held
    }

    proptest! {
        #[test]
        fn blocks_hold_what_they_say_and_none_is_lost(
            count in 1usize..12,
            texts in prop::collection::vec((prop::collection::vec(0u32..3, 1..8), 0usize..4), 1..60),
        ) {
            let mut blocks = PrefixCache::new(count);
            let mut contents = HashMap::new();
            let mut reading: Vec<Vec<u32>> = Vec::new();
            for (text, leave) in texts {
                for _ in 0..leave.min(reading.len()) {
                    reading.remove(0).into_iter().for_each(|block| blocks.leave(block));
                }
                reading.push(read(&mut blocks, &text, &mut contents));
                let mut held: Vec<u32> = reading.concat();
                held.sort_unstable();
                held.dedup();
                prop_assert_eq!(blocks.available(), count - held.len());
                prop_assert!(blocks.filled() <= count);
            }
            // Without readers, all blocks can be taken again.
            reading.concat().into_iter().for_each(|block| blocks.leave(block));
            prop_assert_eq!(blocks.available(), count);
            let mut taken: Vec<u32> = std::iter::from_fn(|| blocks.take()).collect();
            taken.sort_unstable();
            prop_assert_eq!(taken, (0..count as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_longest_unused_leaf_goes_first() {
        let mut blocks = PrefixCache::new(3);
        let mut contents = HashMap::new();
        for text in [&[1u32, 2][..], &[3]] {
            read(&mut blocks, text, &mut contents).into_iter().for_each(|block| blocks.leave(block));
        }
        // Read again: now the second block of the first text is the longest unused, then 3.
        read(&mut blocks, &[1], &mut contents).into_iter().for_each(|block| blocks.leave(block));
        assert_eq!(blocks.filled(), 3);
        let _own = blocks.take().unwrap();
        assert!(blocks.tree.contains_key(&(ROOT, [1; BLOCK])) && blocks.tree.contains_key(&(ROOT, [3; BLOCK])));
        let _own = blocks.take().unwrap();
        assert!(blocks.tree.contains_key(&(ROOT, [1; BLOCK])) && blocks.tree.len() == 1);
    }
}
