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
//! | AgentDropout | two rounds. First two batches of 20 with all edges, in which one agent of each round is silenced; then the agent of the smallest mean logit is removed from each round. Then four batches of ten as above, with the nuclear norm of the edge probabilities as a penalty; after batches 2 and 4 the lowest tenth is masked |
//!
//! Departures: roles are those of our rosters, taken in turn; GPTSwarm's nodes are whole agents and the one more agent decides
//! instead of a vote. AgentDropout's penalty for the distance from the mask is left out, since a mask removes those edges
//! here. The variant `+long` makes ten passes over the tasks and takes the mean reward of a task off its rewards.

mod policy;
mod train;

pub use policy::{EdgeDesigner, EdgePolicy};
pub use train::{EdgeMethod, learn};

#[cfg(test)]
mod tests;
