//! Learned edges of a fixed roster: GPTSwarm, AgentPrune, AgentDropout, as in their public code.
//!
//! Every ordered pair of agents has a free logit `θ`, at first 0. A graph is drawn row by row, each edge with probability
//! `σ(θ)`; one that would close a circle is left out without a draw. With two rounds, agents of the second also read agents
//! of the first by temporal logits of their own. One more agent reads all and decides. Ten batches of four tasks; Adam at a
//! rate of 0.1 climbs `u · log p(graph)` with `u` the right answers, without a baseline.
//!
//! | method | what is special |
//! |---|---|
//! | GPTSwarm | nothing is pruned; at test the mask `σ(θ) > ½` is used |
//! | AgentPrune | after batches 5 and 10 the lowest quarter of what is left is masked; the rest is drawn anew for each test task |
//! | AgentDropout | two rounds, and logits of their own for each of two stages. In two batches of 20 every edge is there that goes on in the roster's order, and one agent of each round is silenced; then the agent of the smallest mean logit is removed from each round. Then four batches of ten as above, with two penalties on the new logits: their nuclear norm, and what their distance from the mask has over 0.1; after batches 2 and 4 the lowest tenth is masked. Who decides reads the second round |
//!
//! Departures: roles are those of our rosters, taken in turn; GPTSwarm's nodes are whole agents and the one more agent decides
//! instead of a vote. A silenced agent of AgentDropout is left out; in the public code its readers read "None.". The variant `+long` makes
//! ten passes over the tasks and takes the mean reward of a task off its rewards.

mod policy;
mod train;

pub use policy::{EdgeDesigner, EdgePolicy};
pub use train::{EdgeMethod, learn};

#[cfg(test)]
mod tests;
